/* fabric/seed.c: seed_everything and printing. */
#include "base/env.h"
#include "fabric/internal.h"
#include "strategies/internal.h"
#include <stdarg.h>
#include <stdio.h>

#define SEED_MAX ((int64_t)UINT32_MAX)

int64_t fabric_seed_everything_call(struct fabric_seed_everything_args args)
{
    TH__CHECK_PENDING();
    int64_t seed = args.seed;
    if (seed == FABRIC_SEED_FROM_ENV) {
        if (th__env_is_set("PL_GLOBAL_SEED")) {
            TH__TRY(th__env_int_required("PL_GLOBAL_SEED", 0, SEED_MAX, &seed));
        } else {
            seed = 0;
            if (args.verbose) th__warn_rank_zero("no seed was given and PL_GLOBAL_SEED is not set: the seed is 0");
        }
    }
    if (seed < 0 || seed > SEED_MAX)
        return TH__FAIL(TH_ERR_VALUE, "the seed is %lld, expected 0 .. %lld", (long long)seed, (long long)SEED_MAX);
    if (args.verbose) th__info("Seed set to %lld", (long long)seed);
    TH__TRY(th__env_set_int("PL_GLOBAL_SEED", seed));
    TH__TRY(th__env_set_int("PL_SEED_WORKERS", args.workers ? 1 : 0));
    TH__TRY(th_manual_seed((uint64_t)seed));
    return seed;
}

th_status fabric_reset_seed(void)
{
    TH__CHECK_PENDING();
    if (!th__env_is_set("PL_GLOBAL_SEED")) return TH_OK;
    int64_t workers = 0;
    TH__TRY(th__env_int("PL_SEED_WORKERS", 0, 0, 1, &workers));
    int64_t seed = fabric_seed_everything(FABRIC_SEED_FROM_ENV, .workers = workers == 1, .verbose = false);
    return seed < 0 ? (th_status)seed : TH_OK;
}

th_status fabric_print(fabric *fab, const char *format, ...)
{
    FABRIC__ENTER(fab);
    if (fabric_strategy_local_rank(fab->strategy) != 0) return th__pending();
    va_list args;
    va_start(args, format);
    int written = vprintf(format, args);
    va_end(args);
    if (written < 0 || fflush(stdout) != 0) return TH__FAIL(TH_ERR_IO, "standard output cannot be written to");
    return TH_OK;
}
