// First half of the memory breakdown of one rank: the class RankBreakdown and the entries of its lasting
// state (weights, gradients, optimizer state) and of its kept activations. rank_breakdown.hpp defines the
// rest of the class and is the header to include. Sizes come from rank_states.hpp, activation_table.hpp and
// pipeline_stage.hpp, except for the constants below. Equations: docs/memory-model.md.
#pragma once
#include <string>

#include "core/base/types.hpp"
#include "core/model/adapters.hpp"
#include "core/parallel/pipeline_stage.hpp"

namespace trainhost::parallel {

inline constexpr std::uint64_t kRuntimeBytes = 512ull << 20;  // context, code and library handles of a device
inline constexpr std::uint64_t kWorkspaceBytes = 64ull << 20;  // of the matrix and attention libraries
inline constexpr std::uint64_t kHeadChunkTokens = 1024;  // rows of logits in memory, chunked cross-entropy
inline constexpr std::uint32_t kPasses = kForward | kBackward;

/// One entry of the breakdown without its texts.
struct Entry {
  Tier tier = Tier::kDevice;
  Component component = Component::kWeights;
  Claim claim = Claim::kExact;
  std::uint32_t phases = kAlways;
  Size bytes;
  bool at_peak = true;  // false: not in memory at the time of the peak
};

/// Parts of formula texts.
inline std::string text(Size n) { return std::to_string(n.value()); }
inline std::string of_ranks(std::uint64_t n) { return n > 1 ? " / " + text(n) + " ranks" : std::string(); }

/// Enumerates every entry of one rank's memory breakdown exactly once, in a fixed order. The sink decides
/// whether it sums bytes (search) or builds a report (plan):
/// - sink.add(Entry, name, formula): name and formula are functions that return text; a sum of bytes
///   does not call them.
/// - Sink::kPerTensor: true: one entry per kind of activation; false: one entry for all of them.
/// Both kinds of sink get the same sums.
template <class Sink>
class RankBreakdown {
 public:
  RankBreakdown(const Stage& stage, Sink& to) : s(stage), r(stage.r), memory(stage.r.memory), sink(to) {}

  /// Computes what does not depend on ZeRO and offload. A search prepares once and emits often, with other
  /// values of those in `r`. known: result of sums_by_kind(), where the caller has it.
  void prepare(const LayerSums* known = nullptr) {
    if (!known) {
      own_sums_ = sums_by_kind(s);
      known = own_sums_.data();
    }
    walk_layers(known);
    count_tables();
    for (std::size_t kind = 0; kind < s.kinds.size(); ++kind) {
      const model::Layer& layer = s.kinds.layer(kind);
      const Widths w = widths(layer.attention, s.tp);
      widest_kv_ = std::max(widest_kv_, Size(w.k) + w.v);
      most_active_ = std::max(most_active_, Size(layer.experts.active));
    }
  }

  void emit() {
    transient_ = Size();
    kept_activations();
    states();
    if (infers(r))
      inference();
    else
      training();
    offload_buffers();
    constants();
  }

 private:
  template <class Name, class Formula>
  void add(Entry f, Name&& name, Formula&& formula) {
    if (f.bytes == Size()) return;
    if (f.claim != Claim::kExact && f.component != Component::kRuntime && f.tier == Tier::kDevice &&
        f.at_peak)
      transient_ += f.bytes;
    sink.add(f, name, formula);
  }

  // ---- layers: state, kept activations, and the largest transient need of a single layer

  void walk_layers(const LayerSums* known) {
    s.segments([&](const Segment& g) {
      const LayerSums& sums = known[g.kind];
      layers_ += sums.held * g.count;
      largest_ = std::max(largest_, sums.held.elements + sums.held.expert_elements);
      largest_trained_ = std::max(largest_trained_, sums.held.dense.elements + sums.held.expert.elements);
      largest_unsummed_ = std::max(
          largest_unsummed_,
          sums.held.dense.elements + share(sums.held.expert.elements,
                                           std::max<std::uint64_t>(up((*g.layer).experts.count, s.ep), 1)));
      const DType master = adapts(r) || infers(r) ? DType::kNone : r.master;
      const Trained &d = sums.held.dense, &e = sums.held.expert;
      largest_state_ =
          std::max(largest_state_, d.state + e.state + plain_bytes(master, d.elements + e.elements));
      largest_frozen_ = std::max(largest_frozen_, sums.held.frozen + sums.held.frozen_expert);
      if (infers(r)) return;
      largest_kept_ = std::max(largest_kept_, sums.kept[g.policy]);
      const Size again = g.policy == kInput ? recomputed_group(g, known) : sums.recomputed[g.policy];
      if (again + sums.backward + sums.dequantized > recomputed_ + backward_ + dequantized_)
        recomputed_ = again, backward_ = sums.backward, dequantized_ = sums.dequantized;
      activations_ += sums.kept[g.policy] * g.keeping * g.in_flight;
    });
  }

  /// Bytes of recomputing a group of `every` layers together. In a group of mixed kinds the layers are
  /// assumed to be of the kinds that need most, so the result is an upper bound over all groups. The input of
  /// the first layer is kept and not counted here.
  Size recomputed_group(const Segment& g, const LayerSums* sums) const {
    if (s.every == 1) return sums[g.kind].recomputed[kInput];
    std::uint64_t left = std::min(s.every, g.to - g.from);
    Size bytes = sums[g.kind].kept[kInput] * (left - 1), below;
    for (bool any = false; left; any = true) {
      // The largest need below that of the previous kinds, and the number of layers with exactly this need.
      Size next;
      std::uint64_t alike = 0;
      for (std::size_t k = 0; k < s.kinds.size(); ++k) {
        const Size one = sums[k].recomputed[kInput];
        const std::uint64_t here = s.kinds.within(k, g.from, g.to);
        if (here == 0 || (any && one >= below) || (alike && one < next)) continue;
        alike = alike && one == next ? alike + here : here;
        next = one;
      }
      if (alike == 0) break;
      const std::uint64_t counted = std::min(left, alike);
      bytes += next * counted;
      left -= counted, below = next;
    }
    return bytes;
  }

  void kept_activations() {
    if (infers(r)) return;
    if constexpr (Sink::kPerTensor)
      s.segments([&](const Segment& g) { segment_activations(g); });
    else
      add({memory.activations_in, Component::kActivations, Claim::kApproximation, kPasses, activations_},
          none, none);
  }

  /// Activations of a segment, one entry per tensor. The sink adds up entries with the same name (several
  /// chunks).
  void segment_activations(const Segment& g) {
    const std::uint64_t kept = g.keeping;
    layer_activations((*g.layer), s.cut_of(*g.layer), [&](const Activation& row) {
      if (g.policy > row.until) return;
      add(
          {memory.activations_in, Component::kActivations, Claim::kApproximation, kPasses,
           row.bytes() * kept * g.in_flight},
          [&] { return std::string("layers[].") + row.name; },
          [&] {
            return text(kept) + (kept == 1 ? " layer * " : " layers * ") + text(g.in_flight) +
                   " in flight * " + text(row.tokens) + " tokens * " + text(row.width) + " * " +
                   text(row.size) + " B";
          });
    });
  }

  // ---- weights, gradients, optimizer state: exact

  void count_tables() {
    if (s.first()) {
      StateSums t(r);
      embedding_weights(s.a, s.vocab, t);
      if (adapts(r) && adapts_embedding(r))  // a product from tokens to its width
        t.adapter_outside_layers(Weight{embedding_width(s.a), s.vocab, 1, Kind::kEmbedding});
      if (memory.saves_embedding) t.saved_module(Weight{s.vocab, embedding_width(s.a), 1, Kind::kEmbedding});
      table_ = t.held();
    }
    if (s.last()) {
      StateSums t(r);
      head_weights(s.a, s.vocab, !s.a.tied || s.pipeline.stages > 1, t);
      if (adapts(r) && ties_adapter(r) && memory.dora)
        t.magnitudes_outside_layers(Weight{s.vocab, embedding_width(s.a), 1, Kind::kEmbedding});
      if (adapts(r) && adapts_head(r))
        t.adapter_outside_layers(Weight{s.vocab, embedding_width(s.a), 1, Kind::kEmbedding});
      if (memory.saves_head) t.saved_module(Weight{s.vocab, embedding_width(s.a), 1, Kind::kEmbedding});
      head_ = t.held();
    }
  }

  void states() {
    if (s.first()) section("embedding", table_);
    section("layers", layers_);
    if (s.last()) section("head", head_);
  }

  void section(const char* part, const Held& h) {
    sharded_state(part, "", h.dense, h.frozen, h.elements, s.data_ranks);
    if (h.saved.elements != Size()) saved_module(part, h.saved);
    if (h.whole != Size())
      add(
          {Tier::kDevice, Component::kWeights, Claim::kExact, kAlways, h.whole},
          [&] {
            return std::string(part) + (memory.packed == PackedWeights::kWhole
                                            ? ".packed weights, not sharded"
                                            : ".scales, not sharded");
          },
          [&] { return text(h.whole) + " B"; });
    if (h.expert_elements != Size())
      sharded_state(part, ".experts", h.expert, h.frozen_expert, h.expert_elements, s.expert_data_ranks);
  }

  /// Entries of one set of tensors, which `ranks` data-parallel ranks have in common. ZeRO 1 shards optimizer
  /// state and master weights over them, ZeRO 2 gradients too, ZeRO 3 weights too.
  void sharded_state(const char* part, const char* which, const Trained& t, Size frozen, Size elements,
                     std::uint64_t ranks) {
    const std::uint64_t n1 = r.parallel.zero >= 1 ? ranks : 1, n2 = r.parallel.zero >= 2 ? ranks : 1,
                        n3 = r.parallel.zero >= 3 ? ranks : 1;
    const bool full = !adapts(r) && !infers(r);
    const auto emit = [&](Tier tier, Component c, std::uint32_t phases, Size bytes, std::uint64_t n,
                          const char* what, Size count, auto&& each) {
      add(
          {tier, c, Claim::kExact, phases, share(bytes, n)},
          [&] { return std::string(part) + which + "." + what; },
          [&] { return text(count) + " elements" + each() + of_ranks(n); });
    };
    const auto typed = [&](DType d) {
      return [d] {
        return " * " + (bits_of(d) == 4 ? std::string("1/2") : text(size_of(d))) + " B (" +
               std::string(name(d)) + ")";
      };
    };
    if (full) {
      emit(memory.weights_in, Component::kWeights, kAlways, plain_bytes(r.weight, t.elements), n3, "weights",
           t.elements, typed(r.weight));
      emit(memory.optimizer_in, Component::kMasterWeights, kAlways, plain_bytes(r.master, t.elements), n1,
           "master weights", t.elements, typed(r.master));
    } else {
      const DType d = *which ? frozen_expert_type(r) : frozen_type(r);
      emit(memory.weights_in, Component::kWeights, kAlways, frozen, n3, "weights", elements, [&] {
        return " in " + std::string(name(d)) +
               (quantized(d) ? " with block scales, vectors and tables in " + std::string(name(r.compute))
                             : std::string()) +
               " = " + text(frozen) + " B";
      });
      emit(Tier::kDevice, Component::kAdapters, kAlways, t.elements * 4, n3, "adapters", t.elements,
           typed(DType::kF32));
    }
    if (infers(r)) return;
    const DType grad = full ? r.grad : DType::kF32;
    emit(memory.gradients_in, Component::kGradients, kPasses | kUpdate, plain_bytes(grad, t.elements), n2,
         "gradients", t.elements, typed(grad));
    emit(memory.optimizer_in, Component::kOptimizerState, kAlways, t.state, n1, "optimizer state", t.elements,
         [&] {
           return ", " + std::string(name(r.optimizer)) + " moments in " + std::string(name(r.moment)) +
                  " = " + text(t.state) + " B";
         });
  }

  /// Entries of the trained copy of a module, in the type of the frozen one.
  void saved_module(const char* part, const Trained& t) {
    const std::uint64_t ranks = s.data_ranks, zero = r.parallel.zero;
    const auto emit = [&](Tier tier, Component c, std::uint32_t phases, Size bytes, std::uint64_t from_stage,
                          const char* what) {
      const std::uint64_t n = zero >= from_stage ? ranks : 1;
      add(
          {tier, c, Claim::kExact, phases, share(bytes, n)},
          [&] { return std::string(part) + ".trained copy." + what; },
          [&] {
            return text(t.elements) + " elements in " + std::string(name(saved_type(r))) + " = " +
                   text(bytes) + " B" + of_ranks(n);
          });
    };
    const Size bytes = plain_bytes(saved_type(r), t.elements);
    emit(memory.weights_in, Component::kWeights, kAlways, bytes, 3, "weights");
    emit(memory.gradients_in, Component::kGradients, kPasses | kUpdate, bytes, 2, "gradients");
    emit(memory.optimizer_in, Component::kOptimizerState, kAlways, t.state, 1, "optimizer state");
  }

  // ---- entries of the peak, buffers and constants: rank_breakdown.hpp

  void training();
  void communication();
  void inference();
  void linear_state(const Segment& g);
  void offload_buffers();
  void constants();

  static std::string none() { return {}; }

  const Stage& s;
  const RunSpec& r;
  const MemoryPolicy& memory;
  Sink& sink;
  std::vector<LayerSums> own_sums_;
  Held layers_, table_, head_;
  Size largest_, largest_trained_;  // elements of the largest layer
  Size largest_unsummed_;           // the same with one expert: gradients of experts are added one by one
  Size largest_frozen_, largest_kept_, largest_state_;  // bytes of the largest layer
  Size activations_, recomputed_, backward_;
  Size dequantized_;              // of one product
  Size transient_;                // device bytes that are allocated and freed during a step
  Size widest_kv_, most_active_;  // per token, maximum over kinds of layers: K and V elements; active experts
};

}  // namespace trainhost::parallel
