/* environments/slurm.c: processes made by SLURM's srun. */
#include "environments/internal.h"

#include "base/env.h"
#include "base/memory.h"
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define NAME "SLURMEnvironment"
#define HINT "start the program with `srun`"

typedef struct slurm_environment {
    bool auto_requeue;
    int requeue_signal;
} slurm_environment;

const char *fabric_slurm_job_name(void) { return getenv("SLURM_JOB_NAME"); }

static bool interactive(void)
{
    const char *name = fabric_slurm_job_name();
    return name != NULL && (strcmp(name, "bash") == 0 || strcmp(name, "interactive") == 0);
}

int64_t fabric_slurm_job_id(void)
{
    int id;
    const char *text = getenv("SLURM_JOB_ID");
    return !interactive() && text != NULL && fabric__parse_int(text, 0, INT_MAX, &id) ? id : -1;
}

static bool srun_used(void) { return getenv("SLURM_NTASKS") != NULL && !interactive(); }

/* ---- the warning for programs that forgot srun */

static bool on_path(const char *program)
{
    const char *path = getenv("PATH");
    char file[PATH_MAX];
    for (const char *p = path; p != NULL && *p != '\0';) {
        size_t n = strcspn(p, ":");
        if (n > 0 && snprintf(file, sizeof file, "%.*s/%s", (int)n, p, program) < (int)sizeof file && access(file, X_OK) == 0)
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

/* "srun ./train --epochs 3", from this process's own command line, cut to `size` - 1. */
static void srun_command(char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "srun ");
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, out + used, size - 1 - used) : 0;
    if (fd >= 0) close(fd);
    if (got > 0) used += (size_t)got;
    for (size_t i = 0; i < used; i++)
        if (out[i] == '\0' || out[i] == '\n') out[i] = ' ';
    while (used > 0 && out[used - 1] == ' ') used--;
    out[used] = '\0';
}

static void warn_if_srun_is_not_used(void)
{
    static bool warned;
    const char *silenced = getenv("POSSIBLE_USER_WARNINGS");
    if (warned || srun_used() || fabric__mpi_launched() || !on_path("srun")) return; /* mpirun is a launcher, too */
    if (silenced != NULL && (strcmp(silenced, "0") == 0 || strcasecmp(silenced, "off") == 0)) return;
    warned = true;
    char command[64 + 1];
    srun_command(command, sizeof command);
    th__warn_rank_zero("The `srun` command is available on your system but is not used. HINT: If your intention is to run "
                       "on SLURM, prepend your command with `srun` like so: %s ...",
                       command);
}

static bool detect(void)
{
    warn_if_srun_is_not_used();
    return srun_used();
}

/* ---- construction */

static th_status check_variables(void)
{
    int ntasks = fabric__environment_int_or("SLURM_NTASKS", NAME, 1);
    if (ntasks < 0) return th__pending();
    if (ntasks > 1 && getenv("SLURM_NTASKS_PER_NODE") == NULL)
        return TH__FAIL(TH_ERR_RUNTIME,
                        "`--ntasks=%d` was set in the SLURM script, but this variable is not supported. HINT: Use "
                        "`--ntasks-per-node=%d` instead",
                        ntasks, ntasks);
    return TH_OK;
}

static th_status create_with(bool auto_requeue, int requeue_signal, void **self)
{
    warn_if_srun_is_not_used();
    TH__TRY(check_variables());
    slurm_environment *slurm = th__calloc(1, sizeof *slurm);
    if (slurm == NULL) return th__pending();
    slurm->auto_requeue = auto_requeue;
    slurm->requeue_signal = requeue_signal != 0 ? requeue_signal : SIGUSR1;
    *self = slurm;
    return TH_OK;
}

static th_status create(void **self) { return create_with(true, 0, self); }

fabric_environment *fabric_environment_slurm_call(struct fabric_environment_slurm_args args)
{
    TH__CHECK_PENDING_NULL();
    void *self = NULL;
    if (create_with(args.auto_requeue, args.requeue_signal, &self) != TH_OK) return NULL;
    fabric_environment *environment = fabric_environment_new(&fabric__environment_slurm, self);
    if (environment == NULL) free(self);
    return environment;
}

static slurm_environment *settings_of(fabric_environment *environment, const char *function)
{
    void *self = NULL;
    const fabric_environment_ops *ops = fabric__environment_ops_of(environment, function, &self);
    if (ops == NULL) return NULL;
    if (ops->create == create) return self;
    th__fail(TH_ERR_TYPE, function, "environment '%s' given; expected a SLURM environment", ops->name);
    return NULL;
}

bool fabric_environment_slurm_auto_requeue(fabric_environment *environment)
{
    slurm_environment *slurm = settings_of(environment, __func__);
    return slurm != NULL && slurm->auto_requeue;
}

int fabric_environment_slurm_requeue_signal(fabric_environment *environment)
{
    slurm_environment *slurm = settings_of(environment, __func__);
    return slurm != NULL ? slurm->requeue_signal : -1;
}

/* ---- where the ranks meet */

void fabric__slurm_root_node(const char *nodelist, char *out, size_t size)
{
    size_t used = 0;
    bool inside = false, skipping = false; /* inside brackets; past the first number of the brackets */
    while (*nodelist == ' ') nodelist++;
    for (const char *p = nodelist; *p != '\0' && used + 1 < size; p++) {
        if (*p == '[') {
            inside = true;
            skipping = false;
        } else if (*p == ']') {
            inside = false;
        } else if (inside) {
            if (*p == ',' || *p == '-') skipping = true;
            if (!skipping) out[used++] = *p;
        } else if (*p == ' ' || *p == ',') {
            break;
        } else {
            out[used++] = *p;
        }
    }
    out[used] = '\0';
}

static const char *main_address(void *self)
{
    (void)self;
    if (getenv("MASTER_ADDR") == NULL) {
        const char *list = getenv("SLURM_NODELIST");
        char root[256];
        fabric__slurm_root_node(list != NULL ? list : "127.0.0.1", root, sizeof root);
        if (root[0] == '\0') {
            TH__FAIL(TH_ERR_VALUE, NAME ": SLURM_NODELIST='%s' holds no host name", list);
            return NULL;
        }
        if (th__env_set("MASTER_ADDR", root) != TH_OK) return NULL;
    }
    return getenv("MASTER_ADDR");
}

/* Every process of the job computes the same port: 15000 and the last four digits of the job's number. */
static int main_port(void *self)
{
    (void)self;
    if (getenv("MASTER_PORT") != NULL) return fabric__environment_port("MASTER_PORT");
    int port = 12910;
    const char *id = getenv("SLURM_JOB_ID");
    if (id != NULL) {
        size_t length = strlen(id);
        if (!fabric__parse_int(length > 4 ? id + length - 4 : id, 0, 9999, &port)) {
            TH__FAIL(TH_ERR_VALUE, NAME ": SLURM_JOB_ID='%s' does not end in a number", id);
            return -1;
        }
        port += 15000;
    }
    return th__env_set_int("MASTER_PORT", port) == TH_OK ? port : -1;
}

/* SLURM_NTASKS; where only the per-node count is known, nodes times that. */
static int world_size(void *self)
{
    (void)self;
    if (getenv("SLURM_NTASKS") != NULL || getenv("SLURM_NTASKS_PER_NODE") == NULL)
        return fabric__environment_int("SLURM_NTASKS", NAME, HINT);
    int per_node = fabric__environment_int("SLURM_NTASKS_PER_NODE", NAME, HINT);
    int nodes = fabric__environment_int_or("SLURM_NNODES", NAME, 1);
    return per_node < 0 || nodes < 0 ? -1 : per_node * nodes;
}

static int global_rank(void *self)
{
    (void)self;
    return fabric__environment_int("SLURM_PROCID", NAME, HINT);
}
static int local_rank(void *self)
{
    (void)self;
    return fabric__environment_int("SLURM_LOCALID", NAME, HINT);
}
static int node_rank(void *self)
{
    (void)self;
    return fabric__environment_int("SLURM_NODEID", NAME, HINT);
}

/* The two comparisons users know come first and give the fix; then whatever else contradicts the requested world. */
static th_status validate_settings(void *self, int num_devices, int num_nodes)
{
    (void)self;
    if (interactive()) return TH_OK;
    int per_node = fabric__environment_int_or("SLURM_NTASKS_PER_NODE", NAME, num_devices);
    int nodes = fabric__environment_int_or("SLURM_NNODES", NAME, num_nodes);
    int ntasks = fabric__environment_int_or("SLURM_NTASKS", NAME, num_devices * num_nodes);
    TH__CHECK_PENDING();
    if (per_node != num_devices)
        return TH__FAIL(TH_ERR_VALUE,
                        "devices=%d was set, but the number of tasks per node configured in SLURM "
                        "`--ntasks-per-node=%d` does not match. HINT: Set devices=%d",
                        num_devices, per_node, per_node);
    if (nodes != num_nodes)
        return TH__FAIL(TH_ERR_VALUE,
                        "num_nodes=%d was set, but the number of nodes configured in SLURM `--nodes=%d` does not "
                        "match. HINT: Set num_nodes=%d",
                        num_nodes, nodes, nodes);
    if (ntasks != num_devices * num_nodes)
        return TH__FAIL(TH_ERR_VALUE,
                        "SLURM counts contradict each other: SLURM_NTASKS=%d, but devices=%d times num_nodes=%d "
                        "(SLURM_NTASKS_PER_NODE=%d, SLURM_NNODES=%d) make %d processes",
                        ntasks, num_devices, num_nodes, per_node, nodes, num_devices * num_nodes);
    return TH_OK;
}

const fabric_environment_ops fabric__environment_slurm = {
    .size = sizeof(fabric_environment_ops),
    .name = "slurm",
    .type_name = NAME,
    .detect = detect,
    .create = create,
    .destroy = free,
    .main_address = main_address,
    .main_port = main_port,
    .world_size = world_size,
    .global_rank = global_rank,
    .local_rank = local_rank,
    .node_rank = node_rank,
    .validate_settings = validate_settings,
};
