/* dist/route.c: which address the ranks bind. Never the host name's: what it resolves to is often missing or not this machine. */
#include "dist/rendezvous.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool interface_exists(const struct ifaddrs *all, const char *name)
{
    for (; all; all = all->ifa_next)
        if (all->ifa_addr && strcmp(all->ifa_name, name) == 0) return true;
    return false;
}

static th_status unknown_interface(const struct ifaddrs *all, const char *name)
{
    char list[400] = "";
    size_t at = 0;
    for (const struct ifaddrs *i = all; i && at < sizeof list; i = i->ifa_next) {
        if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
        if (strstr(list, i->ifa_name)) continue;
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", i->ifa_name);
    }
    return TH__FAIL(TH_ERR_VALUE, "network interface '%s' does not exist here; there are: %s", name, list);
}

static th_status check_interfaces(const char *asked)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return TH_OK; /* Gloo will say what it thinks of the name */
    char *copy = th__strdup(asked), *rest = copy;
    th_status status = copy ? TH_OK : th__pending();
    for (char *name; status == TH_OK && (name = strsep(&rest, ",")) != NULL;)
        if (*name && !interface_exists(all, name)) status = unknown_interface(all, name);
    free(copy);
    freeifaddrs(all);
    return status;
}

/* The local address from which packets to `to` would leave. */
static bool source_address(const struct sockaddr *to, socklen_t length, char *address, size_t size)
{
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && connect(fd, to, length) == 0 && getsockname(fd, (struct sockaddr *)&from, &n) == 0 &&
              getnameinfo((struct sockaddr *)&from, n, address, (socklen_t)size, NULL, 0, NI_NUMERICHOST) == 0;
    if (fd >= 0) close(fd);
    return ok;
}

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0;
}

th_status th__route_choose(const th__rendezvous *r, const char *asked, char *address, size_t size, const char **interfaces)
{
    *interfaces = NULL;
    if (!asked || !*asked) asked = getenv("GLOO_SOCKET_IFNAME");
    if (asked && *asked) {
        TH__TRY(check_interfaces(asked));
        *interfaces = asked;
        return TH_OK;
    }
    if (r->file || r->one_machine || is_loopback(r->host)) {
        snprintf(address, size, "127.0.0.1");
        return TH_OK;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", r->port);
    int rc = getaddrinfo(r->host, port, &hints, &found);
    if (rc != 0) return TH__FAIL(TH_ERR_DISTRIBUTED, "the main address '%s' cannot be resolved: %s", r->host, gai_strerror(rc));
    bool ok = false;
    for (struct addrinfo *i = found; i && !ok; i = i->ai_next) ok = source_address(i->ai_addr, i->ai_addrlen, address, size);
    freeaddrinfo(found);
    if (!ok) return TH__FAIL(TH_ERR_DISTRIBUTED, "no network route leads to the main address '%s'; set GLOO_SOCKET_IFNAME", r->host);
    return TH_OK;
}
