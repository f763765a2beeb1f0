// Finds and loads the engine, once per process: ../engines/cuda-cublas.so as seen from this library's own
// file.
#pragma once
#include "plugins/common/engine_table.hpp"
#include "trainhost/host.h"

namespace trainhost::cuda {

/// Throws abi::StatusError (unavailable) where this build has no engine at all.
void require_engine_built();

/// The engine's table. Throws abi::StatusError (unavailable) with the reason: file missing, cuBLAS
/// missing, file of another build. A failure is tried again at the next call. Thread-safe.
const plugins::EngineTable& engine();

/// The engine that was loaded; only for calls on an instance, which exist only after engine() succeeded.
const plugins::EngineTable& loaded_engine();

}  // namespace trainhost::cuda
