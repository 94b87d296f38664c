/* data/workers.c: threads that read ahead.
 *
 * Batch number s lies in slot s % capacity and belongs to one worker, so the order never depends on timing. The consumer draws
 * the indices (samplers run on its thread only), queues a slot, and takes slots back in order. A slot is touched by its worker
 * while it is RUNNING and by the consumer otherwise; `lock` guards every change of state. */
#include "data/workers.h"

#include "data/thread.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum slot_state { SLOT_FREE = 0, SLOT_QUEUED, SLOT_RUNNING, SLOT_DONE } slot_state;

typedef struct slot {
    slot_state state;
    int worker;
    int64_t number; /* of the batch within its pass */
    th_indices indices;
    size_t n;
    th_batch batch;
    bool end;         /* this worker's iterable dataset has no more */
    th_status status; /* what went wrong... */
    char *message;    /* ...and its text, which may be NULL */
} slot;

typedef struct worker {
    th__workers *owner;
    pthread_t thread;
    pthread_cond_t work;
    th_worker_info info;
    th__fetch_iterator iterator;
    int64_t pass;     /* the one `iterator` belongs to */
    bool exhausted;   /* consumer's note: gave its end in this pass */
    th_status status; /* of worker_init_fn */
    char *message;
} worker;

struct th__workers {
    atomic_int refs; /* the consumer and every thread */
    pthread_mutex_t lock;
    pthread_cond_t done;
    th__workers_plan plan;
    worker *workers;
    slot *slots;
    int64_t capacity;
    int64_t sent, received;
    int64_t pass, first, samples_per_batch;
    int turn; /* which worker gets the next batch */
    int running;
    bool drained; /* the index source has ended */
    bool stop, timed_out;
    atomic_bool cancel;
};

/* ---------------------------------------------------------------- memory */

static void slot_clear(slot *s)
{
    th__batch_clear(&s->batch);
    free(s->message);
    s->message = NULL;
    s->status = TH_OK;
    s->end = false;
    s->state = SLOT_FREE;
}

static void release(th__workers *w)
{
    if (atomic_fetch_sub(&w->refs, 1) != 1) return;
    for (int64_t i = 0; i < w->capacity && w->slots != NULL; i++) {
        slot_clear(&w->slots[i]);
        th_indices_free(&w->slots[i].indices);
    }
    for (int i = 0; i < w->plan.count && w->workers != NULL; i++) {
        pthread_cond_destroy(&w->workers[i].work);
        free(w->workers[i].message);
    }
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->lock);
    th_dataset_free(w->plan.fetch.dataset);
    free(w->slots);
    free(w->workers);
    free(w);
}

/* ---------------------------------------------------------------- a worker's side */

/* Moves this thread's pending error into a slot or worker. */
static void take_error(th_status *status, char **message)
{
    *status = th_error();
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", th_error_message());
    th_error_clear();
    *message = strdup(copy);
}

static void start_worker(worker *me)
{
    th__thread_enter_worker(&me->info);
    me->info.generator = th_generator_new(TH_CPU);
    if (me->owner->plan.rank >= 0)
        th__seed_sequence(me->info.seed - (uint64_t)me->info.id, (uint64_t)me->info.id, (uint64_t)me->owner->plan.rank,
                          &me->info.seed, 1);
    th_worker_init_fn init = me->owner->plan.init;
    if (init != NULL && th__pending() == TH_OK) {
        TH_SCOPE();
        th__callback_status(init(&me->info, me->owner->plan.init_user), "worker_init_fn", "the loader");
    }
    if (th__pending() != TH_OK) take_error(&me->status, &me->message);
}

/* A pass of an iterable dataset: a new iterator, past what was read before a resume. */
static void open_pass(worker *me, int64_t pass)
{
    const th__workers *w = me->owner;
    const th__fetch_plan *plan = &w->plan.fetch;
    me->pass = pass;
    if (plan->dataset->ops.iter_next == NULL) return;
    int64_t batches = w->first / w->plan.count + (me->info.id < w->first % w->plan.count);
    th__fetch_close(plan, &me->iterator);
    th__fetch_open(plan, &me->iterator, &me->info);
    if (th__pending() == TH_OK && batches > 0) th__fetch_skip(plan, &me->iterator, batches * w->samples_per_batch);
}

static void run(worker *me, slot *s, int64_t pass)
{
    const th__workers *w = me->owner;
    uint64_t seed;
    if (me->status != TH_OK) {
        s->status = me->status;
        s->message = me->message != NULL ? strdup(me->message) : NULL;
        return;
    }
    if (me->pass != pass) open_pass(me, pass);
    /* Random transforms depend on the seed and the batch only, so a resumed pass goes on as it would have. */
    th__seed_sequence(me->info.seed, (uint64_t)s->number, 0, &seed, 1);
    if (th__pending() == TH_OK && th_generator_manual_seed(me->info.generator, seed) == TH_OK)
        th__fetch(&w->plan.fetch, &me->iterator, s->indices.size > 0 ? s->indices.data : NULL, s->n, &s->batch, &s->end,
                  &w->cancel);
    if (th__pending() != TH_OK) take_error(&s->status, &s->message);
}

static slot *find_work(const worker *me)
{
    const th__workers *w = me->owner;
    for (int64_t number = w->received; number < w->sent; number++) {
        slot *s = &w->slots[number % w->capacity];
        if (s->state == SLOT_QUEUED && s->worker == me->info.id) return s;
    }
    return NULL;
}

static void *worker_main(void *argument)
{
    worker *me = argument;
    th__workers *w = me->owner;
    start_worker(me);
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        slot *s = find_work(me);
        if (s == NULL) {
            pthread_cond_wait(&me->work, &w->lock);
            continue;
        }
        int64_t pass = w->pass;
        s->state = SLOT_RUNNING;
        w->running++;
        pthread_mutex_unlock(&w->lock);
        run(me, s, pass);
        pthread_mutex_lock(&w->lock);
        s->state = SLOT_DONE;
        w->running--;
        pthread_cond_signal(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
    th__fetch_close(&w->plan.fetch, &me->iterator);
    th_generator_free(me->info.generator);
    th__thread_leave_worker();
    release(w);
    return NULL;
}

/* ---------------------------------------------------------------- starting and ending */

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static th__workers *make(const th__workers_plan *plan)
{
    th__workers *w = th__calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    atomic_init(&w->refs, 1);
    pthread_mutex_init(&w->lock, NULL);
    init_condition(&w->done);
    w->plan = *plan;
    th_dataset_retain(w->plan.fetch.dataset);
    w->capacity = (int64_t)plan->count * plan->prefetch;
    w->slots = th__calloc((size_t)w->capacity, sizeof *w->slots);
    w->workers = th__calloc((size_t)plan->count, sizeof *w->workers);
    if (w->slots == NULL || w->workers == NULL) {
        w->plan.count = 0;
        release(w);
        return NULL;
    }
    for (int i = 0; i < plan->count; i++) {
        worker *me = &w->workers[i];
        me->owner = w;
        me->pass = -1;
        me->info = (th_worker_info){i, plan->count, plan->base_seed + (uint64_t)i, NULL, plan->fetch.dataset};
        init_condition(&me->work);
    }
    return w;
}

/* Signals are for the program's own threads, so workers start with all of them blocked, but for those that tell of a crash. */
static int start_thread(worker *me)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t all, old;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) sigdelset(&all, crashes[i]);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    atomic_fetch_add(&me->owner->refs, 1);
    int error = pthread_create(&me->thread, NULL, worker_main, me);
    if (error != 0) atomic_fetch_sub(&me->owner->refs, 1);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

static void end_threads(th__workers *w, int started)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    atomic_store(&w->cancel, true);
    for (int i = 0; i < started; i++) pthread_cond_signal(&w->workers[i].work);
    bool leave = w->timed_out;
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < started; i++) {
        if (leave)
            pthread_detach(w->workers[i].thread);
        else
            pthread_join(w->workers[i].thread, NULL);
    }
}

th__workers *th__workers_start(const th__workers_plan *plan)
{
    th__workers *w = make(plan);
    if (w == NULL) return NULL;
    for (int i = 0; i < plan->count; i++) {
        int error = start_thread(&w->workers[i]);
        if (error == 0) continue;
        th__fail(TH_ERR_RUNTIME, "th_dataloader_next", "cannot start worker %d of %d: %s", i, plan->count, strerror(error));
        end_threads(w, i);
        release(w);
        return NULL;
    }
    return w;
}

void th__workers_stop(th__workers *w)
{
    if (w == NULL) return;
    end_threads(w, w->plan.count);
    release(w);
}

void th__workers_begin(th__workers *w, int64_t first, int64_t samples_per_batch)
{
    pthread_mutex_lock(&w->lock);
    w->pass++;
    w->first = w->sent = w->received = first;
    w->samples_per_batch = samples_per_batch;
    w->turn = (int)(first % w->plan.count);
    w->drained = false;
    for (int i = 0; i < w->plan.count; i++) w->workers[i].exhausted = false;
    pthread_mutex_unlock(&w->lock);
}

void th__workers_cancel(th__workers *w)
{
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->cancel, true);
    for (int64_t i = 0; i < w->capacity; i++)
        if (w->slots[i].state == SLOT_QUEUED) w->slots[i].state = SLOT_FREE;
    while (w->running > 0) pthread_cond_wait(&w->done, &w->lock);
    for (int64_t i = 0; i < w->capacity; i++) slot_clear(&w->slots[i]);
    w->received = w->sent;
    atomic_store(&w->cancel, false);
    pthread_mutex_unlock(&w->lock);
}

/* ---------------------------------------------------------------- the consumer's side */

/* The next worker in turn that has not reached its end; -1 if there is none. */
static int next_worker(th__workers *w)
{
    for (int i = 0; i < w->plan.count; i++) {
        int candidate = (w->turn + i) % w->plan.count;
        if (w->workers[candidate].exhausted) continue;
        w->turn = (candidate + 1) % w->plan.count;
        return candidate;
    }
    return -1;
}

static th_status fill(th__workers *w, th__draw_fn draw, void *user)
{
    while (!w->drained && w->sent - w->received < w->capacity) {
        slot *s = &w->slots[w->sent % w->capacity];
        int chosen = next_worker(w);
        s->indices.size = 0;
        if (chosen < 0 || !draw(user, &s->indices, &s->n)) {
            w->drained = true;
            return th__pending();
        }
        pthread_mutex_lock(&w->lock);
        s->worker = chosen;
        s->number = w->sent++;
        s->state = SLOT_QUEUED;
        pthread_cond_signal(&w->workers[chosen].work);
        pthread_mutex_unlock(&w->lock);
    }
    return TH_OK;
}

static void deadline_in(double seconds, struct timespec *deadline)
{
    clock_gettime(CLOCK_MONOTONIC, deadline);
    double whole = seconds < 1e9 ? seconds : 1e9;
    deadline->tv_sec += (time_t)whole;
    deadline->tv_nsec += (long)((whole - (double)(time_t)whole) * 1e9);
    if (deadline->tv_nsec >= 1000000000L) {
        deadline->tv_nsec -= 1000000000L;
        deadline->tv_sec++;
    }
}

static th_status wait_for(th__workers *w, slot *s)
{
    struct timespec deadline;
    int error = 0;
    if (w->plan.timeout > 0) deadline_in(w->plan.timeout, &deadline);
    pthread_mutex_lock(&w->lock);
    while (s->state != SLOT_DONE && error == 0)
        error =
            w->plan.timeout > 0 ? pthread_cond_timedwait(&w->done, &w->lock, &deadline) : pthread_cond_wait(&w->done, &w->lock);
    w->timed_out = s->state != SLOT_DONE;
    pthread_mutex_unlock(&w->lock);
    if (!w->timed_out) return TH_OK;
    return th__fail(TH_ERR_TIMEOUT, "th_dataloader_next",
                    "DataLoader timed out after %g seconds waiting for batch %lld of worker %d", w->plan.timeout,
                    (long long)s->number, s->worker);
}

static th_status deliver(slot *s, th_batch *batch)
{
    if (s->status != TH_OK)
        th__fail(s->status, "th_dataloader_next", "%s (in worker %d, batch %lld)",
                 s->message != NULL ? s->message : "out of memory", s->worker, (long long)s->number);
    else if (!s->end) {
        *batch = s->batch;
        s->batch = (th_batch){0};
    }
    return th__pending();
}

th_status th__workers_next(th__workers *w, th__draw_fn draw, void *user, th_batch *batch, bool *end)
{
    for (;;) {
        TH__TRY(fill(w, draw, user));
        *end = w->received == w->sent;
        if (*end) return TH_OK;
        slot *s = &w->slots[w->received % w->capacity];
        TH__TRY(wait_for(w, s));
        bool ended = s->end;
        if (ended) w->workers[s->worker].exhausted = true;
        th_status status = deliver(s, batch);
        pthread_mutex_lock(&w->lock);
        slot_clear(s);
        w->received++;
        pthread_mutex_unlock(&w->lock);
        if (status != TH_OK) return status;
        if (ended) continue;
        if (fill(w, draw, user) != TH_OK) th__batch_clear(batch);
        return th__pending();
    }
}
