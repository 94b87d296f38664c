/* gloo_stub: see transport/device.h. */
#pragma once

namespace gloo
{

class Algorithm;

} // namespace gloo
