// Chooses and loads the engine of the CUDA trainer: ../engines/cuda-cublas-13.so or cuda-cublas-12.so. The
// newest one is used whose driver and cuBLAS are on this machine. Finding a file is shared with the CPU
// trainer: plugins/common/engine_loader.hpp.
#pragma once
#include <string>

#include "plugins/common/engine_table.hpp"

namespace trainhost::cuda {

struct Engine {
  const plugins::EngineTable* table = nullptr;
  const char* file = "";  // "cuda-cublas-13.so"
  std::string skipped;    // why no newer engine is used: "CUDA 13: ..."; "" if it is the newest
};

/// Throws abi::StatusError (TH_E_UNAVAILABLE) if no engine is installed beside the plugin, or if this build
/// was configured without the CUDA trainer.
void require_engine_file();

/// The newest engine that the driver (version as in cuDriverGetVersion()) and the libraries of this machine
/// support, loaded on the first call. Throws abi::StatusError (TH_E_UNAVAILABLE) with the reason for each
/// engine; the next call tries again. Loading creates no CUDA context. Thread-safe.
Engine select_engine(int driver_version);

/// Selects the engine for the instances of this process: the first call decides, so that every instance is
/// handled by the engine that created it. Errors as above. Thread-safe.
Engine select_engine_for_runs(int driver_version);

/// The table of that engine. Requires a successful select_engine_for_runs().
const plugins::EngineTable& loaded_engine();

}  // namespace trainhost::cuda
