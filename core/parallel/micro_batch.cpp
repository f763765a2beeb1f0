// One micro-batch through one layer and through the head, on one rank: the part of the time model that
// depends on shapes and not on how many ranks repeat it. Symbols: T tokens of the micro-batch on a rank, H
// hidden, t tensor ranks, e expert ranks.
#include <algorithm>
#include <cmath>

#include "core/parallel/step_time.hpp"

namespace trainhost::parallel {
namespace {

constexpr double kFlashBackward = 2.5;  // of the forward products: scores are made again (5 products to 2)
constexpr double kScoreTouches = 4;     // materialised: product out, softmax in and out, product in

/// A roofline with two sides: what arithmetic takes, and what the bytes take beyond it.
struct Roof {
  double compute = 0, memory = 0;
  void add(double flop_seconds, double byte_seconds, double times = 1) {
    compute += times * flop_seconds;
    memory += times * std::max(0.0, byte_seconds - flop_seconds);
  }
  double sum() const { return compute + memory; }
};

}  // namespace

double mean_keys(double seq, double window) {
  if (window <= 0 || window >= seq) return (seq + 1) / 2;
  return window - window * (window - 1) / (2 * seq);
}

/// Adds `share` of layer `l` to the mean layer of `b`: shares of all kinds of layers sum to one mean layer.
void TimeModel::add_layer(MicroBatch& b, const model::Layer& l, double share, const RunSpec& r) const {
  const double H = a_.hidden, S = r.seq_len, t = r.parallel.tensor, c = r.parallel.context,
               e = r.parallel.expert;
  const double T = double(r.micro_batch) * S / c, spread = r.parallel.sequence ? t : 1;
  const double q = double(l.attention.q_width()), k = double(l.attention.k_width()),
               v = double(l.attention.v_width()), o = double(l.attention.out_width());
  const double peak = m_.flops * m_.matrix_efficiency, bytes = m_.memory_bytes_s, w = width_;
  const double used = l.experts.count ? l.experts.active : 0,
               pool = l.experts.count * H * double(l.experts.each.token_width());

  // Products with weights: what a token meets, against weights read once and activations in and out.
  const double active = double(model::active_layer_elements(l, a_.hidden));
  const double held = (double(model::layer_elements(l, a_.hidden)) - pool) / t + pool / (t * e);
  const double wide = double(l.mlp.token_width()) + used * double(l.experts.each.token_width()) +
                      double(l.experts.shared.token_width());
  const double in_out = T * w * (4 * H + (q + k + v + o + wide) / t);
  const double products = 2 * T * active / t / peak, products_bytes = (held * w + in_out) / bytes;

  // Attention: two products over the keys that a query sees, heads shared by t.
  const double keys = mean_keys(S, l.attention.window);
  const double scores = 2 * T * keys * (q + o) / t / peak;
  const bool flash = r.memory.attention == AttentionMemory::kFlash;
  const double square = flash ? 0 : kScoreTouches * w * T * S * l.attention.heads / t;
  const double scores_bytes = (T * w * (q + k + v + o) / t + square) / bytes;

  // Everything between the products: norms and residuals (shared by sequence parallelism), rotation and
  // activation.
  const double between = T * w * ((2 * l.norms + 6) * H / spread + 2 * (q + k) / t + wide / t) / bytes;

  Roof forward, backward;
  forward.add(products, products_bytes);
  forward.add(scores, scores_bytes);
  forward.memory += between;
  const double frozen = r.lora_rank > 0 ? 1 : 2;  // of frozen weights only the input's gradient is made
  backward.add(products, products_bytes, frozen);
  backward.add(scores, scores_bytes, flash ? kFlashBackward : 2);
  backward.memory += 2 * between;

  Roof again;
  if (r.recompute == Recompute::kFull) again = forward;
  if (r.recompute == Recompute::kSelective) {
    again.memory += between;
    if (!flash) again.add(scores, scores_bytes);
  }

  // Tensor parallel: an all-reduce behind attention and one behind the MLP, each way; a gather and a scatter
  // move as much.
  const double ring = (t - 1) / t, reduces = l.norms == 1 ? 1 : 2;
  const double reduce = t > 1 ? reduces * 2 * ring * T * H * w / bandwidth(1, t) : 0;
  const double again_reduce = r.recompute == Recompute::kFull ? reduce : 0;

  // Context parallel: keys and values go round the ring while the scores of the block before are made;
  // backward they and their gradients do.
  double round = 0;
  if (c > 1) {
    const double hop = (c - 1) * T * w * (k + v) / t / bandwidth(t, c);
    const double one = scores + std::max(0.0, scores_bytes - scores);
    round = std::max(0.0, hop - one) + std::max(0.0, 2 * hop - one * (flash ? kFlashBackward : 2));
    if (r.recompute == Recompute::kFull) round += std::max(0.0, hop - one);
  }

  // Experts: tokens go to the ranks of their experts and come back, each way.
  const double route_bytes_s =
      t * c * e <= m_.node ? m_.link_bytes_s : std::min(m_.link_bytes_s, m_.network_bytes_s);
  double routes = 0;
  if (used > 0 && e > 1)
    routes =
        (r.recompute == Recompute::kFull ? 6 : 4) * used * T / spread * H * w * (e - 1) / e / route_bytes_s;

  Pass& p = b.layer;
  p.compute += share * (forward.compute + backward.compute);
  p.memory += share * (forward.memory + backward.memory);
  p.recompute += share * again.sum();
  p.tensor += share * (2 * reduce + again_reduce);
  p.context += share * round;
  p.expert += share * routes;
  p.backward += share * (backward.sum() + again.sum() + reduce + again_reduce);

  // What waits for the backward pass, where it is sent to another tier.
  const double norms = r.recompute == Recompute::kSelective ? 2 : 2 + l.norms;
  b.saved_bytes +=
      share * w * T *
      (r.recompute == Recompute::kFull
           ? H / spread / r.memory.recompute_every
           : norms * H / spread + (q + k + v + o + wide) / t +
                 (flash || r.recompute == Recompute::kSelective ? 0 : 2 * S * l.attention.heads / t));
}

/// The head's product and its loss; under tensor parallelism one reduction forward (embedding) and one
/// backward (head).
Pass TimeModel::head_pass(const RunSpec& r) const {
  const double H = a_.hidden, t = r.parallel.tensor,
               T = double(r.micro_batch) * r.seq_len / r.parallel.context;
  const double V = double(a_.vocab), w = width_;
  const double logits_touched = (r.memory.cross_entropy == CrossEntropy::kFused ? 2 : 5) * T * V / t * 4;
  Roof forward;
  forward.add(2 * T * head_ / t / (m_.flops * m_.matrix_efficiency),
              (head_ * w / t + T * H * w) / m_.memory_bytes_s);
  Pass p;
  p.compute = 3 * forward.compute;
  p.memory = 3 * forward.memory + logits_touched / m_.memory_bytes_s;
  if (t > 1) p.tensor = 2 * 2 * (t - 1) / t * T * H * w / bandwidth(1, t);
  p.backward = 2 * forward.sum() + p.tensor / 2;
  return p;
}

TimeModel::MicroBatch TimeModel::micro_batch(const RunSpec& r) const {
  MicroBatch b;
  for (const model::LayerRun& run : a_.layers) add_layer(b, run.layer, run.count / layers_, r);
  b.head = head_pass(r);
  return b;
}

}  // namespace trainhost::parallel
