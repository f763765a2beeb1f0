// Opens engines/cpu-openblas.so, with OpenBLAS's kernels chosen before it is loaded.
#pragma once
#include "plugins/common/engine_table.hpp"

namespace trainhost::cpu {

/// The engine's table. Throws abi::StatusError (unavailable) with the reason: file missing, OpenBLAS
/// missing, file of another build. A failure is tried again at the next call. Thread-safe.
const plugins::EngineTable& engine(const th_host* host);

/// The engine that was loaded; only for calls on an instance, which exist only after engine() succeeded.
const plugins::EngineTable& loaded_engine();

}  // namespace trainhost::cpu
