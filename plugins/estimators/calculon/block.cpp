// Adds up the layers of a block in the order of execution. Calculon keeps the input of a layer for its
// backward pass unless .kept is false; .shared inputs are counted once. From blocks to ranks:
// closed_form.cpp.
#include "plugins/estimators/calculon/block.hpp"

#include <cassert>
#include <string>

#include "core/base/checked.hpp"

namespace trainhost::calculon {
namespace {

/// One layer: weights in elements, the rest in bytes. activation: its input, kept for the weight gradient.
struct Layer {
  const char* name = "";
  std::uint64_t weights = 0, activation = 0, gradient = 0, output = 0;
  bool shared = false;      // the working set counts this input with another layer
  bool kept = true;         // the input is kept until the backward pass
  bool output_kept = true;  // false: the output, which is the next layer's input, is not kept either
};

class BlockSums {
 public:
  BlockSums(const Application& a, const Execution& e, Derivation* derivation)
      : a_(a),
        e_(e),
        derivation_(derivation),
        b_(e.bytes_per_element),
        t_(e.tensor_par),
        tokens_(checked_mul(e.microbatch_size, a.seq_size)),
        whole_(checked_mul(tokens_, a.hidden)),
        mine_(e.comm == Comm::kRsAg ? checked_mul(tokens_ / t_, a.hidden) : whole_),
        q_(checked_mul(a.attn_heads, a.attn_size)),
        scores_(e.scores
                    ? checked_mul(a.attn_heads / t_, e.microbatch_size, checked_mul(a.seq_size, a.seq_size))
                    : 0) {}

  Block sum() {
    attention();
    mlp();
    assert(recomputed_ <= added_);
    block_.stored = added_ - recomputed_;  // never negative: only added bytes are recomputed
    if (e_.training && full()) block_.checkpoint = checked_mul(whole_, b_), block_.stored = 0;
    return block_;
  }

 private:
  bool full() const { return e_.recompute == Activation::kFull; }
  bool recomputes_attention() const { return e_.recompute != Activation::kNone; }

  void add(const Layer& l) {
    derive(l);
    block_.weights = checked_add(block_.weights, l.weights);
    if (!l.shared) block_.working = checked_add(block_.working, l.activation);
    added_ = checked_add(added_, l.activation);
    if (!e_.training) return;
    if (!l.output_kept) recomputed_ = checked_add(recomputed_, l.output);
    if (!l.kept) recomputed_ = checked_add(recomputed_, l.activation);
    block_.gradients = checked_add(block_.gradients, l.gradient);
  }

  /// Appends " + name bytes" to a formula unless bytes == 0.
  static void term(std::string& sum, const char* sign, const char* name, std::uint64_t bytes) {
    if (bytes == 0) return;
    if (!sum.empty() || *sign == '-') sum += sum.empty() ? "-" : std::string(" ") + sign + " ";
    sum += std::string(name) + " " + std::to_string(bytes);
  }

  void derive(const Layer& l) {
    if (!derivation_) return;
    if (!l.shared) term(derivation_->working, "+", l.name, l.activation);
    if (l.kept || !e_.training) term(derivation_->stored, "+", l.name, l.activation);
    if (!l.output_kept && e_.training) term(derivation_->stored, "-", "recomputed scores", l.output);
    if (e_.training) term(derivation_->gradients, "+", l.name, l.gradient);
  }

  std::uint64_t bytes(std::uint64_t elements) const { return checked_mul(elements, b_); }

  /// The input of an attention or an MLP: kept once, for the norm and for the residual.
  void fork_and_norm() {
    add({.name = "block input", .activation = bytes(mine_)});
    add({.name = "norm",
         .weights = checked_mul(2, a_.hidden),
         .activation = bytes(mine_),
         .gradient = bytes(mine_),
         .shared = true,
         .kept = false});
  }

  /// Dropout keeps its mask, one byte per element; Calculon counts its gradient likewise. Then the residual
  /// sum of two inputs.
  void dropout_and_residual() {
    add({.name = "dropout mask", .activation = mine_, .gradient = mine_});
    add({.name = "residual",
         .activation = bytes(checked_mul(2, mine_)),
         .gradient = bytes(mine_),
         .shared = true,
         .kept = false});
  }

  /// The collective before a column-parallel product (conjugate: after a row-parallel one). None for one
  /// rank.
  void exchange(bool conjugate) {
    if (t_ == 1) return;
    if (e_.comm == Comm::kRsAg) {
      const std::uint64_t part = bytes(whole_) / t_;
      return add({.name = "exchange", .activation = part, .gradient = part, .kept = !conjugate});
    }
    // Buffer of the all-reduce: the output in the forward pass, the gradient in the backward pass.
    add({.name = "exchange",
         .activation = conjugate ? bytes(whole_) : 0,
         .gradient = conjugate ? 0 : bytes(whole_),
         .kept = !conjugate});
  }

  /// c_in, c_out: widths on this rank. Input is [tokens][c_in], output [tokens][c_out].
  void linear(const char* name, std::uint64_t c_in, std::uint64_t c_out, bool shared, bool kept) {
    add({.name = name,
         .weights = linear_elements(c_in, c_out),
         .activation = bytes(checked_mul(tokens_, c_in)),
         .gradient = bytes(checked_mul(tokens_, c_out)),
         .shared = shared,
         .kept = kept});
  }

  /// A product that overlaps with its collective in t tiles; replaces exchange(). c_in, c_out: widths over
  /// all ranks.
  void overlapped_columns(const char* name, std::uint64_t c_in, std::uint64_t c_out) {
    const bool split = e_.comm == Comm::kRsAg;
    const std::uint64_t in = checked_mul(tokens_, c_in), out = checked_mul(tokens_, c_out / t_);
    add({.name = name,
         .weights = linear_elements(c_in, c_out / t_),
         .activation = bytes(split ? in / t_ : in),
         .gradient = split ? bytes(out) : 0});
  }
  void overlapped_rows(const char* name, std::uint64_t c_in, std::uint64_t c_out) {
    const bool split = e_.comm == Comm::kRsAg;
    const std::uint64_t in = checked_mul(tokens_, c_in / t_), out = checked_mul(tokens_, c_out);
    const std::uint64_t gradient =
        split ? out / t_ : out;  // of the output; the buffer of the collective is as large
    add({.name = name,
         .weights = linear_elements(c_in / t_, c_out),
         .activation = split ? bytes(in) : 0,
         .gradient = bytes(checked_mul(2, gradient))});
  }

  /// The common input of q, k and v. Kept unless it is gathered again.
  void fork_of_projections() {
    add({.name = "q,k,v input",
         .activation = bytes(whole_),
         .kept = !recomputes_attention() && !e_.seq_par_ag_redo});
  }

  void projections() {
    if (e_.overlap == Overlap::kNone) {
      exchange(false);
      fork_of_projections();
      linear("q", a_.hidden, q_ / t_, true, false);
      for (int kv = 0; kv < 2; ++kv)
        linear("k or v", a_.hidden, e_.multiquery ? a_.attn_size : q_ / t_, true, false);
    } else if (!e_.multiquery) {
      overlapped_columns("q,k,v", a_.hidden, checked_mul(q_, 3));
    } else {
      overlapped_columns("q", a_.hidden, q_);
      fork_of_projections();
      for (int kv = 0; kv < 2; ++kv) linear("k or v", a_.hidden, a_.attn_size, true, false);
    }
  }

  /// Scores, softmax, dropout, product with v: materialised, S*S per head.
  void products() {
    const bool kept = !recomputes_attention();
    const std::uint64_t heads = checked_mul(e_.microbatch_size, a_.attn_heads) / t_;
    const std::uint64_t rows = checked_mul(heads, a_.seq_size, a_.attn_size);  // of q, k or v
    add({.name = "q and k",
         .activation = bytes(checked_mul(2, rows)),
         .gradient = bytes(scores_),
         .output = bytes(scores_),
         .output_kept = kept});
    add({.name = "softmax",
         .activation = bytes(scores_),
         .gradient = bytes(scores_),
         .output = bytes(scores_),
         .output_kept = kept});
    add({.name = "scores mask", .activation = scores_, .gradient = scores_, .kept = kept});
    add({.name = "scores and v", .activation = bytes(checked_add(scores_, rows)), .gradient = bytes(rows)});
  }

  void attention() {
    fork_and_norm();
    projections();
    products();
    row_split("attention output", q_);
    dropout_and_residual();
  }

  /// The last product of attention or MLP, with its collective.
  void row_split(const char* name, std::uint64_t c_in) {
    if (e_.overlap != Overlap::kNone) return overlapped_rows(name, c_in, a_.hidden);
    linear(name, c_in / t_, a_.hidden, false, true);
    exchange(true);
  }

  void mlp() {
    fork_and_norm();
    if (e_.overlap == Overlap::kNone) {
      exchange(false);
      linear("MLP up", a_.hidden, a_.feedforward / t_, false, !full() && !e_.seq_par_ag_redo);
    } else {
      overlapped_columns("MLP up", a_.hidden, a_.feedforward);
    }
    const std::uint64_t middle = e_.fused_activation ? 0 : bytes(checked_mul(a_.feedforward, tokens_) / t_);
    add({.name = "GeLU", .activation = middle, .gradient = middle});
    row_split("MLP down", a_.feedforward);
    dropout_and_residual();
  }

  const Application& a_;
  const Execution& e_;
  Derivation* const derivation_;
  const std::uint64_t b_, t_, tokens_;
  const std::uint64_t whole_,
      mine_;  // elements of the hidden states: of all tokens; of the tokens of norms and dropouts
  const std::uint64_t q_;       // total width of all heads
  const std::uint64_t scores_;  // elements of the scores of this rank's heads
  Block block_;
  std::uint64_t added_ = 0, recomputed_ = 0;  // bytes of all activations; of the recomputed ones
};

constexpr std::uint64_t kF32 = 4, kMoments = 2;

}  // namespace

std::uint64_t weight_bytes(std::uint64_t elements, std::uint64_t b) { return checked_mul(elements, b); }
std::uint64_t moment_bytes(std::uint64_t elements) { return checked_mul(kMoments, elements, kF32); }
std::uint64_t master_bytes(std::uint64_t elements, std::uint64_t b) {
  return b < kF32 ? checked_mul(elements, kF32) : 0;
}
std::uint64_t optimizer_bytes(std::uint64_t elements, std::uint64_t b) {
  return checked_add(master_bytes(elements, b), moment_bytes(elements));
}
std::uint64_t linear_elements(std::uint64_t c_in, std::uint64_t c_out) { return checked_mul(c_in, c_out); }

Block block(const Application& a, const Execution& e, Derivation* derivation) {
  return BlockSums(a, e, derivation).sum();
}

}  // namespace trainhost::calculon
