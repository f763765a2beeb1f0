// Version and core type of the loaded OpenBLAS, its one setting (a single thread, because the engine has a
// thread pool), and its work buffers.
#pragma once
#include <cstdint>
#include <string>

namespace trainhost::cpu {

/// Must be called before the first product.
void openblas_single_threaded();

/// Lets OpenBLAS map its work buffers for as many calls at a time now. It repeats a mapping that fails for
/// ever, so a limit of address space (ulimit -v) would end in a step that never returns. Throws
/// StatusError(TH_E_HOST_OOM) if they cannot be mapped.
void reserve_openblas_buffers(std::uint32_t threads);

/// "SkylakeX"
std::string openblas_core();
/// "OpenBLAS 0.3.21 SkylakeX": part of kernel_set, on which the bits of a run depend.
std::string openblas_version();

}  // namespace trainhost::cpu
