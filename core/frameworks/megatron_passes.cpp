// See megatron_passes.hpp.
#include "core/frameworks/megatron_passes.hpp"

#include <algorithm>
#include <utility>

namespace trainhost::frameworks {
namespace {

StepSettings of_first_rank(StepSettings s) {
  s.megatron.optimizer_rank = 0;
  return s;
}

}  // namespace

std::shared_ptr<const MegatronPasses> passes_since(const TraceMark& before, const Tape& tape, const Trace& t,
                                                   const model::Architecture& a, const StepSettings& s) {
  auto p = std::make_shared<MegatronPasses>();
  p->architecture = a, p->settings = of_first_rank(s), p->before = before;
  p->trace.names = t.names;
  p->trace.storages.assign(t.storages.begin() + static_cast<std::ptrdiff_t>(before.storages),
                           t.storages.end());
  p->trace.phases.assign(t.phases.begin() + static_cast<std::ptrdiff_t>(before.phases), t.phases.end());
  for (std::size_t i = before.events; i < t.events.size(); ++i) {
    if (t.events[i].storage < before.storages) return nullptr;
    p->trace.events.push_back(t.events[i]);
  }
  p->saved_bytes = tape.saved_bytes;
  return p;
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
  const StepSettings of_first = of_first_rank(s);
  const std::lock_guard guard(lock_);
  const auto found = std::ranges::find_if(
      kept_, [&](const auto& p) { return p->settings == of_first && p->architecture == a; });
  return found == kept_.end() ? nullptr : *found;
}

void KeptPasses::add(std::shared_ptr<const MegatronPasses> p) {
  constexpr std::size_t kMost = 3;  // a plan compares three pipeline stages
  const std::lock_guard guard(lock_);
  if (kept_.size() == kMost) kept_.erase(kept_.begin());
  kept_.push_back(std::move(p));
}

}  // namespace trainhost::frameworks
