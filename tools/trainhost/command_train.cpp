// trainhost train: plan a run, then train it; trainhost finetune: the same with the settings of fine-tuning.
// The training loop is core/training/train.cpp.
#include "core/training/train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/output_file.hpp"
#include "core/checkpoint/store.hpp"
#include "core/live/live_server.hpp"
#include "core/report/lr_range_report.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/rank_log.hpp"
#include "core/report/run_files.hpp"
#include "core/report/run_reporter.hpp"
#include "core/training/batches.hpp"
#include "tools/trainhost/launched_ranks.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

/// What `train --model` names: a folder is a model that is trained further, a preset or a config.json starts
/// from random weights. A name of the Hugging Face Hub is taken for a folder, whose absence is explained.
runfile::Override model_to_train(const std::string& model) {
  std::error_code ec;
  if (std::filesystem::is_directory(model, ec)) return {"model.path", model, "--model"};
  if (model.ends_with(".json")) return {"model.config", model, "--model"};
  return {model.find('/') != model.npos ? "model.path" : "model.preset", model, "--model"};
}

/// Whether matrix products are faster in bf16 than in fp32 on the device that will train: on GPUs, and on
/// processors with instructions for them.
bool bf16_pays(const runfile::RunConfig& c) {
  std::error_code ec;
  const bool gpu = std::filesystem::exists("/dev/nvidiactl", ec);
  if (c.backend == "cuda" || (c.backend == "auto" && gpu)) return true;
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

/// The run, in the precision that pays where neither the run file nor an option chooses one.
runfile::RunConfig load_training_run(CommonArguments common, std::vector<runfile::Override> more) {
  if (!common.model.empty()) {
    if (!common.run_file.empty())
      throw usage_error("--model and a run file are both given", "give one of them");
    more.push_back(model_to_train(common.model));
    common.model.clear();
  }
  const runfile::RunConfig c = load_config(common, more);
  const bool assumed =
      std::any_of(c.assumed.begin(), c.assumed.end(),
                  [](const runfile::RunConfig::Assumed& a) { return a.key == "train.precision"; });
  if (!assumed || bf16_pays(c)) return c;
  more.push_back({"train.precision", "fp32", "default on this processor"});
  return load_config(common, more);
}

/// Options that say how a run starts, continues or is recorded.
void reject_options_beside_find_lr(const TrainArguments& a) {
  const char* other = !a.resume.empty()            ? "--resume"
                      : a.overwrite                ? "--overwrite"
                      : !a.profile.empty()         ? "--profile"
                      : a.log_ranks                ? "--log-ranks"
                      : !a.live.empty()            ? "--live"
                      : !a.memory_snapshot.empty() ? "--memory-snapshot"
                      : !a.steps.empty()           ? "--steps"
                                                   : nullptr;
  if (!other) return;
  throw usage_error(fmt::format("--find-lr cannot be combined with {}", other),
                    !a.steps.empty() && other == std::string_view("--steps")
                        ? "--find-lr=FROM:TO:STEPS sets the steps of the range test"
                        : "a range test starts from the initial weights and keeps nothing of them");
}

/// The result is printed, and written to lr_range.json and lr_range.svg in the folder of the run.
Exit find_lr(const TrainArguments& a, const runfile::RunConfig& c, plugin::Registry& registry,
             const training::TrainOptions& options, report::RunReporter& reporter) {
  training::LrRange range = training::default_lr_range(c);
  if (a.find_lr != "true") range = training::parse_lr_range(a.find_lr, range);
  const std::optional<training::LrRangeResult> result =
      training::find_lr(c, registry, options, range, reporter);
  if (!result) return Exit::kStopped;
  const std::string json = report::lr_range_json(*result) + "\n";
  const std::filesystem::path base = c.output.dir / "lr_range";
  checkpoint::write_file_atomically(base.string() + ".json", json);
  checkpoint::write_file_atomically(base.string() + ".svg", report::lr_range_svg(*result));
  if (a.common.json)
    fmt::print(result_stream(), "{}", json);
  else
    fmt::print("{}{}", report::lr_range_plot(*result, report::terminal_of(1)),
               report::lr_range_suggestion(*result));
  if (!a.common.quiet)
    write_stderr(fmt::format("wrote {}.svg and lr_range.json\n", escaped(base.string(), 4096)));
  return Exit::kDone;
}

/// Writes the file of --memory-snapshot as soon as the run is planned.
class SnapshotFile final : public training::ForwardingObserver {
 public:
  SnapshotFile(const std::string& file, training::RunObserver& next) : ForwardingObserver(next), file_(file) {
    checkpoint::require_writable("--memory-snapshot", file_, kExample);
  }
  void planned(const planning::PlanResult& plan) override {
    if (plan.snapshot)
      checkpoint::write_output("--memory-snapshot", file_, report::memory_snapshot_pickle(*plan.snapshot),
                               kExample);
    next_.planned(plan);
  }

 private:
  static constexpr const char* kExample = "--memory-snapshot step.pickle";
  std::string file_;
};

}  // namespace

static Exit train_here(TrainArguments a, std::unique_ptr<plugin::Registry>& registry,
                       std::unique_ptr<plugin::Communicator>& ranks);

Exit run(const TrainArguments& a) {
  std::unique_ptr<plugin::Registry> registry;
  std::unique_ptr<plugin::Communicator> ranks;  // of several processes
  return run_together([&] { return ranks.get(); }, [&] { return train_here(a, registry, ranks); });
}

/// In this process, which may be one of several.
static Exit train_here(TrainArguments a, std::unique_ptr<plugin::Registry>& registry,
                       std::unique_ptr<plugin::Communicator>& ranks) {
  if (!a.find_lr.empty()) reject_options_beside_find_lr(a);
  const std::optional<LaunchedProcess> launched = launched_process();
  std::unique_ptr<LaunchWatch> launch = watch_launch();
  if (launched && launched->rank > 0) a.common.quiet = true;
  std::vector<runfile::Override> more;
  if (!a.steps.empty()) more.push_back({"train.steps", a.steps, "--steps"});
  runfile::RunConfig c;
  try {
    c = load_training_run(a.common, more);
    if (const std::optional<runfile::Override> data = ranks_of_run(c)) {
      more.push_back(*data);
      c = load_training_run(a.common, more);
    }
    if (launched) {
      // Tensor-parallel ranks are neighbours: they communicate most.
      Parallelism& p = c.run.parallel;
      p.data_rank = launched->rank / p.tensor + 1, p.tensor_rank = launched->rank % p.tensor + 1;
    }
    if (launched && !a.find_lr.empty())
      throw usage_error("--find-lr computes its steps in one process", "start it without mpirun");
    runfile::reject_unsupported(c);
    runfile::require_weights(c);
    registry = make_registry(a.common, &c);
    ranks = connect_ranks(c, *registry);
  } catch (const ConnectionFailure&) {
    throw;
  } catch (const Error& e) {
    // A run file may differ from rank to rank, so the ranks connect to report a mistake too.
    if (!launched || e.code() != Exit::kUsage) throw;
    const std::exception_ptr mistake = std::current_exception();
    try {
      registry = make_registry(a.common, nullptr);
      runfile::RunConfig defaults;
      defaults.communicator_timeout = 60;
      ranks = connect_ranks(defaults, *registry);
    } catch (const Error&) {  // this process reports its failure alone
      std::rethrow_exception(mistake);
    }
    launch.reset();
    end_together(*ranks, e);
  }
  launch.reset();
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
  options.ranks = ranks.get();
  const std::uint32_t rank = launched ? launched->rank : 0;
  if (rank > 0) options.events = nullptr;
  report::RunReporter reporter(a.common.quiet);  // of the first process; the others are quiet
  if (!a.find_lr.empty()) return find_lr(a, c, *registry, options, reporter);
  // Each observer passes everything on to the one before it.
  training::RunObserver* observer = &reporter;
  std::optional<report::RankLog> run_log, rank_log;
  std::optional<report::RunFiles> files;
  std::optional<live::LiveObserver> page;
  std::optional<SnapshotFile> snapshot;
  if (rank == 0) observer = &run_log.emplace("run.log", name_of_process(), *observer);
  if (rank == 0 && !a.memory_snapshot.empty()) {
    observer = &snapshot.emplace(a.memory_snapshot, *observer);
    options.memory_snapshot = true;
  }
  if (a.log_ranks)
    observer = &rank_log.emplace(fmt::format("rank_{}.log", rank), name_of_process(), *observer);
  if (rank == 0) observer = &files.emplace(c.output.report, command_line(), *observer);
  // Outermost: its last update shows the files that the others have written.
  if (rank == 0 && !a.live.empty())
    observer =
        &page.emplace(a.live == "true" ? live::kDefaultPort : static_cast<std::uint16_t>(std::stoul(a.live)),
                      command_line(), *observer);
  try {
    return training::train(c, *registry, options, *observer);
  } catch (const Error& e) {
    for (auto* log : {&run_log, &rank_log})
      if (*log) (*log)->failed(e.full());
    throw;
  }
}

/// As settings before those of the command line, which therefore win.
Exit run(const FinetuneArguments& a) {
  if (!a.adapter.empty() && (a.lora || a.dora)) {
    const char* option = a.lora ? "--lora" : "--dora";
    throw usage_error(fmt::format("--adapter cannot be combined with {}, which creates an adapter", option),
                      fmt::format("leave out {}: the adapter's own rank and targets are in its "
                                  "adapter_config.json",
                                  option));
  }
  TrainArguments t = a;
  std::vector<runfile::Override>& settings = t.common.implied;
  settings = {{"model.path", json_string(a.folder), "MODEL"}};
  std::string files;
  for (const std::string& file : a.data) files += (files.empty() ? "" : ", ") + json_string(file);
  settings.push_back({"data.train", "[" + files + "]", "DATA"});
  if (a.qlora)
    settings.insert(settings.end(),
                    {{"lora.base", "\"nf4\"", "--qlora"}, {"lora.double_quant", "true", "--qlora"}});
  if (a.dora) settings.push_back({"lora.dora", "true", "--dora"});
  if (a.lora || a.dora || (a.qlora && a.adapter.empty())) {
    const char* option = a.lora ? "--lora" : a.dora ? "--dora" : "--qlora";
    std::ranges::copy(adapter_settings(option, false), std::back_inserter(settings));
  }
  if (!a.adapter.empty()) settings.push_back({"model.adapter", json_string(a.adapter), "--adapter"});
  return run(t);
}

}  // namespace trainhost::cli
