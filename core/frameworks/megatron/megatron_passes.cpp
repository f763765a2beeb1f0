// See megatron_passes.hpp.
#include "core/frameworks/megatron/megatron_passes.hpp"

#include <algorithm>
#include <utility>

#include "core/frameworks/calculate_step.hpp"
#include "core/frameworks/megatron/decoder_megatron.hpp"

namespace trainhost::frameworks {
namespace {

/// The passes of one rank are those of any other, of as many ranks as there are.
StepSettings of_one_rank(StepSettings s) {
  s.megatron.optimizer_rank = 0;
  s.megatron.optimizer_ranks = s.megatron.expert_optimizer_ranks = 1;
  return s;
}

}  // namespace

std::shared_ptr<const MegatronPasses> passes_since(const TraceMark& before, const Trace& t,
                                                   std::vector<std::uint64_t> saved_bytes,
                                                   const model::Architecture& a, const StepSettings& s) {
  std::optional<TraceSection> section = section_since(before, t);
  if (!section) return nullptr;
  return std::make_shared<MegatronPasses>(
      MegatronPasses{a, of_one_rank(s), *std::move(section), std::nullopt, std::move(saved_bytes)});
}

std::shared_ptr<const MegatronPasses> repeated_passes(const model::Architecture& a, const StepSettings& s) {
  const std::optional<LayerUnits> units = repeated_units(a, s);
  if (!units || s.megatron.virtual_stages > 1 || s.megatron.recompute_every > 1) return nullptr;
  model::Architecture few = a;
  StepSettings of_few = of_one_rank(s);  // which has equal parts of all layers
  keep_few_layers(few, of_few, *units);
  Trace trace;
  std::vector<std::int32_t> executed;
  std::vector<std::uint64_t> saved_bytes;
  {
    Tape tape(trace, s.machine);
    tape.writer().note_layers(&tape.layer);
    tape.begin(kLoad, 0, 0);
    MegatronDecoder model(tape, few, of_few);
    model.run_passes(1);
    // A pipeline stage frees in the second step what it has kept in the first.
    if (of_few.stage.stages > 1) model.run_passes(2);
    executed = tape.writer().noted_layers();
    saved_bytes = tape.saved_bytes;
  }
  trace.events.resize(executed.size());  // without what is left
  saved_bytes.resize(units->few() + 1);
  const std::unique_ptr<LayerRepetition> repetition = LayerRepetition::find(trace, executed, *units);
  if (!repetition || !repeat_saved_bytes(saved_bytes, *units)) return nullptr;
  const Trace all = repetition->write();
  const TraceMark begin = begin_of_step(all, 1), end = end_of(all);
  if (s.stage.stages == 1)
    return kept_by_step(all, begin) ? passes_since(begin, all, std::move(saved_bytes), a, s) : nullptr;
  const TraceMark middle = begin_of_step(all, 2);
  std::optional<TraceSection> first = section_of(all, begin, begin, middle),
                              second = section_of(all, begin, middle, end);
  if (!first || !second) return nullptr;
  return std::make_shared<MegatronPasses>(
      MegatronPasses{a, of_one_rank(s), *std::move(first), *std::move(second), std::move(saved_bytes)});
}

std::shared_ptr<const MegatronPasses> KeptPasses::find(const model::Architecture& a, const StepSettings& s) {
  const StepSettings of_one = of_one_rank(s);
  const std::lock_guard guard(lock_);
  const auto found = std::ranges::find_if(
      kept_, [&](const auto& p) { return p->settings == of_one && p->architecture == a; });
  return found == kept_.end() ? nullptr : *found;
}

void KeptPasses::add(std::shared_ptr<const MegatronPasses> p) {
  constexpr std::size_t kMost = 3;  // a plan compares three pipeline stages
  const std::lock_guard guard(lock_);
  if (kept_.size() == kMost) kept_.erase(kept_.begin());
  kept_.push_back(std::move(p));
}

}  // namespace trainhost::frameworks
