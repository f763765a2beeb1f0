// See python_estimator.hpp. Keys of the JSON are the names of the fields of the dataclasses in
// _estimators.py.
#include "sdk/python/python_estimator.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "core/base/json_value.hpp"
#include "core/model/tensors.hpp"

namespace nb = nanobind;

namespace trainhost::python {
namespace {

using Json = JsonValue;

// A function is a prototype: it answers where it is named, or where no installed estimator matches.
constexpr int kMatch = 1;

constexpr Claim kClaims[] = {Claim::kExact, Claim::kUpperBound, Claim::kApproximation};
constexpr std::uint32_t kComponents = static_cast<std::uint32_t>(Component::kRuntime);

Json model_json(const ModelSpec& m) {
  return {{"family", m.family},
          {"name", m.name},
          {"vocab", m.vocab},
          {"hidden", m.hidden},
          {"layers", m.layers},
          {"heads", m.heads},
          {"kv_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"intermediate", m.intermediate},
          {"max_positions", m.max_positions},
          {"sliding_window", m.sliding_window},
          {"tied", m.tied},
          {"parameters", trainable_family(m.family) ? Json(count_parameters(m).total) : Json(nullptr)},
          {"config", m.config_json.empty() ? Json::object() : parse_json(m.config_json)}};
}

const char* mode_name(RunMode m) {
  switch (m) {
    case RunMode::kFull:
      return "full";
    case RunMode::kLora:
      return "lora";
    case RunMode::kQlora:
      return "qlora";
    case RunMode::kInference:
      return "inference";
  }
  return "";
}

Json run_json(const RunSpec& r) {
  return {
      {"mode", mode_name(r.mode)},      {"micro_batch", r.micro_batch},     {"seq_len", r.seq_len},
      {"accumulate", r.accumulate},     {"weight", name(r.weight)},         {"grad", name(r.grad)},
      {"master", name(r.master)},       {"moment", name(r.moment)},         {"compute", name(r.compute)},
      {"optimizer", name(r.optimizer)}, {"recompute", name(r.recompute)},   {"data", r.parallel.data},
      {"tensor", r.parallel.tensor},    {"sequence", r.parallel.sequence},  {"pipeline", r.parallel.pipeline},
      {"context", r.parallel.context},  {"expert", r.parallel.expert},      {"zero", r.parallel.zero},
      {"lora_rank", r.lora_rank},       {"device_budget", r.device_budget}, {"host_budget", r.host_budget}};
}

Json trainer_json(const TrainerTraits& t) {
  return {{"trainer", t.trainer},
          {"tier", name(t.tier)},
          {"mode", t.mode},
          {"alignment", t.alignment},
          {"threads", t.threads},
          {"head_chunk_tokens", t.head_chunk_tokens},
          {"runtime_bytes", t.runtime_bytes},
          {"workspace_bytes", t.workspace_bytes}};
}

/// The value of an enumeration with this name. The package has checked the names, so an unknown one is a bug.
template <class E, class Values>
E named(const Values& values, std::string_view word) {
  for (const E v : values)
    if (name(v) == word) return v;
  throw plugin::PluginError(Exit::kFailed, "internal",
                            "unknown name '" + std::string(word) + "' in an answer", "please report it", 0);
}

std::vector<Component> components() {
  std::vector<Component> out;
  for (std::uint32_t i = 1; i <= kComponents; ++i) out.push_back(static_cast<Component>(i));
  return out;
}

std::uint64_t bytes_of(const Json& entry, const char* key) {
  const Json* v = entry.find(key);
  return v && v->integer > 0 ? static_cast<std::uint64_t>(v->integer) : 0;
}

/// The entries in the order of the answer, as a flat breakdown that is live during the whole run.
MemoryReport report_of(const std::string& id, const std::string& answer, Tier compute_tier) {
  MemoryReport report;
  report.source = id;
  const Json parsed = parse_json(answer);
  report.claim = parsed.elements.empty() ? Claim::kApproximation : Claim::kExact;
  for (const Json& j : parsed.elements) {
    MemoryEntry e;
    e.id = static_cast<std::uint32_t>(report.entries.size() + 1);
    e.name = j.text_of("name");
    e.formula = j.text_of("formula");
    e.component = named<Component>(components(), j.text_of("component"));
    e.claim = named<Claim>(kClaims, j.text_of("kind"));
    e.tier = j.text_of("tier").empty() ? compute_tier : named<Tier>(kAllTiers, j.text_of("tier"));
    e.phases = kAlways;
    e.bytes = e.lo = e.hi = bytes_of(j, "bytes");
    const Json* at_peak = j.find("bytes_at_peak");
    e.bytes_at_peak = at_peak && !at_peak->is_null() ? bytes_of(j, "bytes_at_peak") : e.bytes;
    e.has_at_peak = true;
    report.claim = std::max(report.claim, e.claim);  // the least certain one
    report.entries.push_back(std::move(e));
  }
  // With the peaks given by the entries: without them, the largest bytes would be added up.
  for (const Tier t : kAllTiers) {
    std::uint64_t bytes = 0;
    for (const MemoryEntry& e : report.entries) bytes += e.tier == t ? e.at_peak() : 0;
    if (bytes > 0) report.tiers.push_back({t, bytes, kForward});
  }
  return report;
}

class FunctionEstimator : public plugin::Estimator {
 public:
  FunctionEstimator(std::string id, std::vector<std::string> families, nb::object function,
                    std::shared_ptr<nb::object> raised)
      : id_(std::move(id)),
        families_(std::move(families)),
        function_(std::move(function)),
        raised_(std::move(raised)) {}

  const std::string& id() const override { return id_; }

  int match(const ModelSpec& m, const RunSpec&) const override {
    return families_.empty() || std::ranges::find(families_, m.family) != families_.end() ? kMatch : 0;
  }

  MemoryReport estimate(const ModelSpec& m, const RunSpec& r, const TrainerTraits* traits) const override {
    TrainerTraits device;
    device.tier = Tier::kDevice;
    const TrainerTraits& t = traits ? *traits : device;
    const std::string question =
        Json{{"model", model_json(m)}, {"run", run_json(r)}, {"trainer", trainer_json(t)}}.dump();
    return report_of(id_, answer(question), t.tier);
  }

 private:
  std::string answer(const std::string& question) const {
    const nb::gil_scoped_acquire locked;
    try {
      return nb::cast<std::string>(function_(question));
    } catch (nb::python_error& e) {
      if (!raised_->is_valid()) *raised_ = nb::borrow(e.value());
      throw plugin::PluginError(Exit::kFailed, "python", e.what(), "", 0);
    }
  }

  std::string id_;
  std::vector<std::string> families_;
  nb::object function_;
  std::shared_ptr<nb::object> raised_;
};

}  // namespace

PythonEstimators::PythonEstimators(const nb::list& functions) : raised_(std::make_shared<nb::object>()) {
  for (const nb::handle item : functions)
    all_.push_back(std::make_shared<FunctionEstimator>(nb::cast<std::string>(item[0]),
                                                       nb::cast<std::vector<std::string>>(item[1]),
                                                       nb::borrow(item[2]), raised_));
}

void PythonEstimators::rethrow() const {
  if (!raised_->is_valid()) return;
  PyErr_SetObject(raised_->type().ptr(), raised_->ptr());
  throw nb::python_error();
}

std::vector<std::string> names_of_components() {
  std::vector<std::string> out;
  for (const Component c : components()) out.emplace_back(name(c));
  return out;
}

std::vector<std::string> names_of_tiers() {
  std::vector<std::string> out;
  for (const Tier t : kAllTiers) out.emplace_back(name(t));
  return out;
}

std::vector<std::string> names_of_claims() {
  std::vector<std::string> out;
  for (const Claim c : kClaims) out.emplace_back(name(c));
  return out;
}

}  // namespace trainhost::python
