// The facts about the OpenBLAS that was loaded, and its one setting: a single thread, because the engine has
// a pool.
#pragma once
#include <string>

namespace trainhost::cpu {

/// Must run before the first product.
void openblas_single_threaded();

/// "SkylakeX"
std::string openblas_core();
/// "OpenBLAS 0.3.21 SkylakeX": with the kernel table's name, what the bits of a run depend on.
std::string openblas_version();

}  // namespace trainhost::cpu
