/* data/random_sampler.c: RandomSampler, SubsetRandomSampler, WeightedRandomSampler.
 *
 * Each draws what PyTorch's generator function draws, when it draws it: nothing at the start of a pass, then piece by piece as
 * indices are asked for. So generators shared with other code end up in the same state as in Python. */
#include "data/objects.h"
#include "data/tensors.h"

#include <stdlib.h>
#include <string.h>

enum { REPLACEMENT_PIECE = 32 }; /* indices PyTorch draws at a time with replacement */

typedef struct random_sampler random_sampler;
struct random_sampler {
    /* what to draw */
    int64_t n; /* the population */
    int64_t num_samples;
    bool replacement;
    int64_t *indices;                                   /* subset: what position i stands for */
    double *weights;                                    /* weighted */
    int64_t *(*draw)(random_sampler *s, int64_t *size); /* the next piece, [owned]; *size -1: the pass is over */
    th_generator *generator;                            /* the user's, NULL: see own_seed */
    bool own_seed; /* without a generator: seed one from the default generator for each pass (RandomSampler) */
    /* the running pass */
    th_generator *used; /* what draws: `generator`, `own`, or NULL for the default one */
    th_generator *own;
    int64_t seed;   /* of `own` */
    int64_t pieces; /* drawn so far */
    int64_t *piece;
    int64_t size, next; /* of the piece */
    bool started, over;
    th_tensor *start; /* the user's generator's state before the first piece */
    th_value *resume; /* begins the next pass from this state */
};

/* ---------------------------------------------------------------- what each kind draws */

static int64_t *draw_random(random_sampler *s, int64_t *size)
{
    int64_t whole = s->replacement ? s->num_samples / REPLACEMENT_PIECE : s->num_samples / s->n;
    if (s->pieces > whole) {
        *size = -1;
        return NULL;
    }
    bool last = s->pieces == whole; /* PyTorch draws it even if nothing of it is used */
    if (s->replacement) {
        *size = last ? s->num_samples % REPLACEMENT_PIECE : REPLACEMENT_PIECE;
        return th__data_randint(s->n, *size, s->used);
    }
    *size = last ? s->num_samples % s->n : s->n;
    return th__data_randperm(s->n, s->used);
}

static int64_t *draw_subset(random_sampler *s, int64_t *size)
{
    *size = s->pieces > 0 ? -1 : s->n;
    if (*size < 0) return NULL;
    int64_t *piece = th__data_randperm(s->n, s->used);
    for (int64_t i = 0; piece != NULL && i < s->n; i++) piece[i] = s->indices[piece[i]];
    return piece;
}

static int64_t *draw_weighted(random_sampler *s, int64_t *size)
{
    *size = s->pieces > 0 ? -1 : s->num_samples;
    if (*size < 0) return NULL;
    return th__data_multinomial((th_doubles){s->weights, (size_t)s->n}, s->num_samples, s->replacement, s->used);
}

/* ---------------------------------------------------------------- a pass */

static int64_t random_len(void *self) { return ((random_sampler *)self)->num_samples; }

static th_status random_begin(void *self)
{
    random_sampler *s = self;
    free(s->piece);
    s->piece = NULL;
    s->pieces = s->size = s->next = 0;
    s->started = s->over = false;
    return TH_OK;
}

/* The seed or generator state this pass starts from: a saved one, or what comes next. */
static th_status start(random_sampler *s)
{
    s->started = true;
    s->used = s->generator;
    th_tensor *saved = th_value_as_tensor(th_value_get(s->resume, "generator"));
    if (s->generator != NULL) {
        if (saved != NULL) TH__TRY(th_generator_set_state(s->generator, saved));
        TH_SCOPE();
        th_assign(&s->start, th_generator_get_state(s->generator));
    } else if (s->own_seed) {
        th_value *seed = th_value_get(s->resume, "seed");
        s->seed = seed != NULL ? th_value_as_int(seed, 0) : th__data_random_seed(NULL);
        if (s->own == NULL && (s->own = th_generator_new(TH_CPU)) == NULL) return th__pending();
        TH__TRY(th_generator_manual_seed(s->own, (uint64_t)s->seed));
        s->used = s->own;
    }
    th_value_free(s->resume);
    s->resume = NULL;
    return th__pending();
}

static th_status random_next(void *self, int64_t *index, bool *end)
{
    random_sampler *s = self;
    if (!s->started) TH__TRY(start(s));
    while (s->next >= s->size && !s->over) {
        free(s->piece);
        s->next = s->size = 0;
        s->piece = s->draw(s, &s->size);
        TH__CHECK_PENDING();
        s->pieces++;
        if (s->size < 0) s->over = true;
    }
    if (s->over)
        *end = true;
    else
        *index = s->piece[s->next++];
    return TH_OK;
}

static th_value *random_state(void *self)
{
    random_sampler *s = self;
    if (!s->started || (s->generator == NULL && !s->own_seed)) return NULL;
    th_value *state = th_value_dict();
    if (s->generator != NULL)
        th_value_set(state, "generator", th_value_tensor(s->start));
    else
        th_value_set(state, "seed", th_value_int(s->seed));
    return state;
}

static th_status random_load(void *self, th_value *state)
{
    random_sampler *s = self;
    th_value *copy = th_value_copy(state, true);
    th_value_free(s->resume);
    s->resume = copy;
    return th__pending();
}

static void random_free(void *self)
{
    random_sampler *s = self;
    free(s->indices);
    free(s->weights);
    free(s->piece);
    th_generator_free(s->own);
    th_free(s->start);
    th_value_free(s->resume);
    free(s);
}

static th_sampler *make(const char *name, random_sampler *s, th__sampler_kind kind, bool exact)
{
    const th_sampler_ops ops = {.size = sizeof ops,
                                .name = name,
                                .len = random_len,
                                .begin = random_begin,
                                .next = random_next,
                                .state_dict = random_state,
                                .load_state_dict = random_load,
                                .free = random_free};
    return th__sampler_make(&ops, s, kind, exact);
}

/* ---------------------------------------------------------------- making them */

static random_sampler *new_random(int64_t *(*draw)(random_sampler *, int64_t *), th_generator *generator)
{
    random_sampler *s = th__calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->draw = draw;
    s->generator = generator;
    return s;
}

th_sampler *th_sampler_random_call(struct th_sampler_random_args args)
{
    TH__CHECK_PENDING_NULL();
    int64_t num_samples = args.num_samples == 0 ? args.n : args.num_samples;
    if (num_samples <= 0 || args.n <= 0) {
        TH__FAIL(TH_ERR_VALUE, "num_samples should be a positive integer value, but got num_samples=%lld (of %lld)",
                 (long long)num_samples, (long long)args.n);
        return NULL;
    }
    random_sampler *s = new_random(draw_random, args.generator);
    if (s == NULL) return NULL;
    s->n = args.n;
    s->num_samples = num_samples;
    s->replacement = args.replacement;
    s->own_seed = true;
    return make("RandomSampler", s, TH__SAMPLER_RANDOM, !args.replacement && num_samples == args.n);
}

th_sampler *th_sampler_subset_random_call(struct th_sampler_subset_random_args args)
{
    TH__CHECK_PENDING_NULL();
    random_sampler *s = new_random(draw_subset, args.generator);
    if (s == NULL) return NULL;
    s->n = s->num_samples = (int64_t)args.indices.size;
    s->indices = th__malloc(args.indices.size * sizeof *s->indices);
    if (s->indices != NULL && s->n > 0) memcpy(s->indices, args.indices.data, args.indices.size * sizeof *s->indices);
    return make("SubsetRandomSampler", s, TH__SAMPLER_OTHER, false); /* frees `s` when an error is pending */
}

th_sampler *th_sampler_weighted_random_call(struct th_sampler_weighted_random_args args)
{
    TH__CHECK_PENDING_NULL();
    if (args.num_samples <= 0 || args.weights.size == 0) {
        TH__FAIL(TH_ERR_VALUE, "num_samples should be a positive integer value, but got num_samples=%lld (of %zu weights)",
                 (long long)args.num_samples, args.weights.size);
        return NULL;
    }
    random_sampler *s = new_random(draw_weighted, args.generator);
    if (s == NULL) return NULL;
    s->n = (int64_t)args.weights.size;
    s->num_samples = args.num_samples;
    s->replacement = args.replacement;
    s->weights = th__malloc(args.weights.size * sizeof *s->weights);
    if (s->weights != NULL) memcpy(s->weights, args.weights.data, args.weights.size * sizeof *s->weights);
    return make("WeightedRandomSampler", s, TH__SAMPLER_OTHER, false);
}
