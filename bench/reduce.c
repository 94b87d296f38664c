/* bench/reduce.c: an all-reduce of 100 MB between the processes that `fabric run` started. */
#include "bench.h"

#include <stdio.h>

int bench_all_reduce(const bench_args *args)
{
    TH_SCOPE();
    fabric *fab = bench_fabric(args);
    th_tensor *gradient = th_ones(TH_INTS(25 * 1000 * 1000));
    double best = 1e9;
    for (int i = 0; i < args->steps && th_error() == TH_OK; i++) {
        fabric_barrier(fab);
        double start = bench_now();
        fabric_all_reduce(fab, gradient, .reduce_op = "sum");
        double seconds = bench_now() - start;
        if (i > 0 && seconds < best) best = seconds;
    }
    if (fabric_is_global_zero(fab)) printf("seconds %.6f\n", best);
    return bench_end(fab);
}
