/* gloo_stub: see transport/device.h. Nothing of this header is needed. */
#pragma once
