// A training step calculated event by event, as training_step() does without its shortcuts, and what these
// need to know: which steps and layers repeat. Private to core/frameworks.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/frameworks/sharding/zero_script.hpp"
#include "core/frameworks/training_step.hpp"

namespace trainhost::frameworks {

/// What run_steps() fills, and what it may leave out.
struct Calculation {
  TrainingStep& result;
  std::optional<CopiedStep>* copied = nullptr;  // filled where the second step is a copy, which is left out
  std::uint64_t limit = UINT64_MAX;             // ends the calculation where more bytes exist
  std::vector<std::int32_t>* layers = nullptr;  // filled with the layer that each event is of
  const LayerUnits* units = nullptr;            // where the model has few layers that stand for others
  std::vector<ZeroScript::Declared>* declared = nullptr;  // filled where the result is a script of ZeRO 3,
  bool* is_script = nullptr;                              // unless it cannot be one
};

/// Appends the steps to the trace of `c`, without the frees of what is left after them. Throws PeakAboveLimit
/// where more bytes than the limit exist.
void run_steps(const model::Architecture& architecture, const StepSettings& settings, const Calculation& c);

/// Layers of the model, or of the pipeline stage that is described.
std::uint32_t layers_of(const model::Architecture& a, const StepSettings& settings);

/// The units of layers, if a model with few of them has the events of all. Units of FSDP are layers, which
/// refer to their neighbours only. What depends on the number of layers is known before the step (buckets of
/// DDP), or carried out for all of them: the calls of ZeRO, and the buffers and the update of Megatron-LM.
std::optional<LayerUnits> repeated_units(const model::Architecture& a, const StepSettings& settings);

/// The same stage with few layers.
void keep_few_layers(model::Architecture& a, StepSettings& settings, const LayerUnits& units);

/// Begin of a step, where storages are numbered in the order of their allocation.
TraceMark begin_of_step(const Trace& t, std::uint32_t step);

/// Whether the second step may copy the first. The first micro-batch of stage 3 only records the order of the
/// modules. That of FSDP1 does so too, and allocates its flat tensors once. litgpt frees the logits of step 1
/// in step 2, and so does torchtune 0.2. A compiled step is tuned once.
bool second_step_is_like_first(const StepSettings& settings);

/// Whether the second step is a copy of the first, which began at `from` and ends with the trace.
std::optional<CopiedStep> copied_step(const StepSettings& settings, const Trace& t, const TraceMark& from);

}  // namespace trainhost::frameworks
