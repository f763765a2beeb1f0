// Writes the "profile" object of the done event and of summary.json. Times are per step; bytes and FLOPs of a
// kind are sums over the profiled steps, like its nanoseconds, so their ratios are rates.

#include "core/base/json_value.hpp"
#include "core/report/profile_report.hpp"

namespace trainhost::report {
namespace {

using Json = JsonValue;

// 0 instead of a division by 0: a run of no steps.
double ratio(std::uint64_t a, std::uint64_t b) {
  return b ? static_cast<double>(a) / static_cast<double>(b) : 0;
}

}  // namespace

std::string profile_json(const training::ProfileResult& v) {
  // Nanoseconds over all steps to milliseconds per step.
  const auto ms = [&](std::uint64_t ns) { return ratio(ns, v.steps) * 1e-6; };  // per step
  Json kinds = Json::array(), layers = Json::array(), phases = Json::array(), peak = Json::array();
  for (const training::OpKindRow& k : v.kinds)
    kinds.push_back({{"kind", k.kind},
                     {"calls", k.calls},
                     {"ms", ms(k.ns)},
                     {"share", ratio(k.ns, v.step_ns)},
                     {"flops", k.flops},
                     {"bytes", k.bytes},
                     {"gflops_per_s", ratio(k.flops, k.ns)},
                     {"gb_per_s", ratio(k.bytes, k.ns)}});
  for (std::uint64_t ns : v.layer_ns) layers.push_back(ms(ns));
  for (const training::PhaseRow& p : v.phases)
    phases.push_back({{"moment", p.phase},
                      {"planned_bytes", p.planned_bytes},
                      {"held_bytes", p.held_bytes},
                      {"resident_first_bytes", p.resident_first_bytes},
                      {"resident_bytes", p.resident_bytes}});
  for (const training::PeakEntry& c : v.peak)
    peak.push_back({{"layer", c.layer}, {"component", name(c.component)}, {"bytes", c.bytes}});
  Json j = {{"steps", v.steps},
            {"step_ms", ms(v.step_ns)},
            {"between_ms", ms(v.between_ns())},
            {"kinds", std::move(kinds)},
            {"layer_ms", std::move(layers)},
            {"memory", std::move(phases)},
            {"peak_at", v.peak_at},
            {"peak", std::move(peak)},
            {"fragmentation",
             {{"ratio", v.fragmentation()},
              {"severity", training::fragmentation_severity(v.fragmentation())},
              {"allocated_bytes", v.allocated_bytes},
              {"used_bytes", v.used_bytes}}},
            {"trace", v.trace}};
  return j.dump();
}

}  // namespace trainhost::report
