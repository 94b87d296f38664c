/* base/atomic_file.c: files that appear complete or not at all.
 *
 * A writer keeps an flock on its temporary as long as it lives; a temporary whose lock can be had was left behind by a writer
 * that is gone (killed, machine restarted) and is removed. */
#include "base/fs.h"

#include "base/error.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEMPORARY_SUFFIX ".cfabric-tmp"

static atomic_uint counter;

static th_status io_failed(const char *what, const char *path, int error)
{
    return th__fail(TH_ERR_IO, "write", "%s '%s' failed: %s", what, path, strerror(error));
}

/* ---------------------------------------------------------------- temporaries */

/* ".<base>.<pid>-<n>.cfabric-tmp" */
bool th__is_temporary_name(const char *name)
{
    size_t length = strlen(name), suffix = sizeof TEMPORARY_SUFFIX - 1;
    return name[0] == '.' && length > suffix + 4 && strcmp(name + length - suffix, TEMPORARY_SUFFIX) == 0;
}

static bool belongs_to(const char *name, const char *base)
{
    size_t length = strlen(base);
    if (strncmp(name + 1, base, length) != 0 || name[1 + length] != '.') return false;
    const char *rest = name + length + 2; /* "<pid>-<n>.cfabric-tmp": else it is of a target with a longer name */
    return strspn(rest, "0123456789-") == strlen(rest) - (sizeof TEMPORARY_SUFFIX - 1);
}

size_t th__remove_stale_temporaries(const char *folder, const char *base)
{
    th__strings names = {0};
    size_t removed = 0;
    if (th__pending() != TH_OK || !th__is_dir(folder) || access(folder, R_OK | W_OK) != 0) return 0;
    if (th__list_dir(folder, &names) != TH_OK) return th__strings_free(&names), 0;
    for (size_t i = 0; i < names.count; i++) {
        if (!th__is_temporary_name(names.items[i]) || (base != NULL && !belongs_to(names.items[i], base))) continue;
        char *path = th__path_join(folder, names.items[i]);
        int fd = path != NULL ? open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(path) == 0) removed++;
        if (fd >= 0) close(fd);
        free(path);
    }
    th__strings_free(&names);
    return removed;
}

/* ---------------------------------------------------------------- opening */

/* The file a chain of links ends at, which is the one to replace; the path itself when it is no link. */
static char *resolve(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISLNK(info.st_mode)) return th__strdup(path);
    char *target = realpath(path, NULL);
    if (target == NULL) io_failed("following the link", path, errno);
    return target;
}

static th_status open_temporary(th__atomic_file *file, const char *folder)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        free(file->temp);
        file->temp = th__strfmt("%s/.%s.%ld-%u" TEMPORARY_SUFFIX, folder, th__path_base(file->path), (long)getpid(),
                                atomic_fetch_add(&counter, 1));
        if (file->temp == NULL) return th__pending();
        file->fd = open(file->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd < 0 && errno == EEXIST) continue;
        if (file->fd < 0) return io_failed("creating a file beside", file->path, errno);
        struct stat info;
        int locked = flock(file->fd, LOCK_EX | LOCK_NB); /* a file system without locks: then nothing is ever taken for stale */
        if ((locked == 0 || errno != EWOULDBLOCK) && fstat(file->fd, &info) == 0 && info.st_nlink > 0) return TH_OK;
        close(file->fd); /* a cleaner came between creating and locking */
        file->fd = -1;
    }
    return io_failed("creating a file beside", file->path, EEXIST);
}

th_status th__atomic_open(th__atomic_file *file, const char *path)
{
    *file = TH__ATOMIC_NONE;
    TH__CHECK_PENDING();
    struct stat info;
    file->path = resolve(path);
    char *folder = file->path != NULL ? th__path_dir(file->path) : NULL;
    if (folder == NULL) goto failed;
    bool exists = stat(file->path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode)) {
        th__fail(TH_ERR_IO, "write", "'%s' is %s, expected the name of a file", path,
                 S_ISDIR(info.st_mode) ? "a folder" : "no file");
        goto failed;
    }
    if (th__mkdirs(folder) != TH_OK) goto failed;
    th__remove_stale_temporaries(folder, th__path_base(file->path));
    if (open_temporary(file, folder) != TH_OK) goto failed;
    if (exists && fchmod(file->fd, info.st_mode & 07777) != 0) { /* not the owner: the new file's mode will do */
    }
    free(folder);
    return TH_OK;
failed:
    free(folder);
    th__atomic_abort(file);
    return th__pending();
}

/* ---------------------------------------------------------------- writing */

/* Beyond the file-size limit the kernel sends SIGXFSZ, which would end the program instead of failing the write. */
static ssize_t write_quietly(int fd, const void *data, size_t size, int64_t offset)
{
    sigset_t xfsz, before;
    sigemptyset(&xfsz);
    sigaddset(&xfsz, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &xfsz, &before);
    ssize_t written = offset < 0 ? write(fd, data, size) : pwrite(fd, data, size, (off_t)offset);
    int error = errno;
    if (written < 0 && error == EFBIG && !sigismember(&before, SIGXFSZ))
        while (sigtimedwait(&xfsz, NULL, &(struct timespec){0}) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}

static th_status write_all(th__atomic_file *file, const char *data, size_t size, int64_t offset)
{
    TH__CHECK_PENDING();
    while (size > 0) {
        size_t part = size < (size_t)1 << 30 ? size : (size_t)1 << 30;
        ssize_t written = write_quietly(file->fd, data, part, offset);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return io_failed("writing", file->path, errno);
        data += written;
        size -= (size_t)written;
        if (offset >= 0) offset += written;
    }
    return TH_OK;
}

th_status th__atomic_write(th__atomic_file *file, const void *data, size_t size) { return write_all(file, data, size, -1); }

th_status th__atomic_pwrite(th__atomic_file *file, const void *data, size_t size, int64_t offset)
{
    return write_all(file, data, size, offset);
}

/* ---------------------------------------------------------------- ending */

th_status th__sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return io_failed("opening folder", path, errno);
    int error = fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS ? errno : 0;
    close(fd);
    return error == 0 ? TH_OK : io_failed("writing folder", path, error);
}

th_status th__atomic_commit(th__atomic_file *file)
{
    if (th__pending() != TH_OK || file->fd < 0) {
        th__atomic_abort(file);
        return th__pending();
    }
    if (fsync(file->fd) != 0) {
        io_failed("writing", file->path, errno);
    } else if (rename(file->temp, file->path) != 0) {
        io_failed("replacing", file->path, errno);
    } else {
        free(file->temp); /* has its real name now */
        file->temp = NULL;
        char *folder = th__path_dir(file->path);
        if (folder != NULL) th__sync_dir(folder);
        free(folder);
    }
    th__atomic_abort(file);
    return th__pending();
}

void th__atomic_abort(th__atomic_file *file)
{
    if (file == NULL) return;
    if (file->temp != NULL && file->fd >= 0) unlink(file->temp);
    if (file->fd >= 0) close(file->fd);
    free(file->temp);
    free(file->path);
    *file = TH__ATOMIC_NONE;
}

th_status th__write_file(const char *path, const void *data, size_t size)
{
    th__atomic_file file;
    TH__TRY(th__atomic_open(&file, path));
    th__atomic_write(&file, data, size);
    return th__atomic_commit(&file);
}
