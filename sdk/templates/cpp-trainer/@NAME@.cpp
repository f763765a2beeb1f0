// @NAME@: a trainer in C++17. It trains a bigram model, logits = head x embedding of the last token, in f32 on one thread; the
// layers between are loaded, kept and saved as they are. Your network goes into pass(). Tensors: tensors.hpp.
#include <chrono>
#include <cmath>
#include <trainhost/trainhost.hpp>

#include "tensors.hpp"

TH_MANIFEST("id = '@NAME@'\n"
            "version = '0.1.0'\n"
            "kind = 'trainer'\n"
            "summary = 'bigrams, on one thread'\n"
            "priority = -10\n");

namespace {

int moments_of(const th_run& r) {
  return r.optimizer == TH_OPT_ADAMW ? 2 : r.optimizer == TH_OPT_SGD_MOMENTUM ? 1 : r.optimizer == TH_OPT_SGD ? 0 : -1;
}

/// One sentence for what it cannot do, so that the host can go on to another trainer.
void refuse(const th_model& m, const th_run& r) {
  const auto no = [](const char* why) { throw th::Error(TH_E_UNSUPPORTED, why); };
  if (!m.vocab || !m.hidden || !m.layers || !m.heads || !m.kv_heads || !m.head_dim || !m.intermediate) no("a dimension of the model is 0");
  // Within these no size below leaves 63 bits, and the list of tensors stays short.
  if (m.vocab >> 31 || m.hidden >> 18 || m.layers > 10000 || m.heads >> 12 || m.kv_heads >> 12 || m.head_dim >> 12 || m.intermediate >> 22)
    no("the model is beyond what @NAME@ counts");
  if (!r.micro_batch || !r.seq_len || !r.accumulate) no("a run without tokens");
  if (r.mode != TH_MODE_FULL) no("@NAME@ trains all parameters or none");
  if (r.dt_weight != TH_DT_F32 || r.dt_compute != TH_DT_F32) no("@NAME@ computes in fp32");
  if (moments_of(r) < 0) no("@NAME@ knows adamw, sgd and sgd-momentum");
  if (r.recompute != TH_RC_NONE) no("@NAME@ keeps nothing that could be recomputed");
}

/// Floats that the host's ledger counts; given back at the end.
class Block {
 public:
  Block(const th_host& h, std::uint64_t n, const char* tag) : host_(h) {
    if (n == 0) return;
    at_ = static_cast<float*>(h.alloc(&h, n * sizeof(float), 64, TH_TIER_HOST, tag));
    if (!at_) throw th::Error(TH_E_HOST_OOM, std::string("no host memory for ") + tag, "", n * sizeof(float));
  }
  ~Block() { host_.release(&host_, at_); }
  Block(const Block&) = delete;
  float* get() const { return at_; }

 private:
  const th_host& host_;
  float* at_ = nullptr;
};

/// Memory is four blocks, each taken once: parameters, moments, gradients of the two tables that learn, a row of logits.
/// plan() says the same sizes.
class @TYPE@ {
 public:
  static std::uint32_t probe(const th_host&) { return 1; }
  static void profile(const th_host&, const th_model&, const th_run&, th_profile& p) {
    p.alignment = 64, p.threads = 1, p.tier = TH_TIER_HOST;
    std::snprintf(p.trainer, sizeof p.trainer, "@NAME@");
  }
  static void plan(const th_host&, const th_model& m, const th_run& r, th::Tree& tree) {
    refuse(m, r);
    const std::uint64_t P = elements(tensors(m)), learns = m.vocab * m.hidden * (m.flags & TH_MODEL_TIED_EMBEDDINGS ? 1 : 2);
    tree.exact({"weights", TH_TIER_HOST, TH_MEM_WEIGHTS, 0, "P*4"}, P * 4);
    tree.exact({"gradients", TH_TIER_HOST, TH_MEM_GRADIENTS, 0, "2*V*H*4"}, learns * 4);
    tree.exact({"moments", TH_TIER_HOST, TH_MEM_OPTIMIZER_STATE, 0, "moments*P*4"}, P * 4 * static_cast<std::uint64_t>(moments_of(r)));
    tree.exact({"logits", TH_TIER_HOST, TH_MEM_LOGITS, 0, "V*4"}, m.vocab * 4);
    tree.peak(TH_TIER_HOST, 4 * (P * (1 + static_cast<std::uint64_t>(moments_of(r))) + learns + m.vocab), TH_PH_UPDATE);
    tree.claim(TH_EXACT);
    tree.note("Embedding and head learn; the layers stay as they are.");
  }

  @TYPE@(const th_host& h, std::int32_t device, const th_model& m, const th_run& r)
      : host_(h), run_((refuse(m, r), r)), tensors_(tensors(m)), parameters_(elements(tensors_)), V_(m.vocab), H_(m.hidden),
        tied_(m.flags & TH_MODEL_TIED_EMBEDDINGS), moments_(moments_of(r)), w_(h, parameters_, "weights"),
        m_(h, parameters_ * static_cast<std::uint64_t>(moments_), "moments"), g_(h, learns(), "gradients"), logits_(h, V_, "logits") {
    if (device != 0) throw th::Error(TH_E_ARG, "there is one device, 0");
  }

  void load(std::uint32_t scope, const th_tensor& in) {
    float* to = block(scope);
    if (in.dtype != TH_DT_F32) throw th::Error(TH_E_ARG, "tensors come in f32");
    for (Tensor& t : tensors_) {
      if (t.name != in.name) continue;
      if (in.rank != t.rank || in.dim[0] != t.dim[0] || (t.rank == 2 && in.dim[1] != t.dim[1]))
        throw th::Error(TH_E_ARG, t.name + " has another shape than the model gives it");
      if (in.first > t.elements() || in.count > t.elements() - in.first)
        throw th::Error(TH_E_ARG, "a piece lies outside " + t.name);
      if (in.count != 0) std::memcpy(to + t.at + in.first, in.data, in.count * sizeof(float));
      t.loaded = t.loaded || scope == TH_SCOPE_WEIGHTS;
      return;
    }
    throw th::Error(TH_E_ARG, std::string("the model has no tensor ") + in.name);
  }

  /// Matrices uniform with standard deviation 0.02, norms one, biases zero: a pure function of seed and place.
  void init(std::uint64_t seed) {
    if (ready_) throw th::Error(TH_E_STATE, "init() is called once");
    for (const Tensor& t : tensors_)
      for (std::uint64_t i = 0; !t.loaded && i < t.elements(); ++i)
        w_.get()[t.at + i] = t.rank == 2 ? static_cast<float>(0.02 * std::sqrt(12.0) * (uniform(seed, t.at + i) - 0.5)) : t.is_bias() ? 0 : 1;
    ready_ = true;
  }

  void step(const th_step& s, th_step_out& out) {
    const auto begin = std::chrono::steady_clock::now();
    const bool learn = (s.flags & TH_STEP_EVALUATE) == 0;
    if (!ready_) throw th::Error(TH_E_STATE, "init() comes first");
    const std::uint64_t whole = std::uint64_t{run_.micro_batch} * run_.accumulate;
    if (s.seq != run_.seq_len || s.batch == 0 || (learn ? s.batch != whole : s.batch > run_.micro_batch) || !s.tokens || !s.targets)
      throw th::Error(TH_E_ARG, "a batch that is not the run's");
    if (learn) std::memset(g_.get(), 0, learns() * sizeof(float));
    pass(s, learn, out);
    double squares = 0;
    for (std::uint64_t i = 0; learn && i < learns(); ++i) squares += static_cast<double>(g_.get()[i]) * g_.get()[i];
    out.grad_norm = std::sqrt(squares);
    if (!std::isfinite(out.loss) || !std::isfinite(out.grad_norm))
      throw th::Error(TH_E_NONFINITE, "the loss or its gradient is not finite");
    if (learn) {
      const double clip = run_.clip_norm > 0 ? std::fmin(1, run_.clip_norm / (out.grad_norm + 1e-6)) : 1;
      update(0, g_.get(), clip, s);
      if (!tied_) update(parameters_ - V_ * H_, g_.get() + V_ * H_, clip, s);
    }
    out.wall_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
  }

  void save(std::uint32_t scope, th_tensor_sink& sink) {
    if (!ready_) throw th::Error(TH_E_STATE, "init() comes first");
    float* from = block(scope);
    for (const Tensor& t : tensors_) {
      th_tensor out{};
      out.struct_size = sizeof out;
      out.dtype = TH_DT_F32, out.rank = t.rank, out.dim[0] = t.dim[0], out.dim[1] = t.dim[1];
      out.name = t.name.c_str(), out.data = from + t.at, out.count = t.elements();
      th::check(sink.tensor(&sink, &out), "the host wants no more");
    }
  }

 private:
  std::uint64_t learns() const { return V_ * H_ * (tied_ ? 1 : 2); }

  float* block(std::uint32_t scope) {
    if (scope == TH_SCOPE_WEIGHTS) return w_.get();
    if (scope == TH_SCOPE_MOMENT1 && moments_ >= 1) return m_.get();
    if (scope == TH_SCOPE_MOMENT2 && moments_ >= 2) return m_.get() + parameters_;
    throw th::Error(TH_E_ARG, "this run has no such tensors");
  }

  /// Uniform numbers of a counter (splitmix64).
  static double uniform(std::uint64_t seed, std::uint64_t n) {
    std::uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
  }

  /// Loss of all targets, and their gradient where `learn`. logits[v] = head[v] . x, x = embedding[token]; the gradient of a
  /// logit is (p - 1[v is the target]) / counted.
  void pass(const th_step& s, bool learn, th_step_out& out) {
    const std::uint64_t n = std::uint64_t{s.batch} * s.seq;
    const auto outside = [&](std::int32_t id) { return id < 0 || static_cast<std::uint64_t>(id) >= V_; };
    for (std::uint64_t i = 0; i < n; ++i) {
      if (outside(s.tokens[i]) || (s.targets[i] != -100 && outside(s.targets[i])))
        throw th::Error(TH_E_ARG, "a token or a target is outside the vocabulary");
      out.tokens_counted += s.targets[i] != -100;
    }
    const float *E = w_.get(), *W = tied_ ? E : w_.get() + parameters_ - V_ * H_;
    float *gE = g_.get(), *gW = tied_ ? gE : gE + V_ * H_, *logits = logits_.get();
    for (std::uint64_t i = 0; i < n; ++i) {
      if (i % 64 == 0 && host_.cancelled(&host_)) throw th::Error(TH_E_CANCELLED, "cancelled");
      if (s.targets[i] == -100) continue;
      const std::uint64_t target = static_cast<std::uint64_t>(s.targets[i]), row = static_cast<std::uint64_t>(s.tokens[i]) * H_;
      float top = -INFINITY;
      for (std::uint64_t v = 0; v < V_; ++v) {
        logits[v] = 0;
        for (std::uint64_t h = 0; h < H_; ++h) logits[v] += W[v * H_ + h] * E[row + h];
        top = std::fmax(top, logits[v]);
      }
      double sum = 0;
      for (std::uint64_t v = 0; v < V_; ++v) sum += std::exp(logits[v] - top);
      out.loss += std::log(sum) + top - logits[target];
      for (std::uint64_t v = 0; learn && v < V_; ++v) {
        const auto d = static_cast<float>((std::exp(logits[v] - top) / sum - (v == target)) / static_cast<double>(out.tokens_counted));
        for (std::uint64_t h = 0; h < H_; ++h) {
          gW[v * H_ + h] += d * E[row + h];
          gE[row + h] += d * W[v * H_ + h];
        }
      }
    }
    if (out.tokens_counted != 0) out.loss /= static_cast<double>(out.tokens_counted);
  }

  /// One table that begins at `at`. Weight decay is apart from the moments.
  void update(std::uint64_t at, const float* g, double clip, const th_step& s) {
    const double t = static_cast<double>(s.step_index) + 1, c1 = 1 - std::pow(run_.beta1, t), c2 = 1 - std::pow(run_.beta2, t);
    float *w = w_.get() + at, *m1 = moments_ >= 1 ? m_.get() + at : nullptr, *m2 = moments_ >= 2 ? m_.get() + parameters_ + at : nullptr;
    for (std::uint64_t i = 0; i < V_ * H_; ++i) {
      double d = g[i] * clip;
      if (m1 && !m2) d = m1[i] = static_cast<float>(run_.beta1 * m1[i] + d);
      if (m2) {
        m1[i] = static_cast<float>(run_.beta1 * m1[i] + (1 - run_.beta1) * d);
        m2[i] = static_cast<float>(run_.beta2 * m2[i] + (1 - run_.beta2) * d * d);
        d = m1[i] / c1 / (std::sqrt(m2[i] / c2) + run_.eps);
      }
      w[i] -= static_cast<float>(s.lr * (d + run_.weight_decay * w[i]));
    }
  }

  const th_host& host_;
  th_run run_;
  std::vector<Tensor> tensors_;
  std::uint64_t parameters_, V_, H_;
  bool tied_, ready_ = false;
  int moments_;
  Block w_, m_, g_, logits_;
};

}  // namespace

TH_PLUGIN("@NAME@", "0.1.0", th::trainer<@TYPE@>())
