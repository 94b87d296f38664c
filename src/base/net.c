/* base/net.c: finding, checking and holding TCP ports.
 *
 * A held port is a bound socket that does not listen and allows address reuse: a rank's listener, which allows reuse too, may
 * bind beside it. Two launchers could do the same, so a name in the abstract socket namespace (it vanishes with its owner and is
 * as local to a network namespace as the port) says whose the port is. */
#include "base/net.h"

#include "base/error.h"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A TCP socket bound to `port` on all interfaces; -1 with errno. Dual-stack where there is IPv6, as libtorch's stores are. */
static int bound_socket(int port)
{
    int one = 1, zero = 0;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_ANY)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, (struct sockaddr *)&six, sizeof six) == 0) return fd;
        int error = errno;
        close(fd);
        errno = error;
        if (error == EADDRINUSE || error == EACCES) return -1;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&four, sizeof four) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0) return -1;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

static int no_port(void)
{
    th__fail(TH_ERR_RUNTIME, "network", "no free TCP port could be found on this machine: %s", strerror(errno));
    return -1;
}

int th__net_free_port(void)
{
    int fd = bound_socket(0);
    int port = fd >= 0 ? port_of(fd) : -1;
    if (port <= 0) no_port();
    if (fd >= 0) close(fd);
    return port > 0 ? port : -1;
}

bool th__net_port_in_use(int port)
{
    int fd = bound_socket(port);
    if (fd < 0) return true;
    bool in_use = listen(fd, 1) != 0;
    close(fd);
    return in_use;
}

bool th__net_is_local(const char *address)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(address, NULL, &hints, &found) != 0) return false;
    bool local = false;
    for (struct addrinfo *at = found; at != NULL && !local; at = at->ai_next) {
        if (at->ai_family == AF_INET)
            ((struct sockaddr_in *)at->ai_addr)->sin_port = 0;
        else if (at->ai_family == AF_INET6)
            ((struct sockaddr_in6 *)at->ai_addr)->sin6_port = 0;
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0); /* only an own address can be bound */
        if (fd < 0) continue;
        local = bind(fd, at->ai_addr, at->ai_addrlen) == 0;
        close(fd);
    }
    freeaddrinfo(found);
    return local;
}

void th__net_hostname(char *buffer, size_t size)
{
    if (gethostname(buffer, size) != 0 || *buffer == '\0') snprintf(buffer, size, "localhost");
    buffer[size - 1] = '\0';
}

/* ---------------------------------------------------------------- holding */

static int lock_port(int port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "cfabric-port-%d", port);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
        return fd;
    close(fd);
    return -1;
}

bool th__net_hold_port(int port, th__port_hold *hold)
{
    *hold = TH__PORT_HOLD_NONE;
    if (th__net_port_in_use(port)) return false;
    hold->lock = lock_port(port);
    hold->socket = hold->lock >= 0 ? bound_socket(port) : -1;
    if (hold->socket >= 0) return true;
    th__net_release_port(hold);
    return false;
}

int th__net_hold_free_port(th__port_hold *hold)
{
    for (int attempt = 0; attempt < 64; attempt++) {
        *hold = TH__PORT_HOLD_NONE;
        hold->socket = bound_socket(0);
        int port = hold->socket >= 0 ? port_of(hold->socket) : -1;
        if (port > 0 && (hold->lock = lock_port(port)) >= 0) return port;
        th__net_release_port(hold);
    }
    return no_port();
}

void th__net_release_port(th__port_hold *hold)
{
    if (hold->socket >= 0) close(hold->socket);
    if (hold->lock >= 0) close(hold->lock);
    *hold = TH__PORT_HOLD_NONE;
}
