// Version and core type of the loaded OpenBLAS, and its one setting: a single thread, because the engine has
// a thread pool.
#pragma once
#include <string>

namespace trainhost::cpu {

/// Must be called before the first product.
void openblas_single_threaded();

/// "SkylakeX"
std::string openblas_core();
/// "OpenBLAS 0.3.21 SkylakeX": part of kernel_set, on which the bits of a run depend.
std::string openblas_version();

}  // namespace trainhost::cpu
