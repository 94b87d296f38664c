/* data/idx_find.c: looking for a data file under the names and places it is known to have.
 *
 * The same four files of MNIST go by "train-images-idx3-ubyte" and "train-images.idx3-ubyte", with and without ".gz", and lie in
 * the folder given or where torchvision puts them. */
#include "data/idx_find.h"

#include "base/error.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const folders[] = {"", "raw/", "MNIST/raw/", "FashionMNIST/raw/"};
enum { FOLDERS = sizeof folders / sizeof *folders, NAMES = 4 };

/* The other spelling of a name: "-idx" and ".idx" swapped. [owned] A name without either is returned as it is. */
static char *other_spelling(const char *name)
{
    char *copy = th__strdup(name);
    if (copy == NULL) return NULL;
    char *mark = strstr(copy, "-idx");
    if (mark != NULL)
        *mark = '.';
    else if ((mark = strstr(copy, ".idx")) != NULL)
        *mark = '-';
    return copy;
}

static char *other_ending(const char *name)
{
    size_t length = strlen(name);
    if (length > 3 && strcmp(name + length - 3, ".gz") == 0) return th__strfmt("%.*s", (int)length - 3, name);
    return th__strfmt("%s.gz", name);
}

static char *first_existing(const char *folder, char *const *names)
{
    for (size_t i = 0; i < FOLDERS; i++) {
        for (size_t j = 0; j < NAMES; j++) {
            struct stat info;
            char *candidate = th__strfmt("%s%s%s", folder, folders[i], names[j]);
            if (candidate == NULL) return NULL;
            if (stat(candidate, &info) == 0 && S_ISREG(info.st_mode)) return candidate;
            free(candidate);
        }
    }
    return NULL;
}

static void fail_not_found(const char *path, const char *folder, char *const *names)
{
    struct stat info;
    const char *why =
        stat(path, &info) == 0 ? (S_ISDIR(info.st_mode) ? "it is a folder" : "it is no regular file") : "no such file";
    bool twin = strcmp(names[0], names[2]) != 0; /* the name has two spellings */
    th__fail(TH_ERR_NOT_FOUND, "th_dataset_idx", "'%s': %s; tried %s{%s,%s,%s,%s}{%s,%s%s%s%s%s}", path, why, folder, folders[0],
             folders[1], folders[2], folders[3], names[0], names[1], twin ? "," : "", twin ? names[2] : "", twin ? "," : "",
             twin ? names[3] : "");
}

char *th__idx_find(const char *path)
{
    if (path == NULL) {
        th__fail(TH_ERR_VALUE, "th_dataset_idx", "the path is NULL, expected a file in the MNIST (IDX) format");
        return NULL;
    }
    const char *slash = strrchr(path, '/');
    char *folder = th__strfmt("%.*s", slash != NULL ? (int)(slash - path + 1) : 0, path);
    char *names[NAMES] = {th__strdup(slash != NULL ? slash + 1 : path)};
    char *found = NULL;
    if (names[0] != NULL) names[1] = other_ending(names[0]);
    if (names[1] != NULL) names[2] = other_spelling(names[0]);
    if (names[2] != NULL) names[3] = other_spelling(names[1]);
    if (folder != NULL && names[3] != NULL) {
        found = first_existing(folder, names);
        if (found == NULL && th__pending() == TH_OK) fail_not_found(path, folder, names);
    }
    for (size_t i = 0; i < NAMES; i++) free(names[i]);
    free(folder);
    return found;
}
