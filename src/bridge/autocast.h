/* bridge/autocast.h: asking for the autocast mode; entering it is in bridge.h. */
#ifndef FABRIC_BRIDGE_AUTOCAST_H
#define FABRIC_BRIDGE_AUTOCAST_H

#include <cfabric/tensor.h>

TH_BEGIN_DECLS

/* torch.is_autocast_enabled(device type) on this thread. False for a device that has no autocast. */
bool th__autocast_is_enabled(th_device_type device);

TH_END_DECLS
#endif
