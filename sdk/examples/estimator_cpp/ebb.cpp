// An estimator in C++17 for the fictional family "ebb": recurrent layers carry a state of H x N numbers from
// token to token, and every attention_every-th layer is an attention layer. state_size, attention_every and
// gate are keys of config.json that th_model does not have. The backward pass needs rows per token and the
// state at every 64th token. Numbers computed by hand: README.md.
#include <limits>
#include <trainhost/trainhost.hpp>

TH_MANIFEST(
    "id = 'ebb'\n"
    "version = '1.0.0'\n"
    "kind = 'estimator'\n"
    "summary = 'gated recurrences with attention between: an example'\n"
    "families = ['ebb']\n");

namespace {

/// A size whose arithmetic throws if the result exceeds 63 bits.
struct Size {
  Size(std::uint64_t n) : value(n) {
    if (n > std::numeric_limits<std::int64_t>::max())
      throw th::Error(TH_E_UNSUPPORTED, "the sizes of the model exceed 63 bits");
  }
  friend Size operator*(Size a, Size b) {
    std::uint64_t c;
    return __builtin_mul_overflow(a.value, b.value, &c) ? Size(~std::uint64_t{0}) : Size(c);
  }
  friend Size operator+(Size a, Size b) { return Size(a.value + b.value); }
  std::uint64_t value;
};

/// Bytes of one element; 0 for "none" and for types that are not used for weights.
std::uint64_t bytes_of(std::uint32_t dtype) {
  return dtype == TH_DT_F32 || dtype == TH_DT_TF32 ? 4 : dtype == TH_DT_F16 || dtype == TH_DT_BF16 ? 2 : 0;
}

/// Numbers that the optimizer stores per parameter; -1: unsupported optimizer.
int count_moments(const th_run& r) {
  return r.optimizer == TH_OPT_ADAMW          ? 2
         : r.optimizer == TH_OPT_SGD_MOMENTUM ? 1
         : r.optimizer == TH_OPT_SGD          ? 0
                                              : -1;
}

/// Dimensions of an ebb model, from th_model and config.json.
struct Shape {
  Shape(const th_host& host, const th_model& m)
      : H(m.hidden), q(Size(m.heads) * m.head_dim), kv(Size(m.kv_heads) * m.head_dim), I(m.intermediate) {
    const th::Config config(host, m);
    const std::int64_t n = config.integer("state_size", 16), every = config.integer("attention_every", 0);
    const std::string gate = config.text("gate", "channel");
    if (n < 1 || n > 4096) throw th::Error(TH_E_UNSUPPORTED, "state_size in config.json is not in 1 to 4096");
    if (every < 0)
      throw th::Error(TH_E_UNSUPPORTED, "attention_every in config.json is negative",
                      "use 0 for a model without attention layers");
    if (gate != "channel" && gate != "scalar")
      throw th::Error(TH_E_UNSUPPORTED, "gate in config.json is neither channel nor scalar");
    N = static_cast<std::uint64_t>(n);
    attend = every == 0 ? 0 : m.layers / static_cast<std::uint64_t>(every);
    recur = m.layers - attend;
    gates = gate == "channel" ? H : Size(1);
  }
  /// Parameters: norm; value and path; gate; projections that write and read the state; output projection.
  Size recurrence_parameters() const { return H + H * (H * 2) + H * gates + H * (N * 2) + H * H; }
  Size attention_parameters() const { return H + H * (q * 2 + kv * 2); }
  Size mlp_parameters() const { return H + H * I * 3; }
  /// Numbers kept per token: input and normalized input, then outputs of the products and of the recurrence.
  Size recurrence_row() const { return H * 2 + H * 2 + gates + N * 2 + H; }
  Size attention_row() const { return H * 2 + q * 2 + kv * 2; }
  Size mlp_row() const { return H * 2 + I * 3; }

  Size H, q, kv, I;
  std::uint64_t N, attend, recur;  // layers of each kind
  Size gates = 1;
};

struct Ebb {
  static bool is_supported(const th_run& r) {
    // Settings that the formulas below do not describe. Without a match the host asks other estimators.
    const bool one_rank =
        r.data_parallel <= 1 && r.tensor_parallel <= 1 && r.pipeline_parallel <= 1 && r.context_parallel <= 1;
    return one_rank && r.mode == TH_MODE_FULL && r.recompute == TH_RC_NONE && count_moments(r) >= 0 &&
           bytes_of(r.dt_weight) && bytes_of(r.dt_compute);
  }
  static int match(const th_model& m, const th_run& r) noexcept {
    return m.family && std::strcmp(m.family, "ebb") == 0 && is_supported(r) ? 1000 : 0;
  }

  static void estimate(const th_host& host, const th_model& m, const th_run& r, const th_profile*,
                       th::Tree& tree) {
    // estimate() may be called without match(), for an estimator that the user names.
    if (!is_supported(r))
      throw th::Error(TH_E_UNSUPPORTED,
                      "ebb supports one rank with adamw, sgd or sgd-momentum, without recompute");
    const Shape s(host, m);
    // An untied head is a second matrix of the size of the embedding.
    const Size P = Size(m.vocab) * m.hidden * (m.flags & TH_MODEL_TIED_EMBEDDINGS ? 1 : 2) + s.H +
                   s.recurrence_parameters() * s.recur + s.attention_parameters() * s.attend +
                   s.mlp_parameters() * m.layers;
    const auto counted = [&](const char* name, std::uint32_t component, Size bytes,
                             const char* formula = "P*bytes") {
      if (bytes.value) tree.exact({name, TH_TIER_HOST, component, 0, formula}, bytes.value);
    };
    counted("weights", TH_MEM_WEIGHTS, P * bytes_of(r.dt_weight));
    counted("master weights", TH_MEM_MASTER_WEIGHTS, P * bytes_of(r.dt_master));
    counted("gradients", TH_MEM_GRADIENTS, P * bytes_of(r.dt_grad));
    const auto states = static_cast<std::uint64_t>(count_moments(r));
    counted("moments", TH_MEM_OPTIMIZER_STATE, P * states * bytes_of(r.dt_moment), "moments*P*bytes");

    // A node that is the parent of others is a heading: its entries are printed below it.
    const std::uint32_t phases = TH_PH_FORWARD | TH_PH_BACKWARD;
    const std::uint32_t heading = tree.exact({"layers", TH_TIER_HOST, TH_MEM_ACTIVATIONS, phases}, 0);
    const auto kept = [&](const char* name, const char* formula, Size bytes) {
      const th::Entry entry{name, TH_TIER_HOST, TH_MEM_ACTIVATIONS, phases, formula, heading};
      const Size most =
          bytes * 2;  // in-place and fused operations vary: claim a factor of two in both directions
      if (bytes.value) tree.approximation(entry, bytes.value, bytes.value / 2, most.value);
    };
    const Size tokens = Size(r.micro_batch) * r.seq_len, bytes = bytes_of(r.dt_compute);
    // The state is kept at every 64th token, in f32 whatever the compute type.
    const std::uint64_t chunks = (std::uint64_t{r.seq_len} + 63) / 64;
    kept("recurrence", "L_r*B*S*(5H + gates + 2N)*bytes", tokens * s.recurrence_row() * s.recur * bytes);
    kept("states", "L_r*B*ceil(S/64)*H*N*4", Size(r.micro_batch) * chunks * s.H * s.N * s.recur * 4);
    kept("attention", "L_a*B*S*(2H + 2AD + 2KD)*bytes", tokens * s.attention_row() * s.attend * bytes);
    kept("mlp", "L*B*S*(2H + 3I)*bytes", tokens * s.mlp_row() * m.layers * bytes);
    // The claim of the total is that of its least certain entry.
    tree.claim(TH_APPROXIMATION);
    tree.note("Logits are not counted.");
  }
};

}  // namespace

TH_PLUGIN("ebb", "1.0.0", th::estimator<Ebb>())
