/* base/plugin.h: reading tables of functions that may be older (shorter) than ours. */
#ifndef FABRIC_BASE_PLUGIN_H
#define FABRIC_BASE_PLUGIN_H

#include <stddef.h>

/* True when the table `ops` has the member `slot` and it is not NULL / false. */
#define TH__SLOT(ops, slot) \
    ((ops)->size >= (size_t)((const char *)(&(ops)->slot + 1) - (const char *)(ops)) && (ops)->slot)

#endif
