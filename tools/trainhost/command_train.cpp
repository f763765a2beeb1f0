// trainhost train: plan a run, then train it. The training loop is core/training/train.cpp.
#include "core/training/train.hpp"

#include "core/report/run_reporter.hpp"
#include "core/training/batches.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {

Exit run(const TrainArguments& a) {
  std::vector<runfile::Override> more;
  if (!a.steps.empty()) more.push_back({"train.steps", a.steps, "--steps"});
  runfile::RunConfig c = load_config(a.common, more);
  runfile::reject_unsupported(c);
  const auto registry = make_registry(a.common, &c);
  training::TrainOptions options;
  options.resume = a.resume.empty()     ? training::Resume::kNo
                   : a.resume == "auto" ? training::Resume::kAuto
                                        : training::Resume::kYes;
  options.overwrite = a.overwrite;
  options.command_line = command_line();
  options.allow_fallback = !a.no_fallback;
  if (a.common.json) options.events = result_stream();
  options.quiet = a.common.quiet;
  options.verbosity = a.common.verbosity;
  options.profile = a.profile;
  report::RunReporter reporter(a.common.quiet);
  return training::train(c, *registry, options, reporter);
}

}  // namespace trainhost::cli
