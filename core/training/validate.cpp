// Evaluation during a run, and what follows from a validation loss: the best checkpoint, the end of a run by
// train.early_stopping, and which weights become the model. Members of TrainingRun.
#include <fmt/format.h>

#include <array>
#include <cassert>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/training/training_run.hpp"

namespace trainhost::training {

bool TrainingRun::evaluation_is_due() const {
  return config_.eval_every && steps_done_ % config_.eval_every == 0 && evaluated_after_ != steps_done_ &&
         source_.valid_samples;
}

/// Mean loss per token over the validation text. Does nothing for a text without one complete sample, and
/// gives up when a signal comes: a resumed run evaluates again. Uses the buffer of the training batch, which
/// is free between steps; a validation batch is one micro-batch of it.
void TrainingRun::evaluate() {
  const EvalBatches batches(*source_.valid_samples, config_.run.seq_len, config_.run.micro_batch);
  const std::span<std::int32_t> ids = batch_->as<std::int32_t>();
  const std::uint64_t batch_tokens = config_.run.tokens_per_micro_batch();
  assert(ids.size() >= 2 * batch_tokens);
  // Of several data-parallel ranks, each takes every N-th batch.
  double sum = 0;
  std::uint64_t tokens = 0, first_sample = 0, number = 0;
  const std::span<std::int32_t> starts =
      config_.run.document_mask ? ids.subspan(2 * batch_tokens, batch_tokens) : ids.first(0);
  // The weights of ZeRO 3 come from all ranks: in the last round those without a batch compute one again.
  const auto computes_for_others = [&](std::uint64_t next_sample) {
    return config_.run.parallel.zero == 3 && next_sample >= source_.valid_samples->size() &&
           number % data_ranks() != 0 && data_rank() >= number % data_ranks();
  };
  while (const std::uint32_t sequences = batches.fill(first_sample, ids.first(batch_tokens),
                                                      ids.subspan(batch_tokens, batch_tokens), starts)) {
    if (!ranks_.several() && StopSignals::received()) return;
    first_sample += sequences;
    const bool counts = number++ % data_ranks() == data_rank();
    if (!counts && !computes_for_others(first_sample)) continue;
    plugin::StepInput in;
    in.tokens = ids.first(std::size_t{sequences} * config_.run.seq_len);
    in.targets = ids.subspan(batch_tokens, std::size_t{sequences} * config_.run.seq_len);
    if (!starts.empty()) in.starts = starts.first(in.tokens.size());
    in.batch = sequences;
    in.seq = config_.run.seq_len;
    plugin::StepResult r;
    try {
      r = session_->evaluate(in);
    } catch (const plugin::PluginError& e) {
      if (ended_by_signal(e)) return;
      throw;
    }
    // The last batch may be smaller: losses are weighted by tokens, so the mean does not depend on batch
    // sizes.
    if (!counts || !first_of_tensor_ranks()) continue;
    sum += r.loss * static_cast<double>(r.tokens_counted);
    tokens += r.tokens_counted;
  }
  std::array<double, 2> totals{sum, static_cast<double>(tokens)};
  ranks_.sum(totals);
  sum = totals[0], tokens = static_cast<std::uint64_t>(totals[1]);
  if (tokens == 0) return;
  const double loss = sum / static_cast<double>(tokens);
  events_->eval(steps_done_, loss, tokens);
  if (board_) board_->validation(steps_done_, loss);
  std::string text = fmt::format("validation after step {}: loss {:.4f} nats per token over {}", steps_done_,
                                 loss, plural(tokens, "token"));
  if (source_.entropy_nats)
    text += fmt::format("; entropy of the text {:.4f} ± {:.4f}, difference {:+.4f}", *source_.entropy_nats,
                        source_.entropy_error.value_or(0), loss - *source_.entropy_nats);
  evaluated_after_ = steps_done_;
  validation_loss_ = loss;
  early_stopping_.add(loss);
  if (config_.output.keep_best && history_.best_step && !(loss < history_.best_loss))
    text += fmt::format("; lowest so far {:.4f} after step {}", history_.best_loss, *history_.best_step);
  report(text);
  save_if_best(loss);
  if (!early_stopping_.stops() || steps_done_ >= config_.steps) return;
  events_->early_stop(steps_done_, early_stopping_.waited());
  report(fmt::format("training ends early, after step {} of {}: no improvement in {}", steps_done_,
                     config_.steps, plural(early_stopping_.waited(), "evaluation")));
}

/// Keeps the state with the lowest validation loss. A later checkpoint of the same step is this one; an
/// earlier one, that the run resumed from, is replaced, because it was written without this loss.
void TrainingRun::save_if_best(double loss) {
  if (!config_.output.keep_best || (history_.best_step && !(loss < history_.best_loss))) return;
  history_.best_step = steps_done_;
  history_.best_loss = loss;
  if (checkpointed_after_ == steps_done_) checkpointed_after_ = kNever;
  start_save();  // saved() marks it
}

/// With output.model = "best" the session gets the weights of that checkpoint: nothing but the model is made
/// of them afterwards. A damaged one is an error, because a model of other weights would look the same.
std::uint64_t TrainingRun::load_weights_of_model() {
  if (!config_.output.model_best || !history_.best_step || *history_.best_step == steps_done_)
    return steps_done_;
  const std::optional<checkpoint::Store::Found> best = store_->best();
  if (!best)
    throw run_error(fmt::format("the checkpoint of step {}, with the lowest validation loss, is missing or "
                                "damaged: there is no model",
                                *history_.best_step),
                    "--resume with --set output.model=last writes the weights of the last checkpoint");
  load_checkpoint_weights(*session_, config_, best->dir, staging_->as<float>());
  return best->meta.step;
}

void TrainingRun::report_best(const char* result) {
  const auto dir = config_.output.dir / "checkpoints" / fmt::format("step-{}", *history_.best_step);
  report(fmt::format("lowest validation loss {:.4f} after step {}: {}; {} has the weights of step {}",
                     history_.best_loss, *history_.best_step, escaped(dir.string(), 4096), result,
                     history_.model_step));
}

}  // namespace trainhost::training
