// The training step of a framework on PyTorch as a trace: settings in, events out. Describes
// transformers 5.23 and peft 0.21 on torch 2.15, CUDA with compute capability 8.0 or higher; torchtitan,
// torchtune, litgpt and DeepSpeed as their own headers say. Settings that no builder describes are refused by
// the caller.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/frameworks/allocator/caching_allocator.hpp"
#include "core/frameworks/step_settings.hpp"
#include "core/frameworks/trace/evaluate.hpp"
#include "core/frameworks/trace/host_memory.hpp"
#include "core/frameworks/trace/repeat_layers.hpp"
#include "core/model/architecture.hpp"

namespace trainhost::frameworks {

/// Whether training_step() knows the family (kFamilies in training_step.cpp). litgpt: also gpt_neox and phi,
/// but no Gemma, GPT-2 and Mixtral.
bool has_builder(std::string_view family, ModelSource modules = ModelSource::kTransformers);

struct TrainingStep {
  Trace trace;
  /// Bytes that the first micro-batch saves for the backward pass; [0]: outside of the layers, [1]: in layer
  /// 0.
  std::vector<std::uint64_t> saved_bytes;
  HostMemory host;        // of what the step offloads
  bool repeated = false;  // most layers are copies of one
};

/// training_step() in two parts, for callers that often need no more than the peak.
class CalculatedStep {
 public:
  /// Throws as training_step() does. `limit`: where the step allocates more bytes, the calculation may end
  /// early.
  CalculatedStep(const model::Architecture& architecture, const StepSettings& settings,
                 std::uint64_t limit = UINT64_MAX);
  CalculatedStep(const CalculatedStep&) = delete;
  CalculatedStep& operator=(const CalculatedStep&) = delete;
  /// Bytes that find_peak() finds in the trace; where layers are repeated, without writing it. Of a step that
  /// is not complete at least as many as it has allocated, which are more than the limit.
  std::uint64_t peak_bytes() const;
  /// False where the calculation ended early; there is then no step to take.
  bool complete() const { return !above_limit_; }
  /// What the step offloads.
  const HostMemory& host() const { return step_.host; }
  /// What replay_allocator() and find_peak() find for the step, without writing a second one that is a copy.
  Peak peak();
  AllocatorResult replay(const AllocatorConfig& config, std::uint64_t capacity);
  /// The step, without a second one that is a copy.
  const Trace& trace();
  /// The step, once.
  TrainingStep take() &&;

 private:
  bool repeat_layers(const model::Architecture& architecture, const StepSettings& settings,
                     const LayerUnits& units);
  bool calculate_by_script(const model::Architecture& architecture, const StepSettings& settings,
                           const LayerUnits& units, std::uint64_t limit);
  void end_above_limit(std::uint64_t bytes);
  void write_layers();

  TrainingStep step_;  // of few layers where they are repeated
  std::vector<std::int32_t> executed_;
  std::unique_ptr<LayerRepetition> repetition_;
  std::optional<CopiedStep> copied_;  // not yet in step_
  std::optional<std::uint64_t> above_limit_;
};

/// Throws usage_error for a family without a builder and for sizes whose sum may exceed 63 bits.
TrainingStep training_step(const model::Architecture& architecture, const StepSettings& settings);

}  // namespace trainhost::frameworks
