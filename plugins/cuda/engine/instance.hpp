// One training run of the engine: owns the program, its placement, the arenas, the executor and the access to
// tensors by checkpoint name. Checks every argument that comes from the host. Throws abi::StatusError and
// trainhost::Error, which engine_entry.cpp converts to status codes. The functions of th_trainer, th_generate
// and th_profiler with the same names document the calls; one thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/placement/memory_plan.hpp"
#include "plugins/cuda/common/attention_choice.hpp"
#include "plugins/cuda/engine/checkpoint_tensors.hpp"
#include "plugins/cuda/engine/cudnn_attention.hpp"
#include "plugins/cuda/engine/executor.hpp"
#include "plugins/cuda/engine/op_timer.hpp"
#include "trainhost/trainer.h"

namespace trainhost::cuda {

class Instance {
 public:
  /// traits: result of choose() for this run and `attention`. device: index among the devices visible to the
  /// process.
  Instance(const th_host* host, int device, const ModelSpec& model, const RunSpec& run,
           const TrainerTraits& traits, Attention attention);

  void load(std::uint32_t scope, const th_tensor& t);
  void init(std::uint64_t seed);
  void step(const th_step& in, th_step_out& out);
  void save(std::uint32_t scope, th_tensor_sink& sink);
  void next(std::int32_t token, std::uint32_t position, float* logits);
  void counters(th_counters& c) const;
  double metric(std::string_view key);
  const char* info(std::string_view key) const;
  /// `bytes` must be at least th_profiler::record_bytes() of the front end.
  void start_profile(void* records, std::uint64_t bytes, th_moments* moments);
  void read_profile(th_op_sink& sink) const;
  void stop_profile();

 private:
  void use_device() const;
  void require_complete_update() const;
  double measure_peak_flops();
  double count_sync_mismatches();

  const th_host* host_;
  const int device_;
  std::string device_name_;  // "device 0 (NVIDIA H200)"
  // Destroyed in reverse order: the executor waits for the device before the arenas are freed.
  step::Program program_;
  placement::MemoryPlan plan_;
  // Before the arenas, likewise: NCCL takes device memory. Null in a run of one rank.
  std::unique_ptr<NcclRanks> ranks_;
  // Before the arenas: plans load kernels, and the arenas leave no memory for them on a full device.
  std::unique_ptr<CudnnAttention> cudnn_;  // null: own kernels
  Gemm gemm_;
  Arenas arenas_;  // allocated after everything that takes device memory (start_up.hpp)
  ThreadPool pool_;
  Executor executor_;
  CheckpointTensors tensors_;
  executor::StateTensors state_;
  std::vector<std::uint64_t>
      loaded_;                     // by tensor: weight elements written by load(); init() fills the others
  bool host_copies_stale_ = true;  // weights were written since the host's copies were refreshed
  std::string kernel_set_;
  std::optional<OpTimer> timer_;  // set while profiling
};

}  // namespace trainhost::cuda
