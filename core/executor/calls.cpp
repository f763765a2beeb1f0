// The two answers of a front that walk a program.
#include "core/executor/calls.hpp"

#include "core/bridge/op_journal.hpp"
#include "core/bridge/report.hpp"
#include "core/plan/memory_plan.hpp"

namespace trainhost::executor {

th_status send_plan(const Choice& choice, const ModelSpec& model, const RunSpec& run, th_mem_sink* sink,
                    th_mem_summary* summary) {
  const plan::Program program = plan::build_program(model, run, choice.profile);
  MemoryReport report = plan::account(program, plan::place(program));
  report.source = choice.profile.trainer;
  if (!choice.why.empty()) report.notes.push_back(choice.why);
  return bridge::emit(report, sink, summary);
}

std::uint64_t profiler_bytes(const Choice& choice, const ModelSpec& model, const RunSpec& run) {
  return bridge::record_bytes(plan::build_program(model, run, choice.profile));
}

}  // namespace trainhost::executor
