// The one symbol between the front (cuda.so) and the engine (engines/cuda-cublas.so). Both are built together, so this
// is no public interface; the number guards against a stale file beside a new one.
#pragma once
#include <cstdint>

#include "trainhost/profiler.h"
#include "trainhost/trainer.h"

namespace trainhost::cuda {

inline constexpr std::uint32_t kEngineAbi = 1;
inline constexpr const char* kEngineSymbol = "trainhost_cuda_engine";

struct EngineTable {
  std::uint32_t abi;
  const th_trainer* trainer;    // create and everything of an instance; probe, profile and plan are the front's
  const th_generate* generate;
  const th_profiler* profiler;  // record_bytes is the front's
};
using EngineEntry = const EngineTable* (*)();

}  // namespace trainhost::cuda
