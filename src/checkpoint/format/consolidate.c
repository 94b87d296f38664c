/* checkpoint/format/consolidate.c: builds the nested dict from names, pickles it, and streams the tensors behind it. */
#include "checkpoint/format/consolidate.h"

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/format/assemble.h"
#include "checkpoint/format/repickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One record of the output: a whole tensor, or a storage of a small archive. */
typedef struct record {
    const th__dcp_item *item;
    th__torch_file *archive;
    th__storage storage;
} record;

typedef struct work {
    const char *folder;
    th__dcp_index index;
    th__dcp_files files;
    th__torch_file *archives; /* pickled objects, and meta.pt as the last one */
    size_t n_archives;
    th__arena *arena; /* of the tree */
    th__node *root;
    th__pickler pickler;
    record *records;
    size_t n_records, capacity;
} work;

/* ---------------------------------------------------------------- the tree */

static th__node *new_text(work *w, const char *text)
{
    th__node *node = th__node_new(w->arena, TH__NODE_TEXT);
    if (node == NULL) return NULL;
    node->v.text = text;
    node->count = strlen(text);
    return node;
}

/* The slot of one step in a container, made if it is not there. NULL with an error. */
static th__node **slot_of(work *w, th__node *container, const th__dcp_step *step, const char *fqn)
{
    if (container->kind == TH__NODE_DICT && step->text != NULL) {
        for (size_t i = container->count; i >= 2; i -= 2) /* from the end: names come sorted */
            if (th__node_is_text(container->v.items[i - 2], step->text)) return &container->v.items[i - 1];
        th__node *key = new_text(w, step->text);
        if (key == NULL || th__node_push(w->arena, container, key) != TH_OK || th__node_push(w->arena, container, NULL) != TH_OK)
            return NULL;
        return &container->v.items[container->count - 1];
    }
    if (container->kind == TH__NODE_LIST && step->text == NULL) {
        while (container->count <= (size_t)step->index) {
            if (th__node_push(w->arena, container, th__node_new(w->arena, TH__NODE_NONE)) != TH_OK) return NULL;
        }
        return &container->v.items[step->index];
    }
    th__fail(TH_ERR_DATA, "consolidate", "'%s': '%s' is both a value and a container of others", w->folder, fqn);
    return NULL;
}

static th_status insert(work *w, const th__dcp_item *item, th__node *leaf)
{
    th__node *at = w->root;
    for (size_t i = 0; i < item->n_steps; i++) {
        th__node **slot = slot_of(w, at, &item->steps[i], item->fqn);
        if (slot == NULL) return th__pending();
        if (i + 1 == item->n_steps) {
            *slot = leaf;
            return TH_OK;
        }
        if (*slot == NULL || ((*slot)->kind == TH__NODE_NONE && (*slot)->user == NULL))
            *slot = th__node_new(w->arena, item->steps[i + 1].text != NULL ? TH__NODE_DICT : TH__NODE_LIST);
        if (*slot == NULL) return th__pending();
        at = *slot;
    }
    return TH_OK;
}

/* The persistent ids of an archive remember it, as the tree mixes several. */
static th_status open_archive(work *w, const th__source *source, uint64_t offset, uint64_t length)
{
    th__torch_file *archive = &w->archives[w->n_archives];
    TH__TRY(th__torch_file_open(archive, source, offset, length));
    w->n_archives++;
    for (th__node *p = th__arena_persistent(archive->arena); p != NULL; p = p->extra) p->user = archive;
    return TH_OK;
}

static th_status add_item(work *w, const th__dcp_item *item)
{
    if (item->dtype != NULL) {
        th__node *leaf = th__node_new(w->arena, TH__NODE_NONE);
        if (leaf == NULL) return th__pending();
        leaf->user = (void *)item;
        return insert(w, item, leaf);
    }
    const th__source *source = th__dcp_file(&w->files, item->chunks[0].file);
    if (source == NULL) return th__pending();
    TH__TRY(open_archive(w, source, item->chunks[0].offset, item->chunks[0].length));
    return insert(w, item, w->archives[w->n_archives - 1].root);
}

/* meta.pt's entries stand beside the others and win over them. */
static th_status add_extra(work *w)
{
    const th__source *source = th__dcp_file(&w->files, TH__DCP_EXTRA);
    if (source == NULL) return th__pending();
    TH__TRY(open_archive(w, source, 0, source->size));
    const th__node *extra = th__node_as_dict(w->archives[w->n_archives - 1].root);
    if (extra == NULL) return th__fail(TH_ERR_DATA, "consolidate", "'%s' holds no dict", source->path);
    for (size_t i = 0; i + 1 < extra->count; i += 2) {
        size_t k = 0;
        th__node *key = extra->v.items[i];
        while (k < w->root->count && !(key->kind == TH__NODE_TEXT && w->root->v.items[k]->count == key->count &&
                                       memcmp(w->root->v.items[k]->v.text, key->v.text, key->count) == 0))
            k += 2;
        if (k < w->root->count) {
            w->root->v.items[k + 1] = extra->v.items[i + 1];
            continue;
        }
        TH__TRY(th__node_push(w->arena, w->root, key));
        TH__TRY(th__node_push(w->arena, w->root, extra->v.items[i + 1]));
    }
    return TH_OK;
}

/* ---------------------------------------------------------------- the pickle */

static th_status new_record(work *w, record r, char *key, size_t size)
{
    snprintf(key, size, "%zu", w->n_records);
    return TH__PUSH(w->records, w->n_records, w->capacity, r) == 0 ? TH_OK : th__pending();
}

static th_status put_tensor(work *w, const th__dcp_item *item)
{
    char key[24];
    int64_t strides[TH__DIM_MAX], numel = 1;
    for (size_t d = item->dim; d-- > 0;) {
        strides[d] = numel;
        numel *= item->sizes[d] > 0 ? item->sizes[d] : 1;
    }
    for (size_t d = 0; d < item->dim; d++)
        if (item->sizes[d] == 0) numel = 0;
    TH__TRY(new_record(w, (record){.item = item}, key, sizeof key));
    th__pickle_tensor_spec spec = {.dtype = item->dtype,
                                   .key = key,
                                   .device = "cpu",
                                   .storage_numel = (uint64_t)numel,
                                   .sizes = item->sizes,
                                   .strides = strides,
                                   .dim = item->dim};
    return th__pickle_tensor(&w->pickler, &spec);
}

/* A storage of a small archive keeps its class and length under a new key; one mentioned twice stays one. */
static th_status put_storage(th__repickler *r, const th__node *node)
{
    work *w = r->user;
    record fresh = {.archive = node->user};
    char key[24];
    TH__TRY(th__torch_file_storage(fresh.archive, node, &fresh.storage));
    if (fresh.archive->big_endian) return th__fail(TH_ERR_NOT_IMPLEMENTED, "consolidate", "'%s' is big-endian", r->path);
    size_t i = 0;
    while (i < w->n_records && (w->records[i].archive != fresh.archive || w->records[i].storage.at != fresh.storage.at)) i++;
    snprintf(key, sizeof key, "%zu", i);
    if (i == w->n_records) TH__TRY(new_record(w, fresh, key, sizeof key));
    TH__TRY(th__pickle_open(r->pickler, '('));
    TH__TRY(th__pickle_text(r->pickler, "storage"));
    TH__TRY(th__repickle(r, th__node_arg(node, 1)));
    TH__TRY(th__pickle_text(r->pickler, key));
    TH__TRY(th__pickle_text(r->pickler, "cpu"));
    TH__TRY(th__pickle_int(r->pickler, (int64_t)fresh.storage.numel));
    TH__TRY(th__pickle_close(r->pickler, '('));
    return th__pickle_op(r->pickler, 'Q');
}

static th_status put_special(th__repickler *r, th__node *node)
{
    return node->kind == TH__NODE_PERSISTENT ? put_storage(r, node) : put_tensor(r->user, node->user);
}

/* ---------------------------------------------------------------- the file */

static th_status copy_storage(record *r, th__zip_writer *zip)
{
    unsigned char *data = th__malloc((size_t)r->storage.nbytes + 1);
    th_status status = data == NULL ? th__pending() : th__torch_file_read(r->archive, &r->storage, data);
    if (status == TH_OK) status = th__zip_add_piece(zip, data, r->storage.nbytes);
    free(data);
    return status == TH_OK ? th__zip_add_end(zip) : status;
}

static th_status write_archive(work *w, th__sink *sink)
{
    th__zip_writer zip;
    th__zip_begin(&zip, sink);
    th_status status = th__zip_add(&zip, "archive/data.pkl", w->pickler.out.data, w->pickler.out.size);
    if (status == TH_OK) status = th__zip_add(&zip, "archive/.format_version", "1", 1);
    if (status == TH_OK) status = th__zip_add(&zip, "archive/.storage_alignment", "64", 2);
    if (status == TH_OK) status = th__zip_add(&zip, "archive/byteorder", "little", 6);
    for (size_t i = 0; i < w->n_records && status == TH_OK; i++) {
        record *r = &w->records[i];
        char name[48];
        uint64_t nbytes = r->storage.nbytes;
        if (r->item != NULL) {
            nbytes = r->item->dtype->size;
            for (size_t d = 0; d < r->item->dim; d++) nbytes *= (uint64_t)r->item->sizes[d];
        }
        snprintf(name, sizeof name, "archive/data/%zu", i);
        status = th__zip_add_begin(&zip, name, nbytes);
        if (status == TH_OK) status = r->item != NULL ? th__dcp_write_record(&w->files, r->item, &zip) : copy_storage(r, &zip);
    }
    if (status == TH_OK) status = th__zip_add(&zip, "archive/version", "3\n", 2);
    if (status == TH_OK) status = th__zip_finish(&zip);
    th__zip_writer_free(&zip);
    return status;
}

static th_status write_output(work *w, const char *output)
{
    th__atomic_file file;
    TH__TRY(th__atomic_open(&file, output));
    th__sink sink;
    th__sink_init(&sink, &file);
    th_status status = write_archive(w, &sink);
    if (status == TH_OK) status = th__sink_flush(&sink);
    th__sink_free(&sink);
    if (status == TH_OK) return th__atomic_commit(&file);
    th__atomic_abort(&file);
    return status;
}

static th_status build(work *w)
{
    TH__TRY(th__dcp_read_index(&w->index, w->folder));
    w->archives = th__calloc(w->index.count + 1, sizeof *w->archives);
    w->arena = th__arena_new();
    w->root = w->arena == NULL || w->archives == NULL ? NULL : th__node_new(w->arena, TH__NODE_DICT);
    if (w->root == NULL) return th__pending();
    for (size_t i = 0; i < w->index.count; i++) TH__TRY(add_item(w, &w->index.items[i]));
    TH__TRY(add_extra(w));
    TH__TRY(th__pickle_begin(&w->pickler));
    th__repickler r = {.pickler = &w->pickler, .path = w->folder, .special = put_special, .user = w};
    TH__TRY(th__repickle(&r, w->root));
    return th__pickle_end(&w->pickler);
}

th_status th__consolidate(const char *folder, const char *output)
{
    TH__CHECK_PENDING();
    work w = {.folder = folder, .files.folder = folder};
    th_status status = build(&w);
    if (status == TH_OK) status = write_output(&w, output);
    for (size_t i = 0; i < w.n_archives; i++) th__torch_file_close(&w.archives[i]);
    free(w.archives);
    free(w.records);
    th__pickle_free(&w.pickler);
    th__arena_free(w.arena);
    th__dcp_close_files(&w.files);
    if (w.index.arena != NULL) th__dcp_free_index(&w.index);
    return status;
}
