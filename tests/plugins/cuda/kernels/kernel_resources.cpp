// Gives the emulation what ptxas reports of the kernels (kernel_resources.inc, written by
// tools/gpu/kernel_resources). Linked into every program with emulated kernels.
#include "tests/plugins/cuda/kernels/kernel_resources.hpp"

namespace trainhost::test {
namespace {

using emu::KernelResources;
#include "tests/plugins/cuda/kernels/kernel_resources.inc"

[[maybe_unused]] const bool kRegistered = (emu::set_kernel_resources(kKernels), true);

}  // namespace

std::span<const emu::KernelResources> kernel_resources() { return kKernels; }
std::span<const KernelSource> kernel_sources() { return kSources; }

}  // namespace trainhost::test
