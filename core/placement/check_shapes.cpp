// Rows, columns and types of operands. M = rows of the operation; the rest are the model's dimensions. One
// case a kind, in the words of OpKind's comments.
#include "core/placement/check_findings.hpp"
#include "core/step/scratch_sizes.hpp"

namespace trainhost::placement {
namespace {

class Shapes {
 public:
  Shapes(const Program& p, Findings& f, std::uint32_t op)
      : p_(p), f_(f), i_(op), o_(p.ops[op]), m_(p.model) {}

  /// Weights and activations, in the number type that the run stores them in.
  void in(std::size_t k, std::uint64_t rows, std::uint64_t cols) { typed(k, rows, cols, real_); }
  void out(std::size_t k, std::uint64_t rows, std::uint64_t cols) { typed_out(k, rows, cols, real_); }
  /// Statistics, gradients of weights, moments, tables: f32 always.
  void f32(std::size_t k, std::uint64_t rows, std::uint64_t cols) { typed(k, rows, cols, DType::kF32); }
  void f32_out(std::size_t k, std::uint64_t rows, std::uint64_t cols) {
    typed_out(k, rows, cols, DType::kF32);
  }
  void typed(std::size_t k, std::uint64_t rows, std::uint64_t cols, DType t) {
    if (o_.in[k] != kNoBuffer) is(o_.in[k], rows, cols, t);
  }
  void scalars(std::size_t k) { typed(k, 1, kScalarCount, DType::kF64); }
  void ids(std::size_t k) {
    if (o_.in[k] == kNoBuffer) return;
    typed(k, M, 1, DType::kI32);
    const Buffer& b = p_[o_.in[k]];
    if (b.storage == Storage::kArena || (b.storage == Storage::kFed && b.tier != Tier::kDevice))
      f_.at(i_, b.name() + " should come from the host");
  }

  void run();

 private:
  void typed_out(std::size_t k, std::uint64_t rows, std::uint64_t cols, DType t) {
    if (k < o_.outs) is(o_.out[k], rows, cols, t);
  }
  void is(BufferId b, std::uint64_t rows, std::uint64_t cols, DType t) {
    const Buffer& x = p_[b];
    if (x.rows == rows && x.cols == cols && x.dtype == t) return;
    f_.at(i_, x.name() + " is " + text(x.dtype, x.rows, x.cols) + ", needs to be " + text(t, rows, cols));
  }
  static std::string text(DType t, std::uint64_t rows, std::uint64_t cols) {
    return std::string(name(t)) + "[" + std::to_string(rows) + "," + std::to_string(cols) + "]";
  }
  void attention_scratch(std::size_t k) {
    if (on_device_)
      f32(k, M, A);  // the backward pass's row sums; the forward pass has none
    else
      f32(k, p_.profile.threads, attention_scratch_floats(p_.profile, m_.head_dim));
    if ((o_.in[k] == kNoBuffer) != (on_device_ && o_.kind == OpKind::kAttention))
      f_.at(i_, "has not the scratch that it needs");
  }
  /// Run by a device?
  bool here() const { return on_device_ && !runs_on_host(p_, o_); }
  /// On a device a figure a token beside its chunk of logits.
  void losses(std::size_t k, std::size_t logits_at) {
    f32(k, p_[o_.in[logits_at]].rows, 1);
    if ((o_.in[k] == kNoBuffer) == on_device_)
      f_.at(i_, on_device_ ? "has no room for its losses" : "has losses that nobody reads");
  }
  void logits(std::size_t k) {
    const Buffer& x = p_[o_.in[k]];
    if (x.rows == 0 || x.rows > M)
      f_.at(i_, x.name() + " has " + std::to_string(x.rows) + " rows for " + std::to_string(M) + " tokens");
    in(k, x.rows, m_.vocab);
  }
  void forward();
  void head();
  void backward();
  void update();

  const Program& p_;
  Findings& f_;
  std::uint32_t i_;
  const Op& o_;
  const ModelSpec& m_;
  const bool on_device_ = p_.profile.tier == Tier::kDevice;
  const DType real_ = p_.profile.f32_storage ? DType::kF32 : p_.run.weight;
  const std::uint64_t M = o_.rows, H = m_.hidden, I = m_.intermediate, A = m_.heads, K = m_.kv_heads,
                      D = m_.head_dim, V = m_.vocab, S = p_.run.seq_len, W = p_.profile.slots,
                      qkv = (A + 2 * K) * D;
};

void Shapes::forward() {
  switch (o_.kind) {
    case OpKind::kEmbed:
      in(0, V, H), ids(1), out(0, M, H);
      break;
    case OpKind::kRmsNorm:
      in(0, M, H), in(1, H, 1), out(0, M, H), f32_out(1, M, 1);
      break;
    case OpKind::kLinear: {
      const std::uint64_t n = p_[o_.in[1]].rows, k = p_[o_.in[1]].cols;
      in(0, M, k), in(2, n, 1), in(3, M, n), out(0, M, n);
      break;
    }
    case OpKind::kQkNorm:
      in(0, M, qkv), in(1, D, 1), in(2, D, 1), out(1, M, (A + K) * D), f32_out(2, M, A + K);
      break;
    case OpKind::kRope:
      in(0, M, qkv), f32(1, S, D);
      break;
    case OpKind::kAttention:
      in(0, M, qkv), attention_scratch(1), out(0, M, A * D), f32_out(1, M, A);
      if (M % S) f_.at(i_, "its rows are not whole sequences");
      break;
    case OpKind::kSwiGlu:
      in(0, M, 2 * I), out(0, M, I);
      break;
    case OpKind::kAttentionStep:
      in(0, 1, qkv), in(1, S, K * D), in(2, S, K * D), f32(3, A, S), out(0, 1, A * D);
      break;
    default:
      break;
  }
}

void Shapes::head() {
  switch (o_.kind) {
    case OpKind::kHeadLoss:
      in(0, M, H), in(1, V, H), ids(2), f32(3, V, H), logits(4), scalars(5), losses(6, 4);
      break;
    case OpKind::kHeadEval:
      in(0, M, H), in(1, V, H), ids(2), logits(3), scalars(4), losses(5, 3);
      break;
    case OpKind::kHeadLogits:
      in(0, M, H), in(1, V, H), out(0, M, V);
      break;
    case OpKind::kCrossEntropy:
      in(0, M, V), ids(1), scalars(2);
      break;
    case OpKind::kHeadBwd:
      in(0, M, V), in(1, M, H), in(2, V, H), f32(3, V, H);
      break;
    default:
      break;
  }
}

void Shapes::backward() {
  switch (o_.kind) {
    case OpKind::kRmsNormBwd:
      in(0, M, H), in(1, M, H), f32(2, M, 1), in(3, H, 1), f32(5, H, 1), f32(6, W, H), out(0, M, H);
      break;
    case OpKind::kLinearDx: {
      const Buffer& w = p_[o_.in[1]];
      in(0, M, w.rows), out(0, M, w.cols);
      break;
    }
    case OpKind::kLinearDw: {
      const Buffer& g = p_[o_.in[2]];
      in(0, M, g.rows), in(1, M, g.cols), f32(2, g.rows, g.cols), f32(3, g.rows, 1), f32(4, W, g.rows);
      if (on_device_ && (o_.in[3] == kNoBuffer) != (o_.in[4] == kNoBuffer))
        f_.at(i_, "has partial sums without a bias, or a bias without them");
      break;
    }
    case OpKind::kSwiGluBwd:
      in(0, M, I), in(1, M, 2 * I);
      break;
    case OpKind::kAttentionBwd:
      in(0, M, A * D), in(1, M, A * D), f32(2, M, A), in(3, M, qkv), attention_scratch(4), out(0, M, qkv);
      break;
    case OpKind::kRopeBwd:
      in(0, M, qkv), f32(1, S, D);
      break;
    case OpKind::kQkNormBwd:
      in(0, M, qkv), in(1, M, (A + K) * D), f32(2, M, A + K), in(3, D, 1), in(4, D, 1), f32(5, D, 1),
          f32(6, D, 1);
      f32(7, W, 2 * D);
      break;
    case OpKind::kEmbedBwd:
      in(0, M, H), ids(1), f32(2, V, H), ids(3);
      if ((o_.in[3] == kNoBuffer) == here())
        f_.at(i_, here() ? "has no order to add in" : "has an order that nobody reads");
      break;
    default:
      break;
  }
}

void Shapes::update() {
  const Buffer& g = p_[o_.in[0]];
  const auto same = [&](BufferId to) {
    if (p_[to].rows != g.rows || p_[to].cols != g.cols || p_[to].dtype != g.dtype)
      f_.at(i_, p_[to].name() + " is of another shape than " + g.name());
  };
  switch (o_.kind) {
    case OpKind::kCopy:
      same(o_.out[0]);
      if (g.tier == p_[o_.out[0]].tier) f_.at(i_, "copies inside one tier");
      break;
    case OpKind::kAddGrad:
      same(o_.out[0]);
      break;
    case OpKind::kGradSquares:
      scalars(1), typed(2, W, 1, DType::kF64);
      if ((o_.in[2] == kNoBuffer) != runs_on_host(p_, o_)) f_.at(i_, "has not the scratch that it needs");
      break;
    case OpKind::kAdamW:
      in(1, g.rows, g.cols), f32(2, g.rows, g.cols), f32(3, g.rows, g.cols), scalars(4),
          f32(5, g.rows, g.cols);
      break;
    case OpKind::kSgd:
      in(1, g.rows, g.cols), scalars(2), f32(3, g.rows, g.cols);
      break;
    case OpKind::kSgdMomentum:
      in(1, g.rows, g.cols), f32(2, g.rows, g.cols), scalars(3), f32(4, g.rows, g.cols);
      break;
    default:
      break;
  }
}

void Shapes::run() { forward(), head(), backward(), update(); }

std::uint64_t rows_of(const Program& p, SectionKind k) {
  return k == SectionKind::kUpdate ? 0 : k == SectionKind::kGenerate ? 1 : p.run.tokens_per_micro_batch();
}

}  // namespace

void check_shapes(const Program& p, Findings& f) {
  for (const Section& s : p.sections)
    for (std::uint32_t i = s.begin; i < s.end; ++i) {
      if (p.ops[i].rows != rows_of(p, s.kind))
        f.at(i, "runs over " + std::to_string(p.ops[i].rows) + " rows");
      Shapes(p, f, i).run();
    }
}

}  // namespace trainhost::placement
