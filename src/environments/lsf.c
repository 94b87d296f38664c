/* environments/lsf.c: processes made by jsrun under IBM's LSF. */
#include "environments/internal.h"

#include "base/env.h"
#include "base/memory.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "LSFEnvironment"

enum { HOST_MAX = 256 };

typedef struct lsf_environment {
    char main_address[HOST_MAX];
    int main_port;
    int node_rank;
} lsf_environment;

typedef struct host_list {
    char (*names)[HOST_MAX]; /* distinct hosts in the order of the file */
    size_t count, capacity;
} host_list;

static bool detect(void)
{
    return getenv("LSB_JOBID") != NULL && getenv("LSB_DJOB_RANKFILE") != NULL && getenv("JSM_NAMESPACE_LOCAL_RANK") != NULL &&
           getenv("JSM_NAMESPACE_SIZE") != NULL;
}

static th_status add_host(host_list *hosts, const char *name)
{
    for (size_t i = 0; i < hosts->count; i++)
        if (strcmp(hosts->names[i], name) == 0) return TH_OK;
    if (th__grow((void **)&hosts->names, hosts->count, &hosts->capacity, sizeof hosts->names[0]) != 0) return th__pending();
    snprintf(hosts->names[hosts->count++], HOST_MAX, "%s", name);
    return TH_OK;
}

/* The first line names the launch node, which runs no process of the job. */
static th_status read_hosts(host_list *hosts)
{
    const char *path = getenv("LSB_DJOB_RANKFILE");
    if (path == NULL) return TH__FAIL(TH_ERR_VALUE, "did not find the environment variable 'LSB_DJOB_RANKFILE'");
    if (path[0] == '\0') return TH__FAIL(TH_ERR_VALUE, "the environment variable 'LSB_DJOB_RANKFILE' is empty");
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return TH__FAIL(errno == ENOENT ? TH_ERR_NOT_FOUND : TH_ERR_IO, "the rank file LSB_DJOB_RANKFILE='%s' cannot be read: %s",
                        path, strerror(errno));
    char line[HOST_MAX];
    th_status status = TH_OK;
    for (int number = 0; status == TH_OK && fgets(line, sizeof line, file) != NULL; number++) {
        char *start = line + strspn(line, " \t\r\n");
        start[strcspn(start, " \t\r\n")] = '\0';
        if (number > 0 && start[0] != '\0') status = add_host(hosts, start);
    }
    fclose(file);
    if (status == TH_OK && hosts->count == 0)
        status = TH__FAIL(TH_ERR_VALUE,
                          "the rank file '%s' names no compute host; expected the launch node and then one host per "
                          "process",
                          path);
    return status;
}

static th_status find_node_rank(const host_list *hosts, int *node_rank)
{
    char host[HOST_MAX];
    TH__TRY(fabric__environment_hostname(host, sizeof host));
    for (size_t i = 0; i < hosts->count; i++)
        if (strcmp(hosts->names[i], host) == 0) {
            *node_rank = (int)i;
            return TH_OK;
        }
    return TH__FAIL(TH_ERR_VALUE, "this host, '%s', is not in the rank file '%s', whose first compute host is '%s'", host,
                    getenv("LSB_DJOB_RANKFILE"), hosts->names[0]);
}

static th_status find_main_port(int *port)
{
    if (getenv("MASTER_PORT") != NULL) {
        *port = fabric__environment_port("MASTER_PORT");
        return th__pending();
    }
    const char *id = getenv("LSB_JOBID");
    if (id == NULL) return TH__FAIL(TH_ERR_VALUE, "could not find the job id in the environment variable 'LSB_JOBID'");
    if (!fabric__parse_int(id, 0, INT_MAX, port)) return TH__FAIL(TH_ERR_VALUE, "LSB_JOBID='%s' is not a number", id);
    *port = *port % 1000 + 10000;
    return TH_OK;
}

static th_status fill(lsf_environment *lsf, host_list *hosts)
{
    TH__TRY(read_hosts(hosts));
    memcpy(lsf->main_address, hosts->names[0], HOST_MAX);
    TH__TRY(find_main_port(&lsf->main_port));
    TH__TRY(find_node_rank(hosts, &lsf->node_rank));
    TH__TRY(th__env_set("MASTER_ADDR", lsf->main_address));
    return th__env_set_int("MASTER_PORT", lsf->main_port);
}

static th_status create(void **self)
{
    lsf_environment *lsf = th__calloc(1, sizeof *lsf);
    if (lsf == NULL) return th__pending();
    host_list hosts = {0};
    th_status status = fill(lsf, &hosts);
    free(hosts.names);
    if (status != TH_OK)
        free(lsf);
    else
        *self = lsf;
    return status;
}

static const char *main_address(void *self) { return ((lsf_environment *)self)->main_address; }
static int main_port(void *self) { return ((lsf_environment *)self)->main_port; }
static int node_rank(void *self) { return ((lsf_environment *)self)->node_rank; }

/* Upstream's answer to a missing variable is a ValueError that says how to start the program. */
static int jsm_variable(const char *variable, const char *what)
{
    if (getenv(variable) != NULL) return fabric__environment_int(variable, NAME, NULL);
    TH__FAIL(TH_ERR_VALUE,
             "cannot determine %s: environment variable '%s' not found; make sure you run your executable with "
             "`jsrun`",
             what, variable);
    return -1;
}

static int world_size(void *self)
{
    (void)self;
    return jsm_variable("JSM_NAMESPACE_SIZE", "world size");
}
static int global_rank(void *self)
{
    (void)self;
    return jsm_variable("JSM_NAMESPACE_RANK", "global rank");
}
static int local_rank(void *self)
{
    (void)self;
    return jsm_variable("JSM_NAMESPACE_LOCAL_RANK", "local rank");
}

const fabric_environment_ops fabric__environment_lsf = {
    .size = sizeof(fabric_environment_ops),
    .name = "lsf",
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
};
