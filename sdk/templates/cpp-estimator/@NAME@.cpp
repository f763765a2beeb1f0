// @NAME@: memory of a training run of the family @FAMILY@. C++17, uses only the SDK's headers. Reports
// weights, gradients and optimizer state exactly, activations by formula, logits as an upper bound. Start at
// layer_parameters().
#include <cstdint>
#include <limits>
#include <trainhost/trainhost.hpp>

TH_MANIFEST(
    "id = '@NAME@'\n"
    "version = '0.1.0'\n"
    "kind = 'estimator'\n"
    "summary = 'memory of the @FAMILY@ family'\n"
    "families = ['@FAMILY@']\n");

namespace {

/// A size whose arithmetic throws if the result exceeds 63 bits.
struct Size {
  Size(std::uint64_t n) : value(n) {
    if (n > std::numeric_limits<std::int64_t>::max())
      throw th::Error(TH_E_UNSUPPORTED, "the sizes of the model exceed 63 bits");
  }
  friend Size operator*(Size a, Size b) {
    // An overflow becomes the largest number, which the constructor rejects.
    std::uint64_t c;
    return __builtin_mul_overflow(a.value, b.value, &c) ? Size(~std::uint64_t{0}) : Size(c);
  }
  friend Size operator+(Size a, Size b) { return Size(a.value + b.value); }
  std::uint64_t value;
};

/// Bytes of one element; 0 for the type 0 ("none").
Size bytes_per_element(std::uint32_t dtype) {
  switch (dtype) {
    case TH_DT_F64:
      return 8;
    case TH_DT_F32:
    case TH_DT_TF32:
      return 4;
    case TH_DT_F16:
    case TH_DT_BF16:
      return 2;
    case TH_DT_F8:
    case TH_DT_I8:
    case TH_DT_U8:
      return 1;
    default:
      return 0;
  }
}

/// Numbers that the optimizer stores per parameter; -1: unsupported optimizer.
int count_moments(const th_run& r) {
  return r.optimizer == TH_OPT_ADAMW          ? 2
         : r.optimizer == TH_OPT_SGD_MOMENTUM ? 1
         : r.optimizer == TH_OPT_SGD          ? 0
                                              : -1;
}

/// Parameters of one layer: two norms; q, k, v and o; gate, up and down. Change this for your architecture.
Size layer_parameters(const th_model& m) {
  const Size H = m.hidden, q = Size(m.heads) * m.head_dim, kv = Size(m.kv_heads) * m.head_dim;
  return H * 2 + H * (q * 2 + kv * 2) + H * m.intermediate * 3;
}

/// Elements that a layer keeps per token for its backward pass: its input, the outputs of two norms and the
/// residual (H each), q and the attention output, k and v, gate, up and their product. With recompute "full"
/// only its input.
Size layer_activations(const th_model& m, const th_run& r) {
  const Size H = m.hidden, q = Size(m.heads) * m.head_dim, kv = Size(m.kv_heads) * m.head_dim;
  if (r.recompute == TH_RC_FULL) return H;
  return H * 4 + (q + kv) * 2 + Size(m.intermediate) * 3;
}

struct @TYPE@ {
  static int match(const th_model& m, const th_run& r) noexcept {
    // A score of 0 means that the host asks other estimators: settings that the formulas do not describe.
    const bool one_rank = r.data_parallel <= 1 && r.tensor_parallel <= 1 && r.pipeline_parallel <= 1;
    if (!m.family || std::strcmp(m.family, "@FAMILY@") != 0 || r.mode != TH_MODE_FULL || !one_rank ||
        count_moments(r) < 0)
      return 0;
    return r.recompute == TH_RC_NONE || r.recompute == TH_RC_FULL ? 1000 : 0;
  }

  static void estimate(const th_host&, const th_model& m, const th_run& r, const th_profile*,
                       th::Tree& tree) {
    if (count_moments(r) < 0)
      throw th::Error(TH_E_UNSUPPORTED, "@NAME@ supports adamw, sgd and sgd-momentum");
    const Size table = Size(m.vocab) * m.hidden,
               tables = m.flags & TH_MODEL_TIED_EMBEDDINGS ? table : table * 2;
    const Size P = tables + m.hidden + Size(m.layers) * layer_parameters(m),
               tokens = Size(r.micro_batch) * r.seq_len;
    const auto add_exact = [&](const char* name, std::uint32_t component, const char* formula, Size bytes) {
      if (bytes.value != 0) tree.exact({name, TH_TIER_HOST, component, 0, formula}, bytes.value);
    };
    add_exact("weights", TH_MEM_WEIGHTS, "P*bytes", P * bytes_per_element(r.dt_weight));
    add_exact("master weights", TH_MEM_MASTER_WEIGHTS, "P*bytes", P * bytes_per_element(r.dt_master));
    add_exact("gradients", TH_MEM_GRADIENTS, "P*bytes", P * bytes_per_element(r.dt_grad));
    add_exact("moments", TH_MEM_OPTIMIZER_STATE, "moments*P*bytes",
              P * static_cast<std::uint64_t>(count_moments(r)) * bytes_per_element(r.dt_moment));
    // Every layer keeps the same, and at the peak (the start of the backward pass) all of them do.
    const Size kept = Size(m.layers) * tokens * layer_activations(m, r) * bytes_per_element(r.dt_compute);
    tree.approximation(
        {"activations", TH_TIER_HOST, TH_MEM_ACTIVATIONS, 0, "L*B*S*(4H + 2AD + 2KD + 3I)*bytes"}, kept.value,
        kept.value / 2, (kept * 2).value);
    tree.upper_bound({"logits", TH_TIER_HOST, TH_MEM_LOGITS, 0, "B*S*V*4"}, (tokens * m.vocab * 4).value);
    tree.claim(TH_APPROXIMATION);
    tree.note("Activations are those of an ordinary transformer layer.");
  }
};

}  // namespace

TH_PLUGIN("@NAME@", "0.1.0", th::estimator<@TYPE@>())
