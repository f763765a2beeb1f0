// See megatron_passes.hpp.
#include "core/frameworks/megatron_passes.hpp"

#include <algorithm>
#include <utility>

#include "core/frameworks/calculate_step.hpp"
#include "core/frameworks/decoder_megatron.hpp"
#include "core/frameworks/evaluate.hpp"

namespace trainhost::frameworks {
namespace {

/// The passes of one rank are those of any other, of as many ranks as there are.
StepSettings of_one_rank(StepSettings s) {
  s.megatron.optimizer_rank = 0;
  s.megatron.optimizer_ranks = 1;
  return s;
}

}  // namespace

std::shared_ptr<const MegatronPasses> passes_since(const TraceMark& before, const Trace& t,
                                                   std::vector<std::uint64_t> saved_bytes,
                                                   const model::Architecture& a, const StepSettings& s) {
  auto p = std::make_shared<MegatronPasses>();
  p->architecture = a, p->settings = of_one_rank(s), p->before = before;
  p->trace.names = t.names;
  p->trace.storages.assign(t.storages.begin() + static_cast<std::ptrdiff_t>(before.storages),
                           t.storages.end());
  p->trace.phases.assign(t.phases.begin() + static_cast<std::ptrdiff_t>(before.phases), t.phases.end());
  std::uint64_t bytes = 0;
  for (std::size_t i = before.events; i < t.events.size(); ++i) {
    const TraceEvent e = t.events[i];
    if (e.storage < before.storages) return nullptr;
    p->trace.events.push_back(e);
    const std::uint64_t size = rounded_up(t.storages[e.storage].bytes, EvaluateOptions().block);
    bytes = e.allocation ? bytes + size : bytes - size;
    p->peak = std::max(p->peak, bytes);
  }
  p->saved_bytes = std::move(saved_bytes);
  return p;
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
    executed = tape.writer().noted_layers();
    saved_bytes = tape.saved_bytes;
  }
  trace.events.resize(executed.size());  // without what is left
  saved_bytes.resize(units->few() + 1);
  const std::unique_ptr<LayerRepetition> repetition = LayerRepetition::find(trace, executed, *units);
  if (!repetition || !repeat_saved_bytes(saved_bytes, *units)) return nullptr;
  const Trace all = repetition->write();
  const TraceMark begin = begin_of_steps(all);
  return kept_by_step(all, begin) ? passes_since(begin, all, std::move(saved_bytes), a, s) : nullptr;
}

void add_passes(Tape& tape, const MegatronPasses& p) {
  // Another rank may have met other names before.
  std::vector<std::string>& names = tape.writer().trace().names;
  std::vector<std::uint32_t> name_of;
  for (const std::string& name : p.trace.names) {
    name_of.push_back(static_cast<std::uint32_t>(std::ranges::find(names, name) - names.begin()));
    if (name_of.back() == names.size()) names.push_back(name);
  }
  std::vector<std::uint32_t> copies(p.trace.storages.size());
  std::size_t phase = 0;
  for (std::size_t i = 0; i < p.trace.events.size(); ++i) {
    for (; phase < p.trace.phases.size() && p.trace.phases[phase].event == p.before.events + i; ++phase)
      tape.begin(p.trace.phases[phase].phase, p.trace.phases[phase].step, p.trace.phases[phase].micro_batch);
    const TraceEvent e = p.trace.events[i];
    const std::size_t index = e.storage - p.before.storages;
    if (!e.allocation) {
      tape.writer().free(copies[index]);
      continue;
    }
    TraceStorage s = p.trace.storages[index];
    s.module = name_of[s.module], s.tensor = name_of[s.tensor];
    copies[index] = tape.copy_storage(s);
  }
  tape.saved_bytes = p.saved_bytes;
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
