// A library with operators of its own, as users load with th_load_library. Registering operators is C++ by nature.
#include <ATen/ATen.h>
#include <torch/library.h>

TORCH_LIBRARY(cfabric_test, m)
{
    m.def("twice(Tensor x) -> Tensor", [](const at::Tensor &x) { return x * 2; });
    m.def("fails(Tensor x) -> Tensor", [](const at::Tensor &x) -> at::Tensor { TORCH_CHECK(false, "on purpose"); });
}
