// The passes of a step of Megatron-LM are the same for all ranks of its optimizer, which differ in their
// parts of the weights. Planners ask for several ranks, so the events of the first are kept for the others.
// Equal layers have equal events, so those of a few are repeated (repeat_layers.hpp). Used by training_step()
// to save time; it changes no result.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/frameworks/autograd/trace_section.hpp"
#include "core/frameworks/step_settings.hpp"
#include "core/model/architecture.hpp"

namespace trainhost::frameworks {

/// What the forward and backward passes of the first step add to a trace, and those of the second, which also
/// free what a pipeline stage has kept. Where only the first are known, the second step is a copy.
struct MegatronPasses {
  model::Architecture architecture;
  StepSettings settings;  // of one rank
  TraceSection section;
  std::optional<TraceSection> second;
  std::vector<std::uint64_t> saved_bytes;
};

/// The events of `t` from `before` on; nullptr where they free what is older.
std::shared_ptr<const MegatronPasses> passes_since(const TraceMark& before, const Trace& t,
                                                   std::vector<std::uint64_t> saved_bytes,
                                                   const model::Architecture& a, const StepSettings& s);

/// The passes of all layers from those of few; nullptr where layers differ.
std::shared_ptr<const MegatronPasses> repeated_passes(const model::Architecture& a, const StepSettings& s);

/// The passes of the last few runs. May be used by several threads at the same time.
class KeptPasses {
 public:
  /// nullptr: not kept.
  std::shared_ptr<const MegatronPasses> find(const model::Architecture& a, const StepSettings& s);
  void add(std::shared_ptr<const MegatronPasses> p);

 private:
  std::mutex lock_;
  std::vector<std::shared_ptr<const MegatronPasses>> kept_;
};

}  // namespace trainhost::frameworks
