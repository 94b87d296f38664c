/* checkpoint/async.c: saves in the background: one thread at a time writes a snapshot; its error is raised by the next wait. */
#include "checkpoint/internal.h"

#include "base/memory.h"
#include "checkpoint/plan.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_mutex_t mutex; /* guards everything here against two threads that save */
    bool running;
    pthread_t thread;
    th__plan plan;
    char *path;
    th__saved_error error;
} job = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Reports a failure here, where it happens, and keeps it for the thread that waits. */
static void *run(void *unused)
{
    (void)unused;
    th__plan_write_file(&job.plan, job.path);
    th__error_suspend(&job.error);
    th__plan_free(&job.plan);
    return NULL;
}

static th_status finish_locked(void)
{
    if (!job.running) return TH_OK;
    pthread_join(job.thread, NULL);
    job.running = false;
    free(job.path);
    job.path = NULL;
    if (job.error.status != TH_OK) th__error_resume(&job.error);
    job.error = (th__saved_error){0};
    return th__pending();
}

th_status th__checkpoint_wait(void)
{
    pthread_mutex_lock(&job.mutex);
    finish_locked();
    pthread_mutex_unlock(&job.mutex);
    return th__pending();
}

static th_status start_locked(const char *path, th_value *state)
{
    TH__TRY(finish_locked());
    if (th__is_safetensors_path(path)) return th__checkpoint_write(path, state); /* small and flat: not worth a thread */
    TH__TRY(th__plan_make(&job.plan, state));
    th_status status = th__plan_snapshot(&job.plan);
    if (status == TH_OK && (job.path = th__strdup(path)) == NULL) status = th__pending();
    if (status == TH_OK && pthread_create(&job.thread, NULL, run, NULL) != 0)
        status = th__fail(TH_ERR_RUNTIME, "fabric_save", "no thread could be started to write '%s'", path);
    if (status == TH_OK) {
        job.running = true;
        return TH_OK;
    }
    th__plan_free(&job.plan);
    free(job.path);
    job.path = NULL;
    return status;
}

th_status th__checkpoint_write_async(const char *path, th_value *state)
{
    TH__CHECK_PENDING();
    pthread_mutex_lock(&job.mutex);
    th_status status = start_locked(path, state);
    pthread_mutex_unlock(&job.mutex);
    return status;
}
