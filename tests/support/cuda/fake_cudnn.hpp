// Control of the fake libcudnn (fake_cudnn.cpp), for tests that load it: dlsym(library, "fake_cudnn").
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "plugins/cuda/engine/cudnn_api.hpp"

namespace trainhost::test {

struct FakeCudnn {
  std::size_t version = 91900;
  std::int64_t workspace_bytes = 512;  // of every plan
  int unsuitable = 1;     // proposals of the heuristics that are not deterministic, before a good one
  bool proposes = true;   // false: the heuristics propose no engine
  int failing_plans = 0;  // plans of the next proposals that are not supported
  cuda::cudnn::Status execute_status = 0;  // of cudnnBackendExecute()
  // Queues work on a stream of the emulation; null: work runs at once.
  void (*queue)(cudaStream_t, std::function<void()>) = nullptr;
  std::int64_t executed = 0;  // plans so far
  std::int64_t objects = 0;   // descriptors and handles that exist
};

}  // namespace trainhost::test
