// The exact estimator of the LLaMA family: builds the step program that a trainer would run, places it, adds
// it up. Never guesses: what no program can be built for is "unsupported", with the reason. Program and
// placer: core/plan.
#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/placement/memory_plan.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(R"(
id = "llama"
version = "0.1.0"
kind = "estimator"
summary = "exact: places the step program of the run and adds it up"
families = ["llama", "mistral", "qwen2", "qwen3"]
priority = 100
)");

namespace trainhost {
namespace {

constexpr std::int32_t kMade = 1000;  // made for these families: nothing fits them better

/// Only what a step program can be built for: one rank, full training, without what is planned alone.
std::int32_t match(const th_model* m, const th_run* run) {
  try {
    if (!m || !run || !TH_HAS(m, th_model, family) || !m->family) return 0;
    return trains_by_program(abi::from_c(*m), abi::from_c(*run)) ? kMade : 0;
  } catch (...) {
    return 0;
  }
}

/// Shapes the plan without a trainer: what a single host arena of aligned buffers needs at the very least.
const char* const kNeutral =
    "No trainer was named, so the plan is for a neutral one: 64-byte alignment, attention tiles of 64 x 64, "
    "all logits "
    "of a micro-batch at once.";

th_status estimate(const th_host*, const th_model* m, const th_run* r, const th_profile* p, th_mem_sink* sink,
                   th_mem_summary* summary, th_error* error) {
  return abi::guard(error, [&] {
    abi::require_arguments(m, r, sink);
    const step::Program program =
        step::build_program(abi::from_c(*m), abi::from_c(*r), p ? abi::from_c(*p) : TrainerTraits{});
    const placement::MemoryPlan placed = placement::place(program);
    MemoryReport report = placement::account(program, placed);
    report.digest = placed.digest;
    if (!p) report.notes.push_back(kNeutral);
    if (th_status s = abi::emit(report, sink, summary); s != TH_OK)
      throw abi::StatusError(s, "the host refused the report");
  });
}

constexpr th_estimator kTable{sizeof(th_estimator), 0, &match, &estimate};

}  // namespace
}  // namespace trainhost

TH_PLUGIN("llama", "0.1.0", &trainhost::kTable)
