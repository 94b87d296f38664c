/* base/fs.h: paths, folders, whole files, and files that appear complete or not at all. */
#ifndef FABRIC_BASE_FS_H
#define FABRIC_BASE_FS_H

#include <cfabric/base.h>
#include <stdio.h>
#include "base/strings.h"

/* ---- paths: new memory, free() it; NULL with TH_ERR_MEMORY */
char *th__path_join(const char *folder, const char *name); /* an absolute `name` stands alone */
char *th__path_dir(const char *path);                      /* "a/b" -> "a", "b" -> ".", "/b" -> "/" */
char *th__path_absolute(const char *path);                 /* against the working directory; need not exist */
const char *th__path_base(const char *path);               /* "a/b" -> "b"; points into `path` */

bool th__path_exists(const char *path);
bool th__is_file(const char *path);
bool th__is_dir(const char *path);
/* mkdir -p. TH_ERR_IO names the folder that could not be made. */
th_status th__mkdirs(const char *path);
/* rm -rf without following links. Nothing there is no error. */
th_status th__remove_tree(const char *path);
/* Names in a folder without "." and "..", sorted by bytes. */
th_status th__list_dir(const char *path, th__strings *names);
/* The whole file with a '\0' behind it. NULL: TH_ERR_NOT_FOUND or TH_ERR_IO. free() it. */
char *th__read_file(const char *path, size_t *size);

/* ---- atomic files: written beside the target under a temporary name, synced, renamed over it, folder synced.
 * Whatever happens, the target is the old file or the whole new one. Links are followed, the mode of an old file is kept. */
typedef struct th__atomic_file {
    int fd;     /* for reading back or pwrite; -1 when not open */
    char *path; /* the target */
    char *temp; /* the name it has until the commit */
} th__atomic_file;
#define TH__ATOMIC_NONE ((th__atomic_file){.fd = -1})

/* Makes missing folders, opens the temporary, removes abandoned ones of the same target. On failure nothing is left open. */
th_status th__atomic_open(th__atomic_file *file, const char *path);
/* Writes all of it. A full disk or a file-size limit is TH_ERR_IO (SIGXFSZ is held back); the file is still to be aborted. */
th_status th__atomic_write(th__atomic_file *file, const void *data, size_t size);
th_status th__atomic_pwrite(th__atomic_file *file, const void *data, size_t size, int64_t offset);
/* Syncs, renames and closes. On failure the temporary is removed. With a pending error it aborts. */
th_status th__atomic_commit(th__atomic_file *file);
/* Closes and removes the temporary. NULL-safe, idempotent. */
void th__atomic_abort(th__atomic_file *file);
th_status th__write_file(const char *path, const void *data, size_t size);

/* True for the names th__atomic_open gives its temporaries. */
bool th__is_temporary_name(const char *name);
/* Removes temporaries in `folder` whose writer is gone (of one target, or of all when `base` is NULL). Returns how many. */
size_t th__remove_stale_temporaries(const char *folder, const char *base);
/* Writes a folder's entries to the disk; file systems that cannot are no error. */
th_status th__sync_dir(const char *path);

#endif
