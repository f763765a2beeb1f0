// See run_reporter.hpp. The training loop calls it through an interface of core/training, so that training
// does not depend on this module.
#include "core/report/run_reporter.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/profile_report.hpp"

namespace trainhost::report {

// 2: stderr, where progress and messages go.
RunReporter::RunReporter(bool quiet)
    : terminal_(terminal_of(2)),
      progress_(quiet              ? Progress::Mode::kSilent
                : terminal_.cursor ? Progress::Mode::kLive
                                   : Progress::Mode::kPlain,
                terminal_, [](const std::string& text) { write_stderr(text); }) {}

void RunReporter::planned(const planning::PlanResult& plan) { message(memory_table(plan, terminal_)); }

void RunReporter::profiled(const training::ProfileResult& profile) {
  message(profile_table(profile, terminal_));
}

void RunReporter::measured(const training::MemoryResult& memory) { message(memory_lines(memory, terminal_)); }

void RunReporter::sample(std::uint64_t, const std::string& text) {
  message("sample of generated text:\n" + text);
}

// One line: it is part of an event.
std::string RunReporter::plan_json(const planning::PlanResult& plan) const {
  return report::plan_json(plan, -1);
}

std::string RunReporter::recompute_json(const planning::PlanResult& plan) const {
  return report::recompute_json(plan);
}

std::string RunReporter::profile_json(const training::ProfileResult& profile) const {
  return report::profile_json(profile);
}

// A difference is a fault of the plan and is shown as such, however small.
std::string memory_lines(const training::MemoryResult& m, const Terminal& t) {
  std::uint64_t difference = m.predicted_bytes > m.measured_bytes ? m.predicted_bytes - m.measured_bytes
                                                                  : m.measured_bytes - m.predicted_bytes;
  std::string verdict =
      difference == 0 ? styled(t, Style::kGood, "equal")
                      : styled(t, Style::kBad, fmt::format("differs by {} bytes", format_count(difference)));
  return fmt::format(
      "memory predicted {:>15} bytes\n       measured  {:>15} bytes   {}\n       process   {:>15} bytes   "
      "peak resident, of which {} is runtime (code, libraries)",
      format_count(m.predicted_bytes), format_count(m.measured_bytes), verdict,
      format_count(m.process_peak_bytes), format_bytes(m.runtime_bytes()));
}

}  // namespace trainhost::report
