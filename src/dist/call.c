/* dist/call.c: one collective call from its announcement to its end: the header the ranks compare, the wait, and finding out who is
 * late when it fails. */
#include "dist/internal.h"
#include <cfabric/ops.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIRST_SLICE_MS 500   /* a call that takes longer writes into the store that this rank is in it */
#define GRACE_MS 700         /* for the others to do so */
#define STORE_PATIENCE_MS 3000

int64_t th__now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t digest_text(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return (hash ^ '|') * 1099511628211u;
}

const char *th__describe_tensor(th_tensor *tensor, char *text, size_t size)
{
    th_ints sizes = th_sizes(tensor);
    size_t at = (size_t)snprintf(text, size, "%s [", th_dtype_name(th_dtype_of(tensor)));
    for (size_t i = 0; i < sizes.size && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%" PRId64, i ? ", " : "", sizes.data[i]);
    if (at < size) snprintf(text + at, size - at, "]");
    return text;
}

/* ---------------------------------------------------------------- failure */

/* Lists the ranks whose last sign of life in the store is before `number`; "" if there are none. */
static void late_ranks(th__call *call, char *text, size_t size)
{
    th_process_group *group = call->group;
    th__comm_error error;
    char own[96], (*keys)[24] = calloc((size_t)group->size, sizeof *keys), (*values)[96] = calloc((size_t)group->size, 96);
    const char **names = calloc((size_t)group->size, sizeof *names);
    text[0] = '\0';
    if (!keys || !values || !names || !group->store) goto end;
    for (int i = 0; i < group->size; i++) {
        snprintf(keys[i], sizeof keys[i], "at/%d", i);
        names[i] = keys[i];
    }
    snprintf(own, sizeof own, "%" PRId64 " %s", call->number, call->name);
    th__store_set(group->store, keys[group->rank], own, strlen(own), &error);
    nanosleep(&(struct timespec){0, GRACE_MS * 1000000L}, NULL);
    if (!th__store_peek(group->store, names, (size_t)group->size, values[0], 96, STORE_PATIENCE_MS, &error)) {
        snprintf(text, size, "rank 0, which keeps the store, does not answer");
        goto end;
    }
    size_t at = 0;
    for (int i = 0; i < group->size && at < size; i++) {
        long long last = values[i][0] ? strtoll(values[i], NULL, 10) : -1;
        if (i == group->rank || last >= call->number) continue;
        at += (size_t)snprintf(text + at, size - at, "%s%d", at ? ", " : "ranks that did not enter it: ", group->ranks[i]);
    }
end:
    free(keys);
    free(values);
    free(names);
}

void th__group_kill(th_process_group *group, const char *reason)
{
    if (group->dead) return;
    group->dead = strdup(reason);
    if (!group->dead) group->dead = (char *)"out of memory";
}

static th_status call_failed(th__call *call, const th__comm_error *error, bool timed_out)
{
    th_process_group *group = call->group;
    char late[400], reason[1100];
    if (group->dead) return th__fail(TH_ERR_DISTRIBUTED, call->name, "%s", group->dead);
    late_ranks(call, late, sizeof late);
    if (timed_out)
        snprintf(reason, sizeof reason, "%s (call %" PRId64 " of group '%s') timed out after %g s%s%s", call->name, call->number,
                 group->name, (double)group->timeout_ms / 1000.0, late[0] ? "; " : "", late);
    else
        snprintf(reason, sizeof reason, "%s (call %" PRId64 " of group '%s') failed%s%s: %s", call->name, call->number, group->name,
                 late[0] ? "; " : "", late, error->text);
    th__group_kill(group, reason);
    return th__fail(timed_out ? TH_ERR_TIMEOUT : TH_ERR_DISTRIBUTED, call->name, "%s", reason);
}

th_status th__call_wait(th__call *call, th__work *work, th__comm_error *error)
{
    if (!work) return call_failed(call, error, error->status == TH_ERR_TIMEOUT);
    th_process_group *group = call->group;
    if (!group->caps.host_only) { /* NCCL orders streams and has its own watchdog; a wait that times out would abort it */
        bool ok = th__work_wait(work, 0, error);
        th__work_free(work);
        return ok ? TH_OK : call_failed(call, error, error->status == TH_ERR_TIMEOUT);
    }
    int64_t slice = group->timeout_ms < FIRST_SLICE_MS ? group->timeout_ms : FIRST_SLICE_MS;
    bool done = th__work_wait(work, slice, error);
    if (!done && !th__work_is_completed(work)) {
        char key[24], value[96];
        th__comm_error ignored;
        snprintf(key, sizeof key, "at/%d", group->rank);
        snprintf(value, sizeof value, "%" PRId64 " %s", call->number, call->name);
        if (group->store) th__store_set(group->store, key, value, strlen(value), &ignored);
        /* Gloo's own timeout comes first and ends the operation; ours is for an operation that has lost its way. */
        done = th__work_wait(work, group->timeout_ms - slice + 1000, error);
    }
    th__work_free(work); /* an operation that goes on has its own reference */
    if (done) return TH_OK;
    return call_failed(call, error, error->status == TH_ERR_TIMEOUT);
}

th_status th__call_wait_once(th__call *call, th__work *work, th__comm_error *error)
{
    if (!work) return call_failed(call, error, error->status == TH_ERR_TIMEOUT);
    bool done = th__work_wait(work, call->group->timeout_ms, error);
    if (done) call->source = th__work_source(work);
    th__work_free(work);
    return done ? TH_OK : call_failed(call, error, error->status == TH_ERR_TIMEOUT);
}

/* ---------------------------------------------------------------- header */

/* Every rank gives `words`; all get all: a sum of tables in which each rank has filled its own row. (Gloo's all-gather of something
 * this small costs twice as much in libtorch as its all-reduce.) */
static th_status exchange(th__call *call, const int64_t *words, int64_t *all)
{
    th_process_group *group = call->group;
    const size_t row = TH__HEADER_WORDS * sizeof(int64_t), bytes = (size_t)group->size * row;
    bool host = group->device.type == TH_DEVICE_CPU;
    th__comm_error error;
    if (!group->header) {
        TH_NO_GRAD();
        group->header = th_keep(th_zeros(TH_INTS(group->size * TH__HEADER_WORDS), .dtype = TH_INT64, .device = group->device));
        TH__CHECK_PENDING();
    }
    memset(all, 0, bytes);
    memcpy(all + group->rank * TH__HEADER_WORDS, words, row);
    if (host) {
        memcpy(th_data_ptr(group->header), all, bytes);
    } else {
        TH_SCOPE();
        TH_NO_GRAD();
        th_copy_(group->header, th_tensor_from(all, TH_INTS(group->size * TH__HEADER_WORDS), TH_INT64));
        TH__CHECK_PENDING();
    }
    TH__TRY(th__call_wait(call, th__comm_all_reduce(group->comm, group->header, TH__COMM_SUM, &error), &error));
    if (!host) return th_copy_to(group->header, all, bytes, TH_INT64);
    memcpy(all, th_data_ptr(group->header), bytes);
    return TH_OK;
}

/* The ranks disagree and all know it: tell each other in words. */
static th_status mismatch(th__call *call, const char *what)
{
    th_process_group *group = call->group;
    int64_t words[TH__HEADER_WORDS], *all = th__calloc((size_t)group->size, sizeof words);
    char (*texts)[TH__WHAT_SIZE + 64] = th__calloc((size_t)group->size, sizeof *texts);
    char mine[TH__WHAT_SIZE + 64] = "", message[1200];
    th_status status = all && texts ? TH_OK : th__pending();
    snprintf(mine, sizeof mine, "%s(%s)", call->name, what);
    const size_t piece = sizeof words;
    for (size_t at = 0; status == TH_OK && at < sizeof mine; at += piece) {
        size_t n = sizeof mine - at < piece ? sizeof mine - at : piece;
        memset(words, 0, sizeof words);
        memcpy(words, mine + at, n);
        status = exchange(call, words, all);
        for (int i = 0; status == TH_OK && i < group->size; i++) memcpy(texts[i] + at, all + i * TH__HEADER_WORDS, n);
    }
    if (status == TH_OK) {
        size_t used = 0;
        for (int i = 0; i < group->size && used < sizeof message; i++) {
            texts[i][sizeof texts[i] - 1] = '\0';
            used += (size_t)snprintf(message + used, sizeof message - used, "%srank %d: %s", i ? "; " : "", group->ranks[i], texts[i]);
        }
        status = th__fail(TH_ERR_DISTRIBUTED, call->name, "the ranks do not agree at call %" PRId64 ": %s", call->number, message);
    }
    free(all);
    free(texts);
    return status;
}

uint64_t th__call_digest(const char *name, const char *what)
{
    return digest_text(digest_text(14695981039346656037u, name), what);
}

th_status th__call_shadow(th__call *call, th_process_group *group, uint64_t *digest, int64_t *rows)
{
    *call = (th__call){.group = group, .name = "join", .number = ++group->calls};
    int64_t words[TH__HEADER_WORDS] = {0};
    words[1] = words[2 + TH__JOINED_WORD] = 1;
    TH__TRY(exchange(call, words, rows));
    *digest = 0;
    for (int i = 0; i < group->size; i++) {
        const int64_t *row = rows + i * TH__HEADER_WORDS;
        if (row[1]) continue;
        if (*digest && *digest != (uint64_t)row[0]) return mismatch(call, "this rank's data has ended");
        *digest = (uint64_t)row[0];
    }
    return TH_OK;
}

th_status th__call_refuse(th__call *call) { return mismatch(call, "this rank's data has ended"); }

th_status th__call_begin(th__call *call, th_process_group *group, const char *name, const char *what, const int64_t *payload,
                         int64_t *all)
{
    *call = (th__call){.group = group, .name = name, .number = ++group->calls};
    if (!group->check && !all) return TH_OK;
    int64_t words[TH__HEADER_WORDS] = {0}, *table = th__malloc((size_t)group->size * sizeof words);
    if (!table) return th__pending();
    words[0] = (int64_t)th__call_digest(name, what);
    if (payload) memcpy(words + 2, payload, TH__HEADER_PAYLOAD * sizeof(int64_t));
    th_status status = exchange(call, words, table);
    bool equal = true, joinable = strncmp(name, TH__JOINABLE, sizeof TH__JOINABLE - 1) == 0;
    for (int i = 0; status == TH_OK && i < group->size; i++) {
        const int64_t *row = table + i * TH__HEADER_WORDS;
        equal = equal && (row[1] ? joinable : row[0] == words[0]);
        if (all) memcpy(all + i * TH__HEADER_PAYLOAD, row + 2, TH__HEADER_PAYLOAD * sizeof(int64_t));
    }
    free(table);
    if (status != TH_OK) return status;
    return equal ? TH_OK : mismatch(call, what);
}
