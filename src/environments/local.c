/* environments/local.c: the default ("lightning") environment, for one machine or machines without a scheduler. */
#include "environments/internal.h"

#include "base/memory.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct local_environment {
    int main_port; /* -1 until asked for the first time */
    int world_size;
    int global_rank;
} local_environment;

static bool detect(void) { return true; }

static th_status create(void **self)
{
    local_environment *local = th__calloc(1, sizeof *local);
    if (local == NULL) return th__pending();
    local->main_port = -1;
    local->world_size = 1;
    *self = local;
    return TH_OK;
}

/* With LOCAL_RANK in the environment the user (or our own launcher) has made the processes. */
static bool creates_processes_externally(void *self)
{
    (void)self;
    return getenv("LOCAL_RANK") != NULL;
}

static const char *main_address(void *self)
{
    (void)self;
    const char *address = getenv("MASTER_ADDR");
    return address != NULL ? address : "127.0.0.1";
}

int fabric_find_free_network_port(void)
{
    if (th__pending() != TH_OK) return -1;
    if (getenv("STANDALONE_PORT") != NULL) return fabric__environment_port("STANDALONE_PORT");
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t size = sizeof address;
    int port = -1;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &size) == 0)
        port = ntohs(address.sin_port);
    if (port < 0) TH__FAIL(TH_ERR_IO, "no free network port could be found: %s", strerror(errno));
    if (fd >= 0) close(fd);
    return port;
}

static int main_port(void *self)
{
    local_environment *local = self;
    if (local->main_port < 0)
        local->main_port =
            getenv("MASTER_PORT") != NULL ? fabric__environment_port("MASTER_PORT") : fabric_find_free_network_port();
    return local->main_port;
}

static int world_size(void *self) { return ((local_environment *)self)->world_size; }
static int global_rank(void *self) { return ((local_environment *)self)->global_rank; }

static int local_rank(void *self)
{
    (void)self;
    return fabric__environment_int_or("LOCAL_RANK", "LightningEnvironment", 0);
}

static int node_rank(void *self)
{
    (void)self;
    const char *variable = getenv("NODE_RANK") != NULL ? "NODE_RANK" : "GROUP_RANK";
    return fabric__environment_int_or(variable, "LightningEnvironment", 0);
}

static th_status set_world_size(void *self, int size)
{
    ((local_environment *)self)->world_size = size;
    return TH_OK;
}

static th_status set_global_rank(void *self, int rank)
{
    ((local_environment *)self)->global_rank = rank;
    th__set_message_rank(rank);
    return TH_OK;
}

static th_status teardown(void *self)
{
    (void)self;
    unsetenv("WORLD_SIZE");
    return TH_OK;
}

const fabric_environment_ops fabric__environment_lightning = {
    .size = sizeof(fabric_environment_ops),
    .name = "lightning",
    .type_name = "LightningEnvironment",
    .detect = detect,
    .create = create,
    .destroy = free,
    .creates_processes_externally = creates_processes_externally,
    .main_address = main_address,
    .main_port = main_port,
    .world_size = world_size,
    .global_rank = global_rank,
    .local_rank = local_rank,
    .node_rank = node_rank,
    .set_world_size = set_world_size,
    .set_global_rank = set_global_rank,
    .teardown = teardown,
};
