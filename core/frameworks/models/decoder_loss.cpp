// LM head and loss of a Decoder: those of transformers, of the Trainer in LLaMA-Factory's format v1, and
// fused with the head by Liger or Cut Cross Entropy. C++ variables are those of the Python functions, because
// the time at which they end decides what exists at the peak. Hidden states: decoder.cpp.
#include <utility>

#include "core/frameworks/kernels/cut_loss.hpp"
#include "core/frameworks/kernels/liger.hpp"
#include "core/frameworks/kernels/tiled_loss.hpp"
#include "core/frameworks/kernels/unsloth.hpp"
#include "core/frameworks/models/decoder.hpp"

namespace trainhost::frameworks {

Tensor Decoder::loss_of_model() {
  // LlamaForCausalLM.forward() and ForCausalLMLoss().
  if (fsdp_) fsdp_->before_forward(Fsdp::kRoot);
  const AutocastScope autocast(t_, under_autocast_);
  t_.module = "";
  // `x` (hidden_states) and `logits` are variables: both exist until the loss has been computed.
  Tensor x = module("model", {}, [this](const Tensor&) { return hidden_states(); });
  if (s_.liger.loss) return liger_loss_of(x);
  if (s_.cut_loss) return cut_loss_of(x);
  if (s_.unsloth.on) return unsloth_loss_of(x);
  t_.module = "lm_head";
  if (fsdp_ && !a_.tied && !last_unit_begins_at_norm()) x = enter_last_unit(x);
  const Purpose before = std::exchange(t_.purpose, Purpose::kLogits);
  Tensor logits = module("lm_head", x, [this](const Tensor& states) {
    return linear(t_, states, a_.tied ? embedding_ : head_);
  });
  if (fsdp_) fsdp_->after_forward(Fsdp::kLast, logits);
  t_.in_loss = true;
  // final_logit_softcapping: three results [B, S, V] in a row, of which tanh() saves its own.
  if (granite_) logits = div_number(t_, logits);  // logits_scaling
  if (a_.family == "gemma2") {
    logits = div_number(t_, logits);
    logits = tanh(t_, logits);
    logits = mul_number(t_, logits);
  }
  t_.module = "loss";
  Tensor result;
  {
    // logits.float(): log_softmax() keeps f32 log-probabilities [N, V]; the narrow logits are not saved.
    const Tensor wide = to(t_, logits, Element::kF32);
    result = s_.release >= TransformersRelease::k446 ? loss_of_moved_logits(wide, logits)
                                                     : loss_of_moved_labels(wide);
  }
  if (s_.trainer_loss) {
    // The function of the model has returned: its result keeps the logits and the loss.
    x.reset();
    result = trainer_loss_of(std::move(logits), std::move(result));
  }
  if (s_.kept_logits != KeptLogits::kNone) {
    output_logits_ = std::move(logits);
    x.reset();
    // convert_outputs_to_fp32(), when the function of the model has returned.
    if (s_.f32_outputs && under_autocast_) output_logits_ = to(t_, output_logits_, Element::kF32);
  }
  if (fsdp_) fsdp_->after_forward(Fsdp::kRoot, result);
  // MixedPrecisionPolicy.output_dtype of the root unit.
  if (s_.fsdp.casts_output) result = to(t_, result, s_.weights);
  t_.in_loss = false;
  t_.purpose = before;
  t_.module = "";
  return result;
}

Tensor Decoder::loss_of_moved_labels(const Tensor& wide) {
  // pad(labels, (0, 1)): the labels move by one token, not the logits, so that these need no copy.
  const Tensor padded = t_.make({batch_, sequence_ + 1}, Element::kI64, "labels, padded");
  // labels[..., 1:].contiguous(), which is a view of a single row.
  const Tensor targets =
      batch_ == 1 ? t_.alias(padded) : t_.make({batch_ * sequence_}, Element::kI64, "labels");
  const Tensor flat = view(t_, wide, {batch_ * sequence_, static_cast<std::int64_t>(a_.vocab)});
  return cross_entropy(t_, flat, targets);
}

Tensor Decoder::loss_of_moved_logits(const Tensor& wide, Tensor& logits) {
  // The variable `logits` of the model of 4.45 is given the f32 tensor.
  if (s_.release == TransformersRelease::k445) logits = wide;
  // logits[..., :-1, :].contiguous() and labels[..., 1:].contiguous(), which are views of a single row.
  const std::int64_t tokens = batch_ * (sequence_ - 1);
  const Tensor moved = contiguous(t_, slice(t_, wide, 1, sequence_ - 1));
  const Tensor targets = batch_ == 1 ? ids_ : t_.make({tokens}, Element::kI64, "labels, without the first");
  const Tensor flat = view(t_, moved, {tokens, static_cast<std::int64_t>(a_.vocab)});
  return cross_entropy(t_, flat, targets);
}

Tensor Decoder::trainer_loss_of(Tensor logits, Tensor loss) {
  // BaseTrainer.compute_log_probs(): the labels are an argument of the model too, so that two losses exist.
  // The logits move by one token, which copies them unless there is one row.
  const auto vocab = static_cast<std::int64_t>(a_.vocab);
  Tensor log_probabilities;
  {
    // Attributes of `outputs`, which exist until the function returns.
    const Tensor model_logits = std::move(logits), model_loss = std::move(loss);
    const Tensor wide = to(t_, model_logits, Element::kF32);
    const Tensor labels =
        batch_ == 1 ? ids_ : t_.make({batch_ * (sequence_ - 1)}, Element::kI64, "labels, without the first");
    const Tensor shifted = contiguous(t_, slice(t_, wide, 1, sequence_ - 1));
    const Tensor rows = view(t_, shifted, {batch_ * (sequence_ - 1), vocab});
    log_probabilities = neg(t_, cross_entropy_of_rows(t_, rows, labels));
  }
  // SFTTrainer.compute_loss(): weights of the tokens. BaseTrainer.fit() scales it by counts of tokens.
  const Tensor weights =
      t_.alias(loss_weights_, Shape{batch_ * sequence_}.sliced(0, batch_ * (sequence_ - 1)));
  Tensor total = sum_of_all(t_, mul(t_, neg(t_, log_probabilities), weights));
  const auto sum_of_weights = [&] { return t_.make({}, Element::kF32, "sum of weights"); };
  Tensor divisor = sum_of_weights();
  divisor = sum_of_weights();
  total = divide(t_, total, divisor);
  divisor.reset();
  return div_number(t_, mul_number(t_, mul_number(t_, total)));
}

Tensor Decoder::liger_loss_of(const Tensor& x) {
  // lce_forward() and LigerForCausalLMLoss(), whose variables `labels` and `shift_labels` are two tensors.
  t_.in_loss = true;
  t_.module = "loss";
  const Purpose before = std::exchange(t_.purpose, Purpose::kLogits);
  const Tensor padded = t_.make({batch_, sequence_ + 1}, Element::kI64, "labels, padded");
  const Tensor labels =
      batch_ == 1 ? t_.alias(padded) : t_.make({batch_ * sequence_}, Element::kI64, "labels");
  const Tensor rows = view(t_, x, {batch_ * sequence_, hidden_});
  const Tensor& head = a_.tied ? embedding_ : head_;
  if (zero3_) zero3_->read(head, "");  // outside of its module
  Tensor loss = liger_loss(t_, rows, head);
  if (fsdp_) {
    // The head was not called, so the root ends the unit with it (_force_complete_incomplete_states()).
    fsdp_->after_forward(Fsdp::kLast, loss);
    fsdp_->after_forward(Fsdp::kRoot, loss);
  }
  if (s_.fsdp.casts_output) loss = to(t_, loss, s_.weights);
  t_.in_loss = false;
  t_.purpose = before;
  t_.module = "";
  return loss;
}

Tensor Decoder::unsloth_loss_of(const Tensor& x) {
  t_.in_loss = true;
  t_.module = "loss";
  const Purpose before = std::exchange(t_.purpose, Purpose::kLogits);
  const Tensor rows = view(t_, x, {batch_ * sequence_, hidden_});
  Tensor loss =
      unsloth_loss(t_, rows, a_.tied ? embedding_ : head_, batch_ * (sequence_ - 1), s_.unsloth.small_device);
  t_.in_loss = false;
  t_.purpose = before;
  t_.module = "";
  return loss;
}

Tensor Decoder::whole_head() {
  const Tensor& head = a_.tied ? embedding_ : head_;
  if (zero3_) zero3_->read(head, "");  // outside of its module
  // Under FSDP2 the unit of a head whose norm is not in it has not been gathered: full_tensor() of its
  // DTensor.
  if (!fsdp_ || s_.fsdp.flat || s_.fsdp.one_unit || !s_.fsdp.separate_ends || a_.tied || finds_final_norm())
    return head;
  Shape padded = head->shape;
  padded.size[0] = (padded[0] + s_.fsdp.ranks - 1) / s_.fsdp.ranks * s_.fsdp.ranks;
  const Tensor gathered =
      t_.make(padded, s_.fsdp.frozen.value_or(s_.fsdp.shards), "head, gathered outside of its unit");
  return t_.alias(gathered, head->shape);
}

TiledOutputs Decoder::tiled_outputs() {
  // _fused_forward(). Scales and caps of logits are arguments of the kernels.
  if (fsdp_) fsdp_->before_forward(Fsdp::kRoot);
  const AutocastScope autocast(t_, under_autocast_);
  t_.module = "";
  const Tensor x = module("model", {}, [this](const Tensor&) { return hidden_states(); });
  t_.in_loss = true;
  t_.module = "loss";
  const Purpose before = std::exchange(t_.purpose, Purpose::kLogits);
  const bool dpo = s_.preferences.trainer != PreferenceTrainer::kNone;
  const TiledMetrics metrics = s_.frozen ? TiledMetrics::kNone
                               : dpo     ? TiledMetrics::kDpo
                                         : TiledMetrics::kSft;
  TiledOutputs out = tiled_log_probabilities(t_, x, whole_head(), ids_,
                                             under_autocast_ ? s_.autocast_type : x->type, metrics);
  if (fsdp_) {
    // The head was not called, so the root ends the unit with it (_force_complete_incomplete_states()).
    if (!s_.fsdp.separate_ends || finds_final_norm() || a_.tied)
      fsdp_->after_forward(Fsdp::kLast, out.log_probabilities);
    fsdp_->after_forward(Fsdp::kRoot, out.log_probabilities);
  }
  if (s_.fsdp.casts_output) out.log_probabilities = to(t_, out.log_probabilities, s_.weights);
  t_.in_loss = false;
  t_.purpose = before;
  t_.module = "";
  return out;
}

TiledOutputs Decoder::tiled_outputs_of_call() {
  TiledOutputs outputs;
  Tensor result = called_model([&] {
    outputs = tiled_outputs();
    return std::move(outputs.log_probabilities);
  });
  outputs.log_probabilities = std::move(result);
  return outputs;
}

Tensor Decoder::tiled_loss() {
  // SFTTrainer.compute_loss(), whose variable `outputs` exists until it returns.
  const TiledOutputs outputs = tiled_outputs_of_call();
  return div_number(t_, sum_of_all(t_, neg(t_, outputs.log_probabilities)));
}

Tensor Decoder::cut_loss_of(const Tensor& x) {
  // cce_forward() and apply_lce().
  t_.in_loss = true;
  t_.module = "loss";
  const Purpose before = std::exchange(t_.purpose, Purpose::kLogits);
  const Tensor& head = a_.tied ? embedding_ : head_;
  // Granite divides the hidden states by logits_scaling, not the logits.
  const Tensor states = granite_ ? div_number(t_, x) : x;
  Tensor loss = cut_cross_entropy(t_, to(t_, states, head->type), head, ids_, a_.family == "gemma2");
  t_.in_loss = false;
  t_.purpose = before;
  t_.module = "";
  return loss;
}

}  // namespace trainhost::frameworks
