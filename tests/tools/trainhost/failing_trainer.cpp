// A trainer whose failures are in the data, for tests of train.on_nonfinite, train.on_spike and
// train.verify_every. A batch with the byte 'N' has a loss that is not finite, one with 'S' a loss of 100;
// 'I' makes the last weight infinite, so that the loss of the next step is not finite. The option `flip_at` =
// N changes one bit of a weight after step N, the first time that this step is computed; with `stop_in_init`
// the process gets SIGTERM while weights are initialised. With `lowest_at` = W the loss of an evaluation is
// 2 + |W - last weight|, otherwise it depends on the data alone. Every weight gets the same update, so one
// number shows which batches were trained:
//   moment = 0.5 * moment + sum of the token ids / 1000;  weight -= lr * moment
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <trainhost/trainhost.hpp>

TH_MANIFEST(
    "\nid = \"failing\"\nversion = \"1\"\nkind = \"trainer\"\nsummary = \"fails at marked batches\"\n"
    "options = [\"flip_at\", \"stop_in_init\", \"lowest_at\"]\npriority = -1\n");

namespace {

struct Shape {
  std::string name;
  std::uint64_t rows, columns;  // columns 0: one dimension
};

/// The tensors of a Llama model with a tied head, in the order of a checkpoint.
std::vector<Shape> shapes_of(const th_model& m) {
  const std::uint64_t h = m.hidden, q = std::uint64_t{m.heads} * m.head_dim,
                      k = std::uint64_t{m.kv_heads} * m.head_dim, i = m.intermediate;
  std::vector<Shape> out = {{"model.embed_tokens.weight", m.vocab, h}};
  for (std::uint32_t l = 0; l < m.layers; ++l) {
    const std::string p = "model.layers." + std::to_string(l) + ".";
    for (const Shape& s :
         {Shape{"input_layernorm.weight", h, 0}, Shape{"self_attn.q_proj.weight", q, h},
          Shape{"self_attn.k_proj.weight", k, h}, Shape{"self_attn.v_proj.weight", k, h},
          Shape{"self_attn.o_proj.weight", h, q}, Shape{"post_attention_layernorm.weight", h, 0},
          Shape{"mlp.gate_proj.weight", i, h}, Shape{"mlp.up_proj.weight", i, h},
          Shape{"mlp.down_proj.weight", h, i}})
      out.push_back({p + s.name, s.rows, s.columns});
  }
  out.push_back({"model.norm.weight", h, 0});
  return out;
}

std::uint64_t count_of(const Shape& s) { return s.rows * (s.columns ? s.columns : 1); }
std::uint64_t parameters_of(const th_model& m) {
  std::uint64_t n = 0;
  for (const Shape& s : shapes_of(m)) n += count_of(s);
  return n;
}

bool g_flipped = false;

class Failing {
 public:
  static std::uint32_t probe(const th_host&) { return 1; }
  static void profile(const th_host&, const th_model&, const th_run&, th_profile& p) {
    p.alignment = 64;
    std::strcpy(p.trainer, "failing");
  }
  static void plan(const th_host&, const th_model& m, const th_run&, th::Tree& t) {
    const std::uint64_t bytes = parameters_of(m) * 4;
    t.exact({"weights", TH_TIER_HOST, TH_MEM_WEIGHTS, 0, "P*4"}, bytes);
    t.exact({"moments", TH_TIER_HOST, TH_MEM_OPTIMIZER_STATE, 0, "P*8"}, 2 * bytes);
    t.peak(TH_TIER_HOST, 3 * bytes, TH_PH_UPDATE);
    t.claim(TH_EXACT);
  }

  Failing(const th_host& h, std::int32_t, const th_model& m, const th_run&)
      : host_(h), shapes_(shapes_of(m)), n_(parameters_of(m)) {
    if (const char* at = h.option(&h, "flip_at")) flip_at_ = std::strtoull(at, nullptr, 10);
    if (const char* at = h.option(&h, "lowest_at")) lowest_at_ = std::strtod(at, nullptr);
    stop_in_init_ = h.option(&h, "stop_in_init") != nullptr;
    state_ = static_cast<float*>(h.alloc(&h, 12 * n_, 64, TH_TIER_HOST, "state"));
    if (!state_) throw th::Error(TH_E_HOST_OOM, "no memory");
  }
  ~Failing() { host_.release(&host_, state_); }

  void load(std::uint32_t scope, const th_tensor& t) {
    float* at = scope_of(scope);
    for (const Shape& s : shapes_) {
      if (s.name == t.name) {
        std::memcpy(at + t.first, t.data, t.count * sizeof(float));
        return;
      }
      at += count_of(s);
    }
    throw th::Error(TH_E_ARG, "unknown tensor");
  }
  void init(std::uint64_t) {  // zeros
    if (stop_in_init_) std::raise(SIGTERM);
  }
  void step(const th_step& s, th_step_out& o) {
    const std::uint64_t n = std::uint64_t{s.batch} * s.seq;
    float sum = 0;
    bool spike = false, nonfinite = std::isinf(state_[n_ - 1]), overflow = false;
    for (std::uint64_t i = 0; i < n; ++i) {
      sum += static_cast<float>(s.tokens[i]);
      spike = spike || s.tokens[i] == 'S';
      overflow = overflow || s.tokens[i] == 'I';
      nonfinite = nonfinite || s.tokens[i] == 'N';
    }
    if (nonfinite && !(s.flags & TH_STEP_EVALUATE)) throw th::Error(TH_E_NONFINITE, "the loss is not finite");
    o.grad_norm = 1;
    o.tokens_counted = n;
    if ((s.flags & TH_STEP_EVALUATE) && !std::isnan(lowest_at_)) {
      o.loss = 2 + std::abs(lowest_at_ - static_cast<double>(state_[n_ - 1]));
      return;
    }
    o.loss = spike ? 100 : 2 + 0.01 * (static_cast<int>(sum) % 7);
    if (s.flags & TH_STEP_EVALUATE) return;
    float *w = state_, *moment = state_ + n_;
    for (std::uint64_t i = 0; i < n_; ++i) {
      moment[i] = 0.5f * moment[i] + sum / 1000;
      w[i] -= static_cast<float>(s.lr) * moment[i];
    }
    if (overflow) w[n_ - 1] = INFINITY;
    if (s.step_index + 1 == flip_at_ && !g_flipped) {
      g_flipped = true;
      std::uint32_t bits;
      std::memcpy(&bits, w + n_ - 1, sizeof bits);
      bits ^= 1;
      std::memcpy(w + n_ - 1, &bits, sizeof bits);
    }
  }
  void save(std::uint32_t scope, th_tensor_sink& sink) {
    float* at = scope_of(scope);
    for (const Shape& s : shapes_) {
      th_tensor t{};
      t.struct_size = sizeof t;
      t.dtype = TH_DT_F32;
      t.rank = s.columns ? 2 : 1;
      t.dim[0] = s.rows, t.dim[1] = s.columns;
      t.name = s.name.c_str();
      t.data = at;
      t.count = count_of(s);
      th::check(sink.tensor(&sink, &t), "the sink failed");
      at += t.count;
    }
  }
  const char* info(const char* key) noexcept {
    return std::strcmp(key, "kernel_set") == 0 ? "plain loops" : nullptr;
  }

 private:
  float* scope_of(std::uint32_t scope) const {
    return state_ + n_ * (scope == TH_SCOPE_WEIGHTS ? 0 : scope == TH_SCOPE_MOMENT1 ? 1 : 2);
  }
  const th_host& host_;
  std::vector<Shape> shapes_;
  std::uint64_t n_, flip_at_ = 0;
  double lowest_at_ = NAN;
  bool stop_in_init_ = false;
  float* state_ = nullptr;
};

}  // namespace
TH_PLUGIN("failing", "1", th::trainer<Failing>())
