/* base/fs.c: paths, folders and whole files. Atomic files are in atomic_file.c. */
#include "base/fs.h"

#include "base/error.h"
#include "base/memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---------------------------------------------------------------- paths */

char *th__path_join(const char *folder, const char *name)
{
    if (name[0] == '/' || folder[0] == '\0') return th__strdup(name);
    return th__strfmt("%s%s%s", folder, th__ends_with(folder, "/") ? "" : "/", name);
}

const char *th__path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

char *th__path_dir(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return th__strdup(".");
    while (slash > path && slash[-1] == '/') slash--;
    return slash == path ? th__strdup("/") : th__strfmt("%.*s", (int)(slash - path), path);
}

char *th__path_absolute(const char *path)
{
    if (path[0] == '/') return th__strdup(path);
    char *here = getcwd(NULL, 0);
    if (here == NULL) {
        th__fail(TH_ERR_IO, "path", "the working directory is not accessible: %s", strerror(errno));
        return NULL;
    }
    char *joined = th__path_join(here, path);
    free(here);
    return joined;
}

bool th__path_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool th__is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool th__is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* ---------------------------------------------------------------- folders */

th_status th__mkdirs(const char *path)
{
    char *copy = th__strdup(path);
    if (copy == NULL) return th__pending();
    for (char *p = copy + 1; *copy != '\0'; p++) {
        char c = *p;
        if (c != '/' && c != '\0') continue;
        *p = '\0';
        if (mkdir(copy, 0777) != 0 && !th__is_dir(copy)) { /* another process may have made it: that is fine */
            th__fail(TH_ERR_IO, "mkdir", "folder '%s' could not be made: %s", copy,
                     errno == EEXIST ? "a file of this name is in the way" : strerror(errno));
            break;
        }
        *p = c;
        if (c == '\0') break;
    }
    free(copy);
    return th__pending();
}

/* Removes what `name` in the folder `at` is. Returns 0 or an errno. */
static int remove_at(int at, const char *name)
{
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT) return 0;
    if (errno != EISDIR && errno != EPERM) return errno;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        int error = errno;
        if (fd >= 0) close(fd);
        return error;
    }
    int error = 0;
    for (struct dirent *entry; error == 0 && (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) error = remove_at(fd, entry->d_name);
    closedir(dir);
    if (error == 0 && unlinkat(at, name, AT_REMOVEDIR) != 0 && errno != ENOENT) error = errno;
    return error;
}

th_status th__remove_tree(const char *path)
{
    int error = remove_at(AT_FDCWD, path);
    return error == 0 ? TH_OK : th__fail(TH_ERR_IO, "remove", "'%s' could not be removed: %s", path, strerror(error));
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

th_status th__list_dir(const char *path, th__strings *names)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return th__fail(errno == ENOENT ? TH_ERR_NOT_FOUND : TH_ERR_IO, "list", "folder '%s' could not be read: %s", path,
                        strerror(errno));
    int failed = 0;
    for (struct dirent *entry; failed == 0 && (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) failed = th__strings_add(names, entry->d_name);
    closedir(dir);
    if (failed != 0) return th__pending();
    if (names->count > 1) qsort(names->items, names->count, sizeof *names->items, by_bytes);
    return TH_OK;
}

/* ---------------------------------------------------------------- whole files */

static char *read_failed(const char *path, int error)
{
    th__fail(error == ENOENT ? TH_ERR_NOT_FOUND : TH_ERR_IO, "read", "file '%s' could not be read: %s", path, strerror(error));
    return NULL;
}

char *th__read_file(const char *path, size_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return read_failed(path, errno);
    struct stat info;
    size_t capacity = fstat(fd, &info) == 0 && info.st_size > 0 ? (size_t)info.st_size + 1 : 4096, used = 0;
    char *text = th__malloc(capacity);
    while (text != NULL) { /* until the end is seen: files under /proc have no size */
        if (used + 1 >= capacity) {
            char *bigger = th__realloc(text, capacity *= 2, 1);
            if (bigger == NULL) break;
            text = bigger;
        }
        ssize_t got = read(fd, text + used, capacity - 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) read_failed(path, errno);
        if (got <= 0) break;
        used += (size_t)got;
    }
    close(fd);
    if (th__pending() != TH_OK) return free(text), NULL;
    text[used] = '\0';
    if (size != NULL) *size = used;
    return text;
}
