// The calls of a front end that build a program: plan() and record_bytes().
#include "core/executor/calls.hpp"

#include "core/abi/op_journal.hpp"
#include "core/abi/report_transfer.hpp"

namespace trainhost::executor {

std::shared_ptr<const Placed> placed_program(const ModelSpec& model, const RunSpec& run,
                                             const Choice& choice) {
  return choice.placed ? choice.placed : placement::placed_run(model, run, choice.traits);
}

void send_plan(const Choice& choice, const ModelSpec& model, const RunSpec& run, th_mem_sink* sink,
               th_mem_summary* summary) {
  const std::shared_ptr<const Placed> placed = placed_program(model, run, choice);
  MemoryReport report = placement::memory_breakdown(placed->program, placed->plan);
  report.source = choice.traits.trainer;
  if (!choice.why.empty()) report.notes.push_back(choice.why);
  abi::send_report(report, sink, summary);
}

std::uint64_t profiler_bytes(const Choice& choice, const ModelSpec& model, const RunSpec& run) {
  return abi::record_bytes(step::build_program(model, run, choice.traits));
}

}  // namespace trainhost::executor
