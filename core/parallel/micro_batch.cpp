// Time of one micro-batch in one layer and in the head on one rank: the part of the time model that depends
// only on MicroBatchSettings. Terms: README.md. Symbols: T tokens of the micro-batch on a rank, H hidden, t
// TP ranks, et those of an expert, c CP ranks, e EP ranks, w bytes per weight or activation.
#include <algorithm>
#include <cmath>

#include "core/parallel/step_time.hpp"

namespace trainhost::parallel {
namespace {

constexpr double kFlashBackward =
    2.5;  // times the forward products: scores are recomputed (5 products instead of 2)
// Accesses to materialised scores: written, read and written by softmax and by dropout with its mask, read.
constexpr double kScoreTouches = 6.5;
// Bytes per element that a conversion to fp8 accesses: read in 16 bits, written as it is and transposed,
// which the products of the backward pass need.
constexpr double kConversion = 4;

/// Roofline: seconds of arithmetic, and seconds of memory traffic beyond the arithmetic.
struct Roofline {
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

double visible_keys(const model::Attention& a, double seq) {
  return a.chunked ? mean_keys(std::min(seq, double(a.window)), 0) : mean_keys(seq, a.window);
}

double recurrence_flops(const model::LinearAttention& a) {
  const double keys = a.key_dim, values = a.value_dim;
  return 2 * double(a.value_heads) * (2 * keys * values + double(a.chunk) * (keys + values));
}

/// Adds `share` of layer `l` to the mean layer of `b`; the shares of all kinds of layers sum to 1.
void TimeModel::add_layer(MicroBatch& b, const model::Layer& l, double share, const RunSpec& r) const {
  const double H = a_.hidden, S = r.seq_len, t = r.parallel.tensor, c = r.parallel.context,
               e = r.parallel.expert, et = expert_tensor_ranks(r.parallel);
  const double T = double(r.micro_batch) * S / c, spread = r.parallel.sequence ? t : 1;
  const double q = double(l.attention.q_width()), k = double(l.attention.k_width()),
               v = double(l.attention.v_width()), o = double(l.attention.out_width());
  const double rate = m_.flops * m_.matrix_efficiency, bytes = m_.memory_bytes_s, w = width_;
  const double used = l.experts.count ? l.experts.active : 0,
               pool = l.experts.count * H * double(l.experts.each.token_width());

  // Products with weights. Memory traffic: weights once, activations in and out. In fp8 operands have one
  // byte, results two.
  const double active = double(model::active_layer_elements(l, a_.hidden));
  const double held = (double(model::layer_elements(l, a_.hidden)) - pool) / t + pool / (et * e);
  const double wide = double(l.mlp.token_width()) + used * double(l.experts.each.token_width()) +
                      double(l.experts.shared.token_width());
  const double convolved = double(l.linear.convolution_width()), state_in = double(l.linear.in_width()),
               state_out = double(l.linear.value_width());
  const double in_out = T * (4 * H + (q + k + v + o + state_in + state_out + wide) / t);
  const double products = 2 * T * active / t / rate;
  const double products_bytes = (m_.converts ? held + in_out * (1 + w) / 2 : held * w + in_out * w) / bytes;
  // Conversions: inputs and weights in the forward pass, gradients of outputs in the backward pass.
  const double converted = m_.converts ? kConversion * in_out / 2 / bytes : 0;
  const double converted_weights = m_.converts ? kConversion * held / bytes : 0;

  // Attention: two products over the visible keys, over all keys if scores are materialised; heads are split
  // over t ranks.
  const bool flash = r.memory.attention == AttentionMemory::kFlash;
  const double keys = flash ? visible_keys(l.attention, S) : S;
  const double scores =
      2 * T * keys * (q + o) / t / (m_.wide_flops * (flash ? m_.attention_efficiency : m_.wide_efficiency)) +
      T * recurrence_flops(l.linear) / t / (m_.wide_flops * m_.attention_efficiency);
  const double square = flash ? 0 : kScoreTouches * w * T * S * l.attention.heads / t;
  const double scores_bytes = (T * w * (q + k + v + o) / t + square) / bytes;

  // Between the products: norms and residuals (split by sequence parallelism), rotary embedding, activation.
  // Linear attention: its convolution and its gated norm.
  const double between =
      T * w *
      ((2 * l.norms + 6) * H / spread + 2 * (q + k) / t + (2 * convolved + 3 * state_out) / t + wide / t) /
      bytes;

  Roofline forward, backward;
  forward.add(products, products_bytes);
  forward.add(scores, scores_bytes);
  forward.memory += between + converted + converted_weights;
  const double frozen = r.lora_rank > 0 ? 1 : 2;  // frozen weights: only the gradient of the input
  backward.add(products, products_bytes, frozen);
  backward.add(scores, scores_bytes, flash ? kFlashBackward : 2);
  backward.memory += 2 * between + converted;

  Roofline recomputed;
  if (r.recompute == Recompute::kFull) recomputed = forward;
  if (r.recompute == Recompute::kSelective) {
    recomputed.memory += between;
    if (!flash) recomputed.add(scores, scores_bytes);
  }

  // Tensor parallelism: all-reduces after attention and after the MLP, forward and backward. All-gather and
  // reduce-scatter (sequence parallelism) move the same bytes.
  const double ring = (t - 1) / t, reduces = l.norms == 1 ? 1 : 2;
  const double shown = 1 - m_.tensor_overlap;
  const double reduce = t > 1 ? shown * reduces * exchange(T * H * w * ring, r) : 0;
  const double recomputed_reduce = r.recompute == Recompute::kFull ? reduce : 0;

  // Context parallelism: keys and values are sent around the ring during the attention of the previous block;
  // in the backward pass with their gradients.
  double round = 0;
  if (c > 1) {
    const double hop = (c - 1) * T * w * (k + v) / t / ring_bandwidth(m_, t, c) + ring_latency(m_, t, c);
    const double one = scores + std::max(0.0, scores_bytes - scores);
    round = std::max(0.0, hop - one) + std::max(0.0, 2 * hop - one * (flash ? kFlashBackward : 2));
    if (r.recompute == Recompute::kFull) round += std::max(0.0, hop - one);
  }

  // Experts: all-to-all to the ranks of the experts and back, forward and backward.
  const double route_bytes_s =
      t * c * e <= m_.node ? m_.link_bytes_s : std::min(m_.link_bytes_s, m_.network_bytes_s);
  double routes = 0;
  if (used > 0 && e > 1)
    routes = (r.recompute == Recompute::kFull ? 6 : 4) *
             (used * T / spread * H * w * (e - 1) / e / route_bytes_s + m_.start_s +
              (t * c * e <= m_.node ? m_.link_latency_s : m_.network_latency_s));

  Pass& p = b.layer;
  p.compute += share * (forward.compute + backward.compute);
  p.memory += share * (forward.memory + backward.memory);
  p.recompute += share * recomputed.sum();
  p.tensor += share * (2 * reduce + recomputed_reduce);
  p.context += share * round;
  p.expert += share * routes;
  p.backward += share * (backward.sum() + recomputed.sum() + reduce + recomputed_reduce);

  // Bytes kept for the backward pass, for offloading.
  const double norms = r.recompute == Recompute::kSelective ? 2 : 2 + l.norms;
  b.saved_bytes +=
      share * w * T *
      (r.recompute == Recompute::kFull
           ? H / spread / r.memory.recompute_every
           : norms * H / spread + (q + k + v + o + wide + 2 * convolved + 3 * state_out) / t +
                 (flash || r.recompute == Recompute::kSelective ? 0 : 2 * S * l.attention.heads / t));
}

/// Seconds of one all-reduce of the tensor-parallel ranks whose ring pass transfers `bytes`; with sequence
/// parallelism of an all-gather and a reduce-scatter.
double TimeModel::exchange(double bytes, const RunSpec& r) const {
  const double t = r.parallel.tensor;
  return 2 * bytes / ring_bandwidth(m_, 1, t) +
         (r.parallel.sequence ? 2 * ring_latency(m_, 1, t) : all_reduce_latency(m_, 1, t));
}

/// Product and loss of the head; with tensor parallelism one all-reduce forward (embedding) and one backward
/// (head).
Pass TimeModel::head_pass(const RunSpec& r) const {
  const double H = a_.hidden, t = r.parallel.tensor,
               T = double(r.micro_batch) * r.seq_len / r.parallel.context;
  const double V = double(a_.vocab), w = width_;
  const double logits_touched = (r.memory.cross_entropy == CrossEntropy::kFused ? 2 : 5) * T * V / t * 4;
  Roofline forward;
  forward.add(2 * T * head_ / t / (m_.wide_flops * m_.wide_efficiency),
              (head_ * w / t + T * H * w) / m_.memory_bytes_s);
  Pass p;
  p.compute = 3 * forward.compute;
  p.memory = 3 * forward.memory + logits_touched / m_.memory_bytes_s;
  if (t > 1) p.tensor = 2 * exchange((t - 1) / t * T * H * w, r);
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
