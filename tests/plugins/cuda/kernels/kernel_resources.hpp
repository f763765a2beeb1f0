// The table of kernel_resources.inc, for tests.
#pragma once
#include <cstdint>
#include <span>

#include "emu.hpp"

namespace trainhost::test {

/// A file of plugins/cuda/kernels, and the fingerprint of the text that was compiled: of the file and
/// the headers that it includes, FNV-1a without comments and white space.
struct KernelSource {
  const char* file;
  std::uint64_t fingerprint;
};
std::span<const emu::KernelResources> kernel_resources();
std::span<const KernelSource> kernel_sources();

}  // namespace trainhost::test
