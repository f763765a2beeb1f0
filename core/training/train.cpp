// See train.hpp. TrainingRun::run() states the order of events; the functions below it follow in that order.
// Everything that can fail for reasons of the run file, the machine or the data happens before the first
// step, from the cheapest check to the most expensive one.
#include "core/training/train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>

#include "core/base/text.hpp"
#include "core/checkpoint/store.hpp"
#include "core/data/dataset.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/dataset_options.hpp"
#include "core/planning/error_context.hpp"
#include "core/planning/estimate_run.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/planning/make_plan.hpp"
#include "core/training/batches.hpp"
#include "core/training/events.hpp"
#include "core/training/memory_result.hpp"
#include "core/training/model_state.hpp"
#include "core/training/run_folder.hpp"
#include "core/training/sample_tokens.hpp"
#include "core/training/step_profile.hpp"
#include "core/training/stop_signals.hpp"
#include "core/training/throughput.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;

/// A training run from the choice of the trainer to the written model. Steps are counted in two ways: a step
/// index counts from 0 and names the data and the learning rate; "after step N" means that N steps are done.
/// Single-threaded on the host; the trainer has its own threads. Members are destroyed in reverse order: the
/// session before the buffers that it reads, the lock after everything that writes.
class TrainingRun {
 public:
  /// Chooses the trainer and resolves the run for it: budgets, and train.recompute = "auto".
  TrainingRun(const runfile::RunConfig& c, plugin::Registry& registry, const TrainOptions& o,
              RunObserver& observer);
  Exit run();
  /// Ends a run whose device was lost. Returns kStopped if a checkpoint is intact, else throws Error.
  Exit end_after_lost_device(const plugin::PluginError& e);

 private:
  void plan();
  void open_output();
  void open_data();
  void create_session();
  std::string weights_message() const;
  void open_metrics();
  bool train_step(std::uint64_t step_index);  // false: a signal asks the run to stop
  void state_loss();
  void report_step(const plugin::StepResult& r, double lr);
  void evaluate();
  void write_checkpoint();
  void report_sample();
  bool finish();  // false: a signal came before the model was written
  Exit stop();
  void checkpoint_after_failure();
  std::string finish_profile();  // the JSON object; "" without --profile
  double utilization(const plugin::Counters& n) const;
  /// A line for people; nothing under -q.
  void report(const std::string& text) {
    if (!options_.quiet) observer_.message(text);
  }

  runfile::RunConfig config_;  // as resolved for the trainer
  planning::Budgets budgets_;
  plugin::Registry& registry_;
  const TrainOptions& options_;
  RunObserver& observer_;
  planning::Choice choice_;  // the trainer

  planning::PlanResult plan_;        // of the estimators, as printed
  planning::Estimate trainer_plan_;  // of the trainer, with the host's own buffers

  std::optional<checkpoint::DirectoryLock> lock_;
  std::optional<checkpoint::Store> store_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  data::Source source_;
  std::optional<Batches> batches_;

  // batch_: [2, tokens_per_step] ids, tokens then targets. staging_: one piece of a tensor between file and
  // trainer.
  std::optional<planning::HostBlock> batch_, staging_;
  std::unique_ptr<plugin::Session> session_;
  std::optional<StepProfile> profile_;  // declared after session_: it must be destroyed first
  std::optional<Events> events_;
  Throughput throughput_;

  static constexpr std::uint64_t kNever = UINT64_MAX;
  std::uint64_t first_step_ = 0;  // steps done by earlier runs that this one resumes
  std::uint64_t steps_done_ = 0;  // in all
  std::uint64_t evaluated_after_ = kNever, checkpointed_after_ = kNever;
};

/// The trainer is chosen first, because budgets and the meaning of "fits" depend on it.
TrainingRun::TrainingRun(const runfile::RunConfig& c, plugin::Registry& registry, const TrainOptions& o,
                         RunObserver& observer)
    : config_(c), registry_(registry), options_(o), observer_(observer), throughput_(c.model, c.run.seq_len) {
  choice_ = planning::choose_backend(registry, c.backend, o.allow_fallback, c.backend_order,
                                     planning::position_of_key(c, "train.backend"));
  if (!choice_.fallback_reason.empty())
    report(fmt::format("{}: {}; training on {} instead", choice_.requested, choice_.fallback_reason,
                       choice_.id));
  if (o.verbosity > 0) report(choice_.trace);
  planning::PlanRequest request;
  request.trainer = choice_.id;
  // The records of a profile are memory of the run, so the plan must know about them.
  request.profiled = !o.profile.empty();
  planning::ResolvedRun resolved = planning::resolve_run(config_, registry, request);
  config_ = std::move(resolved.config);
  budgets_ = std::move(resolved.budgets);
  if (!o.profile.empty()) profile_.emplace(o.profile, config_, *choice_.trainer, registry.ledger());
}

/// Order: the plan needs no files; the output directory is locked before data and weights are read, so a
/// second run fails at once; signals are handled from the moment at which work could be lost.
Exit TrainingRun::run() {
  plan();
  open_output();
  open_data();
  StopSignals signals;  // from here on Ctrl-C ends the run after the current step
  create_session();
  open_metrics();
  state_loss();
  bool running = true;
  // A run that is resumed after its last step trains nothing and only writes the model.
  try {
    for (std::uint64_t index = first_step_; running && index < config_.steps; ++index)
      running = train_step(index);
  } catch (const plugin::PluginError& e) {
    if (e.status() != "device_lost") checkpoint_after_failure();
    throw;
  } catch (const Error&) {
    checkpoint_after_failure();
    throw;
  }
  // The model is written from the session; the checkpoint before it survives a failure of that write.
  if (running && config_.output.checkpoint_every) write_checkpoint();
  if (running && finish()) return Exit::kDone;
  return stop();
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
void TrainingRun::open_output() {
  const fs::path named = config_.output.dir;
  config_.output.dir = select_run_folder(
      config_.output, {config_.given.count("output.dir") == 0, options_.resume, options_.overwrite});
  if (config_.output.dir != named && !options_.resume)
    report(fmt::format("{} has a finished run; training into {}", escaped(named.string(), 4096),
                       escaped(config_.output.dir.string(), 4096)));
  checkpoint::make_directories(config_.output.dir);
  lock_.emplace(config_.output.dir);
  store_.emplace(config_.output.dir / "checkpoints", config_.output.keep);

  const std::uint64_t every = config_.output.checkpoint_every;
  const std::uint64_t saves = every ? config_.steps / every + 1 : 1;
  const std::uint64_t most = std::min(saves, store_->most());
  const std::uint64_t present = options_.overwrite ? 0 : std::min(store_->count(), most);
  const std::uint64_t model = checked_mul(count_parameters(config_.model).total, sizeof(float));
  checkpoint::require_free_space(config_.output.dir,
                                 checked_add(checked_mul(most - present, checkpoint_bytes(config_)), model),
                                 fmt::format("the run, with up to {} checkpoints and the model,", most));
}

/// Sources read on demand; nothing is in memory after this but the tokenizer.
void TrainingRun::open_data() {
  require_tokenizer_of_model(config_);
  tokenizer_ = data::make_tokenizer(config_.data.tokenizer);
  data::OpenOptions options = planning::open_options(config_);
  options.identify = true;
  source_ = data::open_source(options);
  for (const std::string& note : source_.notes) report(note);
  batches_.emplace(*source_.train, config_);
}

/// Allocates the host's buffers and the session, and sets its weights: checkpoint, model.weights, or random.
/// Buffers come from the ledger, so they are part of the measured memory, with the sizes of the plan.
void TrainingRun::create_session() {
  const planning::HostBuffers b = planning::plan_host_buffers(config_.model, config_.run, 0);
  batch_.emplace(registry_.ledger(), b.batch_bytes, "host.batch");
  staging_.emplace(registry_.ledger(), b.staging_bytes, "host.staging");
  session_ = choice_.trainer->create(config_.model, config_.run);
  if (options_.resume) {
    first_step_ = resume_checkpoint(*session_, config_, source_.content, *store_, staging_->as<float>(),
                                    [&](const std::string& s) { report(s); });
    checkpointed_after_ = first_step_;
  } else if (config_.weights) {
    load_tensors(*session_, plugin::Scope::kWeights, config_.model, *config_.weights, staging_->as<float>());
  }
  session_->init(config_.run.seed);  // random values for every tensor that was not loaded
  report(weights_message());
  assert(first_step_ == 0 || options_.resume);
  steps_done_ = first_step_;
  if (profile_) profile_->start(*session_, config_.steps > first_step_ ? config_.steps - first_step_ : 0);
}

/// Where the weights come from, always: training from random weights by mistake looks like training.
std::string TrainingRun::weights_message() const {
  if (options_.resume) return fmt::format("weights: checkpoint of step {}; resuming after it", first_step_);
  if (config_.weights) return "weights: loaded from " + escaped(config_.weights->string(), 4096);
  std::string text = fmt::format("weights: random, train.seed {}", config_.run.seed);
  if (const std::optional<fs::path> file = runfile::weights_beside(config_.model_folder))
    text += fmt::format("; {} is not loaded (model.weights = \"{}\" loads it)", escaped(file->string(), 4096),
                        escaped(config_.model_folder.string(), 4096));
  return text;
}

/// Opens metrics.jsonl, cut back to the resumed step, and writes the start event. After the weights are
/// loaded: a run that fails earlier leaves everything of the run before it.
void TrainingRun::open_metrics() {
  clear_run_folder(config_.output.dir, options_.resume);
  record_start(config_.output.dir, config_.resolved, options_.command_line);
  const fs::path metrics = config_.output.dir / "metrics.jsonl";
  if (options_.resume) truncate_metrics(metrics, first_step_);
  events_.emplace(metrics, options_.resume, options_.json);
  events_->start(source_.name, source_.entropy_nats, source_.entropy_error, choice_,
                 observer_.plan_json(plan_), first_step_);
  std::string text =
      fmt::format("data {}: {} tokens", escaped(source_.name), format_count(source_.train->size()));
  if (source_.entropy_nats)
    text += fmt::format(
        "; entropy of the text {:.4f} ± {:.4f} nats per character, a lower bound on the validation loss",
        *source_.entropy_nats, source_.entropy_error.value_or(0));
  report(text);
}

/// One optimizer step. The batch is filled from the step index alone, so a resumed run reads the same data.
/// Time is measured around the trainer only. Returns false after a signal; the step itself is complete then.
bool TrainingRun::train_step(std::uint64_t step_index) {
  assert(steps_done_ == step_index);
  const std::span<std::int32_t> ids = batch_->as<std::int32_t>();
  const std::uint64_t tokens = config_.run.tokens_per_step();
  assert(ids.size() >= 2 * tokens);
  // Shape [2, tokens_per_step]: the first half holds tokens, the second half targets shifted by one.
  batches_->fill(step_index, ids.first(tokens), ids.subspan(tokens, tokens));

  plugin::StepInput in;
  in.tokens = ids.first(tokens);
  in.targets = ids.subspan(tokens, tokens);
  in.batch = config_.run.accumulate * config_.run.micro_batch;
  in.seq = config_.run.seq_len;
  in.lr = runfile::lr_at(config_.optimizer, step_index, config_.steps);
  in.step_index = step_index;
  const std::uint64_t start_ns = now_ns();
  plugin::StepResult r;
  try {
    r = session_->step(in);  // forward, backward and update: the trainer's kernels
  } catch (const plugin::PluginError& e) {
    // The trainer asks between operations whether a signal came. A cancelled step has changed nothing.
    if (e.status() == "cancelled" && StopSignals::received()) return false;
    if (e.status() == "nonfinite") {
      const std::string tensor = first_nonfinite_weight(*session_);
      throw Error(e.code(),
                  fmt::format("step {}: {}; {}", step_index + 1, e.what(),
                              tensor.empty() ? "all weights are finite"
                                             : "the first weight that is not finite is " + tensor),
                  e.hint());
    }
    throw;
  }
  const std::uint64_t end_ns = now_ns();

  steps_done_ = step_index + 1;
  const double seconds = static_cast<double>(end_ns - start_ns) * 1e-9;
  throughput_.add_step(tokens, seconds);
  if (profile_) profile_->step(steps_done_, start_ns, end_ns);
  events_->step({steps_done_, r.loss, r.grad_norm, in.lr, tokens, seconds * 1e3,
                 static_cast<double>(tokens) / seconds});
  report_step(r, in.lr);

  const bool last =
      steps_done_ >= config_.steps;  // run() evaluates and writes a checkpoint after the last step
  if (!last && config_.eval_every && steps_done_ % config_.eval_every == 0) evaluate();
  if (!last && config_.output.checkpoint_every && steps_done_ % config_.output.checkpoint_every == 0)
    write_checkpoint();
  state_loss();
  return StopSignals::received() == 0;
}

/// What a second signal would lose.
void TrainingRun::state_loss() {
  const std::uint64_t kept = checkpointed_after_ == kNever ? first_step_ : checkpointed_after_;
  StopSignals::set_loss(
      kept == steps_done_ ? std::string("nothing: the last checkpoint is of this step")
      : kept == 0         ? fmt::format("all {} steps", steps_done_)
                  : fmt::format("{} steps since the checkpoint of step {}", steps_done_ - kept, kept));
}

/// Steps that remain, at the smoothed rate; checkpoints and evaluations are not included.
void TrainingRun::report_step(const plugin::StepResult& r, double lr) {
  const std::uint64_t tokens_left = (config_.steps - steps_done_) * config_.run.tokens_per_step();
  StepProgress progress;
  progress.step = steps_done_;
  progress.steps = config_.steps;
  progress.loss = r.loss;
  progress.grad_norm = r.grad_norm;
  progress.lr = lr;
  progress.tokens_per_s = throughput_.tokens_per_s();
  progress.mfu = throughput_.mfu(*session_);
  progress.eta_s = static_cast<double>(tokens_left) / throughput_.tokens_per_s();
  observer_.step(progress);
}

/// Mean loss per token over the validation text. Does nothing for a text without one complete sample, and
/// gives up when a signal comes: a resumed run evaluates again. Uses the buffer of the training batch, which
/// is free between steps; a validation batch is one micro-batch of it.
void TrainingRun::evaluate() {
  const EvalBatches batches(*source_.valid, config_.run.seq_len, config_.run.micro_batch);
  const std::span<std::int32_t> ids = batch_->as<std::int32_t>();
  const std::uint64_t batch_tokens = config_.run.tokens_per_micro_batch();
  assert(ids.size() >= 2 * batch_tokens);
  double sum = 0;
  std::uint64_t tokens = 0, first_sample = 0;
  while (const std::uint32_t sequences =
             batches.fill(first_sample, ids.first(batch_tokens), ids.subspan(batch_tokens, batch_tokens))) {
    if (StopSignals::received()) return;
    plugin::StepInput in;
    in.tokens = ids.first(std::size_t{sequences} * config_.run.seq_len);
    in.targets = ids.subspan(batch_tokens, std::size_t{sequences} * config_.run.seq_len);
    in.batch = sequences;
    in.seq = config_.run.seq_len;
    plugin::StepResult r;
    try {
      r = session_->evaluate(in);
    } catch (const plugin::PluginError& e) {
      if (e.status() == "cancelled" && StopSignals::received()) return;
      throw;
    }
    // The last batch may be smaller: losses are weighted by tokens, so the mean does not depend on batch
    // sizes.
    sum += r.loss * static_cast<double>(r.tokens_counted);
    tokens += r.tokens_counted;
    first_sample += sequences;
  }
  if (tokens == 0) return;
  const double loss = sum / static_cast<double>(tokens);
  events_->eval(steps_done_, loss, tokens);
  std::string text = fmt::format("validation after step {}: loss {:.4f} nats per token over {} tokens",
                                 steps_done_, loss, format_count(tokens));
  if (source_.entropy_nats)
    text += fmt::format("; entropy of the text {:.4f} ± {:.4f}, difference {:+.4f}", *source_.entropy_nats,
                        source_.entropy_error.value_or(0), loss - *source_.entropy_nats);
  report(text);
  evaluated_after_ = steps_done_;
}

/// At most one per step: the last step is a checkpoint step and the end of the run.
void TrainingRun::write_checkpoint() {
  if (checkpointed_after_ == steps_done_) return;
  const fs::path dir = save_checkpoint(*session_, config_, choice_.id, steps_done_, source_.content, *store_);
  checkpointed_after_ = steps_done_;
  events_->checkpoint(steps_done_, dir);
  report("wrote checkpoint " + escaped(dir.string(), 4096));
}

/// Evaluates, writes the model and summary.json, and compares predicted with measured memory. The memory
/// result is read after the model was written, since writing is part of the predicted peak. summary.json is
/// last: its presence means that the model is complete.
bool TrainingRun::finish() {
  observer_.steps_ended();
  if (source_.valid && evaluated_after_ != steps_done_) evaluate();
  // A signal during the evaluation: the model is not written, and stop() writes a checkpoint instead.
  if (StopSignals::received()) return false;
  const fs::path model = config_.output.dir / "model";
  write_model(*session_, config_, model);
  const MemoryResult memory = memory_result(trainer_plan_, registry_.ledger());
  const plugin::Counters counters = session_->counters();
  const std::string recompute = plan_.recompute_layers ? observer_.recompute_json(plan_) : "";
  const std::string done =
      events_->done(steps_done_, memory, counters, utilization(counters), recompute, finish_profile());
  checkpoint::write_file_atomically(config_.output.dir / "summary.json", done + "\n");
  observer_.measured(memory);
  if (!options_.quiet) report_sample();
  const std::uint64_t steps = steps_done_ - first_step_, tokens = steps * config_.run.tokens_per_step();
  if (throughput_.seconds() > 0)
    report(fmt::format("trained {} steps, {} tokens in {} ({} tokens/s); wrote the model to {}", steps,
                       format_count(tokens), format_duration(throughput_.seconds()),
                       format_rate(static_cast<double>(tokens) / throughput_.seconds()),
                       escaped(model.string(), 4096)));
  return true;
}

/// The model is complete: no failure here may fail the run. With data.seq_len = 1 there is no context for a
/// token.
void TrainingRun::report_sample() try {
  if (const auto text = sample_of_trained_model(*session_, *tokenizer_, source_, config_.model, config_.run,
                                                staging_->as<float>().first(config_.model.vocab)))
    report("sample of generated text:\n" + *text);
} catch (const Error& e) {
  report(std::string("no sample of generated text: ") + e.what());
}

/// Ends the run after a signal, with a checkpoint to resume from.
Exit TrainingRun::stop() {
  observer_.steps_ended();
  write_checkpoint();
  finish_profile();
  report(fmt::format("stopped by {} after step {}; continue with --resume",
                     StopSignals::name(StopSignals::received()), steps_done_));
  return Exit::kStopped;
}

/// A step that failed has changed no weight, so the state after the last complete step can be saved, unless
/// that has overflowed already and could not be resumed. The failure of the step is what is reported,
/// whatever happens here.
void TrainingRun::checkpoint_after_failure() {
  observer_.steps_ended();
  if (steps_done_ == first_step_) return;
  try {
    if (first_nonfinite_weight(*session_).empty()) write_checkpoint();
  } catch (const std::exception&) {
  }
}

/// Ends the profile before the session does, because it refers to the session.
std::string TrainingRun::finish_profile() {
  if (!profile_) return {};
  const ProfileResult result = profile_->finish(trainer_plan_);
  profile_.reset();
  observer_.profiled(result);
  return observer_.profile_json(result);
}

/// Time in which the device computed, as a share of the time of the steps; 1 for a trainer in host memory.
double TrainingRun::utilization(const plugin::Counters& n) const {
  if (plan_.compute_tier == Tier::kHost || throughput_.seconds() <= 0) return 1.0;
  return std::min(1.0, static_cast<double>(n.compute_ns) * 1e-9 / throughput_.seconds());
}

/// Status device_lost: the driver rejects all further calls, so the session must not be used, not even to
/// save. Only what is on disk can be reported.
Exit TrainingRun::end_after_lost_device(const plugin::PluginError& e) {
  observer_.steps_ended();
  std::string why;
  std::optional<checkpoint::Store::Found> found;
  try {  // a new Store reads the checkpoints from disk and verifies them
    found = checkpoint::Store(config_.output.dir / "checkpoints", config_.output.keep).newest();
  } catch (const Error& none) {
    why = none.what();
  }
  if (!found)
    throw Error(Exit::kFailed,
                fmt::format("{}; no checkpoint to resume from{}", e.what(), why.empty() ? "" : ": " + why),
                e.hint());
  const std::string text = fmt::format("{} ({}); the checkpoint {} is intact: continue with --resume",
                                       e.what(), e.hint(), found->dir.string());
  write_stderr("trainhost: " + escaped(text, 4096) + "\n");  // printed under -q too: it is why the run ended
  if (events_) events_->note(text, e.native());
  return Exit::kStopped;
}

}  // namespace

Exit train(const runfile::RunConfig& c, plugin::Registry& registry, const TrainOptions& o,
           RunObserver& observer) {
  TrainingRun run(c, registry, o, observer);
  try {
    return run.run();
  } catch (const plugin::PluginError& e) {
    if (e.status() != "device_lost") throw;
    return run.end_after_lost_device(e);
  }
}

}  // namespace trainhost::training
