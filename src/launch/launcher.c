/* launch/launcher.c: the registry of launchers and what the built-in ones share. */
#include "launch/launchers.h"

#include "base/cpu.h"
#include "base/env.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "base/registry.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const th__registry_item builtins[] = {
    {"subprocess", &fabric__launcher_subprocess, NULL},
    {"spawn", &fabric__launcher_spawn, NULL},
    {"fork", &fabric__launcher_fork, NULL},
};
static th__registry registry = TH__REGISTRY("launcher", builtins);

th_status fabric_launcher_register(const fabric_launcher_ops *ops, bool override)
{
    TH__CHECK_PENDING();
    if (ops == NULL || ops->name == NULL || !TH__SLOT(ops, launch))
        return TH__FAIL(TH_ERR_VALUE, "a launcher needs a name and a launch function");
    return th__registry_add(&registry, ops->name, ops, TH__SLOT(ops, description) ? ops->description : NULL, override);
}

th_status fabric_launcher_unregister(const char *name) { return th__registry_remove(&registry, name); }
const fabric_launcher_ops *fabric_launcher_find(const char *name) { return th__registry_get(&registry, name); }
size_t fabric_launcher_list(const char **names, size_t capacity) { return th__registry_names(&registry, names, capacity); }

/* ---------------------------------------------------------------- launching */

static th_status share_processors(const fabric_launch_request *request)
{
    int threads = 1;
    if (th__env_is_set("OMP_NUM_THREADS")) return TH_OK;
    TH__TRY(th__threads_per_rank(th__usable_cores(), request->num_processes, &threads));
    if (TH__SLOT(request, set_num_threads)) request->set_num_threads(threads);
    return th__env_set_int("OMP_NUM_THREADS", threads);
}

static th_status run_function(const fabric_launch_request *request, fabric_launch_result *result)
{
    fabric_launch_result unwanted = {0};
    th_status status = request->function(request->user, result != NULL ? result : &unwanted);
    free(unwanted.data);
    return status != TH_OK ? status : th__pending();
}

th_status fabric__run_here(const fabric_launch_request *request, fabric_launch_result *result)
{
    TH__TRY(share_processors(request));
    return request->function != NULL ? run_function(request, result) : TH_OK;
}

th_status fabric_launcher_launch(const char *name, const fabric_launch_request *request, fabric_launch_result *result)
{
    TH__CHECK_PENDING();
    if (result != NULL) *result = (fabric_launch_result){0};
    if (name == NULL || *name == '\0') return request->function != NULL ? run_function(request, result) : TH_OK;
    const fabric_launcher_ops *ops = fabric_launcher_find(name);
    if (ops == NULL) return th__pending();
    if (request->num_processes < 1 || request->num_nodes < 1)
        return TH__FAIL(TH_ERR_VALUE, "%d processes on %d nodes: expected at least one of each", request->num_processes,
                        request->num_nodes);
    if (TH__SLOT(ops, needs_function) && request->function == NULL)
        return TH__FAIL(TH_ERR_TYPE, "the '%s' launcher starts processes that run a function: give one (fabric_launch_fn)", name);
    TH__TRY(fabric_environment_validate_settings(request->environment, request->num_processes, request->num_nodes));
    return ops->launch(request, result);
}

/* ---------------------------------------------------------------- shared by the built-in ones */

bool fabric__is_rank_of(const char *launcher, const fabric_launch_request *request)
{
    const char *made_by = th__env(FABRIC__ENV_LAUNCHER);
    if (made_by == NULL || strcmp(made_by, launcher) != 0 || !th__env_is_set("LOCAL_RANK")) return false;
    int64_t world = 0;
    if (th__env_int_required("WORLD_SIZE", 1, INT32_MAX, &world) != TH_OK) return true;
    if (world != (int64_t)request->num_processes * request->num_nodes)
        th__fail(TH_ERR_RUNTIME, "launch",
                 "this process is one of %d that an earlier launch has made; %d processes on %d nodes cannot be "
                 "launched from it",
                 (int)world, request->num_processes, request->num_nodes);
    return true;
}

th_status fabric__job_from_request(fabric__job *job, const fabric_launch_request *request)
{
    fabric_environment *environment = request->environment;
    int local_rank = fabric_environment_local_rank(environment);
    TH__CHECK_PENDING();
    if (local_rank != 0)
        return th__fail(TH_ERR_RUNTIME, "launch",
                        "only the process with local rank 0 can launch others, this one has %d; is LOCAL_RANK "
                        "left over in the environment?",
                        local_rank);
    /* On one machine without wishes any port will do, and the supervisor can keep it from being taken by others meanwhile. */
    bool any_port = request->num_nodes == 1 && strcmp(fabric_environment_name(environment), "lightning") == 0 &&
                    th__env("MASTER_PORT") == NULL && th__env("STANDALONE_PORT") == NULL;
    job->local_processes = request->num_processes;
    job->num_nodes = request->num_nodes;
    job->node_rank = fabric_environment_node_rank(environment);
    job->main_address = fabric_environment_main_address(environment);
    job->main_port = any_port ? 0 : fabric_environment_main_port(environment);
    job->port_is_explicit = !any_port;
    return th__pending();
}

int fabric__result_open(void)
{
    int fd = memfd_create("cfabric-result", MFD_CLOEXEC);
    if (fd < 0) th__fail(TH_ERR_RUNTIME, "launch", "no place for the result could be made: %s", strerror(errno));
    return fd;
}

th_status fabric__result_write(int fd, const fabric_launch_result *result)
{
    const char *data = result->data;
    for (size_t done = 0; done < result->size;) {
        ssize_t written = pwrite(fd, data + done, result->size - done, (off_t)done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return th__fail(TH_ERR_IO, "launch", "the result could not be handed back: %s", strerror(errno));
        done += (size_t)written;
    }
    return TH_OK;
}

th_status fabric__result_read(int fd, fabric_launch_result *result)
{
    off_t size = lseek(fd, 0, SEEK_END);
    if (result == NULL || size <= 0) return TH_OK;
    char *data = th__malloc((size_t)size);
    if (data == NULL) return th__pending();
    for (size_t done = 0; done < (size_t)size;) {
        ssize_t got = pread(fd, data + done, (size_t)size - done, (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            free(data);
            return th__fail(TH_ERR_IO, "launch", "rank 0's result could not be read: %s", strerror(errno));
        }
        done += (size_t)got;
    }
    *result = (fabric_launch_result){data, (size_t)size};
    return TH_OK;
}

th_status fabric__outcome_status(const fabric__outcome *outcome)
{
    char text[1600];
    if (outcome->code == 0) return TH_OK;
    fabric__outcome_text(outcome, text, sizeof text);
    return th__fail(TH_ERR_DISTRIBUTED, "launch", "%s", text);
}
