// Writes the trainhost.search/1 object, with all numbers in full precision. Keys are those of the run file
// where a setting has one; they never change.

#include "core/base/json_value.hpp"
#include "core/planning/plan_result.hpp"
#include "core/report/file_keys.hpp"
#include "core/report/plan_report.hpp"

namespace trainhost::report {
namespace {

using Json = JsonValue;

Json row_json(const planning::SearchResult& v, const planning::RankedLayout& r) {
  // Exposed seconds by term (core/parallel/step_time.hpp, and the parts of step::SimulatedStep); they sum to
  // step_seconds.
  Json seconds = Json::object();
  for (const auto& [name, s] : r.seconds) seconds[name] = s;
  return {{"tensor", r.tensor},
          {"sequence", r.sequence},
          {"pipeline", r.pipeline},
          {"interleave", r.interleave},
          {"data", r.data},
          {"context", r.context},
          {"expert", r.expert},
          {"zero", r.zero},
          {"micro_batch", r.micro_batch},
          {"grad_accum", r.accumulate},
          {"recompute", r.recompute},
          {"recompute_every", r.recompute_every},
          {"offload", r.offload},
          {"device_bytes", r.device_bytes},
          {"host_bytes", r.host_bytes},
          {"verdict", name(planning::verdict_of(true, true, v.host_budget_bytes ? 0 : r.host_bytes))},
          {"step_seconds", r.step_seconds},
          {"time_from", r.simulated ? "simulation" : "closed form"},
          {"closed_form_seconds", r.closed_form_seconds},
          {"tokens_per_second", r.tokens_per_second},
          {"utilization", r.utilization},
          {"seconds", std::move(seconds)},
          {"settings", r.settings}};
}

Json rows_json(const planning::SearchResult& v, const std::vector<planning::RankedLayout>& rows) {
  Json out = Json::array();
  for (const planning::RankedLayout& r : rows) out.push_back(row_json(v, r));
  return out;
}

}  // namespace

std::string search_json(const planning::SearchResult& v) {
  Json j = {{"schema", "trainhost.search/1"},
            {"model", v.model},
            {"device", v.device},
            {"devices", v.devices},
            {"run", v.run_line},
            {"budget_bytes", v.budget_bytes},
            {"host_budget_bytes", v.host_budget_bytes ? Json(*v.host_budget_bytes) : Json(nullptr)},
            {"global_batch", v.global_batch},
            {"seq_len", v.seq_len},
            {"layouts", v.layouts},
            {"evaluated", v.evaluated},
            {"fitting", v.fitting},
            {"simulated", v.simulated},
            {"seconds", v.seconds},
            // "best": by time; "pareto": by memory, each faster than the one before.
            {"best", rows_json(v, v.best)},
            {"pareto", rows_json(v, v.pareto)},
            {"assumptions", v.assumptions},
            {"notes", v.notes}};
  add_file_keys(j, v.file_keys);
  return j.dump(2);
}

}  // namespace trainhost::report
