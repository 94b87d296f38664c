/* gloo_stub: see transport/device.h. */
#pragma once

#include <chrono>
#include <gloo/transport/device.h>

namespace gloo
{

class Context
{
public:
    void setTimeout(std::chrono::milliseconds timeout);
    std::chrono::milliseconds getTimeout() const;
};

} // namespace gloo
