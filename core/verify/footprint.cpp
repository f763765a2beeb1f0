// See footprint.hpp.
#include "core/verify/footprint.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "core/planning/host_buffers.hpp"
#include "core/process/host_info.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

/// Elements of a scope by tensor, as save() names them; pieces of one tensor are added up.
std::map<std::string, std::uint64_t> saved(plugin::Session& s, plugin::Scope scope) {
  std::map<std::string, std::uint64_t> elements;
  s.save(scope, [&](const plugin::TensorPiece& p) { elements[p.name] += p.count; });
  return elements;
}

std::uint64_t sum(const std::map<std::string, std::uint64_t>& elements) {
  std::uint64_t n = 0;
  for (const auto& [name, count] : elements) n += count;
  return n;
}

/// The head of a tied model is its embedding: a trainer may give both, and holds one.
void count_weights(Footprint& f, plugin::Session& s, const ModelSpec& m) {
  std::map<std::string, std::uint64_t> elements = saved(s, plugin::Scope::kWeights);
  if (m.tied && elements.count("lm_head.weight") &&
      elements["lm_head.weight"] == elements["model.embed_tokens.weight"]) {
    elements.erase("lm_head.weight");
    f.repeated = "lm_head.weight";
  }
  f.weight_elements = sum(elements);
}

}  // namespace

std::uint64_t Footprint::bytes_of(std::initializer_list<Component> names) const {
  std::uint64_t other = 0;
  for (const MemoryEntry& n : report.entries)
    if (std::find(names.begin(), names.end(), n.component) == names.end()) other += n.at_peak();
  return ledger_bytes - std::min(ledger_bytes, other);
}

Footprint footprint(Context& context, const runfile::RunConfig& c, const std::string& mode, Measured how) {
  Footprint f;
  plugin::Trainer& trainer = context.subjects.judged(mode);  // first, because another mode has another ledger
  plugin::Ledger& ledger = context.subjects.ledger();
  const std::uint64_t before = ledger.now_total();
  ledger.restart_peaks();
  std::optional<planning::HostBlock> batch, staging;
  if (how == Measured::kWhole) {
    const planning::HostBuffers b = planning::plan_host_buffers(c.model, c.run, 0);
    batch.emplace(ledger, b.batch_bytes, "host.batch");
    staging.emplace(ledger, b.staging_bytes, "host.staging");
  }
  Rig rig(context, c, {.mode = mode, .feed = arbitrary_ids(c.model.vocab), .copies = 0});
  f.run = rig.run().run;
  f.report = trainer.plan(c.model, f.run);
  const TrainerTraits traits = trainer.traits(c.model, f.run);
  f.f32_storage = traits.f32_storage;
  if (how != Measured::kCreated) {
    rig.step(0, runfile::lr_at(c.optimizer, 0, c.steps));
    rig.evaluate(0);
  }
  count_weights(f, rig.session(), c.model);
  f.moment_elements =
      sum(saved(rig.session(), plugin::Scope::kMoment1)) + sum(saved(rig.session(), plugin::Scope::kMoment2));
  f.ledger_bytes = ledger.peak_total() - before;
  if (how == Measured::kWhole) {
    const std::uint64_t resident = ResidentMeter().bytes(), held = ledger.now(Tier::kHost);
    if (traits.tier == Tier::kHost) f.runtime_bytes = resident - std::min(resident, held);
    f.stated_runtime_bytes = traits.runtime_bytes;
  }
  return f;
}

}  // namespace trainhost::verify
