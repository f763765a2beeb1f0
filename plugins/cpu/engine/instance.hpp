// One training run inside the engine: plan, arena, threads and executor, and the tensors by their checkpoint names.
// Throws bridge::StatusError and trainhost::Error; entry.cpp turns them into codes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/memory_plan.hpp"
#include "plugins/cpu/engine/executor.hpp"
#include "trainhost/trainer.h"

namespace trainhost::cpu {

class Instance {
 public:
  Instance(const th_host* host, const ModelSpec& model, const RunSpec& run);

  void load(std::uint32_t scope, const th_tensor& t);
  void init(std::uint64_t seed);
  /// Throws TH_E_STATE before init().
  void require_ready(const char* call) const;
  void step(const th_step& in, th_step_out& out);
  void save(std::uint32_t scope, th_tensor_sink& sink);
  void next(std::int32_t token, std::uint32_t position, float* logits);
  double peak_flops();
  /// See th_profiler: `bytes` must be what the front's record_bytes says.
  void start_profile(void* records, std::uint64_t bytes, th_moments* moments);
  void read_profile(th_op_sink& sink) const;
  void stop_profile();
  std::uint64_t compute_ns() const { return compute_ns_; }
  /// How bf16 products are computed; null in a run of f32.
  const Bf16Kernels* bf16() { return executor_.exec().bf16; }
  const std::string& kernel_set() const { return kernel_set_; }

 private:
  /// Where a checkpoint tensor lies: its parameter and the first element in that parameter's buffers.
  struct Place {
    const plan::Param* param = nullptr;
    std::uint64_t first = 0;
  };
  float* data(const Place& place, std::uint32_t scope);
  void check_ids(const std::int32_t* tokens, const std::int32_t* targets, std::uint64_t n) const;

  const th_host* host_;
  plan::Program program_;
  plan::MemoryPlan plan_;
  ArenaStorage storage_;
  Pool pool_;
  Executor executor_;
  std::vector<Place> places_;           // by index into program_.tensor_infos
  bool ready_ = false;  // init() has been called
  std::vector<std::uint64_t> loaded_;   // elements of each tensor's weights that load() brought
  std::string kernel_set_;
  std::uint64_t compute_ns_ = 0;
  std::optional<OpLog> log_;  // while profiled
};

}  // namespace trainhost::cpu
