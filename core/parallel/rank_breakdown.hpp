// Memory breakdown of one rank of a pipeline stage in closed form; list_entries() is the entry point. This
// half has the entries that are in memory only at the peak (training: start of the backward pass, at the head
// or inside a layer, whichever is larger; inference: inside a layer of the prompt), buffers of communication
// and offload, and constants. Sinks: rank_totals.cpp (sums), rank_report.cpp (report), memory_model.hpp
// (search).
#pragma once
#include "core/model/adapters.hpp"
#include "core/parallel/state_entries.hpp"

namespace trainhost::parallel {

/// Bytes per logit while the loss is computed.
/// In place: one f32. In chunks (kFused): one f32, which the gradient overwrites, and one element of a
/// compute type narrower than f32. Plain: 12 in every compute type: f32 logits, log-softmax and gradient, or
/// two f32 and two 16-bit elements. Liger: one element of the compute type, which the gradient overwrites.
inline std::uint64_t logit_bytes(const RunSpec& r) {
  const std::uint32_t size = size_of(r.compute);
  switch (r.memory.cross_entropy) {
    case CrossEntropy::kInPlace:
      return 4;
    case CrossEntropy::kFused:
      return 4 + (size < 4 ? size : 0);
    case CrossEntropy::kLiger:
      return size;
    case CrossEntropy::kCut:
      return 0;
    case CrossEntropy::kPlain:
      break;
  }
  return 12;
}

/// Tokens whose logits are in memory together. Liger divides them into as many chunks as the vocabulary is
/// times wider than the hidden size, and rounds a chunk up to a power of two
/// (fused_linear_cross_entropy_forward(), liger-kernel 0.6).
inline Size tokens_of_logits(const RunSpec& r, Size tokens, std::uint64_t vocab, std::uint64_t hidden) {
  if (r.memory.cross_entropy == CrossEntropy::kFused) return std::min(tokens, Size(kHeadChunkTokens));
  if (r.memory.cross_entropy != CrossEntropy::kLiger) return tokens;
  const std::uint64_t chunk = up(tokens.value(), std::max<std::uint64_t>(up(vocab, hidden), 1));
  return std::min(tokens, Size(std::bit_ceil(std::min(chunk, std::uint64_t{1} << 62))));
}

template <class Sink>
void RankBreakdown<Sink>::training() {
  const auto& t = s.cut.tokens;
  const std::uint32_t size = s.cut.size;
  const Claim about = Claim::kApproximation;
  add(
      {Tier::kDevice, Component::kActivations, about, kPasses,
       (s.first() || s.last()) ? t.whole * 16 : Size()},
      [] { return std::string("tokens and targets"); }, [&] { return text(t.whole) + " tokens * 16 B"; });
  if (s.last())
    add(
        {Tier::kDevice, Component::kActivations, about, kPasses, t.part * s.a.hidden * 2 * size},
        [] { return std::string("head.norm, input and output"); },
        [&] { return text(t.part) + " tokens * 2 * " + text(s.a.hidden) + " * " + text(size) + " B"; });

  // The peak is the larger of: the loss at the head; the layer with the largest transient need.
  const Size rows = tokens_of_logits(r, t.whole, s.vocab, s.a.hidden);
  const bool chunked = rows < t.whole;
  const Size logits = s.last() ? rows * s.vocab * logit_bytes(r) : Size();
  const Size hidden = s.last() ? t.whole * s.a.hidden * size : Size();
  // The two peaks of the backward pass are at different times: at_head marks the entries of the larger, and
  // the others count 0 at the peak.
  const Size inside = recomputed_ + backward_ + dequantized_;
  const bool at_head = logits + hidden > inside;
  add(
      {Tier::kDevice, Component::kLogits, about, kPasses, logits, at_head},
      [] { return std::string("head.logits and their gradient"); },
      [&] {
        return text(rows) + (chunked ? " tokens per chunk * " : " tokens * ") + text(s.vocab) + " * " +
               text(logit_bytes(r)) + " B";
      });
  if (memory.cross_entropy == CrossEntropy::kCut && s.last())
    add(
        {Tier::kDevice, Component::kLogits, about, kPasses, t.whole * 8},
        [] { return std::string("head.log-sum-exp and target logit"); },
        [&] { return text(t.whole) + " tokens * 2 * 4 B"; });
  // Liger computes the gradient of the head's weight together with the loss.
  if (memory.cross_entropy == CrossEntropy::kLiger && s.last() && (!adapts(r) || memory.saves_head)) {
    const Size head = Size(s.vocab) * embedding_width(s.a);
    add(
        {Tier::kDevice, Component::kWorkspace, about, kBackward, head * size, at_head},
        [] { return std::string("head.weight gradient"); },
        [&] { return text(head) + " elements * " + text(size) + " B"; });
  }
  if (adapts_head(r) && s.last())
    add(
        {Tier::kDevice, Component::kActivations, about, kPasses, t.whole * r.lora_rank * size},
        [] { return std::string("head.adapter, output of A"); },
        [&] { return text(t.whole) + " tokens * " + text(r.lora_rank) + " * " + text(size) + " B"; });
  if (adapts_embedding(r) && s.first())
    add(
        {Tier::kDevice, Component::kActivations, about, kPasses, t.whole * r.lora_rank * size},
        [] { return std::string("embedding.adapter, output of A"); },
        [&] { return text(t.whole) + " tokens * " + text(r.lora_rank) + " * " + text(size) + " B"; });
  add(
      {Tier::kDevice, Component::kWorkspace, about, kBackward, hidden, at_head},
      [] { return std::string("head.hidden gradient"); },
      [&] { return text(t.whole) + " tokens * " + text(s.a.hidden) + " * " + text(size) + " B"; });
  add(
      {Tier::kDevice, Component::kActivations, about, kBackward, recomputed_, !at_head},
      [] { return std::string("recomputed layers"); },
      [&] {
        return text(r.recompute == Recompute::kFull ? s.every : 1) +
               " layer(s), one micro-batch: " + text(recomputed_) + " B";
      });
  add(
      {Tier::kDevice, Component::kWorkspace, about, kBackward, backward_, !at_head},
      [] { return std::string("gradients inside one layer"); },
      [&] {
        return "the larger of attention and MLP, " + text(t.whole) + " tokens: " + text(backward_) + " B";
      });

  add(
      {Tier::kDevice, Component::kWorkspace, about, kBackward, dequantized_, !at_head},
      [] { return std::string("dequantized weight"); },
      [&] { return "the largest quantized matrix in the compute type: " + text(dequantized_) + " B"; });

  // Weight gradients of one layer before they are added to the sum: in the compute type, while the sum has
  // another type or is sharded. Gradients of experts are added one expert at a time.
  // Sharded gradients are reduced layer by layer, so one unsharded layer is alive. Without sharding only
  // parameters whose sum has another type need a buffer.
  const Size trained = r.parallel.zero >= 2 ? largest_trained_ : largest_unsummed_;
  const Size own = s.last() ? head_.dense.elements : Size();
  const bool full = !adapts(r);
  // A tied table on one stage is counted with the embedding; its gradient as the head comes here all the
  // same.
  const Size of_head =
      own + (full && s.last() && s.first() && s.a.tied ? Size(s.vocab) * embedding_width(s.a) : Size());
  const DType grad = full ? r.grad : DType::kF32;
  if (r.parallel.zero >= 2)
    add(
        {Tier::kDevice, Component::kCommunication, about, kBackward,
         std::max(trained, of_head) * (size + size_of(grad))},
        [] { return std::string("gradients of one layer, unsharded"); },
        [&] {
          return text(std::max(trained, of_head)) + " elements * (" + text(size) + " + " +
                 text(size_of(grad)) + ") B";
        });
  else if (size_of(grad) != size)
    add(
        {Tier::kDevice, Component::kWorkspace, about, kBackward, (trained + of_head) * size},
        [] { return std::string("gradients before they are summed"); },
        [&] {
          return "(" + text(trained) + " of a layer + " + text(of_head) + " of the head) * " + text(size) +
                 " B";
        });
  communication();
}

/// Buffers of collectives and of sends between ranks.
template <class Sink>
void RankBreakdown<Sink>::communication() {
  const auto& t = s.cut.tokens;
  const std::uint32_t size = s.cut.size;
  const auto buffer = [&](Size bytes, const char* name, auto&& formula) {
    add(
        {Tier::kDevice, Component::kCommunication, Claim::kApproximation, kPasses, bytes},
        [&] { return std::string(name); }, formula);
  };
  if (r.parallel.zero >= 3 && s.data_ranks > 1) {
    const bool full = !adapts(r) && !infers(r);
    // The current layer and the next, which is gathered meanwhile; a table (embedding or head) is gathered
    // alone.
    const Size layer = full ? largest_ * size : largest_frozen_;
    const Size table = std::max(table_.elements, head_.elements) * size;
    buffer(std::max(layer * 2, table), "gathered weights",
           [&] { return "max(2 layers * " + text(layer) + ", table of " + text(table) + ") B"; });
  }
  if (s.tp > 1 && r.parallel.sequence)
    buffer(t.whole * s.a.hidden * size, "tokens gathered for the TP ranks",
           [&] { return text(t.whole) + " tokens * " + text(s.a.hidden) + " * " + text(size) + " B"; });
  if (s.pipeline.stages > 1)
    buffer(t.part * s.a.hidden * 2 * size, "pipeline send and receive", [&] {
      return "2 * " + text(t.part) + " tokens * " + text(s.a.hidden) + " * " + text(size) + " B";
    });
  if (r.parallel.context > 1) {
    const Size wide = widest_kv_;
    // Ring attention: while one block is computed with, the next arrives.
    buffer(t.whole * wide * 2 * size, "keys and values of the next CP rank",
           [&] { return "2 * " + text(t.whole) + " tokens * " + text(wide) + " * " + text(size) + " B"; });
  }
  if (s.ep > 1) {
    // Even routing is assumed: each token is sent once per active expert.
    const Size routed = s.cut.routed(most_active_);
    buffer(routed * s.a.hidden * size, "tokens sent to experts",
           [&] { return text(routed) + " rows * " + text(s.a.hidden) + " * " + text(size) + " B"; });
  }
}

template <class Sink>
void RankBreakdown<Sink>::inference() {
  const DType type = memory.kv_cache == DType::kNone ? r.weight : memory.kv_cache;
  const std::uint64_t page = std::max<std::uint64_t>(memory.kv_page, 1);
  const auto& t = s.cut.tokens;
  Size inside;
  s.segments([&](const Segment& g) {
    const model::Layer& layer = *g.layer;
    const Widths w = widths(layer.attention, s.tp);
    const std::uint64_t window = layer.attention.window;
    const std::uint64_t seen =
        up(window ? std::min<std::uint64_t>(window, r.seq_len) : r.seq_len, r.parallel.context);
    // Pages are whole: the last one of every sequence may be mostly empty.
    const Size tokens = Size(up(seen, page)) * page * r.micro_batch;
    // A quantized cache has two f32 scales per token and head, one for the key and one for the value; a
    // latent (MLA) has one per token.
    const std::uint64_t scales = !quantized(type)         ? 0
                                 : layer.attention.latent ? 1
                                                          : 2 * up(layer.attention.kv_heads, s.tp);
    const Size bytes = (plain_bytes(type, tokens * w.cache) + tokens * scales * 4) * g.count;
    add(
        {Tier::kDevice, Component::kKvCache, Claim::kExact, kGenerate, bytes},
        [] { return std::string("layers[].keys and values"); },
        [&] {
          return text(g.count) + " layers * " + text(r.micro_batch) + " sequences * " +
                 text(Size(up(seen, page)) * page) + " tokens * " + text(w.cache) + " * " +
                 text(bits_of(type)) + "/8 B" +
                 (scales ? " + " + text(scales) + " scales * 4 B per token" : "");
        });
    linear_state(g);
    const auto mlp = [](const model::Mlp& m, Size rows, std::uint64_t tp) {
      return rows * (Size(up(m.width, tp)) * m.matrices());
    };
    const LinearWidths x = widths(layer.linear, s.tp);
    const Size mixer = std::max(Size(w.q) * (layer.attention.gated ? 2 : 1) + w.k + w.v + w.out,
                                Size(x.convolution()) * 2 + Size(x.values) * 2);
    const model::Experts& e = layer.experts;
    const Size widest =
        std::max(t.whole * mixer, mlp(layer.mlp, t.whole, s.tp) + mlp(e.shared, t.whole, s.tp) +
                                      (e.count ? mlp(e.each, s.cut.routed(e.active), s.etp) : Size()));
    Size need = (t.whole * (Size(s.a.hidden) * 2) + widest) * s.cut.size;
    if (s.cut.materialised) need += t.whole * (Size(w.heads) * t.keys) * s.cut.size;
    inside = std::max(inside, need);
  });
  add(
      {Tier::kDevice, Component::kActivations, Claim::kApproximation, kGenerate, inside},
      [] { return std::string("one layer of the prompt"); },
      [&] { return text(t.whole) + " tokens through the widest layer: " + text(inside) + " B"; });
  if (s.last())
    add(
        {Tier::kDevice, Component::kLogits, Claim::kApproximation, kGenerate,
         Size(r.micro_batch) * s.vocab * 4},
        [] { return std::string("head.logits"); },
        [&] { return text(r.micro_batch) + " sequences * " + text(s.vocab) + " * 4 B, one token each"; });
  communication();
}

/// State of linear attention: f32 whatever the type of the KV cache, of the same size for every length of a
/// sequence; and the last inputs of the convolution.
template <class Sink>
void RankBreakdown<Sink>::linear_state(const Segment& g) {
  const model::LinearAttention& a = (*g.layer).linear;
  if (a.value_heads == 0) return;
  const LinearWidths w = widths(a, s.tp);
  const Size state = Size(w.values) * a.key_dim, inputs = Size(w.convolution()) * a.kernel;
  add(
      {Tier::kDevice, Component::kKvCache, Claim::kExact, kGenerate,
       (state * 4 + inputs * s.cut.size) * r.micro_batch * g.count},
      [&] {
        return std::string(a.key_dim ? "layers[].state of linear attention"
                                     : "layers[].inputs of the short convolution");
      },
      [&] {
        return text(g.count) + " layers * " + text(r.micro_batch) + " sequences * (" + text(state) +
               " * 4 B + " + text(w.convolution()) + " * " + text(a.kernel) + " tokens * " +
               text(s.cut.size) + " B)";
      });
}

/// Two layers of offloaded data are on the device, one in use and one being transferred. Data offloaded to
/// disk has two more layers in pinned memory.
template <class Sink>
void RankBreakdown<Sink>::offload_buffers() {
  const auto pass = [&](Tier home, Component c, Claim claim, Size layer, Size all, const char* what) {
    if (home == Tier::kDevice) return;
    const Size two = std::min(layer * 2, all);
    if (c != Component::kOptimizerState)  // the update runs where its state is
      add(
          {Tier::kDevice, c, claim, kAlways, two},
          [&] { return std::string(what) + ", buffer of two layers"; },
          [&] { return "min(2 * " + text(layer) + ", " + text(all) + ") B"; });
    if (home == Tier::kDisk)
      add(
          {Tier::kPinned, c, claim, kAlways, two},
          [&] { return std::string(what) + ", pinned buffer of two layers"; },
          [&] { return "min(2 * " + text(layer) + ", " + text(all) + ") B"; });
  };
  const bool full = !adapts(r) && !infers(r);
  const Size weights = full ? plain_bytes(r.weight, largest_) : largest_frozen_;
  const Size all = full ? plain_bytes(r.weight, layers_.elements + layers_.expert_elements)
                        : layers_.frozen + layers_.frozen_expert;
  pass(memory.weights_in, Component::kWeights, Claim::kExact, weights, all, "weights");
  if (!infers(r)) {
    pass(memory.activations_in, Component::kActivations, Claim::kApproximation, largest_kept_, activations_,
         "activations");
    const std::uint64_t n = r.parallel.zero >= 1 ? s.data_ranks : 1;
    const Size state = share(
        layers_.dense.state + layers_.expert.state +
            plain_bytes(full ? r.master : DType::kNone, layers_.dense.elements + layers_.expert.elements),
        n);
    pass(memory.optimizer_in, Component::kOptimizerState, Claim::kExact, share(largest_state_, n), state,
         "optimizer state");
    // Gradients leave the device layer by layer: while one layer's are sent, the next one's are computed.
    const std::uint64_t n2 = r.parallel.zero >= 2 ? s.data_ranks : 1;
    const DType grad = full ? r.grad : DType::kF32;
    pass(memory.gradients_in, Component::kGradients, Claim::kExact,
         share(plain_bytes(grad, largest_trained_), n2),
         share(plain_bytes(grad, layers_.dense.elements + layers_.expert.elements), n2), "gradients");
  }
}

template <class Sink>
void RankBreakdown<Sink>::constants() {
  // Gaps of the caching allocator grow with what is freed and allocated again, not with the state.
  add(
      {Tier::kDevice, Component::kFragmentation, Claim::kApproximation,
       infers(r) ? std::uint32_t{kGenerate} : kPasses, share(transient_ * memory.gap_permille, 1000)},
      [] { return std::string("allocator gaps"); },
      [&] { return text(transient_) + " B of transient memory * " + text(memory.gap_permille) + " / 1000"; });
  add(
      {Tier::kDevice, Component::kWorkspace, Claim::kApproximation, kAlways, kWorkspaceBytes},
      [] { return std::string("library workspace"); }, [] { return std::string("64 MiB"); });
  add(
      {Tier::kDevice, Component::kRuntime, Claim::kApproximation, kAlways, kRuntimeBytes},
      [] { return std::string("context and libraries"); }, [] { return std::string("512 MiB"); });
}

/// Sends every entry of one rank of `stage` to `sink`. kinds: the layer kinds of `a`.
template <class Sink>
void list_entries(const model::Architecture& a, const LayerKinds& kinds, const RunSpec& r,
                  std::uint32_t stage, Sink& sink) {
  const Stage s(a, kinds, r, stage);
  RankBreakdown<Sink> breakdown(s, sink);
  breakdown.prepare();
  breakdown.emit();
}

}  // namespace trainhost::parallel
