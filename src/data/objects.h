/* data/objects.h: what datasets and samplers are inside, for the files of this room only. */
#ifndef FABRIC_DATA_OBJECTS_H
#define FABRIC_DATA_OBJECTS_H

#include "base/error.h"
#include "base/memory.h"
#include "base/object.h"
#include "data/internal.h"

struct th_dataset {
    th__object base;
    th_dataset_ops ops;
    void *self;
};
extern const th__class th__dataset_class;

struct th_sampler {
    th__object base;
    th_sampler_ops ops;
    void *self;
    th__sampler_kind kind;
    bool exact;        /* random or sequential over the whole dataset once: may be replaced by a DistributedSampler */
    bool manual_epoch; /* the user called set_epoch since the last pass */
};
extern const th__class th__sampler_class;

#define TH__DATASET_CHECK(x) th__object_check((x), &th__dataset_class, __func__, #x)
#define TH__SAMPLER_CHECK(x) th__object_check((x), &th__sampler_class, __func__, #x)

/* A built-in sampler: th_sampler_new, then the kind. */
th_sampler *th__sampler_make(const th_sampler_ops *ops, void *self, th__sampler_kind kind, bool exact);
/* How many replicas a distributed sampler serves; 1 for others. Looks through batch samplers. */
int64_t th__sampler_replicas(th_sampler *sampler);
/* The samples per batch of th_sampler_batch; 0 for others. */
int64_t th__sampler_batch_size(th_sampler *sampler);
bool th__sampler_batch_drops_last(th_sampler *sampler);

/* A callback's result: passes TH_OK on, raises CallbackError when the callback failed without saying why. */
th_status th__callback_status(th_status status, const char *what, const char *name);

/* Reads one sample / a stacked batch through the table, with the checks around it. The tensors are [scoped]. */
th_status th__dataset_item(th_dataset *dataset, int64_t index, th_sample *sample);
th_status th__dataset_batch(th_dataset *dataset, const int64_t *indices, size_t n, th_sample *batch);
/* default_collate: stacks field by field. */
th_status th__collate_stack(const th_sample *samples, size_t n, th_sample *batch);

#endif
