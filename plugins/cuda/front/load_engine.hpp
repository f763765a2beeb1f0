// Loads the engine of the CUDA trainer, ../engines/cuda-cublas.so, once per process. Finding the file is
// shared with the CPU trainer: plugins/common/engine_loader.hpp.
#pragma once
#include "plugins/common/engine_table.hpp"
#include "trainhost/host.h"

namespace trainhost::cuda {

/// Throws abi::StatusError (TH_E_UNAVAILABLE) if this build has no CUDA engine.
void require_engine_built();

/// The engine's table, loaded on the first call. Throws abi::StatusError (TH_E_UNAVAILABLE) if the file or
/// cuBLAS is missing or the file is from another build; the next call tries again. Thread-safe.
const plugins::EngineTable& engine();

/// The loaded engine. Requires a successful engine(); calls on an instance guarantee that.
const plugins::EngineTable& loaded_engine();

}  // namespace trainhost::cuda
