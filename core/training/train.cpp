// See train.hpp. One class holds what lives as long as the run; train() is the order of events.
#include "core/training/train.hpp"

#include <fmt/format.h>

#include <algorithm>
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
#include "core/training/sample_tokens.hpp"
#include "core/training/step_profile.hpp"
#include "core/training/stop_signals.hpp"
#include "core/training/throughput.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;
/// An output directory that already holds checkpoints is only ever continued, never silently overwritten.
void guard_output(const runfile::RunConfig& c, bool resume) {
  fs::path dir = c.output.dir / "checkpoints";
  if (resume || !fs::exists(dir)) return;
  for (const auto& e : fs::directory_iterator(dir))
    if (e.path().filename().string().rfind("step-", 0) == 0)
      throw usage_error(fmt::format("{} holds checkpoints of an earlier run ({})", c.output.dir.string(),
                                    e.path().filename().string()),
                        "continue it with --resume, or begin anew with --set output.dir=DIR");
}

class Run {
 public:
  Run(const runfile::RunConfig& c, plugin::Registry& registry, const TrainOptions& o, RunObserver& observer);
  Exit go();
  /// A device that is gone takes nothing with it but the steps since the last checkpoint. Names that
  /// checkpoint where it verifies, and throws the error where none does.
  Exit lost(const plugin::PluginError& e);

 private:
  void open_data();
  void plan();
  void create();
  bool step(std::uint64_t t);  // false: stop here
  double evaluate(std::uint64_t steps_done);
  void checkpoint(std::uint64_t steps_done);
  bool finish();  // false: a signal came first
  /// The share of the steps' time in which the device computed; 1 where host and device are one.
  double utilization(const plugin::Counters& n) const;
  std::string finish_profile();  // the JSON object; "" without --profile
  void human(const std::string& text) {
    if (!o_.quiet) observer_.message(text);
  }

  runfile::RunConfig c_;  // as resolved: budgets found, what to recompute chosen
  planning::Budgets budgets_;
  plugin::Registry& registry_;
  const TrainOptions& o_;
  RunObserver& observer_;
  planning::Choice choice_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  data::Source source_;
  planning::PlanResult plan_;
  planning::Estimate trainer_plan_;
  std::optional<checkpoint::DirectoryLock> lock_;
  std::optional<checkpoint::Store> store_;
  std::optional<planning::HostBlock> batch_, staging_;
  std::unique_ptr<plugin::Session> session_;
  std::optional<StepProfile> profile_;  // goes before the session
  std::optional<Events> events_;
  std::optional<Batches> batches_;
  std::uint64_t begin_ = 0, done_ = 0;  // updates done before and so far
  std::uint64_t checkpointed_ = UINT64_MAX;
  Speed speed_;
  std::uint64_t last_valid_step_ = UINT64_MAX;
};

Run::Run(const runfile::RunConfig& c, plugin::Registry& registry, const TrainOptions& o,
         RunObserver& observer)
    : c_(c), registry_(registry), o_(o), observer_(observer), speed_(c.model, c.run.seq_len) {
  choice_ = planning::choose_backend(registry, c.backend, o.allow_fallback, c.backend_order,
                                     planning::position_of_key(c, "train.backend"));
  if (!choice_.fallback_reason.empty())
    human(fmt::format("{}: {}; training on {} instead", choice_.requested, choice_.fallback_reason,
                      choice_.id));
  if (o.verbosity > 0) human(choice_.trace);
  // Everything below plans, trains and profiles the run as resolved.
  planning::PlanRequest request;
  request.trainer = choice_.id;
  request.profiled = !o.profile.empty();
  planning::ResolvedRun resolved = planning::resolve_run(c_, registry, request);
  c_ = std::move(resolved.config);
  budgets_ = std::move(resolved.budgets);
  if (!o.profile.empty()) profile_.emplace(o.profile, c_, *choice_.trainer, registry.ledger());
}

void Run::plan() {
  planning::PlanRequest request;
  request.trainer = choice_.id;
  request.profiled = profile_.has_value();
  const planning::ResolvedRun resolved{c_, budgets_};
  plan_ = planning::make_plan(resolved, registry_, request);
  trainer_plan_ = planning::estimate_by_trainer(resolved, *choice_.trainer, request.profiled);
  const MemoryReport& mine = trainer_plan_.report;
  for (const planning::Estimate& e : plan_.estimates)
    if (e.report.claim == Claim::kExact && e.report.digest && mine.digest && e.report.digest != mine.digest)
      plan_.notes.push_back(
          fmt::format("estimator {} and trainer {} disagree about the plan (digests differ): the "
                      "trainer's own is used",
                      e.report.source, choice_.id));
  observer_.planned(plan_);
  if (!trainer_plan_.fits)
    throw Error(
        Exit::kDoesNotFit,
        planning::why_it_does_not_fit(trainer_plan_, budgets_, c_.run.recompute == Recompute::kLayers),
        c_.run.recompute == Recompute::kLayers
            ? "every layer already recomputes all it can: a smaller train.micro_batch or data.seq_len"
            : "smaller train.micro_batch or data.seq_len, or train.recompute = \"auto\"");
}

void Run::open_data() {
  tokenizer_ = data::make_tokenizer(c_.data.tokenizer);
  source_ = data::open_source(planning::open_options(c_));
  batches_.emplace(*source_.train, c_);
}

void Run::create() {
  planning::HostBuffers b = planning::plan_host_buffers(c_.model, c_.run, 0);
  batch_.emplace(registry_.ledger(), b.batch_bytes, "host.batch");
  staging_.emplace(registry_.ledger(), b.staging_bytes, "host.staging");
  session_ = choice_.trainer->create(c_.model, c_.run);
  if (o_.resume) {
    begin_ = resume_checkpoint(*session_, c_, *store_, staging_->as<float>(),
                               [&](const std::string& s) { human(s); });
    human(fmt::format("resuming after step {}", begin_));
  } else if (c_.weights) {
    load_tensors(*session_, plugin::Scope::kWeights, c_.model, *c_.weights, staging_->as<float>());
  }
  session_->init(c_.run.seed);
  done_ = begin_;
  if (profile_) profile_->start(*session_, c_.steps > begin_ ? c_.steps - begin_ : 0);
}

bool Run::step(std::uint64_t t) {
  auto ids = batch_->as<std::int32_t>();
  std::uint64_t n = c_.run.tokens_per_step();
  batches_->fill(t, ids.first(n), ids.subspan(n, n));
  plugin::StepInput in;
  in.tokens = ids.first(n);
  in.targets = ids.subspan(n, n);
  in.batch = c_.run.accumulate * c_.run.micro_batch;
  in.seq = c_.run.seq_len;
  in.lr = runfile::lr_at(c_.optimizer, t, c_.steps);
  in.step_index = t;
  const std::uint64_t start_ns = now_ns();
  plugin::StepResult r = session_->step(in);
  const std::uint64_t end_ns = now_ns();
  const double seconds = static_cast<double>(end_ns - start_ns) * 1e-9;
  done_ = t + 1;
  speed_.step(n, seconds);
  if (profile_) profile_->step(done_, start_ns, end_ns);
  events_->step({done_, r.loss, r.grad_norm, in.lr, n, seconds * 1e3, static_cast<double>(n) / seconds});

  StepProgress line;
  line.step = done_;
  line.steps = c_.steps;
  line.loss = r.loss;
  line.grad_norm = r.grad_norm;
  line.lr = in.lr;
  line.tokens_per_s = speed_.tokens_per_s();
  line.mfu = speed_.mfu(*session_);
  line.eta_s = static_cast<double>((c_.steps - done_) * n) / speed_.tokens_per_s();
  observer_.step(line);

  if (c_.eval_every && done_ % c_.eval_every == 0 && done_ < c_.steps) evaluate(done_);
  if (c_.output.checkpoint_every && done_ % c_.output.checkpoint_every == 0 && done_ < c_.steps)
    checkpoint(done_);
  return StopSignals::received() == 0;
}

double Run::evaluate(std::uint64_t steps_done) {
  EvalBatches batches(*source_.valid, c_.run.seq_len, c_.run.micro_batch);
  auto ids = batch_->as<std::int32_t>();
  std::uint64_t most = c_.run.tokens_per_micro_batch();
  double sum = 0;
  std::uint64_t tokens = 0, first = 0;
  while (std::uint32_t n = batches.fill(first, ids.first(most), ids.subspan(most, most))) {
    if (StopSignals::received()) return NAN;  // the run stops here; a resume evaluates anew
    plugin::StepInput in;
    in.tokens = ids.first(std::size_t{n} * c_.run.seq_len);
    in.targets = ids.subspan(most, std::size_t{n} * c_.run.seq_len);
    in.batch = n;
    in.seq = c_.run.seq_len;
    plugin::StepResult r = session_->evaluate(in);
    sum += r.loss * static_cast<double>(r.tokens_counted);
    tokens += r.tokens_counted;
    first += n;
  }
  if (tokens == 0) return NAN;
  double loss = sum / static_cast<double>(tokens);
  events_->eval(steps_done, loss, tokens);
  std::string text = fmt::format("validation after step {}: loss {:.4f} nats a token over {} tokens",
                                 steps_done, loss, format_count(tokens));
  if (source_.entropy_nats)
    text += fmt::format("; floor {:.4f} ± {:.4f}, {:+.4f} above it", *source_.entropy_nats,
                        source_.entropy_error.value_or(0), loss - *source_.entropy_nats);
  human(text);
  last_valid_step_ = steps_done;
  return loss;
}

void Run::checkpoint(std::uint64_t steps_done) {
  if (checkpointed_ == steps_done) return;
  fs::path dir = save_checkpoint(*session_, c_, choice_.id, steps_done, *store_);
  checkpointed_ = steps_done;
  events_->checkpoint(steps_done, dir);
  human("checkpoint " + dir.string());
}

double Run::utilization(const plugin::Counters& n) const {
  if (plan_.compute_tier == Tier::kHost || speed_.seconds() <= 0) return 1.0;
  return std::min(1.0, static_cast<double>(n.compute_ns) * 1e-9 / speed_.seconds());
}

Exit Run::lost(const plugin::PluginError& e) {
  observer_.steps_ended();
  std::string why;
  std::optional<checkpoint::Store::Found> found;
  try {
    found = checkpoint::Store(c_.output.dir / "checkpoints", c_.output.keep)
                .newest();  // read anew: nothing is taken on trust
  } catch (const Error& none) {
    why = none.what();
  }
  if (!found)
    throw Error(Exit::kFailed,
                fmt::format("{}; no checkpoint to go on from{}", e.what(), why.empty() ? "" : ": " + why),
                e.hint());
  const std::string text =
      fmt::format("{} ({}); {} is intact: run again with --resume", e.what(), e.hint(), found->dir.string());
  fmt::print(stderr, "trainhost: {}\n", escaped(text));  // why a run ended is said also under -q
  if (events_) events_->note(text, e.native());
  return Exit::kStopped;
}

std::string Run::finish_profile() {
  if (!profile_) return {};
  ProfileResult v = profile_->finish(trainer_plan_);
  profile_.reset();
  observer_.profiled(v);
  return observer_.profile_json(v);
}

bool Run::finish() {
  observer_.steps_ended();
  if (source_.valid && last_valid_step_ != done_) evaluate(done_);
  if (StopSignals::received()) return false;
  fs::path model = c_.output.dir / "model";
  write_model(*session_, c_, model);
  MemoryResult m = memory_result(trainer_plan_, registry_.ledger());
  plugin::Counters counters = session_->counters();
  const std::string recompute = plan_.recompute_layers ? observer_.recompute_json(plan_) : "";
  std::string done = events_->done(done_, m, counters, utilization(counters), recompute, finish_profile());
  checkpoint::write_file_atomically(c_.output.dir / "summary.json", done + "\n");
  observer_.measured(m);
  if (!o_.quiet)
    if (auto text = sample_of_trained_model(*session_, *tokenizer_, source_, c_.model, c_.run,
                                            staging_->as<float>().first(c_.model.vocab)))
      human("a sample of what it writes:\n" + *text);
  double tokens = static_cast<double>((done_ - begin_) * c_.run.tokens_per_step());
  if (speed_.seconds() > 0)
    human(fmt::format("{} steps, {} tokens in {} of step time ({} tokens/s); model in {}", done_ - begin_,
                      format_count(static_cast<std::uint64_t>(tokens)), format_duration(speed_.seconds()),
                      format_rate(tokens / speed_.seconds()), model.string()));
  return true;
}

Exit Run::go() {
  plan();
  guard_output(c_, o_.resume);
  fs::create_directories(c_.output.dir);
  lock_.emplace(c_.output.dir);
  store_.emplace(c_.output.dir / "checkpoints", c_.output.keep);
  open_data();
  StopSignals signals;
  create();
  fs::path metrics = c_.output.dir / "metrics.jsonl";
  if (o_.resume) truncate_metrics(metrics, begin_);
  events_.emplace(metrics, o_.resume, o_.json);
  events_->start(source_.name, source_.entropy_nats, source_.entropy_error, choice_,
                 observer_.plan_json(plan_), begin_);
  human(fmt::format(
      "data {}: {} tokens{}", source_.name, format_count(source_.train->size()),
      source_.entropy_nats
          ? fmt::format("; no model can have a validation loss under {:.4f} ± {:.4f} nats a character",
                        *source_.entropy_nats, source_.entropy_error.value_or(0))
          : ""));
  bool going = true;
  for (std::uint64_t t = begin_; going && t < c_.steps; ++t) going = step(t);
  if (going && c_.output.checkpoint_every) checkpoint(done_);
  if (going && finish()) return Exit::kDone;
  checkpoint(done_);
  finish_profile();
  human(fmt::format("stopped by signal {} after step {}; run again with --resume", StopSignals::received(),
                    done_));
  return Exit::kStopped;
}

}  // namespace

Exit train(const runfile::RunConfig& c, plugin::Registry& registry, const TrainOptions& o,
           RunObserver& observer) {
  Run run(c, registry, o, observer);
  try {
    return run.go();
  } catch (const plugin::PluginError& e) {
    if (e.status() != "device_lost") throw;
    return run.lost(e);
  }
}

}  // namespace trainhost::training
