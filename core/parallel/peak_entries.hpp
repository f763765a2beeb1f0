// The second half of rank_breakdown.hpp: what stands only at the worst moment. Training peaks when the
// backward pass begins, at the head or inside a layer, whichever needs more; inference inside a layer of the
// prompt. Then what communication and offload keep in passing, and the stated constants. Included by
// rank_breakdown.hpp alone.
#pragma once
#include "core/parallel/rank_breakdown.hpp"

namespace trainhost::parallel {

/// Bytes a logit while the loss is computed. In place: one f32. In chunks: one f32, overwritten by its
/// gradient, beside a narrower compute type's own. Plain: logits, their log-softmax and its gradient in f32,
/// or two of f32 beside logits and gradient in a 16-bit compute type, 12 either way.
inline std::uint64_t logit_bytes(const RunSpec& r) {
  const std::uint32_t size = size_of(r.compute);
  switch (r.memory.cross_entropy) {
    case CrossEntropy::kInPlace:
      return 4;
    case CrossEntropy::kFused:
      return 4 + (size < 4 ? size : 0);
    case CrossEntropy::kPlain:
      break;
  }
  return 12;
}

template <class Sink>
void Account<Sink>::training() {
  const auto& t = s.cut.tokens;
  const std::uint32_t size = s.cut.size;
  const Claim about = Claim::kApproximation;
  leaf(
      {Tier::kDevice, Component::kActivations, about, kPasses,
       (s.first() || s.last()) ? t.whole * 16 : Size()},
      [] { return std::string("tokens and targets"); }, [&] { return text(t.whole) + " tokens * 16 B"; });
  if (s.last())
    leaf(
        {Tier::kDevice, Component::kActivations, about, kPasses, t.part * s.a.hidden * 2 * size},
        [] { return std::string("head.norm, input and output"); },
        [&] { return text(t.part) + " tokens * 2 * " + text(s.a.hidden) + " * " + text(size) + " B"; });

  // Which moment is worse: the loss at the head, or the layer that needs most beside what is kept.
  const bool chunked = memory.cross_entropy == CrossEntropy::kFused;
  const Size rows = chunked ? std::min(t.whole, Size(kHeadChunkTokens)) : t.whole;
  const Size logits = s.last() ? rows * s.vocab * logit_bytes(r) : Size();
  const Size hidden = s.last() ? t.whole * s.a.hidden * size : Size();
  const Size inside = remade_ + backward_;
  const bool at_head = logits + hidden > inside;
  leaf(
      {Tier::kDevice, Component::kLogits, about, kPasses, logits, at_head},
      [] { return std::string("head.logits and their gradient"); },
      [&] {
        return text(rows) + (chunked ? " tokens at a time * " : " tokens * ") + text(s.vocab) + " * " +
               text(logit_bytes(r)) + " B";
      });
  leaf(
      {Tier::kDevice, Component::kWorkspace, about, kBackward, hidden, at_head},
      [] { return std::string("head.hidden gradient"); },
      [&] { return text(t.whole) + " tokens * " + text(s.a.hidden) + " * " + text(size) + " B"; });
  leaf(
      {Tier::kDevice, Component::kActivations, about, kBackward, remade_, !at_head},
      [] { return std::string("layers made again"); },
      [&] {
        return "of " + text(r.recompute == Recompute::kFull ? s.every : 1) +
               " layer(s), one micro-batch: " + text(remade_) + " B";
      });
  leaf(
      {Tier::kDevice, Component::kWorkspace, about, kBackward, backward_, !at_head},
      [] { return std::string("gradients inside one layer"); },
      [&] {
        return "the wider of attention and MLP, " + text(t.whole) + " tokens: " + text(backward_) + " B";
      });

  // A layer's weight gradients before they join the sum: in the compute type, beside sums of another type or
  // of another cut. Experts join one by one.
  const Size trained = r.parallel.zero >= 2 ? largest_trained_ : largest_unsummed_;
  const Size own = s.last() ? head_.dense.elements : Size();
  const bool full = !adapts(r);
  // A tied table on one stage is counted with the embedding; its gradient as the head comes here all the
  // same.
  const Size of_head =
      own + (full && s.last() && s.first() && s.a.tied ? Size(s.vocab) * embedding_width(s.a) : Size());
  const DType grad = full ? r.grad : DType::kF32;
  if (r.parallel.zero >= 2)
    leaf(
        {Tier::kDevice, Component::kCommunication, about, kBackward,
         std::max(trained, of_head) * (size + size_of(grad))},
        [] { return std::string("gradients of one layer, whole"); },
        [&] {
          return text(std::max(trained, of_head)) + " elements * (" + text(size) + " + " +
                 text(size_of(grad)) + ") B";
        });
  else if (size_of(grad) != size)
    leaf(
        {Tier::kDevice, Component::kWorkspace, about, kBackward, (trained + of_head) * size},
        [] { return std::string("gradients before they are summed"); },
        [&] {
          return "(" + text(trained) + " of a layer + " + text(of_head) + " of the head) * " + text(size) +
                 " B";
        });
  communication();
}

/// What ranks send each other and keep a copy of while they do.
template <class Sink>
void Account<Sink>::communication() {
  const auto& t = s.cut.tokens;
  const std::uint32_t size = s.cut.size;
  const auto buffer = [&](Size bytes, const char* name, auto&& formula) {
    leaf(
        {Tier::kDevice, Component::kCommunication, Claim::kApproximation, kPasses, bytes},
        [&] { return std::string(name); }, formula);
  };
  if (r.parallel.zero >= 3 && s.data_ranks > 1) {
    const bool full = !adapts(r) && !infers(r);
    const Size layer = full ? largest_ * size : largest_frozen_;
    const Size table = std::max(table_.elements, head_.elements) * size;
    buffer(std::max(layer * 2, table), "weights gathered",
           [&] { return "two layers of " + text(layer) + " B, or a table of " + text(table) + " B"; });
  }
  if (s.tp > 1 && r.parallel.sequence)
    buffer(t.whole * s.a.hidden * size, "tokens gathered between tensor ranks",
           [&] { return text(t.whole) + " tokens * " + text(s.a.hidden) + " * " + text(size) + " B"; });
  if (s.pipeline.stages > 1)
    buffer(t.part * s.a.hidden * 2 * size, "pipeline send and receive", [&] {
      return "2 * " + text(t.part) + " tokens * " + text(s.a.hidden) + " * " + text(size) + " B";
    });
  if (r.parallel.context > 1) {
    const Size wide = widest_kv_;
    buffer(t.whole * wide * 2 * size, "keys and values of the next context rank",
           [&] { return "2 * " + text(t.whole) + " tokens * " + text(wide) + " * " + text(size) + " B"; });
  }
  if (s.ep > 1) {
    const Size active = most_active_;
    buffer(t.whole * active * s.a.hidden * size, "tokens on their way to experts", [&] {
      return text(t.whole) + " tokens * " + text(active) + " * " + text(s.a.hidden) + " * " + text(size) +
             " B";
    });
  }
}

template <class Sink>
void Account<Sink>::inference() {
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
    const Size tokens = Size(up(seen, page)) * page * r.micro_batch;
    // A quantised cache has one f32 scale a token for the keys and one for the values of each head (one for a
    // latent).
    const std::uint64_t scales = !quantised(type)         ? 0
                                 : layer.attention.latent ? 1
                                                          : 2 * up(layer.attention.kv_heads, s.tp);
    const Size bytes = (plain_bytes(type, tokens * w.cache) + tokens * scales * 4) * g.count;
    leaf(
        {Tier::kDevice, Component::kKvCache, Claim::kExact, kGenerate, bytes},
        [] { return std::string("layers[].keys and values"); },
        [&] {
          return text(g.count) + " layers * " + text(r.micro_batch) + " sequences * " +
                 text(Size(up(seen, page)) * page) + " tokens * " + text(w.cache) + " * " +
                 text(bits_of(type)) + "/8 B" +
                 (scales ? " + " + text(scales) + " scales of 4 B a token" : "");
        });
    const Size routed = layer.experts.count ? Size(layer.experts.active) : Size();
    const auto mlp = [&](const model::Mlp& m) { return Size(up(m.width, s.tp)) * m.matrices(); };
    const Size widest =
        std::max(Size(w.q) + w.k + w.v + w.out,
                 mlp(layer.mlp) + mlp(layer.experts.each) * routed + mlp(layer.experts.shared));
    Size need = t.whole * (Size(s.a.hidden) * 2 + widest) * s.cut.size;
    if (s.cut.materialised) need += t.whole * (Size(w.heads) * t.keys) * s.cut.size;
    inside = std::max(inside, need);
  });
  leaf(
      {Tier::kDevice, Component::kActivations, Claim::kApproximation, kGenerate, inside},
      [] { return std::string("one layer of the prompt"); },
      [&] { return text(t.whole) + " tokens through the widest layer: " + text(inside) + " B"; });
  if (s.last())
    leaf(
        {Tier::kDevice, Component::kLogits, Claim::kApproximation, kGenerate,
         Size(r.micro_batch) * s.vocab * 4},
        [] { return std::string("head.logits"); },
        [&] { return text(r.micro_batch) + " sequences * " + text(s.vocab) + " * 4 B, of one token each"; });
  communication();
}

/// Two layers of what lives elsewhere stand on the device, one in use and one on its way; what lies on disk
/// passes through two more in pinned memory.
template <class Sink>
void Account<Sink>::offload_buffers() {
  const auto pass = [&](Tier home, Component c, Claim claim, Size layer, Size all, const char* what) {
    if (home == Tier::kDevice) return;
    const Size two = std::min(layer * 2, all);
    if (c != Component::kOptimizerState)  // the update runs where its state is
      leaf(
          {Tier::kDevice, c, claim, kAlways, two},
          [&] { return std::string(what) + ", two layers in passing"; },
          [&] { return "min(2 * " + text(layer) + ", " + text(all) + ") B"; });
    if (home == Tier::kDisk)
      leaf(
          {Tier::kPinned, c, claim, kAlways, two},
          [&] { return std::string(what) + ", two layers on their way to disk"; },
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
  }
}

template <class Sink>
void Account<Sink>::constants() {
  leaf(
      {Tier::kDevice, Component::kFragmentation, Claim::kApproximation,
       infers(r) ? std::uint32_t{kGenerate} : kPasses, share(dynamic_, kFragmentation)},
      [] { return std::string("allocator's gaps"); },
      [&] { return text(dynamic_) + " B that come and go / " + text(kFragmentation); });
  leaf(
      {Tier::kDevice, Component::kWorkspace, Claim::kApproximation, kAlways, kWorkspaceBytes},
      [] { return std::string("library workspace"); }, [] { return std::string("64 MiB"); });
  leaf(
      {Tier::kDevice, Component::kRuntime, Claim::kApproximation, kAlways, kRuntimeBytes},
      [] { return std::string("context and libraries"); }, [] { return std::string("512 MiB"); });
}

}  // namespace trainhost::parallel
