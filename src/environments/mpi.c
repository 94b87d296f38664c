/* environments/mpi.c: processes made by an MPI launcher (mpirun, mpiexec, prun, PALS' mpiexec).
 *
 * No MPI library is linked: the launchers tell every process its place through variables, each family under names of its own.
 * What only MPI calls could exchange, the main address of a job on several hosts, has to come from MASTER_ADDR. */
#include "environments/internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "MPIEnvironment"

typedef struct mpi_family {
    const char *name;
    const char *rank; /* the variable that tells the family */
    const char *size;
    const char *local_rank;
    const char *local_size;
    const char *node_rank; /* index of the host, where the launcher tells it */
} mpi_family;

static const mpi_family families[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL},
    {"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", NULL},
    {"MVAPICH", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_LOCAL_SIZE", NULL},
    {"PALS", "PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "PALS_NODEID"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
    {"PMIx", "PMIX_RANK", NULL, NULL, NULL, NULL},
};

/* Names that stand in where a family leaves something unsaid. */
static const char *const other_sizes[] = {"PMI_SIZE", "WORLD_SIZE", "SLURM_NTASKS", NULL};
static const char *const other_local_ranks[] = {"PMI_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID", NULL};
static const char *const other_local_sizes[] = {"PMI_LOCAL_SIZE", "LOCAL_WORLD_SIZE", NULL};

static const mpi_family *family(void)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (getenv(families[i].rank) != NULL) return &families[i];
    return NULL;
}

bool fabric__mpi_launched(void) { return family() != NULL; }

/* The first of the names that is set; NULL if none is. */
static const char *variable(const char *own, const char *const *others)
{
    if (own != NULL && getenv(own) != NULL) return own;
    while (*others != NULL && getenv(*others) == NULL) others++;
    return *others;
}

static const char *size_variable(const mpi_family *mpi) { return variable(mpi != NULL ? mpi->size : NULL, other_sizes); }

/* A launcher that started one process only is no MPI job; a family that does not say how many there are is taken for one, so that
 * a job of several never runs as several jobs of one. */
static bool detect(void)
{
    const mpi_family *mpi = family();
    if (mpi == NULL) return false;
    const char *size = size_variable(mpi);
    int count;
    return size == NULL || !fabric__parse_int(getenv(size), 0, INT_MAX, &count) || count > 1;
}

static th_status create(void **self)
{
    *self = NULL;
    if (family() != NULL) { /* from here on messages say who speaks */
        int rank = fabric__environment_int(family()->rank, NAME, NULL);
        if (rank >= 0) th__set_message_rank(rank);
        return th__pending();
    }
    return TH__FAIL(TH_ERR_RUNTIME, "no MPI launcher's variables were found (OMPI_COMM_WORLD_RANK, MV2_COMM_WORLD_RANK, "
                                    "PALS_RANKID, PMI_RANK, PMIX_RANK); start the program with mpirun or mpiexec");
}

static int world_size(void *self)
{
    (void)self;
    const mpi_family *mpi = family();
    const char *size = size_variable(mpi);
    if (size != NULL) return fabric__environment_int(size, NAME, NULL);
    TH__FAIL(TH_ERR_KEY, NAME ": the %s launcher does not tell the number of processes; set WORLD_SIZE for every process",
             mpi != NULL ? mpi->name : "MPI");
    return -1;
}

static int global_rank(void *self)
{
    (void)self;
    const mpi_family *mpi = family();
    return fabric__environment_int(mpi != NULL ? mpi->rank : "PMI_RANK", NAME, "start the program with mpirun or mpiexec");
}

static int local_rank(void *self)
{
    (void)self;
    const mpi_family *mpi = family();
    const char *name = variable(mpi != NULL ? mpi->local_rank : NULL, other_local_ranks);
    if (name != NULL) return fabric__environment_int(name, NAME, NULL);
    TH__FAIL(TH_ERR_KEY, NAME ": the %s launcher does not tell the rank on this host; set LOCAL_RANK for every process",
             mpi != NULL ? mpi->name : "MPI");
    return -1;
}

/* Processes on this host, 0 if nobody says. */
static int local_size(void)
{
    const mpi_family *mpi = family();
    const char *name = variable(mpi != NULL ? mpi->local_size : NULL, other_local_sizes);
    return name != NULL ? fabric__environment_int(name, NAME, NULL) : 0;
}

static bool on_one_host(void)
{
    int here = local_size(), all = world_size(NULL);
    return th__pending() == TH_OK && here > 0 && here == all;
}

/* The launcher rarely numbers the hosts; with equally many processes on each, the two usual orders (filling one host after the
 * other, or dealing out in turn) can be told from rank and local rank. */
static int node_rank(void *self)
{
    const mpi_family *mpi = family();
    if (getenv("NODE_RANK") != NULL) return fabric__environment_int("NODE_RANK", NAME, NULL);
    if (mpi != NULL && mpi->node_rank != NULL && getenv(mpi->node_rank) != NULL)
        return fabric__environment_int(mpi->node_rank, NAME, NULL);
    int here = local_size(), all = world_size(self), rank = global_rank(self), local = local_rank(self);
    if (th__pending() != TH_OK) return -1;
    if (here > 0 && all % here == 0) {
        int nodes = all / here;
        if (rank % here == local) return rank / here;
        if (rank / nodes == local) return rank % nodes;
    }
    TH__FAIL(TH_ERR_RUNTIME,
             NAME ": the index of this host cannot be told from rank %d of %d, local rank %d of %d; set NODE_RANK", rank, all,
             local, here);
    return -1;
}

static const char *main_address(void *self)
{
    (void)self;
    const char *address = getenv("MASTER_ADDR");
    if (address != NULL) return address;
    if (on_one_host()) return "127.0.0.1";
    TH__FAIL(TH_ERR_RUNTIME, NAME ": a job on several hosts needs the address of rank 0's host; pass it to every process, for "
                                  "example `mpirun -x MASTER_ADDR=node0 ...`");
    return NULL;
}

/* ---- the port: what all processes of one job compute alike and two jobs on one host most likely do not */

static uint32_t hash(uint32_t seed, const char *text)
{
    for (; *text != '\0'; text++) seed = (seed ^ (unsigned char)*text) * 16777619u; /* FNV-1a */
    return seed;
}

static bool is_launcher(const char *program)
{
    static const char *const names[] = {"mpirun", "mpiexec", "hydra_pmi_proxy", "orted", "prted", "prte", "orterun", "palsd"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(program, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* The process number of the launcher above this process, scripts in between skipped; 0 if there is none. */
static long launcher_process(void)
{
    long pid = (long)getppid();
    for (int depth = 0; pid > 1 && depth < 16; depth++) {
        char path[64], text[512], *program, *end;
        snprintf(path, sizeof path, "/proc/%ld/stat", pid);
        FILE *file = fopen(path, "re");
        if (file == NULL) return 0;
        size_t n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[n] = '\0';
        if ((program = strchr(text, '(')) == NULL || (end = strrchr(text, ')')) == NULL || end < program) return 0;
        *end = '\0';
        if (is_launcher(program + 1)) return pid;
        if (sscanf(end + 1, " %*c %ld", &pid) != 1) return 0;
    }
    return 0;
}

static int main_port(void *self)
{
    (void)self;
    static const char *const job_names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PALS_APID", "MV2_COMM_WORLD_JOBID"};
    if (getenv("MASTER_PORT") != NULL) return fabric__environment_port("MASTER_PORT");
    for (size_t i = 0; i < sizeof job_names / sizeof job_names[0]; i++)
        if (getenv(job_names[i]) != NULL) return 20000 + (int)(hash(2166136261u, getenv(job_names[i])) % 10000);
    long launcher = on_one_host() ? launcher_process() : 0;
    if (th__pending() != TH_OK) return -1;
    return launcher > 0 ? 20000 + (int)(launcher % 10000) : 12910;
}

static th_status validate_settings(void *self, int num_devices, int num_nodes)
{
    int world = world_size(self);
    if (world < 0) return th__pending();
    if ((long long)num_devices * num_nodes == world) return TH_OK;
    return TH__FAIL(TH_ERR_VALUE,
                    "devices=%d and num_nodes=%d were set, but the product (%d * %d) does not match the MPI world size (%s=%d)",
                    num_devices, num_nodes, num_devices, num_nodes, size_variable(family()), world);
}

const fabric_environment_ops fabric__environment_mpi = {
    .size = sizeof(fabric_environment_ops),
    .name = "mpi",
    .type_name = NAME,
    .detect = detect,
    .create = create,
    .main_address = main_address,
    .main_port = main_port,
    .world_size = world_size,
    .global_rank = global_rank,
    .local_rank = local_rank,
    .node_rank = node_rank,
    .validate_settings = validate_settings,
};
