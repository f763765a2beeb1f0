// Loads the engine of the CPU trainer, ../engines/cpu-openblas.so, after choosing OpenBLAS's kernels
// (core_type.hpp). Finding the file is shared with the CUDA trainer: plugins/common/engine_loader.hpp.
#pragma once
#include "plugins/common/engine_table.hpp"

namespace trainhost::cpu {

/// The engine's table, loaded on the first call. Errors: abi::StatusError (TH_E_UNAVAILABLE) if the file or
/// OpenBLAS is missing or the file is from another build; the next call tries again. Thread-safe.
const plugins::EngineTable& engine(const th_host* host);

/// The loaded engine. Requires a successful engine(); calls on an instance guarantee that.
const plugins::EngineTable& loaded_engine();

}  // namespace trainhost::cpu
