// Plugin `llama`: the exact estimator of the trainable families. Builds the step program that a trainer would
// run (core/step), places its buffers (core/placement) and reports the memory breakdown. A run without a step
// program is rejected as "unsupported", with the reason.
#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/placement/placed_run.hpp"
#include "plugins/estimators/common/model_match.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(R"(
id = "llama"
version = "0.1.0"
kind = "estimator"
summary = "exact: places the buffers of the step program of the run"
families = ["llama", "mistral", "qwen2", "qwen3"]
priority = 100
)");

namespace trainhost {
namespace {

constexpr std::int32_t kExact = 1000;  // the highest score: made for these families

/// Runs with a step program: one rank, full training, no setting that only planners implement.
std::int32_t match(const th_model* m, const th_run* run) {
  return rules::guard_match(kExact, [&] {
    if (!m || !run || !TH_HAS(m, th_model, family) || !m->family) return 0;
    return trains_by_program(abi::from_c(*m), abi::from_c(*run)) ? kExact : 0;
  });
}

/// Note of a plan without a trainer: TrainerTraits has its defaults.
const char* const kDefaultTraits =
    "No trainer was named; the plan assumes 64-byte alignment, attention tiles of 64 x 64 and materialised "
    "logits of a micro-batch.";

th_status estimate(const th_host*, const th_model* m, const th_run* r, const th_profile* p, th_mem_sink* sink,
                   th_mem_summary* summary, th_error* error) {
  return abi::guard(error, [&] {
    abi::require_arguments(m, r, sink);
    const auto placed =
        placement::placed_run(abi::from_c(*m), abi::from_c(*r), p ? abi::from_c(*p) : TrainerTraits{});
    MemoryReport report = placement::memory_breakdown(placed->program, placed->plan);
    report.digest = placed->plan.digest;
    if (!p) report.notes.emplace_back(kDefaultTraits);
    abi::send_report(report, sink, summary);
  });
}

constexpr th_estimator kTable{sizeof(th_estimator), 0, &match, &estimate};

}  // namespace
}  // namespace trainhost

TH_PLUGIN("llama", "0.1.0", &trainhost::kTable)
