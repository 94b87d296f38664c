/* base/net.h: TCP ports of this machine, without libtorch. */
#ifndef FABRIC_BASE_NET_H
#define FABRIC_BASE_NET_H

#include <cfabric/base.h>

/* A port that nobody listens on, chosen by the kernel. -1 with TH_ERR_RUNTIME. */
int th__net_free_port(void);
/* True when a listener on `port` (all interfaces) could not be opened. */
bool th__net_port_in_use(int port);
/* "10.0.0.1" or a host name that resolves to an address of this machine. */
bool th__net_is_local(const char *address);
/* This machine's name; "localhost" when it has none. */
void th__net_hostname(char *buffer, size_t size);

/* Keeps a port for the ranks of one job until released or until this process ends: no other launcher on this machine takes it
 * and the kernel does not hand it out, but a rank can listen on it. */
typedef struct th__port_hold {
    int socket, lock;
} th__port_hold;
#define TH__PORT_HOLD_NONE ((th__port_hold){-1, -1})
/* Holds `port`. False when somebody listens on it or another launcher holds it. */
bool th__net_hold_port(int port, th__port_hold *hold);
/* Holds a free port and returns it. -1 with TH_ERR_RUNTIME. */
int th__net_hold_free_port(th__port_hold *hold);
void th__net_release_port(th__port_hold *hold);

#endif
