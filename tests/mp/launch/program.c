/* A program on cfabric for the launching tests: `mp_program BEHAVIOUR [STRATEGY]`, two devices. */
#include <cfabric/cfabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *behaviour = "plain";

/* Something that uses every thread libtorch has. */
static void run_a_parallel_operator(void)
{
    TH_SCOPE();
    th_tensor *big = th_ones(TH_INTS(2432, 2688));
    printf("sum %.0f\n", th_item(th_sum(th_relu(big))));
    fflush(stdout);
}

/* The work of a rank: 1 + 2 + ... over the ranks. */
static th_value *work(fabric *fab, void *user)
{
    TH_SCOPE();
    (void)user;
    int rank = fabric_global_rank(fab);
    if (strstr(behaviour, "error") != NULL && rank == 1) th_error_set(TH_ERR_VALUE, "rank 1 does not like its data");
    if (strcmp(behaviour, "crash") == 0 && rank == 1) abort();
    th_tensor *sum = fabric_all_reduce(fab, th_full(TH_INTS(1), TH_S(rank + 1.0)), .reduce_op = "sum");
    if (sum == NULL) return NULL;
    double total = th_item(sum);
    printf("rank %d of %d: total %.0f, threads %d\n", rank, fabric_world_size(fab), total, th_get_num_threads());
    fflush(stdout);
    return th_value_double(total);
}

/* BC-055: in the child of a fork after tensor work every call is an error at once, instead of a hang. */
static int fork_late(void)
{
    int status = 0;
    run_a_parallel_operator();
    pid_t child = fork();
    if (child == 0) {
        TH_SCOPE();
        _exit(th_ones(TH_INTS(2432, 2688)) == NULL && th_error() == TH_ERR_FORKED ? 0 : 1);
    }
    waitpid(child, &status, 0);
    run_a_parallel_operator(); /* the parent goes on */
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 && th_error() == TH_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *strategy = argc > 2 ? argv[2] : "ddp";
    if (argc > 1) behaviour = argv[1];
    if (strcmp(behaviour, "fork-late") == 0) {
        fabric *one = fabric_new(.accelerator = "cpu", .devices = "1");
        int code = fork_late();
        return fabric_finish(one) != 0 ? 1 : code;
    }
    if (strcmp(behaviour, "tensors-first") == 0) run_a_parallel_operator();
    if (strncmp(behaviour, "run", 3) == 0) { /* under `fabric run` */
        fabric *given = fabric_new();
        th_value_free(given != NULL ? work(given, NULL) : NULL);
        return fabric_finish(given);
    }
    fabric *fab = fabric_new(.accelerator = "cpu", .devices = "2", .strategy = strategy);
    th_value *result = NULL;
    if (strcmp(strategy, "ddp") == 0) {
        if (fabric_launch(fab) == TH_OK) result = work(fab, NULL);
    } else {
        result = fabric_launch_fn(fab, work, NULL);
        if (result != NULL) printf("result %.0f\n", th_value_as_double(result, -1));
        if (result != NULL && strcmp(behaviour, "twice") == 0) {
            th_value_free(result);
            result = fabric_launch_fn(fab, work, NULL);
            if (result != NULL) printf("second result %.0f\n", th_value_as_double(result, -1));
        }
    }
    th_value_free(result);
    return fabric_finish(fab);
}
