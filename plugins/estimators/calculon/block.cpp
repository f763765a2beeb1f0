// See block.hpp. The layers are added in the order in which they run; each line says what it keeps and why
// not where not.
#include "plugins/estimators/calculon/block.hpp"

#include <string>

#include "core/base/checked.hpp"

namespace trainhost::calculon {
namespace {

/// What one layer adds. Bytes, except weights. `activation` is its input, kept for the gradient of its
/// weights.
struct Layer {
  const char* name = "";
  std::uint64_t weights = 0, activation = 0, gradient = 0, output = 0;
  bool shared = false;      // the input is another layer's too and counted there while the block runs
  bool kept = true;         // the input waits for the backward pass
  bool output_kept = true;  // false: what the next layer counts as its input is given up as well
};

class Blocks {
 public:
  Blocks(const Application& a, const Execution& e, Derivation* words)
      : a_(a),
        e_(e),
        words_(words),
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
    block_.stored = added_ - given_up_;  // only what was added is given up: never negative
    if (e_.training && full()) block_.checkpoint = checked_mul(whole_, b_), block_.stored = 0;
    return block_;
  }

 private:
  bool full() const { return e_.recompute == Activation::kFull; }
  bool attention_again() const { return e_.recompute != Activation::kNone; }

  void add(const Layer& l) {
    derive(l);
    block_.weights = checked_add(block_.weights, l.weights);
    if (!l.shared) block_.working = checked_add(block_.working, l.activation);
    added_ = checked_add(added_, l.activation);
    if (!e_.training) return;
    if (!l.output_kept) given_up_ = checked_add(given_up_, l.output);
    if (!l.kept) given_up_ = checked_add(given_up_, l.activation);
    block_.gradients = checked_add(block_.gradients, l.gradient);
  }

  /// " + name bytes" behind a sum; nothing where there is nothing to add.
  static void term(std::string& sum, const char* sign, const char* name, std::uint64_t bytes) {
    if (bytes == 0) return;
    if (!sum.empty() || *sign == '-') sum += sum.empty() ? "-" : std::string(" ") + sign + " ";
    sum += std::string(name) + " " + std::to_string(bytes);
  }

  void derive(const Layer& l) {
    if (!words_) return;
    if (!l.shared) term(words_->working, "+", l.name, l.activation);
    if (l.kept || !e_.training) term(words_->stored, "+", l.name, l.activation);
    if (!l.output_kept && e_.training) term(words_->stored, "-", "scores made again", l.output);
    if (e_.training) term(words_->gradients, "+", l.name, l.gradient);
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

  /// A dropout keeps its mask, one byte an element; its gradient is counted so too. Then the residual sum of
  /// two inputs.
  void dropout_and_residual() {
    add({.name = "dropout mask", .activation = mine_, .gradient = mine_});
    add({.name = "residual",
         .activation = bytes(checked_mul(2, mine_)),
         .gradient = bytes(mine_),
         .shared = true,
         .kept = false});
  }

  /// The exchange before a column-split product (conjugate: after a row-split one). With one rank there is
  /// none.
  void exchange(bool conjugate) {
    if (t_ == 1) return;
    if (e_.comm == Comm::kRsAg) {
      const std::uint64_t part = bytes(whole_) / t_;
      return add({.name = "exchange", .activation = part, .gradient = part, .kept = !conjugate});
    }
    // The all-reduce's buffer: of the output going forward, of the gradient going back.
    add({.name = "exchange",
         .activation = conjugate ? bytes(whole_) : 0,
         .gradient = conjugate ? 0 : bytes(whole_),
         .kept = !conjugate});
  }

  /// c_in and c_out as this rank has them. Input and output are tokens x c_in and tokens x c_out.
  void linear(const char* name, std::uint64_t c_in, std::uint64_t c_out, bool shared, bool kept) {
    add({.name = name,
         .weights = linear_elements(c_in, c_out),
         .activation = bytes(checked_mul(tokens_, c_in)),
         .gradient = bytes(checked_mul(tokens_, c_out)),
         .shared = shared,
         .kept = kept});
  }

  /// A product whose exchange runs beside it in t tiles, and takes the exchange's place. c_in and c_out of
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
        split ? out / t_ : out;  // of the output, and as much of a buffer for the exchange
    add({.name = name,
         .weights = linear_elements(c_in / t_, c_out),
         .activation = split ? bytes(in) : 0,
         .gradient = bytes(checked_mul(2, gradient))});
  }

  /// One input for q, k and v. Kept unless it is gathered again.
  void fork_of_projections() {
    add({.name = "q,k,v input",
         .activation = bytes(whole_),
         .kept = !attention_again() && !e_.seq_par_ag_redo});
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

  /// Scores, softmax, dropout, product with v: S*S a head, materialised.
  void products() {
    const bool kept = !attention_again();
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

  /// The product that ends an attention or an MLP, with its exchange.
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
  Derivation* const words_;
  const std::uint64_t b_, t_, tokens_;
  const std::uint64_t whole_,
      mine_;               // elements of the hidden state: of all tokens, and as norms and dropouts see it
  const std::uint64_t q_;  // width of all heads together
  const std::uint64_t scores_;  // elements of the scores of this rank's heads
  Block block_;
  std::uint64_t added_ = 0, given_up_ = 0;  // bytes of kept activations before and of what is made again
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

Block block(const Application& a, const Execution& e, Derivation* words) { return Blocks(a, e, words).sum(); }

}  // namespace trainhost::calculon
