// From one micro-batch to one step: number of micro-batches, bubble, gradient reduction, optimizer, offload.
// Every term: README.md, "Time". Pure arithmetic on doubles, a few hundred nanoseconds per layout. Units:
// seconds, bytes, bytes per second, elements; counts are doubles too, exact below 2^53.
#include "core/parallel/step_time.hpp"

#include <algorithm>
#include <cmath>

#include "core/parallel/layer_kinds.hpp"
#include "core/parallel/pipeline_schedule.hpp"
#include "core/parallel/rank_memory.hpp"

namespace trainhost::parallel {
namespace {

constexpr double kTail = 0.1;  // share of an overlapped transfer that stays exposed: its first or last bucket

double bytes_of(DType t) { return bits_of(t) / 8.0; }

/// Bytes of moments per element; factored state (Adafactor) is negligible.
double moment_bytes(const RunSpec& r) {
  switch (r.optimizer) {
    case Optimizer::kAdamW:
      return 2 * bytes_of(r.moment);
    case Optimizer::kAdamW8bit:
      return 2;
    case Optimizer::kSgd:
    case Optimizer::kAdafactor:
      return 0;
    default:
      return bytes_of(r.moment);
  }
}

// `transfer` runs during `window`. What does not fit is exposed; at least the tail always is.
double exposed(double transfer, double window) { return std::max(transfer - window, kTail * transfer); }

// Layers of one stage over all its chunks. Stages differ by at most one layer per chunk.
double layers_of(double layers, const RunSpec& r, std::uint32_t stage) {
  Pipeline p;
  p.stages = r.parallel.pipeline, p.chunks = r.parallel.virtual_stages,
  p.layers = static_cast<std::uint64_t>(layers), p.first_stage = r.parallel.first_stage_layers,
  p.last_stage = r.parallel.last_stage_layers;
  std::uint64_t n = 0;
  for (std::uint64_t c = 0; c < p.chunks; ++c) n += p.end(stage, c) - p.begin(stage, c);
  return static_cast<double>(n);
}

// The order of the fields is that of Pass.
Pass weighted_sum(const Pass& a, double n, const Pass& b, double m) {
  return {n * a.compute + m * b.compute,  n * a.memory + m * b.memory,   n * a.recompute + m * b.recompute,
          n * a.tensor + m * b.tensor,    n * a.context + m * b.context, n * a.expert + m * b.expert,
          n * a.backward + m * b.backward};
}

/// The slowest stage. The last one has the head; later chunks are larger, so without given layers it has at
/// most one layer less than any other stage and is the slowest. With given layers another one may be.
struct Slowest {
  Pass pass;  // of one micro-batch
  double layers = 0;
};
Slowest slowest_stage(const TimeModel::MicroBatch& b, double layers, const RunSpec& r) {
  const double last = layers_of(layers, r, r.parallel.pipeline - 1);
  const Slowest with_head{weighted_sum(b.layer, last, b.head, 1), last};
  if (r.parallel.first_stage_layers == 0 && r.parallel.last_stage_layers == 0) return with_head;
  const double most = std::max(layers_of(layers, r, 0), layers_of(layers, r, r.parallel.pipeline / 2));
  const Slowest without{weighted_sum(b.layer, most, b.head, 0), most};
  return without.pass.sum() > with_head.pass.sum() ? without : with_head;
}

}  // namespace

// Layers are replaced by their mean: a stage of few layers with several kinds is estimated by the model's
// mix.
TimeModel::TimeModel(const model::Architecture& a, const RunSpec& r, const Machine& m) : a_(a), m_(m) {
  // Activations have the compute type. Between products in fp8 they have 16 bits.
  width_ = r.compute == DType::kF8 ? 2 : bytes_of(r.compute);
  stored_width_ = bytes_of(r.weight);
  gather_width_ = std::min(width_, stored_width_);
  grad_width_ = bytes_of(r.grad);
  state_bytes_ = moment_bytes(r) + bytes_of(r.master);
  layers_ = a.layer_count();
  a_.layers = LayerKinds(a).merged();
  const double H = a.hidden, seq = r.seq_len;
  double active = 0, scores = 0;
  for (const model::LayerRun& run : a_.layers) {
    const model::Layer& l = run.layer;
    // Routed experts are split over expert ranks too, so they are counted apart from the dense part.
    const double pool = l.experts.count * H * double(l.experts.each.token_width());
    experts_ += run.count * pool / layers_;
    dense_ += run.count * (double(model::layer_elements(l, a.hidden)) - pool) / layers_;
    active += run.count * double(model::active_layer_elements(l, a.hidden));
    scores += run.count *
              (visible_keys(l.attention, seq) * double(l.attention.q_width() + l.attention.out_width()) +
               recurrence_flops(l.linear) / 2);
  }
  const model::Counts n = model::count(a);
  embedding_ = double(n.embedding);
  head_ = double(a.vocab) * double(a.embedding_width ? a.embedding_width : a.hidden);
  // With LoRA only the adapters are trained.
  trained_ = double(trained_parameters(a, r)) / std::max(1.0, double(n.total));
  // Per token and parameter: 2 FLOPs forward, 2 for the gradient of the input, 2 for that of the weight; a
  // frozen weight has no third. Scores: likewise forward and twice backward.
  flops_per_token_ = (r.lora_rank > 0 ? 4 : 6) * (active + head_) + 6 * scores;
}

double ring_bandwidth(const Machine& m, double inner, double size) {
  if (inner * size <= m.node) return m.link_bytes_s;
  return std::min(m.link_bytes_s, std::max(1.0, m.node / inner) * m.network_bytes_s);
}

namespace {

/// A group of `size` ranks, `inner` ranks apart.
struct Group {
  double nodes = 1, local = 1;  // nodes that it spans, ranks of it per node
  Group(double node, double inner, double size) : local(std::clamp(std::floor(node / inner), 1.0, size)) {
    nodes = std::ceil(size / local);
  }
};

}  // namespace

double ring_latency(const Machine& m, double inner, double size) {
  if (size <= 1) return 0;
  const Group g(m.node, inner, size);
  return m.start_s + (size - g.nodes) * m.link_latency_s + (g.nodes - 1) * m.network_latency_s;
}

double all_reduce_latency(const Machine& m, double inner, double size) {
  if (size <= 1) return 0;
  const Group g(m.node, inner, size);
  const double tree = (g.local - 1) * m.link_latency_s + std::ceil(std::log2(g.nodes)) * m.network_latency_s;
  return m.start_s + 2 * std::min(ring_latency(m, inner, size) - m.start_s, tree);
}

// Every term of a rank's stage is multiplied by the number of micro-batches n.
TimeModel::Stage TimeModel::stage(const MicroBatch& b, const RunSpec& r) const {
  const double t = r.parallel.tensor, p = r.parallel.pipeline, c = r.parallel.context, d = r.parallel.data;
  const double n = r.accumulate, v = r.parallel.virtual_stages;
  // Ranks with different parts of the experts of a layer.
  const double e = double(r.parallel.expert) * expert_tensor_ranks(r.parallel);
  const Slowest slow = slowest_stage(b, layers_, r);
  Stage s;
  s.one = slow.pass.sum();
  s.back = slow.pass.backward;
  s.saved_bytes = slow.layers * b.saved_bytes;

  Times& x = s.times;
  x.compute = n * slow.pass.compute;
  x.memory = n * slow.pass.memory;
  x.recompute = n * slow.pass.recompute;
  x.tensor = n * slow.pass.tensor;
  x.context = n * slow.pass.context;
  x.expert = n * slow.pass.expert;
  // One micro-batch passes p - 1 other stages before the first work of the last one, in pieces of 1/v.
  x.bubble = (p - 1) / v * s.one;
  if (p >
      1) {  // per chunk boundary one hidden state forward and one gradient back; neighbours are t*c*d apart
    // Inside a node if all ranks are in one; else the boundary between two nodes limits.
    const bool near = t * c * d * p <= m_.node;
    const double hop = near ? m_.link_bytes_s : std::min(m_.link_bytes_s, m_.network_bytes_s);
    const double latency = m_.start_s + (near ? m_.link_latency_s : m_.network_latency_s);
    const double tokens = double(r.micro_batch) * r.seq_len / c / (r.parallel.sequence ? t : 1);
    x.pipeline = n * 2 * v * (tokens * a_.hidden * width_ / hop + latency);
  }
  x.step = x.compute + x.memory + x.recompute + x.tensor + x.context + x.expert + x.pipeline + x.bubble;

  // The first stage has the embedding, the last the head; the larger of the two counts. One stage has both,
  // and a tied table once.
  const double ends = (p > 1 ? std::max(embedding_, head_) : a_.tied ? embedding_ : embedding_ + head_) / t;
  s.dense = slow.layers * dense_ / t + ends;
  s.routed = slow.layers * experts_ / e;
  s.group = d * c;
  // Routed experts are replicated over fewer ranks; their gradients are reduced among those.
  s.expert_group = std::max(1.0, t * s.group / e);
  // A ring pass transfers (g - 1)/g of the bytes; multiplied by the width of the element where it is used.
  s.wire = ((s.group - 1) / s.group * s.dense + (s.expert_group - 1) / s.expert_group * s.routed) /
           ring_bandwidth(m_, t, s.group);
  // One message per layer, one for embedding and head; routed experts of a layer are another one.
  const double routed = s.routed > 0 ? slow.layers : 0;
  s.ring = (slow.layers + 1) * ring_latency(m_, t, s.group) + routed * ring_latency(m_, e, s.expert_group);
  s.reduce = (slow.layers + 1) * all_reduce_latency(m_, t, s.group) +
             routed * all_reduce_latency(m_, e, s.expert_group);
  return s;
}

// An all-reduce is two ring passes; a reduce-scatter or an all-gather is one. Gradients and updates exist for
// trained parameters only; ZeRO 3 gathers all weights, forward and backward.
double TimeModel::data_seconds(const Stage& s, const RunSpec& r) const {
  const double n = r.accumulate, forward = s.one - s.back;
  const double gradients = trained_ * s.wire * grad_width_, weights = s.wire * gather_width_;
  const double scatter = gradients + s.ring, updated = trained_ * weights + s.ring;
  switch (r.parallel.zero) {
    case 0:
      return exposed(2 * gradients + s.reduce, s.back);
    case 1:
      return exposed(scatter, s.back) + exposed(updated, forward);
    case 2:
      return exposed(n * scatter, n * s.back) + exposed(updated, forward);
    default:
      return exposed(n * (2 * (weights + s.ring) + scatter), n * s.one);
  }
}

double TimeModel::offload_seconds(const Stage& s, const RunSpec& r, double held, double updated) const {
  const MemoryPolicy& memory = r.memory;
  const auto to = [&](Tier tier) { return tier == Tier::kDisk ? m_.disk_bytes_s : m_.host_bytes_s; };
  double streamed = 0, seconds = 0;
  // Weights are read in the forward and in the backward pass; kept activations are written once and read
  // once.
  if (memory.weights_in != Tier::kDevice) streamed += 2 * stored_width_ * held / to(memory.weights_in);
  if (memory.activations_in != Tier::kDevice) streamed += 2 * s.saved_bytes / to(memory.activations_in);
  if (streamed > 0) seconds += r.accumulate * exposed(streamed, s.one);
  // State is read and written once per step, after the last gradient: nothing left to overlap with.
  if (memory.optimizer_in != Tier::kDevice) seconds += 2 * updated * state_bytes_ / to(memory.optimizer_in);
  return seconds;
}

TimeModel::Added TimeModel::added(const Stage& s, const RunSpec& r) const {
  const double whole = s.dense + s.routed, shared = s.dense / s.group + s.routed / s.expert_group;
  const double updated = trained_ * (r.parallel.zero > 0 ? shared : whole);
  Added x;
  x.data = data_seconds(s, r);
  // The optimizer reads the gradient, writes the weight, reads and writes the state.
  x.optimizer = updated * (grad_width_ + stored_width_ + 2 * state_bytes_) / m_.memory_bytes_s;
  x.offload = offload_seconds(s, r, r.parallel.zero == 3 ? shared : whole, updated);
  // This order keeps rounding monotonic: a layout with a larger term never gets a smaller sum.
  x.step = s.times.step + x.data + x.optimizer + x.offload;
  return x;
}

Times TimeModel::step(const Stage& s, const RunSpec& r) const {
  // The fields are taken from added(), not summed anew: seconds() and step() must agree to the last bit.
  const Added more = added(s, r);
  Times x = s.times;
  x.data = more.data, x.optimizer = more.optimizer, x.offload = more.offload, x.step = more.step;
  const double devices = double(r.parallel.tensor) * r.parallel.pipeline * s.group;
  const double tokens = double(r.accumulate) * r.micro_batch * r.parallel.data * r.seq_len;
  x.tokens_per_second = tokens / x.step;
  // Useful FLOPs only: recomputation is not counted as work.
  x.model_flops_utilization = tokens * flops_per_token_ / (x.step * m_.flops * devices);
  return x;
}

}  // namespace trainhost::parallel
