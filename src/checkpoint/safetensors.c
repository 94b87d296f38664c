/* checkpoint/safetensors.c: safetensors files as tensors: lazily from a mapping, all at once, and written. */
#include "base/fs.h"
#include "base/memory.h"
#include "base/object.h"
#include "checkpoint/format/safetensors_header.h"
#include "checkpoint/from_nodes.h"
#include <cfabric/autograd.h>
#include <cfabric/checkpoint.h>
#include <cfabric/scope.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---------------------------------------------------------------- reading */

/* The mapping ends with the file and the last tensor that looks into it. */
typedef struct mapping {
    atomic_int refs;
    void *start;
    size_t size;
} mapping;

struct th_safetensors {
    th__object object;
    th__source source;
    th__st_header header;
    mapping *map; /* NULL until a tensor is read */
};

static void release_mapping(void *data, void *user)
{
    mapping *map = user;
    (void)data;
    if (map == NULL || atomic_fetch_sub(&map->refs, 1) != 1) return;
    munmap(map->start, map->size);
    free(map);
}

static void destroy(void *object)
{
    th_safetensors *file = object;
    release_mapping(NULL, file->map);
    th__st_free_header(&file->header);
    th__source_close(&file->source);
    free(file);
}

static const th__class safetensors_class = {"safetensors", destroy};
#define CHECK(file) th__object_check((file), &safetensors_class, __func__, "file")

th_safetensors *th_safetensors_open(const char *path)
{
    TH__CHECK_PENDING_NULL();
    if (path == NULL || path[0] == '\0') {
        th__fail(TH_ERR_VALUE, "th_safetensors_open", "the path is missing");
        return NULL;
    }
    th_safetensors *file = th__object_new(&safetensors_class, sizeof *file);
    if (file == NULL) return NULL;
    file->source.fd = -1;
    if (th__source_open(&file->source, path) == TH_OK && th__st_read_header(&file->header, &file->source) == TH_OK) return file;
    th__release(file);
    return NULL;
}

void th_safetensors_close(th_safetensors *file) { th__release(file); }

size_t th_safetensors_size(th_safetensors *file) { return file != NULL && CHECK(file) ? file->header.count : 0; }

const char *th_safetensors_name(th_safetensors *file, size_t i)
{
    return file != NULL && CHECK(file) && i < file->header.count ? file->header.tensors[i].name : NULL;
}

/* The entry of a name whose dtype is known here; raises otherwise. */
static const th__st_tensor *entry_of(th_safetensors *file, const char *name)
{
    TH__CHECK_PENDING_NULL();
    if (!CHECK(file)) return NULL;
    const th__st_tensor *t = name == NULL ? NULL : th__st_find(&file->header, name);
    if (t == NULL) {
        th__fail(TH_ERR_KEY, "safetensors", "'%s' has no tensor '%s'", file->source.path, name != NULL ? name : "(NULL)");
    } else if (t->dtype == NULL) {
        th__fail(TH_ERR_DATA, "safetensors", "'%s': tensor '%.80s' has dtype '%.40s', which is not supported", file->source.path,
                 name, t->dtype_name);
        t = NULL;
    }
    return t;
}

th_status th_safetensors_info(th_safetensors *file, const char *name, th_dtype *dtype, th_ints *sizes)
{
    const th__st_tensor *t = entry_of(file, name);
    if (t == NULL) return th__pending();
    if (dtype != NULL) *dtype = t->dtype->dtype;
    if (sizes != NULL) *sizes = (th_ints){t->shape, t->dim};
    return TH_OK;
}

static mapping *map_file(th_safetensors *file)
{
    if (file->map != NULL) return file->map;
    mapping *map = th__calloc(1, sizeof *map);
    if (map == NULL) return NULL;
    map->size = (size_t)file->source.size;
    map->start = mmap(NULL, map->size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file->source.fd, 0);
    if (map->start == MAP_FAILED) {
        th__fail(TH_ERR_IO, "safetensors", "cannot map '%s': %s", file->source.path, strerror(errno));
        free(map);
        return NULL;
    }
    atomic_store(&map->refs, 1);
    return file->map = map;
}

/* A tensor of its own memory. */
static th_tensor *read_copy(th_safetensors *file, const th__st_tensor *t)
{
    void *data;
    TH_SCOPE();
    th_tensor *flat = th__storage_tensor((t->end - t->begin) / t->dtype->size, t->dtype, &data);
    if (flat == NULL) return NULL;
    th_tensor *shaped = NULL;
    if (th__source_read(&file->source, file->header.data_start + t->begin, data, (size_t)(t->end - t->begin)) == TH_OK)
        shaped = th_call("aten::view", TH_A(flat), TH_A_INTS(((th_ints){t->shape, t->dim})));
    if (shaped != NULL) shaped = th_escape(th_data(shaped));
    th_free(flat);
    return shaped;
}

th_tensor *th_safetensors_get(th_safetensors *file, const char *name)
{
    const th__st_tensor *t = entry_of(file, name);
    if (t == NULL) return NULL;
    uint64_t at = file->header.data_start + t->begin;
    if (t->begin == t->end || at % t->dtype->size != 0) return read_copy(file, t); /* nothing to map, or misaligned */
    mapping *map = map_file(file);
    if (map == NULL) return NULL;
    atomic_fetch_add(&map->refs, 1);
    th_tensor *tensor = th_from_blob((char *)map->start + at, .sizes = {t->shape, t->dim}, .dtype = t->dtype->dtype,
                                     .deleter = release_mapping, .user = map);
    if (tensor == NULL) release_mapping(NULL, map);
    return tensor;
}

th_value *th_safetensors_metadata(th_safetensors *file)
{
    TH__CHECK_PENDING_NULL();
    th_value *dict = CHECK(file) ? th_value_dict() : NULL;
    const cJSON *item;
    if (dict == NULL) return NULL;
    cJSON_ArrayForEach(item, file->header.metadata) if (dict != NULL)
        th_value_set(dict, item->string, th_value_string(item->valuestring));
    return dict;
}

th_value *th_safetensors_load(const char *path)
{
    TH__CHECK_PENDING_NULL();
    TH_SCOPE();
    th_safetensors *file = th_safetensors_open(path);
    th_value *dict = file == NULL ? NULL : th_value_dict();
    for (size_t i = 0; dict != NULL && i < file->header.count; i++) {
        const th__st_tensor *t = entry_of(file, file->header.tensors[i].name);
        th_tensor *tensor = t == NULL ? NULL : read_copy(file, t);
        if (tensor != NULL && th_value_set(dict, t->name, th_value_tensor(tensor)) == TH_OK) continue;
        th_value_free(dict);
        dict = NULL;
    }
    th_safetensors_close(file);
    return dict;
}

/* ---------------------------------------------------------------- writing */

typedef struct writing {
    th__st_tensor *entries;
    th_tensor **tensors; /* contiguous, on the CPU, owned */
    th_value *dict;
    size_t count;
    cJSON *metadata;
    th__buffer header;
} writing;

static th_status add_entry(writing *w, const char *name, th_tensor *tensor)
{
    TH_SCOPE();
    if (name == NULL || tensor == NULL)
        return th__fail(TH_ERR_TYPE, "safetensors",
                        "entry '%s' is no tensor under a text key; safetensors files hold tensors only",
                        name != NULL ? name : "(a number)");
    if (strcmp(name, "__metadata__") == 0)
        return th__fail(TH_ERR_VALUE, "safetensors", "a tensor cannot be called '__metadata__'");
    const th__dtype_info *dtype = th__dtype_info_of(th_dtype_of(tensor));
    if (dtype == NULL || dtype->safetensors == NULL)
        return th__fail(TH_ERR_TYPE, "safetensors", "tensor '%s' has dtype %s, which the format does not know", name,
                        th_dtype_name(th_dtype_of(tensor)));
    th_tensor *plain = tensor;
    if (th_dtype_is_complex(dtype->dtype)) plain = th_call("aten::resolve_conj", TH_A(plain));
    if (plain != NULL && dtype->dtype != TH_BOOL) plain = th_call("aten::resolve_neg", TH_A(plain));
    if (plain != NULL && th_device_of(plain).type != TH_DEVICE_CPU) plain = th_call("aten::cpu", TH_A(plain));
    if (plain != NULL) plain = th_call("aten::contiguous", TH_A(plain));
    th_tensor *mine = plain == NULL ? NULL : th_retain(plain);
    if (mine == NULL) return th__pending();
    th__st_tensor *e = &w->entries[w->count];
    w->tensors[w->count++] = mine;
    th_ints sizes = th_sizes(mine);
    e->name = name;
    e->dtype = dtype;
    e->dim = sizes.size;
    e->shape = th__calloc(sizes.size + 1, sizeof *e->shape);
    if (e->shape == NULL) return th__pending();
    memcpy(e->shape, sizes.data, sizes.size * sizeof *e->shape);
    return th__pending();
}

static th_status copy_metadata(writing *w, th_value *metadata)
{
    if (metadata == NULL) return TH_OK;
    if (th_value_kind_of(metadata) != TH_VALUE_DICT) return th__fail(TH_ERR_TYPE, "safetensors", "the metadata is no dict");
    w->metadata = cJSON_CreateObject();
    for (size_t i = 0; i < th_value_size(metadata); i++) {
        const char *key = th_value_key_at(metadata, i, NULL), *text = th_value_as_string(th_value_at(metadata, i), NULL);
        if (key == NULL || text == NULL)
            return th__fail(TH_ERR_TYPE, "safetensors", "metadata entry '%s' is no text", key != NULL ? key : "(a number)");
        if (cJSON_AddStringToObject(w->metadata, key, text) == NULL)
            return th__fail(TH_ERR_MEMORY, "safetensors", "no memory for the metadata");
    }
    return TH_OK;
}

static th_status write_file(writing *w, const char *path)
{
    th__atomic_file file;
    TH__TRY(th__atomic_open(&file, path));
    th__sink sink;
    th__sink_init(&sink, &file);
    th_status status = th__sink_write(&sink, w->header.data, w->header.size);
    for (size_t i = 0; i < w->count && status == TH_OK; i++) {
        th_tensor *tensor = th_value_as_tensor(th_value_get(w->dict, w->entries[i].name));
        if (w->entries[i].end > w->entries[i].begin)
            status = th__sink_write(&sink, th_data_ptr(tensor), (size_t)(w->entries[i].end - w->entries[i].begin));
    }
    if (status == TH_OK) status = th__sink_flush(&sink);
    th__sink_free(&sink);
    if (status == TH_OK) return th__atomic_commit(&file);
    th__atomic_abort(&file);
    return status;
}

th_status th_safetensors_save(th_value *tensors, const char *path, th_value *metadata)
{
    TH__CHECK_PENDING();
    if (path == NULL || path[0] == '\0') return th__fail(TH_ERR_VALUE, "safetensors", "the path is missing");
    if (th_value_kind_of(tensors) != TH_VALUE_DICT)
        return th__fail(TH_ERR_TYPE, "safetensors", "a %s is given, expected a dict of tensors",
                        th_value_kind_name(th_value_kind_of(tensors)));
    size_t n = th_value_size(tensors);
    writing w = {.entries = th__calloc(n + 1, sizeof *w.entries),
                 .tensors = th__calloc(n + 1, sizeof *w.tensors),
                 .dict = th_value_dict()};
    th_status status = th__pending();
    for (size_t i = 0; i < n && status == TH_OK; i++) {
        const char *name = th_value_key_at(tensors, i, NULL);
        status = add_entry(&w, name, th_value_as_tensor(th_value_at(tensors, i)));
        if (status == TH_OK) status = th_value_set(w.dict, name, th_value_tensor(w.tensors[i]));
    }
    if (status == TH_OK) status = copy_metadata(&w, metadata);
    if (status == TH_OK) status = th__st_make_header(w.entries, w.count, w.metadata, &w.header);
    if (status == TH_OK) status = write_file(&w, path);
    for (size_t i = 0; i < w.count; i++) {
        free(w.entries[i].shape);
        th_free(w.tensors[i]);
    }
    free(w.entries);
    free(w.tensors);
    th_value_free(w.dict);
    th__buffer_free(&w.header);
    cJSON_Delete(w.metadata);
    return status;
}
