// Training by preferences (DPO) with a Decoder: the losses of DPOTrainer of TRL 1.10, of TRL 1.16
// with its fused head, and of the trainer of LLaMA-Factory 0.9.5. The rows of a micro-batch are the chosen
// sequences and then the rejected ones. Both need the logits of all rows, N = 2 * pairs, once from the policy
// and once, without gradients, from the reference: a second model, or the policy without its adapters. Every
// token counts as one of the completion; padding makes no mask. C++ variables are those of the Python
// functions.
#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "core/frameworks/models/decoder.hpp"

namespace trainhost::frameworks {
namespace {

/// torch.no_grad().
class WithoutGradients {
 public:
  explicit WithoutGradients(Tape& tape) : tape_(tape), before_(std::exchange(tape.grad_enabled, false)) {}
  ~WithoutGradients() { tape_.grad_enabled = before_; }
  WithoutGradients(const WithoutGradients&) = delete;
  WithoutGradients& operator=(const WithoutGradients&) = delete;

 private:
  Tape& tape_;
  bool before_;
};

std::uint64_t element_bytes(const Shape& shape, Element type) { return shape.count() * bytes_of(type); }

/// gather(x, -1, index): one element of each row of the last dimension. The gradient is zeros of the size of
/// x.
Tensor gathered(Tape& t, const Tensor& x) {
  const Shape shape = x->shape.sliced(-1, 1).made_contiguous();
  const Tensor index = t.make(shape, Element::kI64, "labels");
  const std::array saved{x, index};
  return t.apply({"chosen logits", std::span(&x, 1), saved, false,
                  [before = x->shape](BackwardCall& c) {
                    Tensor zeros = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient");
                    if (c.tape.options.subclass_gradients)  // scatter_add() instead of scatter_add_()
                      zeros = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient");
                    c.results[0] = std::move(zeros);
                  }},
                 shape, x->type);
}

/// unbind(0): a view of each row. Their gradients are stacked, and exist until then.
std::vector<Tensor> rows_of_batch(Tape& t, const Tensor& x) {
  Shape row;
  row.dims = x->shape.dims - 1;
  for (int i = 0; i < row.dims; ++i)
    row.size[i] = x->shape.size[i + 1], row.stride[i] = x->shape.stride[i + 1];
  const std::vector<Shape> shapes(static_cast<std::size_t>(x->shape[0]), row);
  return t.apply_views({"unbind",
                        std::span(&x, 1),
                        {},
                        false,
                        [before = x->shape, type = x->type](BackwardCall& c) {
                          c.results[0] = c.tape.make(before.made_contiguous(), type, "gradient of the rows");
                        }},
                       x, shapes);
}

/// logsumexp(x, -1). Its kernel and its gradient compute with tensors of the size of x: x minus the result,
/// their exponentials, and the product with the gradient.
Tensor log_sum_exp(Tape& t, const Tensor& x) {
  t.kernel_temporary(element_bytes(x->shape, x->type), "exponentials");
  Shape shape = x->shape.made_contiguous();
  shape = shape.sliced(-1, 1).made_contiguous();
  --shape.dims;
  return t.apply({"log-sum-exp", std::span(&x, 1), std::span(&x, 1), true,
                  [shape = x->shape.made_contiguous(), type = x->type](BackwardCall& c) {
                    const Tensor difference = c.tape.make(shape, type, "logits minus their log-sum-exp");
                    const Tensor exponentials = c.tape.make(shape, type, "probabilities");
                    c.results[0] = c.tape.make(shape, type, "gradient of a row");
                  }},
                 shape, x->type);
}

/// stack() of one number per token of each row.
Tensor stacked(Tape& t, const std::vector<Tensor>& rows) {
  Shape shape{static_cast<std::int64_t>(rows.size()), rows.front()->shape[0]};
  return t.apply({"stack",
                  rows,
                  {},
                  false,
                  [](BackwardCall& c) {
                    const Tensor g = c.take();
                    Shape row = g->shape;
                    row.size[0] = row.size[1], row.stride[0] = row.stride[1];
                    row.dims = 1;
                    for (std::size_t i = 0; i < c.results.size(); ++i)
                      if (c.needs(i)) c.results[i] = c.tape.alias(g, row);
                  }},
                 shape, rows.front()->type);
}

/// selective_log_softmax() of TRL: log-probabilities of the labels, [N, S - 1], without those of all words in
/// f32; narrower logits have a softmax per row.
Tensor selective_log_softmax(Tape& t, const Tensor& logits) {
  const std::int64_t rows = logits->shape[0], tokens = logits->shape[1];
  if (logits->type == Element::kF32) {
    const Tensor chosen = gathered(t, logits);
    std::vector<Tensor> sums;
    {
      const std::vector<Tensor> each = rows_of_batch(t, logits);
      for (const Tensor& row : each) sums.push_back(log_sum_exp(t, row));
    }
    const Tensor all = stacked(t, sums);
    sums.clear();
    return subtract(t, view(t, chosen, {rows, tokens}), all);
  }
  std::vector<Tensor> chosen;
  const std::vector<Tensor> each = rows_of_batch(t, logits);
  for (const Tensor& row : each) {
    const Tensor all = log_softmax(t, row, "log-probabilities of a row");
    chosen.push_back(view(t, gathered(t, all), {tokens}));
  }
  return stacked(t, chosen);
}

}  // namespace

Tensor Decoder::logits_of_rows() {
  return called_model([this] { return logits_of_model(); });
}

Tensor Decoder::logits_of_model() {
  if (fsdp_) fsdp_->before_forward(Fsdp::kRoot);
  Tensor logits;
  {
    const AutocastScope autocast(t_, under_autocast_);
    t_.module = "";
    Tensor x = module("model", {}, [this](const Tensor&) { return hidden_states(); });
    t_.module = "lm_head";
    if (fsdp_ && !a_.tied && !last_unit_begins_at_norm()) x = enter_last_unit(x);
    logits = module("lm_head", x,
                    [this](const Tensor& in) { return linear(t_, in, a_.tied ? embedding_ : head_); });
    if (fsdp_) fsdp_->after_forward(Fsdp::kLast, logits);
    if (granite_) logits = div_number(t_, logits);
    if (a_.family == "gemma2") {
      logits = div_number(t_, logits);
      logits = tanh(t_, logits);
      logits = mul_number(t_, logits);
    }
  }
  t_.module = "loss";
  // convert_outputs_to_fp32() of accelerate: what a model returns in mixed precision, but not under FSDP2.
  if (under_autocast_) logits = to(t_, logits, Element::kF32);
  if (fsdp_) fsdp_->after_forward(Fsdp::kRoot, logits);
  return s_.fsdp.casts_output ? to(t_, logits, s_.weights) : logits;
}

template <class Call>
auto Decoder::of_reference(Call call) {
  const WithoutGradients no_gradients(t_);
  const bool recorded = std::exchange(t_.recording, false);
  Decoder& of = reference_ ? *reference_ : *this;
  of.is_reference_ = true;
  auto result = call(of);
  of.is_reference_ = false;
  t_.recording = recorded;
  return result;
}

Tensor Decoder::reference_logits() {
  return of_reference([](Decoder& of) { return of.logits_of_rows(); });
}

Tensor Decoder::preference_loss() {
  const Purpose before = t_.purpose;
  Tensor loss = s_.tiled_loss                                       ? tiled_preference_loss()
                : s_.preferences.trainer == PreferenceTrainer::kTrl ? trl_preference_loss()
                                                                    : factory_preference_loss();
  t_.in_loss = false;
  t_.purpose = before;
  t_.module = "";
  return loss;
}

/// One number per row from one per token, and from them the loss.
Tensor Decoder::loss_of_scores(const Tensor& policy, const Tensor& reference) {
  const Tensor scores = reference ? subtract(t_, policy, reference) : policy;
  return neg(t_, sum_of_all(t_, view(t_, mul_number(t_, scores), {batch_})));
}

Tensor Decoder::trl_preference_loss() {
  // DPOTrainer._compute_loss(). `outputs` and `ref_outputs` are variables, so both logits exist until it
  // returns.
  const Tensor logits = logits_of_rows();
  t_.in_loss = true;
  t_.purpose = Purpose::kLogits;
  const std::int64_t tokens = sequence_ - 1, vocab = static_cast<std::int64_t>(a_.vocab);
  const Tensor shifted = slice(t_, logits, 1, tokens);
  const Tensor policy = sum(t_, selective_log_softmax(t_, shifted));
  Tensor reference, other;
  if (s_.preferences.reference) {
    t_.purpose = Purpose::kActivations;
    other = reference_logits();
    t_.purpose = Purpose::kLogits;
    const WithoutGradients no_gradients(t_);
    reference = sum(t_, selective_log_softmax(t_, slice(t_, other, 1, tokens)));
  }
  Tensor loss = loss_of_scores(policy, reference);
  // Metrics: the entropy from a copy of the logits in chunks of 128 tokens, the mean logits of both halves,
  // each from a copy of the logits of its completions.
  {
    const Tensor flat = t_.make({batch_ * tokens, vocab}, logits->type, "logits without the last token");
    const Shape chunk{std::min<std::int64_t>(128, batch_ * tokens), vocab};
    const Tensor log_probabilities = t_.make(chunk, logits->type, "log-probabilities of a chunk");
    const Tensor probabilities = t_.make(chunk, logits->type, "probabilities of a chunk");
    t_.make(chunk, logits->type, "product");
  }
  for (int half = 0; half < 2; ++half)
    t_.make({batch_ / 2 * tokens, vocab}, logits->type, "logits of the completions");
  return loss;
}

Tensor Decoder::tiled_preference_loss() {
  // DPOTrainer._compute_loss() of TRL 1.15 and newer. `outputs` and `ref_outputs` exist until it returns.
  const Tensor completion = t_.make({batch_, sequence_}, Element::kI64, "completion mask"),
               labels = t_.make({batch_, sequence_}, Element::kI64, "labels");
  const TiledOutputs outputs = tiled_outputs_of_call();
  t_.in_loss = true;
  t_.purpose = Purpose::kLogits;
  const Tensor policy = sum(t_, outputs.log_probabilities);
  Tensor reference;
  TiledOutputs other;
  if (s_.preferences.reference) {
    t_.purpose = Purpose::kActivations;
    other = of_reference([](Decoder& of) { return of.tiled_outputs_of_call(); });
    t_.purpose = Purpose::kLogits;
    const WithoutGradients no_gradients(t_);
    reference = sum(t_, other.log_probabilities);
  }
  return loss_of_scores(policy, reference);
}

Tensor Decoder::factory_preference_loss() {
  // CustomDPOTrainer.get_batch_loss_metrics(): the logits of the policy, in f32, are variables until it
  // returns, those of the reference until compute_reference_log_probs() returns.
  const std::int64_t tokens = sequence_ - 1;
  const auto log_probabilities = [&](const Tensor& logits) {
    // get_batch_logps(): log_softmax() of all words, from a copy where several rows leave out the last token.
    const Tensor shifted = slice(t_, logits, 1, tokens);
    t_.kernel_temporary(element_bytes(shifted->shape, Element::kF32), "logits, copied");
    const Tensor all = log_softmax(t_, shifted, "log-probabilities");
    return sum(t_, view(t_, gathered(t_, all), {batch_, tokens}));
  };
  const Tensor logits = to(t_, logits_of_rows(), Element::kF32);
  t_.in_loss = true;
  t_.purpose = Purpose::kLogits;
  const Tensor policy = log_probabilities(logits);
  Tensor reference;
  if (s_.preferences.reference) {
    t_.purpose = Purpose::kActivations;
    const WithoutGradients no_gradients(t_);
    const Tensor other = to(t_, reference_logits(), Element::kF32);
    t_.purpose = Purpose::kLogits;
    reference = log_probabilities(other);
  }
  return loss_of_scores(policy, reference);
}

}  // namespace trainhost::frameworks
