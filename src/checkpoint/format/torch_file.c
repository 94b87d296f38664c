/* checkpoint/format/torch_file.c: opens torch.save's zip files; what both containers share. legacy_file.c has the older one. */
#include "checkpoint/format/torch_file.h"

#include "base/memory.h"
#include "checkpoint/format/legacy_file.h"
#include "checkpoint/format/pickle_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- zip */

static th_status find_folder(th__torch_file *file)
{
    for (size_t i = 0; i < file->zip.count; i++) {
        const char *name = file->zip.entries[i].name, *slash = strchr(name, '/');
        if (slash == NULL || strcmp(slash, "/data.pkl") != 0) continue;
        if (file->folder != NULL) return th__fail(TH_ERR_DATA, "th_load", "'%s' has two data.pkl records", file->source->path);
        file->folder = th__strdup(name);
        if (file->folder == NULL) return th__pending();
        file->folder[slash - name] = '\0';
    }
    if (file->folder == NULL)
        return th__fail(TH_ERR_DATA, "th_load", "'%s' is a zip archive, but no checkpoint: it has no data.pkl",
                        file->source->path);
    return TH_OK;
}

static const th__zip_entry *find_record(const th__torch_file *file, const char *name, size_t length)
{
    size_t n_folder = strlen(file->folder);
    char stack[160], *full = stack;
    if (n_folder + length + 2 > sizeof stack && (full = th__malloc(n_folder + length + 2)) == NULL) return NULL;
    memcpy(full, file->folder, n_folder);
    full[n_folder] = '/';
    memcpy(full + n_folder + 1, name, length);
    full[n_folder + 1 + length] = '\0';
    const th__zip_entry *entry = th__zip_find(&file->zip, full);
    if (full != stack) free(full);
    return entry;
}

static bool is_storage(const th__torch_file *file, const th__zip_entry *entry)
{
    size_t n = strlen(file->folder);
    return strncmp(entry->name, file->folder, n) == 0 && strncmp(entry->name + n, "/data/", 6) == 0;
}

static th_status check_byteorder(th__torch_file *file, const th__zip_entry *entry)
{
    char text[16] = {0};
    if (entry->size >= sizeof text)
        return th__fail(TH_ERR_DATA, "th_load", "'%s': byteorder is no byte order", file->source->path);
    TH__TRY(th__zip_read(&file->zip, entry, text));
    if (strcmp(text, "little") == 0) return TH_OK;
    if (strcmp(text, "big") != 0)
        return th__fail(TH_ERR_DATA, "th_load", "'%s': byteorder is '%s', expected little or big", file->source->path, text);
    file->big_endian = true;
    return TH_OK;
}

static th_status read_pickle(th__torch_file *file, const th__zip_entry *entry)
{
    file->pickle_size = (size_t)entry->size;
    file->pickle = th__malloc(file->pickle_size + 1);
    if (file->pickle == NULL) return th__pending();
    TH__TRY(th__zip_read(&file->zip, entry, file->pickle));
    size_t used;
    file->root = th__pickle_read(file->arena, file->pickle, (size_t)entry->size, &used, file->source->path);
    if (file->root != NULL && used != entry->size)
        return th__fail(TH_ERR_DATA, "th_load", "'%s': %llu bytes after the end of the pickle", file->source->path,
                        (unsigned long long)(entry->size - used));
    return th__pending();
}

static th_status open_zip(th__torch_file *file)
{
    TH__TRY(th__zip_open(&file->zip, file->source, file->offset, file->length));
    file->is_zip = true;
    TH__TRY(find_folder(file));
    if (find_record(file, "constants.pkl", 13) != NULL)
        return th__fail(TH_ERR_TYPE, "th_load", "'%s' is a TorchScript module: th_nn_script_load opens it", file->source->path);
    file->verified = th__calloc(file->zip.count + 1, sizeof *file->verified);
    if (file->verified == NULL) return th__pending();
    const th__zip_entry *pickle = find_record(file, "data.pkl", 8), *order = find_record(file, "byteorder", 9);
    for (size_t i = 0; i < file->zip.count; i++) {
        const th__zip_entry *entry = &file->zip.entries[i];
        if (is_storage(file, entry)) continue;
        file->verified[i] = true;
        TH__TRY(entry == pickle  ? read_pickle(file, entry)
                : entry == order ? check_byteorder(file, entry)
                                 : th__zip_verify(&file->zip, entry));
    }
    return TH_OK;
}

th_status th__torch_file_open(th__torch_file *file, const th__source *source, uint64_t offset, uint64_t length)
{
    TH__CHECK_PENDING();
    *file = (th__torch_file){.source = source, .offset = offset, .length = length};
    unsigned char first;
    th_status status = th__torch_file_recognise(source, offset, length);
    file->arena = status == TH_OK ? th__arena_new() : NULL;
    if (file->arena != NULL) {
        status = th__source_read(source, offset, &first, 1);
        if (status == TH_OK) status = first == 'P' ? open_zip(file) : th__legacy_open(file);
    }
    if (th__pending() != TH_OK) th__torch_file_close(file);
    return th__pending();
}

void th__torch_file_close(th__torch_file *file)
{
    th__zip_close(&file->zip);
    free(file->verified);
    free(file->folder);
    free(file->pickle);
    free(file->legacy);
    th__arena_free(file->arena);
    *file = (th__torch_file){0};
}

/* ---------------------------------------------------------------- storages */

static th_status bad_storage(const th__torch_file *file, const char *why)
{
    return th__fail(TH_ERR_DATA, "th_load", "'%s': a storage is described wrongly: %s", file->source->path, why);
}

th_status th__storage_class(const th__torch_file *file, const th__node *type, const th__dtype_info **dtype, bool *untyped)
{
    char name[80];
    *untyped = th__node_is_global(type, "torch.storage.UntypedStorage") || th__node_is_global(type, "torch.UntypedStorage");
    *dtype = NULL;
    if (*untyped)
        *dtype = th__dtype_info_of(TH_UINT8);
    else if (type != NULL && type->kind == TH__NODE_GLOBAL && type->count > 6 && memcmp(type->v.text, "torch.", 6) == 0)
        *dtype = th__dtype_by_storage(type->v.text + 6, type->count - 6);
    if (*dtype != NULL) return TH_OK;
    return th__fail(TH_ERR_DATA, "th_load", "'%s': storage class '%s' is not supported", file->source->path,
                    th__node_show(type, name, sizeof name));
}

th_status th__torch_file_storage(const th__torch_file *file, const th__node *node, th__storage *out)
{
    TH__CHECK_PENDING();
    *out = (th__storage){0};
    if (node == NULL || node->kind != TH__NODE_PERSISTENT) return bad_storage(file, "a persistent id is expected");
    const th__node *tag = th__node_arg(node, 0), *key = th__node_arg(node, 2);
    int64_t numel;
    if (!th__node_is_text(tag, "storage")) return bad_storage(file, "the persistent id does not begin with 'storage'");
    if (key == NULL || key->kind != TH__NODE_TEXT) return bad_storage(file, "its key is no text");
    if (!th__node_as_int(th__node_arg(node, 4), &numel) || numel < 0) return bad_storage(file, "its length is no number");
    TH__TRY(th__storage_class(file, th__node_arg(node, 1), &out->dtype, &out->untyped));
    if ((uint64_t)numel > INT64_MAX / 32) return bad_storage(file, "its length is too large");
    out->key = key->v.text;
    out->key_length = key->count;
    out->numel = (uint64_t)numel;
    out->nbytes = out->numel * out->dtype->size;
    if (!file->is_zip) return th__legacy_storage_of(file, out);

    char name[128] = "data/";
    if (key->count > sizeof name - 6 || memchr(key->v.text, '/', key->count) != NULL)
        return bad_storage(file, "its key is no record name");
    memcpy(name + 5, key->v.text, key->count);
    out->entry = find_record(file, name, 5 + key->count);
    if (out->entry == NULL) return bad_storage(file, "its record is missing");
    if (out->entry->size != out->nbytes) return bad_storage(file, "its record has another size");
    out->at = out->entry->data;
    return TH_OK;
}

static void swap_bytes(unsigned char *data, uint64_t nbytes, size_t unit)
{
    for (uint64_t at = 0; at + unit <= nbytes; at += unit)
        for (size_t i = 0; i < unit / 2; i++) {
            unsigned char t = data[at + i];
            data[at + i] = data[at + unit - 1 - i];
            data[at + unit - 1 - i] = t;
        }
}

th_status th__torch_file_read(th__torch_file *file, const th__storage *storage, void *out)
{
    TH__CHECK_PENDING();
    if (storage->entry == NULL) return th__source_read(file->source, storage->at, out, (size_t)storage->nbytes);
    TH__TRY(th__zip_read(&file->zip, storage->entry, out));
    file->verified[storage->entry - file->zip.entries] = true;
    if (file->big_endian) swap_bytes(out, storage->nbytes, storage->dtype->swap);
    return TH_OK;
}

th_status th__torch_file_verify_rest(th__torch_file *file)
{
    for (size_t i = 0; file->is_zip && i < file->zip.count; i++) {
        if (file->verified[i]) continue;
        TH__TRY(th__zip_verify(&file->zip, &file->zip.entries[i]));
        file->verified[i] = true;
    }
    return TH_OK;
}
