// trainhost verify: tests the contracts of docs/memory-model.md against real trainers. Exit 5 when one is
// falsified. The checks are core/verify.
#include <fmt/format.h>

#include <cstdlib>

#include "core/model/adapters.hpp"
#include "core/planning/resolve_run.hpp"
#include "core/report/verify_report.hpp"
#include "core/training/batches.hpp"
#include "core/verify/context.hpp"
#include "core/verify/contract_check.hpp"
#include "core/verify/real_trainers.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

runfile::RunConfig load_verified_run(const CommonArguments& a) {
  runfile::RunConfig c =
      a.run_file.empty() && a.model.empty()
          ? runfile::parse_run(verify::builtin_run_toml(), "", std::filesystem::current_path(), overrides(a))
          : load_config(a);
  planning::adopt_vocabulary(c);
  // The checks ask each trainer which precisions it supports; the other keys are checked as `train` does.
  runfile::RunConfig any_precision = c;
  any_precision.precision = "fp32";
  runfile::reject_unsupported(any_precision);
  runfile::require_weights(any_precision);
  if (trains_adapters(c.run))
    throw usage_error(
        "verify tests contracts of runs that train all weights, but the run has [lora]",
        "remove the table; `trainhost train` compares predicted and measured memory of this run");
  if (!c.run.trainable.empty())
    throw usage_error("verify tests contracts of runs that train all weights, but the run freezes some",
                      "remove train.freeze and train.only",
                      c.given.count("train.freeze") ? c.given.at("train.freeze") : c.given.at("train.only"));
  return c;
}

/// The backend of the run. With backend "auto": cuda for the contracts of the CUDA trainer, and cpu for the
/// others, because every machine has it.
std::string verified_backend(const runfile::RunConfig& c, bool cuda_checks) {
  return c.backend != "auto" ? c.backend : cuda_checks ? "cuda" : "cpu";
}

std::vector<verify::Result> run_checks(const VerifyArguments& a, const runfile::RunConfig& c,
                                       bool cuda_checks, const std::vector<const verify::Check*>& checks) {
  verify::RealTrainers trainers(c, verified_backend(c, cuda_checks),
                                [&](const runfile::RunConfig& run) { return make_registry(a.common, &run); });
  verify::Context context(c, trainers);
  // Set in tests and on emulated devices, where the model of 350M parameters would take hours.
  const char* small = std::getenv("TRAINHOST_VERIFY_SMALL");
  context.small = small && std::string(small) == "1";
  for (const std::string& folder : a.common.plugin_path)
    context.plugin_path.push_back(std::filesystem::absolute(folder));
  context.plugin_path.insert(context.plugin_path.end(), c.plugin_path.begin(), c.plugin_path.end());
  if (a.common.verbosity)
    context.report_progress = [](const std::string& text) { write_stderr(text + "\n"); };
  return verify::run_checks(context, checks);
}

}  // namespace

Exit run(const VerifyArguments& a) {
  const std::vector<const verify::Check*> checks = verify::select(a.only);
  const runfile::RunConfig c = load_verified_run(a.common);
  // The two groups run one after the other: each has its own trainers, and only one registry may have
  // plugins loaded at a time.
  std::vector<verify::Result> results;
  for (const bool cuda_checks : {false, true}) {
    std::vector<const verify::Check*> group;
    for (const verify::Check* check : checks)
      if (check->id.starts_with("GPU") == cuda_checks) group.push_back(check);
    if (group.empty()) continue;
    for (verify::Result& r : run_checks(a, c, cuda_checks, group)) results.push_back(std::move(r));
  }
  if (a.common.json) fmt::print(result_stream(), "{}\n", report::verify_json(results));
  if (!a.common.quiet)
    fmt::print(a.common.json ? stderr : stdout, "{}",
               report::verify_table(results, report::terminal_of(a.common.json ? 2 : 1)));
  return verify::exit_of(results);
}

}  // namespace trainhost::cli
