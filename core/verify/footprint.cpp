// See footprint.hpp. The ledger counts bytes, the report names them: together they tell what a trainer
// allocated, for which purpose.
#include "core/verify/footprint.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "core/planning/host_buffers.hpp"
#include "core/process/host_info.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

/// Elements that save() gives of each tensor of a scope.
std::map<std::string, std::uint64_t> saved_elements(plugin::Session& s, plugin::Scope scope) {
  std::map<std::string, std::uint64_t> elements;
  s.save(scope, [&](const plugin::TensorPiece& p) { elements[p.name] += p.count; });
  return elements;
}

std::uint64_t sum(const std::map<std::string, std::uint64_t>& elements) {
  std::uint64_t n = 0;
  for (const auto& [name, count] : elements) n += count;
  return n;
}

/// The head of a tied model is its embedding. A trainer may save both, which count once.
void count_weights(Footprint& f, plugin::Session& s, const ModelSpec& m) {
  std::map<std::string, std::uint64_t> elements = saved_elements(s, plugin::Scope::kWeights);
  if (m.tied && elements.count("lm_head.weight") &&
      elements["lm_head.weight"] == elements["model.embed_tokens.weight"]) {
    elements.erase("lm_head.weight");
    f.duplicate_tensor = "lm_head.weight";
  }
  f.weight_elements = sum(elements);
}

}  // namespace

std::uint64_t Footprint::bytes_of(std::initializer_list<Component> names) const {
  std::uint64_t other = 0;
  for (const MemoryEntry& n : report.entries)
    if (std::find(names.begin(), names.end(), n.component) == names.end()) other += n.at_peak();
  // What the report assigns to other components is subtracted; the rest counts for the components under test,
  // named or not.
  return ledger_bytes - std::min(ledger_bytes, other);
}

Footprint measure_footprint(Context& context, const runfile::RunConfig& c, const std::string& mode,
                            Measured how) {
  Footprint f;
  plugin::Trainer& trainer = context.trainers.trainer(mode);  // before ledger(): each mode has its own
  plugin::Ledger& ledger = context.trainers.ledger();
  const std::uint64_t before = ledger.in_use_total();
  // Peaks from here on.
  ledger.reset_peaks();
  std::optional<planning::HostBlock> batch, staging;
  if (how == Measured::kWhole) {
    // The buffers of the training loop, which a whole run includes.
    const planning::HostBuffers b = planning::plan_host_buffers(c.model, c.run, 0);
    batch.emplace(ledger, b.batch_bytes, "host.batch");
    staging.emplace(ledger, b.staging_bytes, "host.staging");
  }
  TrainerFixture fixture(context, c, {.mode = mode, .batches = arbitrary_ids(c.model.vocab), .copies = 0});
  f.run = fixture.run().run;
  f.report = trainer.plan(c.model, f.run);
  const TrainerTraits traits = trainer.traits(c.model, f.run);
  f.f32_storage = traits.f32_storage;
  if (how != Measured::kCreated) {
    // One step and one evaluation reach every phase of a run.
    fixture.step(0, runfile::lr_at(c.optimizer, 0, c.steps));
    fixture.evaluate(0);
  }
  count_weights(f, fixture.session(), c.model);
  f.moment_elements = sum(saved_elements(fixture.session(), plugin::Scope::kMoment1)) +
                      sum(saved_elements(fixture.session(), plugin::Scope::kMoment2));
  f.ledger_bytes = ledger.peak_total() - before;
  if (how == Measured::kWhole) {
    // Resident memory beyond what the ledger counts: code, libraries, allocator.
    const std::uint64_t resident = ResidentMeter().bytes(), in_use = ledger.in_use(Tier::kHost);
    if (traits.tier == Tier::kHost) f.runtime_bytes = resident - std::min(resident, in_use);
    f.reported_runtime_bytes = traits.runtime_bytes;
  }
  return f;
}

}  // namespace trainhost::verify
