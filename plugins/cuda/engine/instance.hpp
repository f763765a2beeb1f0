// One training run inside the engine: plan, arenas, queues and executor, and the tensors by their checkpoint
// names. Throws abi::StatusError and trainhost::Error; engine_entry.cpp turns them into codes.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/placement/memory_plan.hpp"
#include "plugins/cuda/engine/checkpoint_tensors.hpp"
#include "plugins/cuda/engine/executor.hpp"
#include "plugins/cuda/engine/op_timer.hpp"
#include "trainhost/trainer.h"

namespace trainhost::cuda {

class Instance {
 public:
  /// traits: the front's choice for this run. device: index among those that the process sees.
  Instance(const th_host* host, int device, const ModelSpec& model, const RunSpec& run,
           const TrainerTraits& traits);

  void load(std::uint32_t scope, const th_tensor& t);
  void init(std::uint64_t seed);
  void step(const th_step& in, th_step_out& out);
  void save(std::uint32_t scope, th_tensor_sink& sink);
  void next(std::int32_t token, std::uint32_t position, float* logits);
  void counters(th_counters& c) const;
  double metric(std::string_view key);
  const char* info(std::string_view key) const;
  /// See th_profiler: `bytes` must be what the front's record_bytes says.
  void start_profile(void* records, std::uint64_t bytes, th_moments* moments);
  void read_profile(th_op_sink& sink) const;
  void stop_profile();

 private:
  void use_device() const;
  void check_ids(const std::int32_t* tokens, const std::int32_t* targets, std::uint64_t n) const;
  void check_whole() const;
  double peak_flops();
  double sync_mismatch();

  const th_host* host_;
  const int device_;
  std::shared_ptr<const std::string> device_name_;  // "device 0 (NVIDIA H200)"
  step::Program program_;
  placement::MemoryPlan plan_;
  Arenas arenas_;
  step::BufferId workspace_;
  Gemm gemm_;
  ThreadPool pool_;
  Executor executor_;
  CheckpointTensors tensors_;
  std::vector<std::uint64_t> loaded_;  // elements of each tensor that load() has brought
  bool mirrors_stale_ = true;
  std::string kernel_set_;
  std::optional<OpTimer> log_;
};

}  // namespace trainhost::cuda
