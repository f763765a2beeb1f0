// The losses of torchtune: of all logits (CrossEntropyLoss), of the logits in eight chunks
// (CEWithChunkedOutputLoss), and of the hidden states in eight chunks whose logits exist one after another
// (LinearCrossEntropyLoss). The model calls them: decoder_torchtune.cpp.
#include <algorithm>
#include <utility>

#include "core/frameworks/kernels/fused.hpp"
#include "core/frameworks/models/decoder_torchtune.hpp"

namespace trainhost::frameworks {
namespace {

constexpr std::int64_t kChunks = 8;

/// Lengths of torch.tensor_split(), without empty ones, whose tensors have no memory.
std::vector<std::int64_t> chunks_of(std::int64_t n) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < std::min(n, kChunks); ++i)
    out.push_back(n / kChunks + (i < n % kChunks ? 1 : 0));
  return out;
}

std::vector<Tensor> tensor_split(Tape& t, const Tensor& x, int dim) {
  std::vector<Tensor> out;
  for (const std::int64_t n : chunks_of(x->shape[dim])) out.push_back(slice(t, x, dim, n));
  return out;
}

}  // namespace

/// The module of the head, called for each chunk: its unit is gathered in each call.
Tensor TorchtuneDecoder::head(const Tensor& hidden) {
  const ModuleScope scope(t_, "output");
  const bool is_unit = s_.fsdp.separate_ends;
  if (is_unit) fsdp_->before_forward(Fsdp::kLast);
  const Tensor x = is_unit ? fsdp_->input(Fsdp::kLast, hidden) : hidden;
  const std::int64_t rows = static_cast<std::int64_t>(x->shape.count()) / hidden_;
  t_.purpose = Purpose::kLogits;
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = vocab_;
  // A chunk of several sequences is copied before the product.
  const Tensor logits = linear(t_, reshape(t_, x, {rows, hidden_}), head_);
  const Tensor y = view(t_, logits, shape.made_contiguous());
  if (is_unit) fsdp_->after_forward(Fsdp::kLast, y);
  return y;
}

Tensor TorchtuneDecoder::loss_of_rows(const Tensor& logits, const Tensor& labels) {
  // compute_cross_entropy() is what the recipes compile: the cast to f32 and the loss become one kernel,
  // which keeps the bf16 logits of the chunk instead of f32 log-probabilities.
  if (s_.compiles_loss) return fused_cross_entropy(t_, logits, labels);
  return cross_entropy(t_, to(t_, logits, Element::kF32), labels);
}

Tensor TorchtuneDecoder::plain_loss(Tensor hidden, Tensor last) {
  // self.output(h).float(): the bf16 logits are freed when the f32 ones exist; linear() saves neither.
  Tensor logits;
  {
    const Tensor narrow = head(hidden);
    const ModuleScope scope(t_, "output");
    logits = to(t_, narrow, Element::kF32);
  }
  // The model's variables are gone when it has returned; the norm keeps what its gradient needs.
  hidden.reset();
  last.reset();
  after_forward(logits);
  t_.in_loss = true;
  t_.module = "loss";
  if (s_.loss == LossKind::kMovedLogits) return loss_of_moved_logits(std::move(logits));
  const std::int64_t rows = batch_ * sequence_;
  logits = view(t_, logits, {rows, vocab_});
  // The recipes compile this loss, but call the one that is not compiled.
  return cross_entropy(t_, logits, t_.alias(labels_, {rows}));
}

/// torchtune until August 2024: logits[..., :-1, :].contiguous().transpose(1, 2). The recipe's variable keeps
/// the copy until the model has returned the logits of the next micro-batch.
Tensor TorchtuneDecoder::loss_of_moved_logits(Tensor logits) {
  const std::int64_t rows = batch_ * (sequence_ - 1);
  moved_logits_.reset();
  moved_logits_ = contiguous(t_, slice(t_, logits, 1, sequence_ - 1));
  logits.reset();
  // labels[..., 1:].contiguous(), which is a view of a single row.
  const Tensor labels = batch_ == 1 ? labels_ : t_.make({rows}, Element::kI64, "labels, without the first");
  // log_softmax() of CUDA makes the transposed logits contiguous.
  Tensor transposed;
  if (t_.options.kernel_temporaries)
    transposed = t_.make({batch_, vocab_, sequence_ - 1}, Element::kF32, "logits, transposed");
  return cross_entropy(t_, view(t_, moved_logits_, {rows, vocab_}), labels);
}

Tensor TorchtuneDecoder::chunked_loss(Tensor hidden, Tensor last) {
  std::vector<Tensor> outputs;
  {
    // chunked_output(): [B, S / 8, H] each. All bf16 logits exist before the loss casts the first chunk.
    std::vector<Tensor> parts = tensor_split(t_, hidden, 1);
    for (const Tensor& part : parts) outputs.push_back(head(part));
  }
  hidden.reset();
  last.reset();
  // The last chunk has its gradient first.
  after_forward(outputs.back());
  t_.in_loss = true;
  t_.module = "loss";
  Tensor count;
  {
    // total_elements = (labels != ignore_index).sum()
    const Tensor counted = t_.make({batch_, sequence_}, Element::kBool, "labels that count");
    count = t_.make({}, Element::kI64, "number of labels");
  }
  std::vector<Tensor> labels, logits;
  for (const std::int64_t n : chunks_of(sequence_))
    labels.push_back(batch_ == 1 ? t_.alias(labels_, {n}) : t_.make({batch_ * n}, Element::kI64, "labels"));
  for (const Tensor& chunk : outputs) {
    const std::int64_t rows = static_cast<std::int64_t>(chunk->shape.count()) / vocab_;
    logits.push_back(view(t_, chunk, {rows, vocab_}));
  }
  // total_loss += each: the first sum, with the number 0.0, is a new scalar; the others are in place.
  Tensor total;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Tensor each = loss_of_rows(logits[i], labels[i]);
    total = total ? add_in_place(t_, total, each) : add_number(t_, each);
  }
  return divide(t_, total, count);
}

Tensor TorchtuneDecoder::linear_loss(const Tensor& hidden) {
  t_.in_loss = true;
  t_.module = "loss";
  const std::int64_t rows = batch_ * sequence_;
  // torch.where() of the labels that count: a mask, and of it i64 indices with a column per dimension. No
  // label is ignored here, the upper bound.
  const auto indices = [&](const Shape& mask) {
    const Tensor counted = t_.make(mask, Element::kBool, "labels that count");
    return t_.make({rows, mask.dims}, Element::kI64, "tokens with a label");
  };
  indices({batch_, sequence_});
  Tensor chosen, labels;
  {
    const Tensor at = indices({rows});
    // A copy of the hidden states, [N, H], which all chunks are views of.
    chosen = index_rows(t_, view(t_, hidden, {rows, hidden_}), at);
    labels = t_.make({rows}, Element::kI64, "labels");
  }
  const std::vector<Tensor> parts = tensor_split(t_, chosen, 0);
  Tensor total = t_.make({}, Element::kF32, "sum of the losses");
  Tensor each;
  for (const Tensor& part : parts) {
    // compute_cross_entropy(): the logits of the chunk are freed when it returns; eagerly their
    // f32 log-probabilities are saved.
    const auto loss_of = [&] {
      const Tensor logits = head(part);
      return loss_of_rows(logits, t_.alias(labels, {part->shape[0]}));
    };
    each = loss_of();
    total = add_in_place(t_, total, each);
  }
  return div_number(t_, total);
}

}  // namespace trainhost::frameworks
