/* fabric/doctor.c: the engine's part of `fabric doctor`, which loads this library to ask for it. */
#include "fabric/doctor.h"

#include "base/error.h"
#include "bridge/bridge.h"
#include <cfabric/ops.h>
#include <cfabric/tensor.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#if __has_include(<cfabric/dist.h>)
#include <cfabric/dist.h>
#endif

typedef struct library_search {
    const char *name;
    char *path;
    size_t size;
} library_search;

static int look_at(struct dl_phdr_info *info, size_t size, void *user)
{
    library_search *search = user;
    (void)size;
    if (info->dlpi_name == NULL || strstr(info->dlpi_name, search->name) == NULL) return 0;
    snprintf(search->path, search->size, "%s", info->dlpi_name);
    return 1;
}

/* Where the loader took a library from; "" when it is not loaded. */
static void loaded_from(const char *name, char *path, size_t size)
{
    library_search search = {name, path, size};
    *path = '\0';
    dl_iterate_phdr(look_at, &search);
}

/* "BLAS_INFO=mkl" and the like out of the engine's own description; up to a comma, a space or the end. */
static bool config_value(const char *config, const char *key, char *value, size_t size)
{
    const char *at = strstr(config, key);
    if (at == NULL) return false;
    at += strlen(key);
    snprintf(value, size, "%.*s", (int)strcspn(at, ", \n"), at);
    return true;
}

static void report_blas(FILE *out)
{
    static const struct {
        const char *library, *name;
    } known[] = {{"libmkl", "MKL"},   {"libtorch_cpu", NULL}, {"libopenblas", "OpenBLAS"},
                 {"libblis", "BLIS"}, {"atlas", "ATLAS"},     {"libblas.so", "reference BLAS (slow: install libopenblas0)"}};
    char path[1024], value[64] = "unknown", *config = th__engine_config();
    if (config != NULL) config_value(config, "BLAS_INFO=", value, sizeof value);
    const char *loaded = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known && loaded == NULL; i++) {
        loaded_from(known[i].library, path, sizeof path);
        if (known[i].name != NULL && *path != '\0') loaded = known[i].name;
    }
    fprintf(out, "BLAS             %s%s%s\n", value, loaded != NULL ? ", loaded: " : "", loaded != NULL ? loaded : "");
    const char *parallel = config == NULL                            ? "unknown"
                           : strstr(config, "OpenMP") != NULL        ? "OpenMP"
                           : strstr(config, "native thread") != NULL ? "native threads"
                                                                     : "unknown";
    fprintf(out, "threads          %d (%s)\n", th_get_num_threads(), parallel);
    free(config);
}

static void report_backends(FILE *out)
{
    fputs("backends        ", out);
#if __has_include(<cfabric/dist.h>)
    static const char *const names[] = {"gloo", "nccl", "mpi"};
    bool any = false;
    for (size_t i = 0; i < 3; i++)
        if (th_dist_is_backend_available(names[i])) any = fprintf(out, " %s", names[i]) > 0;
    if (!any) fputs(" none", out);
#else
    fputs(" unknown", out);
#endif
    fputc('\n', out);
}

int fabric_doctor_report(FILE *out)
{
    char path[1024];
    loaded_from("libtorch_cpu", path, sizeof path);
    fprintf(out, "libtorch         %s, loaded from %s\n", th_torch_version(), *path != '\0' ? path : "(linked in)");
    fprintf(out, "built with       libtorch %s in %s (%s)\n", CFABRIC_LIBTORCH_VERSION, CFABRIC_LIBTORCH_PREFIX,
            CFABRIC_LIBTORCH_SOURCE);
    report_blas(out);
    fprintf(out, "devices          cpu");
    int gpus = th__cuda_device_count();
    for (int i = 0; i < gpus; i++) fprintf(out, ", cuda:%d", i);
    fprintf(out, "%s\n", th__mps_is_available() ? ", mps" : "");
    report_backends(out);
    th_tensor *probe = th_has_op("aten::relu") ? th_zeros(TH_INTS(2, 2)) : NULL;
    fprintf(out, "first operator   %s\n", probe != NULL && th_error() == TH_OK ? "ran" : "failed");
    if (strcmp(th_torch_version(), CFABRIC_LIBTORCH_VERSION) != 0 && strstr(th_torch_version(), CFABRIC_LIBTORCH_VERSION) == NULL)
        fprintf(out, "warning          the library was built with another libtorch than the one that is loaded\n");
    return th_error() == TH_OK ? 0 : 1;
}
