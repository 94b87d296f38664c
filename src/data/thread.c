/* data/thread.c: what makes a thread a worker of a loader. */
#include "data/thread.h"

#include "base/error.h"
#include <dlfcn.h>

static _Thread_local const th_worker_info *current;

const th_worker_info *th_get_worker_info(void) { return current; }

th_generator *th_worker_generator(void) { return current != NULL ? current->generator : th_default_generator(); }

/* th_set_num_threads would change the whole process. OpenMP keeps its own number for each thread; libtorch sets it once per
 * thread, at the first question, and leaves it alone afterwards. */
static void use_one_core(void)
{
    union {
        void *object;
        void (*call)(int);
    } set_threads = {dlsym(RTLD_DEFAULT, "omp_set_num_threads")};
    (void)th_get_num_threads();
    if (set_threads.object != NULL) set_threads.call(1);
}

void th__thread_enter_worker(const th_worker_info *info)
{
    current = info;
    th__error_quiet(true);
    use_one_core();
}

void th__thread_leave_worker(void)
{
    current = NULL;
    th__error_quiet(false);
}
