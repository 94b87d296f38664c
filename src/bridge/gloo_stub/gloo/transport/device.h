/* gloo_stub: the names of Gloo that c10d's ProcessGroupGloo.hpp mentions. The wheel contains Gloo, not its headers. The
 * objects are only handed from one libtorch function to the next: nothing here is ever constructed, called or destroyed
 * by us. */
#pragma once

namespace gloo::transport
{

class Device
{
public:
    virtual ~Device() = 0;
};

class UnboundBuffer
{
public:
    virtual ~UnboundBuffer() = 0;
};

} // namespace gloo::transport
