// The beginning of a TrainingRun: everything that can fail for reasons of the run file, the machine or the
// data happens here, before the first step, from the cheapest check to the most expensive one. The functions
// follow in the order in which run() calls them.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/base/checked.hpp"
#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/model/adapters.hpp"
#include "core/model/tensors.hpp"
#include "core/planning/error_context.hpp"
#include "core/planning/make_plan.hpp"
#include "core/planning/resolve_run.hpp"
#include "core/planning/step_timeline.hpp"
#include "core/training/adapter_files.hpp"
#include "core/training/run_folder.hpp"
#include "core/training/run_status.hpp"
#include "core/training/training_run.hpp"

namespace trainhost::training {

namespace fs = std::filesystem;

/// Most phases of the memory timeline in the start event; a step of a large model has thousands.
constexpr std::size_t kTimelinePhases = 80;

/// The trainer is chosen first, because budgets and the meaning of "fits" depend on it.
TrainingRun::TrainingRun(const runfile::RunConfig& c, plugin::Registry& registry, const TrainOptions& o,
                         RunObserver& observer)
    : config_(c),
      registry_(registry),
      options_(o),
      observer_(observer),
      ranks_(o.ranks),
      throughput_(c.model, c.run),
      spikes_(c.safety.spike_window, c.safety.spike_threshold),
      early_stopping_(c.early_stopping, c.early_stopping_min_delta) {
  reject_profile_with_policies();
  choice_ = planning::choose_backend(registry, c.backend, o.allow_fallback, c.backend_order,
                                     planning::position_of_key(c, "train.backend"));
  if (!choice_.fallback_reason.empty())
    report(fmt::format("{}: {}; training on {} instead{}", choice_.requested, choice_.fallback_reason,
                       choice_.id, choice_.fallback_hint.empty() ? "" : " (" + choice_.fallback_hint + ")"));
  if (o.verbosity > 0) report(choice_.trace);
  planning::PlanRequest request;
  request.trainer = choice_.id;
  // The records of a profile are memory of the run, so the plan must know about them.
  const bool profiles = !o.profile.empty();
  request.profiled = profiles;
  planning::ResolvedRun resolved = planning::resolve_run(config_, registry, request);
  config_ = std::move(resolved.config);
  budgets_ = std::move(resolved.budgets);
  if (profiles)
    profile_.emplace(o.profile, config_, *choice_.trainer, registry.ledger(), ranks_.rank(), ranks_.count());
}

/// A profile belongs to one session and counts every step once; these policies create sessions and repeat
/// steps.
void TrainingRun::reject_profile_with_policies() const {
  using runfile::Policy;
  if (options_.profile.empty()) return;
  const runfile::SafetyConfig& s = config_.safety;
  const char* key = s.verify_every                        ? "train.verify_every"
                    : s.on_nonfinite == Policy::kRollback ? "train.on_nonfinite"
                    : s.on_spike != Policy::kIgnore       ? "train.on_spike"
                                                          : nullptr;
  if (key)
    throw usage_error(fmt::format("--profile cannot be combined with {}, which computes steps again", key),
                      "remove one of them", planning::position_of_key(config_, key));
}

/// Plans the run with the estimators and with the trainer, and prints the plan. Throws Error(kDoesNotFit).
/// The trainer's plan decides, because it is the one that is allocated.
void TrainingRun::plan() {
  planning::PlanRequest request;
  request.trainer = choice_.id;
  request.profiled = profile_.has_value();
  // The run is resolved already; planning again with the same budgets cannot give another answer.
  const planning::ResolvedRun resolved{config_, budgets_};
  plan_ = planning::make_plan(resolved, registry_, request);
  trainer_plan_ = planning::estimate_by_trainer(resolved, *choice_.trainer, request.profiled);
  const MemoryReport& of_trainer = trainer_plan_.report;
  // Equal digests mean that estimator and trainer describe the same program with the same placement.
  for (const planning::Estimate& e : plan_.estimates)
    if (e.report.claim == Claim::kExact && e.report.digest && of_trainer.digest &&
        e.report.digest != of_trainer.digest)
      plan_.notes.push_back(
          fmt::format("the plans of estimator {} and trainer {} differ (digests); the trainer's plan is used",
                      e.report.source, choice_.id));
  if (!plan_.estimates.empty())
    plan_.timeline = planning::largest_phases(
        planning::step_timeline(config_, planning::planned_traits(resolved, registry_, request),
                                plan_.estimates.front()),
        kTimelinePhases);
  if (options_.memory_snapshot)
    plan_.snapshot = planning::memory_snapshot(
        config_, planning::planned_traits(resolved, registry_, request), trainer_plan_, "--memory-snapshot");
  observer_.planned(plan_);
  if (trainer_plan_.fits) return;
  const bool all_recomputed = config_.run.recompute == Recompute::kLayers;  // what "auto" ends with
  throw Error(Exit::kDoesNotFit, planning::why_it_does_not_fit(trainer_plan_, budgets_, all_recomputed),
              all_recomputed
                  ? "recomputation is at its maximum; use a smaller train.micro_batch or data.seq_len"
                  : "use a smaller train.micro_batch or data.seq_len, or train.recompute = \"auto\"");
}

/// Selects, creates and locks the folder of the run. Two runs in one folder would remove each other's
/// checkpoints; the lock rejects the second one. The disk must have space for all that the run will write: a
/// run of days must not fail at its first checkpoint.
bool TrainingRun::open_output() {
  if (config_.adapter) require_adapter(config_);  // before the folder is created
  const fs::path named = config_.output.dir;
  const RunFolder folder = select_run_folder(
      config_.output,
      {config_.given.count("output.dir") == 0, options_.resume, options_.overwrite, config_.steps});
  config_.output.dir = folder.dir;
  resumes_ = folder.resume;
  // A missing or truncated shard, or a NaN, is found before the data is tokenized, which may take long. A
  // checkpoint has all weights, except the frozen ones beside adapters.
  if (config_.weights && !folder.finished && (!resumes_ || trains_adapters(config_.run))) {
    checkpoint::WeightSource(*config_.weights).require(tensors(config_.model), config_.model.tied);
    if (!resumes_) require_finite_weights(config_, phases());
  }
  const std::string shown = escaped(folder.dir.string(), 4096);
  if (folder.finished) {
    report(fmt::format("the run in {} is finished: nothing to do", shown));
    return false;
  }
  if (folder.dir != named && !resumes_)
    report(fmt::format("{} has a finished run; training into {}", escaped(named.string(), 4096), shown));
  note_new_files(folder.dir);
  try {
    checkpoint::make_directories(folder.dir);
    lock_.emplace(folder.dir);
  } catch (const Error& e) {
    throw Error(e.code(), e.what(), e.hint().empty() ? "output.dir sets another folder" : e.hint(),
                e.where());
  }
  if (const std::optional<std::string> cause = cause_of_last_end(folder.dir)) report("note: " + *cause);
  store_.emplace(folder.dir / "checkpoints", config_.output.keep);

  const std::uint64_t every = config_.output.checkpoint_every;
  // Saves by time, and of the best loss, can be as many as the folder may hold.
  const bool others = config_.output.checkpoint_minutes > 0 || config_.output.keep_best || config_.epochs > 0;
  const std::uint64_t saves = others ? config_.steps : every ? config_.steps / every + 1 : 1;
  const std::uint64_t most = std::min(saves, store_->most() + (config_.output.keep_best ? 1 : 0));
  const std::uint64_t present = options_.overwrite ? 0 : std::min(store_->count(), most);
  const std::uint64_t model = checked_mul(count_saved_parameters(config_.model, config_.run), sizeof(float));
  checkpoint::require_free_space(
      folder.dir, checked_add(checked_mul(most - present, planning::state_bytes(config_)), model),
      fmt::format("the run, with up to {} and the model,", plural(most, "checkpoint")));
  return true;
}

/// The others read the checkpoints of the folder that the first process has chosen, and write nothing. It
/// must be on a file system that all of them share.
void TrainingRun::share_output() {
  const std::string dir = ranks_.of_first(config_.output.dir.string());
  resumes_ = ranks_.of_first(std::uint64_t{resumes_});
  if (ranks_.first()) return;
  config_.output.dir = dir;
  store_.emplace(config_.output.dir / "checkpoints", config_.output.keep);
}

/// The files and folders that the run will create before its first step, files first.
void TrainingRun::note_new_files(const fs::path& dir) {
  std::error_code ec;
  for (const fs::path& p : {dir / "checkpoints", dir / "cache", dir / "lock"})
    if (!fs::exists(p, ec)) new_files_.push_back(p);
  for (fs::path p = dir; !p.empty() && !fs::exists(p, ec); p = p.parent_path()) new_files_.push_back(p);
}

/// Data, weights or adapters that are refused leave nothing behind: removes the files that this run has
/// created in the folder of the run, and the folders, where nothing else is in them. The lock is held until
/// then.
void TrainingRun::remove_new_files() {
  std::error_code ec;  // the reason of the refusal is what is reported
  for (const fs::path& p : new_files_)
    if (p.parent_path() == config_.output.dir)
      fs::remove_all(p, ec);
    else
      fs::remove(p, ec);  // only if it is empty
  new_files_.clear();
  lock_.reset();
}

/// Sources read on demand; nothing is in memory after this but the tokenizer. A signal ends the reading: the
/// caller asks whether the run stops, as other processes have to know it too.
void TrainingRun::open_data() {
  require_tokenizer_of_model(config_);
  tokenizer_ = data::make_tokenizer(config_.data.tokenizer);
  data::OpenOptions options = planning::open_options(config_);
  options.identify = true;
  options.cancelled = [] { return StopSignals::received() != 0; };
  options.progress = phases();
  try {
    source_ = data::open_source(options);
  } catch (const data::Cancelled&) {
    return;
  }
  for (const std::string& note : source_.notes) report(note);
  if (const std::uint64_t most = config_.model.max_positions; config_.weights && config_.run.seq_len > most)
    report(
        fmt::format("data.seq_len = {} is more than the {} positions of the model "
                    "(max_position_embeddings): it was not trained on later ones",
                    format_count(config_.run.seq_len), format_count(most)));
  batches_.emplace(*source_.train_samples, config_, data_rank(), data_ranks());
  if (config_.epochs > 0) set_steps();
  if (config_.eval_epochs > 0) config_.eval_every = steps_of_epochs(config_.eval_epochs, "train.eval_epochs");
  if (config_.output.keep_best && !source_.valid_samples) {
    const char* key = config_.early_stopping      ? "train.early_stopping"
                      : config_.output.model_best ? "output.model"
                                                  : "output.keep_best";
    throw usage_error(fmt::format("{} needs a validation loss, but the run has no validation text", key),
                      "set data.valid or data.valid_fraction", planning::position_of_key(config_, key));
  }
}

/// Passes over the data as optimizer steps, at least one. The last step may begin another pass: every step
/// has the same number of sequences.
std::uint64_t TrainingRun::steps_of_epochs(double epochs, const char* key) const {
  const std::uint64_t per_step =
      std::uint64_t{config_.run.accumulate} * config_.run.micro_batch * data_ranks();
  const double steps =
      std::ceil(epochs * static_cast<double>(batches_->samples()) / static_cast<double>(per_step));
  // As for train.steps: at most 10^12, and the tokens of the run in 63 bits.
  const double most = std::min(1e12, 9e18 / static_cast<double>(tokens_per_step()));
  if (!(steps <= most))
    throw usage_error(fmt::format("{} = {}: {:.3g} steps are too many", key, epochs, steps),
                      fmt::format("set a smaller {}", key), planning::position_of_key(config_, key));
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(steps));
}

/// train.epochs as optimizer steps.
void TrainingRun::set_steps() {
  runfile::set_steps(config_, steps_of_epochs(config_.epochs, "train.epochs"));
  report(fmt::format(
      "train.epochs = {}: {} of {}; the data has {}", config_.epochs, plural(config_.steps, "step"),
      plural(tokens_per_step() / config_.run.seq_len, "sequence"), plural(batches_->samples(), "sequence")));
}

/// Allocates the host's buffers and the session, and sets its weights. Buffers come from the ledger, so they
/// are part of the measured memory, with the sizes of the plan.
void TrainingRun::create_session() {
  const planning::HostBuffers b = planning::plan_host_buffers(config_.model, config_.run, 0);
  batch_.emplace(registry_.ledger(), b.batch_bytes, "host.batch");
  staging_.emplace(registry_.ledger(), b.staging_bytes, "host.staging");
  if (planning::state_copy_bytes(config_)) copy_.emplace(registry_.ledger(), config_);
  start_session(resumes_, [&](const std::string& s) { report(s); });
  first_step_ = steps_done_;
  assert(first_step_ == 0 || resumes_);
  if (resumes_) checkpointed_after_ = first_step_;
  if (resumes_ && config_.output.keep_best && store_->names_best()) {
    if (const std::optional<checkpoint::Store::Found> best = store_->best())
      compare_with_best(progress_of(best->meta));
    else
      report("the best checkpoint is missing or damaged: no later one is compared with it");
  }
  device_ = {session_->info("device_name"), session_->info("device_uuid"), session_->info("engine")};
  if (!device_.name.empty()) report(device_message());
  report(weights_message());
  if (profile_) profile_->start(*session_, config_.steps > first_step_ ? config_.steps - first_step_ : 0);
}

/// Losses of two validation texts are not compared: after a change of data.valid the first checkpoint is the
/// best one.
void TrainingRun::compare_with_best(const Progress& best) {
  if (!best.validation_loss) return;
  if (!best.validation_content.empty() && best.validation_content != source_.valid_content) {
    report(
        fmt::format("the best checkpoint, of step {}, was measured on another data.valid: losses are not "
                    "compared with it",
                    best.step));
    return;
  }
  history_.best_step = best.step, history_.best_loss = *best.validation_loss;
}

/// Sets the state from the newest checkpoint, or from model.weights or random values, and what the run has
/// reached with it.
void TrainingRun::start_session(bool from_checkpoint, const std::function<void(const std::string&)>& say) {
  session_ = choice_.trainer->create(config_.model, config_.run);
  Progress progress;
  frozen_content_ = load_frozen_weights(*session_, config_, staging_->as<float>(), phases());
  if (from_checkpoint)
    progress = resume_checkpoint(*session_, config_, source_.content, *store_, staging_->as<float>(), say,
                                 frozen_content_, phases());
  else if (config_.adapter)
    load_adapter(*session_, config_, frozen_content_, staging_->as<float>());
  else if (config_.weights && !trains_adapters(config_.run))
    load_tensors(*session_, plugin::Scope::kWeights, config_.model, *config_.weights, staging_->as<float>(),
                 phases());
  session_->init(config_.run.seed);  // random values for every tensor that was not loaded
  steps_done_ = progress.step;
  batch_offset_ = progress.batch_offset;
  spikes_.restore(progress.recent_losses);
  // Losses of two validation texts are not compared.
  const bool same_text = progress.validation_content == source_.valid_content;
  early_stopping_.restore(same_text ? progress.early_stopping : "");
  if (from_checkpoint && same_text && progress.validation_loss) {
    evaluated_after_ = steps_done_;
    validation_loss_ = *progress.validation_loss;
  }
}

/// "device: NVIDIA H200, GPU-5a0c...; engine cuda-cublas-13.so"
std::string TrainingRun::device_message() const {
  std::string text = "device: " + device_.name;
  if (!device_.uuid.empty()) text += ", " + device_.uuid;
  if (!device_.engine.empty()) text += "; engine " + device_.engine;
  return text;
}

/// Where the weights come from, always: training from random weights by mistake looks like training.
std::string TrainingRun::weights_message() const {
  if (resumes_)
    return fmt::format("{}: checkpoint of step {}; resuming after it",
                       trains_adapters(config_.run) ? "adapters" : "weights", first_step_);
  if (config_.adapter) return "adapters: loaded from " + escaped(config_.adapter->string(), 4096);
  if (config_.weights) return "weights: loaded from " + escaped(config_.weights->string(), 4096);
  std::string text = fmt::format("weights: random, train.seed {}", config_.run.seed);
  if (const std::optional<fs::path> file = runfile::weights_beside(config_.model_folder))
    text += fmt::format("; {} is not loaded (model.weights = \"{}\" loads it)", escaped(file->string(), 4096),
                        escaped(config_.model_folder.string(), 4096));
  return text;
}

/// The processes of a run must compute the same: else they would train different models without a sign of it.
void TrainingRun::compare_ranks() {
  ranks_.require_equal({{"the version of trainhost", TRAINHOST_VERSION},
                        {"the trainer or its kernels", choice_.id + " " + session_->info("kernel_set")},
                        {"the run file", config_.resolved()},
                        {"the data", source_.content},
                        {"the step of the checkpoint", std::to_string(steps_done_)}});
}

/// Opens metrics.jsonl, cut back to the resumed step, and writes the start event. After the weights are
/// loaded: a run that fails earlier leaves everything of the run before it.
void TrainingRun::open_metrics() {
  if (config_.output.tensorboard) layer_norms_.emplace(config_.model.layers);
  if (!ranks_.first()) {
    events_.emplace(fs::path(), false, nullptr);
    return;
  }
  clear_run_folder(config_.output.dir, resumes_);
  store_->remove_leftovers();
  record_start(config_.output.dir, config_.resolved(), options_.command_line);
  write_running(config_.output.dir);
  begun_ = true;
  checkpointed_ns_ = now_ns();
  const fs::path metrics = config_.output.dir / "metrics.jsonl";
  if (resumes_) truncate_metrics(metrics, first_step_);
  events_.emplace(metrics, resumes_, options_.events);
  events_->start(source_.name, source_.entropy_nats, source_.entropy_error, choice_, device_,
                 observer_.plan_json(plan_), config_.steps, first_step_);
  open_board();
  const std::string data = fmt::format("data {}: ", escaped(source_.name));
  if (std::ranges::any_of(source_.notes, [&](const std::string& n) { return n.starts_with(data); }))
    return;  // open_data() has reported its records and tokens
  std::string text = fmt::format("{}{} tokens", data, format_count(source_.tokens));
  if (source_.entropy_nats)
    text += fmt::format(
        "; entropy of the text {:.4f} ± {:.4f} nats per character, a lower bound on the validation loss",
        *source_.entropy_nats, source_.entropy_error.value_or(0));
  report(text);
}

void TrainingRun::open_board() {
  if (!config_.output.tensorboard) return;
  board_.emplace(config_.output.dir / "tb", first_step_,
                 [this](const std::string& s) { report("warning: " + s); });
  board_->hyperparameters(config_);
  board_->text(first_step_, "run.toml", config_.resolved());
}

}  // namespace trainhost::training
