/* ops/generate.c: main() of the generator that runs at build time: generate <folder> <shards> <public headers...>. */
#include "ops/generate.h"

#include <cfabric/error.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char *join(const char *folder, const char *file)
{
    size_t size = strlen(folder) + strlen(file) + 2;
    char *path = malloc(size);
    if (path != NULL) snprintf(path, size, "%s/%s", folder, file);
    return path;
}

static int write_all(const gen_set *set, const char *folder, size_t shards)
{
    char *subfolder = join(folder, "cfabric");
    char *header = join(folder, "cfabric/ops.h");
    char *report = join(folder, "ops_report.txt");
    int failed = subfolder == NULL || header == NULL || report == NULL;
    if (!failed) {
        mkdir(folder, 0777);
        mkdir(subfolder, 0777);
        failed = gen_write_header(set, header) != 0 || gen_write_report(set, report) != 0;
    }
    for (size_t i = 0; i < shards && !failed; i++) {
        char name[64];
        snprintf(name, sizeof name, "ops_%zu.c", i + 1);
        char *path = join(folder, name);
        failed = path == NULL || gen_write_bodies(set, path, i, shards) != 0;
        free(path);
    }
    free(subfolder);
    free(header);
    free(report);
    return failed ? -1 : 0;
}

int main(int argc, char **argv)
{
    /* The set lives until exit: the process is the arena. */
    static gen_set set;
    char *end;
    long shards = argc > 2 ? strtol(argv[2], &end, 10) : 0;
    if (argc < 4 || *end != '\0' || shards < 1 || shards > 256) {
        fprintf(stderr, "usage: %s <folder> <shards 1..256> <public headers...>\n", argv[0]);
        return 2;
    }
    for (int i = 3; i < argc; i++)
        if (gen_reserve(&set, argv[i]) != 0) return 1;
    if (gen_collect(&set) != 0 || write_all(&set, argv[1], (size_t)shards) != 0) return 1;
    printf("%zu operators of libtorch %s generated, %zu left out (reasons in ops_report.txt), %zu of other namespaces\n", set.n_ops,
           th_torch_version(), set.n_skips, set.foreign);
    return 0;
}
