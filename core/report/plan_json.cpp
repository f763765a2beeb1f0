// Writes the trainhost.plan/1 object. Its keys are documented in docs/cli.md; new keys may be added, none is
// renamed or removed. Several keys therefore keep older terms: "leaves" are the entries, "moment" is the
// phase, "too_much" are the bytes over the budget.
#include "core/base/json_value.hpp"
#include "core/report/file_keys.hpp"
#include "core/report/plan_report.hpp"

namespace trainhost::report {
namespace {

using Json = JsonValue;

// Components in the order of the enumeration; entries of one component are summed at the peak of the tier.
Json tier_json(const MemoryReport& r, Tier tier) {
  Json components = Json::array();
  for (const auto& [c, p] : component_bytes_of(r, tier))
    components.push_back({{"name", name(c)}, {"bytes", p.bytes}, {"kind", name(p.claim)}});
  Json out = {{"tier", name(tier)}, {"total_bytes", r.tier_bytes(tier)}};
  for (const TierPeak& p : r.tiers)
    if (p.tier == tier) out["peak_at"] = name(p.peak_at);
  out["components"] = std::move(components);
  return out;
}

/// Bytes over the budget, by tier. Host memory is reported under "host", whichever of pinned and pageable
/// memory is short, because both share one budget.
Json excess_json(const planning::PlanResult& v, const planning::Estimate& e) {
  Json out = Json::object();
  // A tier that fits is left out: an empty object means that everything fits.
  if (v.budget_known && e.compute_bytes > v.budget_bytes)
    out[std::string(name(v.compute_tier))] = e.compute_bytes - v.budget_bytes;
  if (!v.host_budget_source.empty() && e.host_bytes > v.host_budget_bytes)
    out["host"] = e.host_bytes - v.host_budget_bytes;
  return out;
}

Json entries_json(const MemoryReport& r) {
  Json out = Json::array();
  // Every entry, unlike the table for people, which merges equal layers.
  for (const MemoryEntry& n : r.entries)
    out.push_back({{"name", n.name},
                   {"tier", name(n.tier)},
                   {"component", name(n.component)},
                   {"kind", name(n.claim)},
                   {"bytes", n.bytes},
                   {"bytes_at_peak", n.at_peak()},
                   {"formula", n.formula}});
  return out;
}

Json changes_json(const planning::PlanResult& v) {
  Json out = Json::array();
  for (const planning::Change& c : v.changes)
    out.push_back({{"settings", c.settings},
                   {"set", c.set},
                   {"sentence", c.sentence},
                   {"price", name(c.price)},
                   {"cost", c.cost},
                   {"cost_words", c.cost_text},
                   {"compute_bytes", c.compute_bytes},
                   {"host_bytes", c.host_bytes},
                   {"estimator", c.estimator}});
  return out;
}

Json limits_json(const planning::PlanResult& v) {
  Json out = Json::array();
  for (const planning::Limit& l : v.limits)
    out.push_back({{"what", l.what}, {"value", l.value}, {"binds", l.binds}});
  return out;
}

/// Phases in the order of a step; empty where no step program is known.
Json timeline_json(const planning::PlanResult& v) {
  Json out = Json::array();
  for (const planning::StepPhase& phase : v.timeline) {
    Json components = Json::object();
    for (const auto& [c, bytes] : phase.components) components[std::string(name(c))] = bytes;
    out.push_back({{"moment", phase.name}, {"bytes", phase.bytes}, {"components", std::move(components)}});
  }
  return out;
}

/// The same run in a framework; empty where the plan is of one trainer only.
Json framework_answers_json(const planning::PlanResult& v) {
  Json out = Json::array();
  for (const planning::FrameworkAnswer& a : v.framework_answers)
    out.push_back({{"framework", a.framework},
                   {"recompute", name(a.recompute)},
                   {"settings", a.settings},
                   {"estimator", a.estimate.report.source},
                   {"kind", name(a.estimate.report.claim)},
                   {"total_bytes", a.estimate.total_bytes},
                   {"fits", a.estimate.fits},
                   {"budget_bytes", a.budget_known ? Json(a.budget_bytes) : Json(nullptr)},
                   {"verdict", name(a.verdict())},
                   {"notes", a.estimate.report.notes}});
  return out;
}

Json recompute_object(const planning::PlanResult& v) {
  // value() throws if the caller did not test for train.recompute = "auto".
  const RecomputeLayers n = v.recompute_layers.value();
  return {{"asked", "auto"}, {"words", v.recompute_text}, {"full", n.full},
          {"mlp", n.mlp},    {"selective", n.selective},  {"none", v.model.layers - n.total()}};
}

}  // namespace

std::string recompute_json(const planning::PlanResult& v) { return recompute_object(v).dump(); }

std::string plan_json(const planning::PlanResult& v, int indent) {
  Json j = {{"schema", "trainhost.plan/1"}};
  // null, not 0, where the family has no list of tensors: 0 would be read as a count.
  Json parameters = nullptr;
  if (v.parameters_known)
    parameters = {{"total", v.parameters.total},
                  {"trainable", v.trained_parameters.value_or(v.parameters.total)},
                  {"active", v.active_parameters ? v.active_parameters : v.parameters.total},
                  {"embedding", v.parameters.embedding},
                  {"per_layer", v.parameters.per_layer}};
  j["model"] = {{"name", v.model.name}, {"family", v.model.family}, {"parameters", std::move(parameters)}};
  j["framework"] = v.framework.empty() ? "trainhost" : v.framework;
  j["assumed"] = v.assumed;
  j["backend"] = v.backend;
  if (!v.mode.empty()) j["mode"] = v.mode;
  if (v.recompute_layers) j["recompute"] = recompute_object(v);
  j["budget_source"] = v.budget_source;
  if (!v.host_budget_source.empty()) j["host_budget_source"] = v.host_budget_source;
  Json estimates = Json::array();
  for (const planning::Estimate& e : v.estimates) {
    Json tiers = Json::array();
    for (Tier t : kAllTiers)
      // Tiers without bytes are omitted: a CPU run has no device tier.
      if (e.report.tier_bytes(t) > 0) tiers.push_back(tier_json(e.report, t));
    // As text, because JSON numbers above 2^53 lose digits in most readers. "" where the plan has no digest.
    char digest[24];
    std::snprintf(digest, sizeof digest, "%016llx", static_cast<unsigned long long>(e.report.digest));
    Json entry = {{"estimator", e.report.source},
                  {"kind", name(e.report.claim)},
                  {"total_bytes", e.total_bytes},
                  {"fits", e.fits},
                  {"budget_bytes", v.budget_known ? Json(v.budget_bytes) : Json(nullptr)},
                  {"digest", e.report.digest ? digest : ""},
                  {"tiers", std::move(tiers)},
                  {"leaves", entries_json(e.report)},
                  {"notes", e.report.notes}};
    if (!v.host_budget_source.empty()) entry["host_budget_bytes"] = v.host_budget_bytes;
    if (e.host_bytes > 0) {
      entry["host_bytes"] = e.host_bytes;
      entry["host_judged"] = v.host_budget_known();  // false: "fits" says nothing about host memory
    }
    // "fits" is true where nothing is known that speaks against it; "verdict" tells the cases apart.
    entry["verdict"] = name(v.verdict(e));
    Json unjudged = Json::object();
    if (v.unjudged_host(e)) unjudged["host"] = v.unjudged_host(e);
    if (e.disk_bytes) unjudged["disk"] = e.disk_bytes;
    entry["unjudged"] = std::move(unjudged);
    if (!e.fits) entry["too_much"] = excess_json(v, e);
    estimates.push_back(std::move(entry));
  }
  j["estimates"] = std::move(estimates);
  j["estimator_rule"] = v.estimator_rule;
  Json failed = Json::array();
  for (const planning::FailedEstimator& f : v.failed_estimators)
    failed.push_back({{"estimator", f.estimator}, {"error", f.error}});
  j["failed_estimators"] = std::move(failed);
  j["framework_answers"] = framework_answers_json(v);
  if (!v.no_framework_answer.empty()) j["no_framework_answer"] = v.no_framework_answer;
  j["notes"] = v.notes;
  add_file_keys(j, v.file_keys);
  j["ranks"] = v.ranks;
  if (v.rank > 0) j["rank"] = v.rank - 1;
  j["changes"] = changes_json(v);
  if (!v.changes_note.empty()) j["changes_note"] = v.changes_note;
  j["limits"] = limits_json(v);
  j["timeline"] = timeline_json(v);
  return j.dump(indent);
}

}  // namespace trainhost::report
