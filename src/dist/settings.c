/* dist/settings.c: rank, world size and meeting point from arguments and environment. */
#include "dist/rendezvous.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_TIMEOUT_S 1800.0

static th_status env_int(const char *name, int low, int fallback, int *out)
{
    const char *text = getenv(name);
    *out = fallback;
    if (!text || !*text) return TH_OK;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || value < low || value > INT_MAX)
        return th__fail(TH_ERR_VALUE, "th_dist_init_process_group", "the environment variable %s is '%s', expected a number from %d",
                        name, text, low);
    *out = (int)value;
    return TH_OK;
}

/* "host:port" or "[v6]:port". */
static th_status read_tcp(const char *text, th__rendezvous *r)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!colon || colon == text || !end || (*end && *end != '/' && *end != '?') || port <= 0 || port > 65535)
        return th__fail(TH_ERR_VALUE, "th_dist_init_process_group", "init_method 'tcp://%s', expected tcp://host:port", text);
    size_t n = (size_t)(colon - text);
    if (*text == '[' && text[n - 1] == ']') {
        text++;
        n -= 2;
    }
    snprintf(r->host, sizeof r->host, "%.*s", (int)n, text);
    r->port = (int)port;
    return TH_OK;
}

static th_status read_method(const struct th_dist_init_args *args, th__rendezvous *r)
{
    const char *method = args->init_method ? args->init_method : "env://";
    const char *addr = args->master_addr ? args->master_addr : getenv("MASTER_ADDR");
    int port;
    if (strncmp(method, "tcp://", 6) == 0) return read_tcp(method + 6, r);
    if (strncmp(method, "file://", 7) == 0 && method[7]) {
        r->file = method + 7;
        return TH_OK;
    }
    if (strncmp(method, "env://", 6) != 0)
        return th__fail(TH_ERR_VALUE, "th_dist_init_process_group",
                        "init_method '%s' is not known; known: env://, tcp://host:port, file:///path", method);
    TH__TRY(env_int("MASTER_PORT", 1, 29500, &port));
    snprintf(r->host, sizeof r->host, "%s", addr && *addr ? addr : "127.0.0.1");
    r->port = args->master_port ? args->master_port : port;
    if (r->port < 1 || r->port > 65535)
        return th__fail(TH_ERR_VALUE, "th_dist_init_process_group", "port %d, expected 1 to 65535", r->port);
    return TH_OK;
}

th_status th__rendezvous_read(const struct th_dist_init_args *args, th__rendezvous *r)
{
    int local_size;
    *r = (th__rendezvous){.rank = args->rank, .world_size = args->world_size};
    if (args->timeout < 0 || isnan(args->timeout))
        return th__fail(TH_ERR_VALUE, "th_dist_init_process_group", "timeout %g, expected seconds above 0", args->timeout);
    double timeout = args->timeout == 0 ? DEFAULT_TIMEOUT_S : args->timeout;
    r->timeout_ms = timeout > 86400.0 * 20000 ? (int64_t)86400000 * 20000 : (int64_t)(timeout * 1000.0);
    if (r->timeout_ms < 1) r->timeout_ms = 1;
    TH__TRY(read_method(args, r));
    if (args->world_size == 0) TH__TRY(env_int("WORLD_SIZE", 1, 0, &r->world_size));
    if (args->rank < 0) TH__TRY(env_int("RANK", 0, -1, &r->rank));
    if (args->world_size == 0 && r->world_size == 0)
        return th__fail(TH_ERR_VALUE, "th_dist_init_process_group", "the world size is not known: give .world_size or set WORLD_SIZE");
    if (r->world_size < 1)
        return th__fail(TH_ERR_VALUE, "th_dist_init_process_group", "world size %d, expected at least 1", r->world_size);
    if (r->rank < 0) return th__fail(TH_ERR_VALUE, "th_dist_init_process_group", "the rank is not known: give .rank or set RANK");
    if (r->rank >= r->world_size)
        return th__fail(TH_ERR_VALUE, "th_dist_init_process_group", "rank %d, expected 0 to %d (world size %d)", r->rank,
                        r->world_size - 1, r->world_size);
    TH__TRY(env_int("LOCAL_WORLD_SIZE", 1, 0, &local_size));
    TH__TRY(env_int("TORCHELASTIC_RESTART_COUNT", 0, 0, &r->attempt));
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    r->agent_store = agent && strcasecmp(agent, "true") == 0;
    r->one_machine = local_size == r->world_size;
    return TH_OK;
}
