/* checkpoint/torch_io.c: torch.save and torch.load of whole states, and the choice of the format by name or contents. */
#include "checkpoint/internal.h"

#include "base/fs.h"
#include "checkpoint/from_nodes.h"
#include "checkpoint/plan.h"
#include <cfabric/checkpoint.h>
#include <cfabric/scope.h>

#include <string.h>

bool th__is_safetensors_path(const char *path)
{
    size_t length = strlen(path), end = sizeof ".safetensors" - 1;
    return length > end && strcmp(path + length - end, ".safetensors") == 0;
}

th_status th__checkpoint_write(const char *path, th_value *state)
{
    TH__CHECK_PENDING();
    if (th__is_safetensors_path(path)) return th_safetensors_save(state, path, NULL);
    th__plan plan;
    TH__TRY(th__plan_make(&plan, state));
    th_status status = th__plan_write_file(&plan, path);
    th__plan_free(&plan);
    return status;
}

static th_value *read_source(const th__source *source)
{
    th__torch_file file;
    if (th__torch_file_open(&file, source, 0, source->size) != TH_OK) return NULL;
    th__loader *loader = th__loader_new(&file);
    th_value *value = loader == NULL ? NULL : th__loader_value(loader, file.root);
    if (value != NULL && th__torch_file_verify_rest(&file) != TH_OK) {
        th_value_free(value);
        value = NULL;
    }
    th__loader_free(loader);
    th__torch_file_close(&file);
    return value;
}

th_value *th__checkpoint_read(const char *path)
{
    TH__CHECK_PENDING_NULL();
    th__source source;
    if (th__is_dir(path)) {
        th__fail(
            TH_ERR_VALUE, "th_load",
            "'%s' is a folder: sharded checkpoints are loaded by sharded strategies, or made one file by 'fabric consolidate'",
            path);
        return NULL;
    }
    if (th__source_open(&source, path) != TH_OK) return NULL;
    TH_SCOPE();
    bool safetensors = th__is_safetensors_path(path) && th__looks_like_safetensors(&source);
    th_value *value = safetensors ? th_safetensors_load(path) : read_source(&source);
    th__source_close(&source);
    return value;
}

th_status th_save(th_value *value, const char *path)
{
    TH__CHECK_PENDING();
    if (value == NULL || path == NULL || path[0] == '\0')
        return TH__FAIL(TH_ERR_VALUE, "%s is missing", value == NULL ? "the value" : "the path");
    return th__checkpoint_write(path, value);
}

th_value *th_load(const char *path)
{
    TH__CHECK_PENDING_NULL();
    if (path != NULL && path[0] != '\0') return th__checkpoint_read(path);
    TH__FAIL(TH_ERR_VALUE, "the path is missing");
    return NULL;
}
