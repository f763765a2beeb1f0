// THE description of one rank's memory: every leaf once, in one order, for whichever reader asks. A sink is
// called as
//   sink.leaf(Leaf, name, formula)     name and formula: functions that give text; a reader of numbers never
//   calls them
// and says with kRows whether it wants activations tensor by tensor. Both readers get the same sums.
// Only forward declared terms of rank_states.hpp, activation_table.hpp and pipeline_stage.hpp are used here;
// no size is invented but the constants named below.
#pragma once
#include <string>

#include "core/base/types.hpp"
#include "core/parallel/pipeline_stage.hpp"

namespace trainhost::parallel {

inline constexpr std::uint64_t kRuntimeBytes = 512ull << 20;  // context, code and library handles of a device
inline constexpr std::uint64_t kWorkspaceBytes = 64ull << 20;  // of the matrix and attention libraries
inline constexpr std::uint64_t kHeadChunkTokens =
    1024;                                           // rows of logits alive at once in a chunked cross-entropy
inline constexpr std::uint64_t kFragmentation = 5;  // a fifth of what comes and goes: README.md, "Accuracy"
inline constexpr std::uint32_t kPasses = kForward | kBackward;

struct Leaf {
  Tier tier = Tier::kDevice;
  Component component = Component::kWeights;
  Claim claim = Claim::kExact;
  std::uint32_t phases = kAlways;
  Size bytes;
  bool at_peak = true;
};

/// Text of formulas: numbers joined to words; in a header of its own sink only through these.
inline std::string text(Size n) { return std::to_string(n.value()); }
inline std::string of_ranks(std::uint64_t n) { return n > 1 ? " / " + text(n) + " ranks" : std::string(); }

template <class Sink>
class Account {
 public:
  Account(const Stage& stage, Sink& to) : s(stage), r(stage.r), memory(stage.r.memory), sink(to) {}

  void run() {
    prepare();
    emit();
  }

  /// What does not depend on where things are kept and how state is shared (zero, offload): a search prepares
  /// once and emits often, with other values of those in `r`. known: sums_by_kind(), where the caller has
  /// them.
  void prepare(const LayerSums* known = nullptr) {
    if (!known) {
      own_sums_ = sums_by_kind(s);
      known = own_sums_.data();
    }
    walk_layers(known);
    ends();
    for (std::size_t kind = 0; kind < s.kinds.size(); ++kind) {
      const model::Layer& layer = s.kinds.layer(kind);
      const Widths w = widths(layer.attention, s.tp);
      widest_kv_ = std::max(widest_kv_, Size(w.k) + w.v);
      most_active_ = std::max(most_active_, Size(layer.experts.active));
    }
  }

  void emit() {
    dynamic_ = Size();
    kept_leaves();
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
  void leaf(Leaf f, Name&& name, Formula&& formula) {
    if (f.bytes == Size()) return;
    if (f.claim != Claim::kExact && f.component != Component::kRuntime && f.tier == Tier::kDevice &&
        f.at_peak)
      dynamic_ += f.bytes;
    sink.leaf(f, name, formula);
  }

  // ---- layers: what they hold, what they keep, and the most that one of them needs beside it

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
      const Size again = g.policy == kInput ? group_again(g, known) : sums.remade[g.policy];
      if (again + sums.backward > remade_ + backward_) remade_ = again, backward_ = sums.backward;
      activations_ += sums.kept[g.policy] * g.keeping * g.in_flight;
    });
  }

  /// What a group of layers made again together gives: of mixed kinds taken to be those that need most, so
  /// that no group needs more. The input of the first stands already.
  Size group_again(const Segment& g, const LayerSums* sums) const {
    if (s.every == 1) return sums[g.kind].remade[kInput];
    std::uint64_t left = std::min(s.every, g.to - g.from);
    Size again = sums[g.kind].kept[kInput] * (left - 1), below;
    for (bool any = false; left; any = true) {
      Size next;  // the most that a kind below the last one needs, and how many layers need just that
      std::uint64_t alike = 0;
      for (std::size_t k = 0; k < s.kinds.size(); ++k) {
        const Size one = sums[k].remade[kInput];
        const std::uint64_t here = s.kinds.within(k, g.from, g.to);
        if (here == 0 || (any && one >= below) || (alike && one < next)) continue;
        alike = alike && one == next ? alike + here : here;
        next = one;
      }
      if (alike == 0) break;
      const std::uint64_t taken = std::min(left, alike);
      again += next * taken;
      left -= taken, below = next;
    }
    return again;
  }

  void kept_leaves() {
    if (infers(r)) return;
    if constexpr (Sink::kRows)
      s.segments([&](const Segment& g) { rows(g); });
    else
      leaf({memory.activations_in, Component::kActivations, Claim::kApproximation, kPasses, activations_},
           none, none);
  }

  /// Activations of a segment tensor by tensor; of many chunks, the reader adds leaves of one name.
  void rows(const Segment& g) {
    const std::uint64_t kept = g.keeping;
    layer_activations((*g.layer), s.cut, [&](const Activation& row) {
      if (g.policy > row.until) return;
      leaf(
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

  // ---- weights, gradients, optimizer state: counted

  void ends() {
    if (s.first()) {
      Tally t(r);
      embedding_weights(s.a, s.vocab, t);
      table_ = t.held();
    }
    if (s.last()) {
      Tally t(r);
      head_weights(s.a, s.vocab, !s.a.tied || s.pipeline.stages > 1, t);
      head_ = t.held();
    }
  }

  void states() {
    if (s.first()) section("embedding", table_);
    section("layers", layers_);
    if (s.last()) section("head", head_);
  }

  void section(const char* part, const Held& h) {
    shared(part, "", h.dense, h.frozen, h.elements, s.data_ranks);
    if (h.expert_elements != Size())
      shared(part, ".experts", h.expert, h.frozen_expert, h.expert_elements, s.expert_data_ranks);
  }

  /// One set of tensors that `ranks` data ranks hold in common: ZeRO 1 shares optimizer state and master
  /// weights, 2 gradients, 3 weights as well.
  void shared(const char* part, const char* which, const Trained& t, Size frozen, Size elements,
              std::uint64_t ranks) {
    const std::uint64_t n1 = r.parallel.zero >= 1 ? ranks : 1, n2 = r.parallel.zero >= 2 ? ranks : 1,
                        n3 = r.parallel.zero >= 3 ? ranks : 1;
    const bool full = !adapts(r) && !infers(r);
    const auto emit = [&](Tier tier, Component c, std::uint32_t phases, Size bytes, std::uint64_t n,
                          const char* what, Size count, auto&& each) {
      leaf(
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
      const DType d = resting(r);
      emit(memory.weights_in, Component::kWeights, kAlways, frozen, n3, "weights", elements, [&] {
        return " in " + std::string(name(d)) +
               (quantised(d) ? " with block scales, vectors and tables in " + std::string(name(r.compute))
                             : std::string()) +
               " = " + text(frozen) + " B";
      });
      emit(Tier::kDevice, Component::kAdapters, kAlways, t.elements * 4, n3, "adapters", t.elements,
           typed(DType::kF32));
    }
    if (infers(r)) return;
    const DType grad = full ? r.grad : DType::kF32;
    emit(Tier::kDevice, Component::kGradients, kPasses | kUpdate, plain_bytes(grad, t.elements), n2,
         "gradients", t.elements, typed(grad));
    emit(memory.optimizer_in, Component::kOptimizerState, kAlways, t.state, n1, "optimizer state", t.elements,
         [&] {
           return ", " + std::string(name(r.optimizer)) + " moments in " + std::string(name(r.moment)) +
                  " = " + text(t.state) + " B";
         });
  }

  // ---- the worst moment: peak_entries.hpp

  void training();
  void communication();
  void inference();
  void offload_buffers();
  void constants();

  static std::string none() { return {}; }

  const Stage& s;
  const RunSpec& r;
  const MemoryPolicy& memory;
  Sink& sink;
  std::vector<LayerSums> own_sums_;
  Held layers_, table_, head_;
  Size largest_, largest_trained_,
      largest_unsummed_;  // elements of one layer; unsummed: with one expert of all
  Size largest_frozen_, largest_kept_, largest_state_;  // bytes of one layer
  Size activations_, remade_, backward_, dynamic_;
  Size widest_kv_, most_active_;  // keys and values, and experts, of a token in any kind of layer
};

/// Every leaf of one rank of `stage` into `sink`. kinds: of `a`.
template <class Sink>
void account(const model::Architecture& a, const LayerKinds& kinds, const RunSpec& r, std::uint32_t stage,
             Sink& sink) {
  const Stage s(a, kinds, r, stage);
  Account<Sink>(s, sink).run();
}

}  // namespace trainhost::parallel

#include "core/parallel/peak_entries.hpp"
