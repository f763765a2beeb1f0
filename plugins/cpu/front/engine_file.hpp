// Finds and loads the engine, once per process: ../engines/cpu-openblas.so as seen from this library's own file.
#pragma once
#include "plugins/cpu/common/engine_abi.hpp"
#include "trainhost/host.h"

namespace trainhost::cpu {

/// The engine's table. Throws bridge::StatusError (unavailable) with the reason: file missing, OpenBLAS missing, file of
/// another build. A failure is tried again at the next call. Thread-safe.
const EngineTable& engine(const th_host* host);

/// The engine that was loaded; only for calls on an instance, which exist only after engine() succeeded.
const EngineTable& loaded_engine();

}  // namespace trainhost::cpu
