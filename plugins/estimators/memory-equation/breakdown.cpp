// Builds the entries in the order of the equation: state, activations, the rest. Each entry has its formula
// with symbols and with numbers, and bounds where the source states a range. The bytes come from
// equation.cpp; the sentences below the report from notes.cpp. The entries sum to Parts::total.
#include "plugins/estimators/memory-equation/breakdown.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/checked.hpp"
#include "plugins/estimators/common/number_format.hpp"
#include "plugins/estimators/common/report_builder.hpp"

namespace trainhost::memory_equation {
namespace {

using rules::n;

/// A tensor of the source's list of kept activations per layer; its size in units of B*S*H numbers.
struct Kept {
  const char* name;
  std::uint32_t hidden_states;
};
constexpr Kept kKept[] = {{"layers[].norm1_input", 1},      {"layers[].qkv", 3},
                          {"layers[].attention_out", 1},    {"layers[].norm2_input", 1},
                          {"layers[].ffn_intermediate", 4}, {"layers[].ffn_out", 1}};
constexpr std::uint32_t kept_hidden_states() {
  std::uint32_t sum = 0;
  for (const Kept& k : kKept) sum += k.hidden_states;
  return sum;
}
static_assert(kept_hidden_states() == 11, "linear_layer() counts 11*B*S*H");

// "Psi*8 = 7000000000*8", or with "/N" where ZeRO divides it.
std::string per_parameter(const Inputs& in, std::uint32_t bytes, bool sharded) {
  const std::string whole = "Psi*" + n(bytes), product = n(in.psi) + "*" + n(bytes);
  return sharded ? whole + "/N = " + product + "/" + n(in.ranks) : whole + " = " + product;
}

class Builder {
 public:
  Builder(const Inputs& in, const Parts& p) : in_(in), p_(p) {}

  MemoryReport build(std::vector<std::string> notes) {
    state();
    activations();
    rest();
    for (std::string& s : notes) report_.note(std::move(s));
    return report_.finish(kBackward);
  }

 private:
  void state() {
    const StateBytes b = state_bytes(in_.optimizer, in_.parameter_bytes);
    auto add = [&](Component c, const char* name, Bytes bytes, std::uint32_t each, std::uint32_t stage) {
      // No entry of 0 bytes: SGD has no moments, f32 training no master weights.
      if (each)
        report_.add(c, name, kAlways, bytes, per_parameter(in_, each, in_.ranks > 1 && in_.zero >= stage));
    };
    add(Component::kWeights, "parameters", p_.parameters, b.parameters, 3);
    add(Component::kMasterWeights, "master_weights", p_.master, b.master, 1);
    add(Component::kGradients, "gradients", p_.gradients, b.gradients, 2);
    add(Component::kOptimizerState, "moments", p_.moments, b.moments, 1);
  }

  /// Bounds from 0 to the count of the paper for eager attention with dropout: 34*B*S*H + 5*B*A*S*S bytes per
  /// layer.
  void widen(MemoryEntry& entry, std::uint64_t times) {
    entry.lo = 0, entry.hi = std::max(entry.bytes, checked_mul(entry.bytes, times));
  }

  void activations() {
    // Layers whose activations exist at the same time: all, or with recomputation those between two kept
    // inputs.
    const std::uint64_t live =
        in_.checkpoint_every ? std::min<std::uint64_t>(in_.checkpoint_every, in_.layers) : in_.layers;
    const Bytes state = checked_mul(in_.batch, in_.seq, in_.hidden, in_.activation_bytes);
    const std::string tokens = n(live) + "*", shape = "*" + n(in_.batch) + "*" + n(in_.seq) + "*" +
                                                      n(in_.hidden) + "*" + n(in_.activation_bytes);
    const char* const layers = in_.checkpoint_every ? "n*" : "L*";
    const std::string scores_shape = n(in_.batch) + "*" + n(in_.heads) + "*" + n(in_.seq) + "*" + n(in_.seq);
    // The other two terms are not divided into tensors by their source, so they are one entry.
    if (in_.terms != Terms::kEquation) {
      const bool bytes = in_.terms == Terms::kPaper;
      widen(report_.add(Component::kActivations, "layers[].linear", kForward | kBackward,
                        checked_mul(live, linear_layer(in_)),
                        layers + (bytes ? "34*B*S*H = " + tokens + "34*" + n(in_.batch) + "*" + n(in_.seq) +
                                              "*" + n(in_.hidden)
                                        : "34*B*S*H*b_a = " + tokens + "34" + shape)),
            1);
    }
    for (const Kept& k : kKept) {
      if (in_.terms != Terms::kEquation) break;
      // Factor 2: 34 bytes of the paper over 11*2 bytes in 16 bits, rounded up.
      const std::string times = n(k.hidden_states);
      widen(report_.add(Component::kActivations, k.name, kForward | kBackward,
                        checked_mul(live, state, k.hidden_states),
                        layers + times + "*B*S*H*b_a = " + tokens + times + shape),
            2);
    }
    // Factor 3: 5 bytes of the paper over 2, rounded up.
    if (!in_.flash) {
      std::string formula = layers;
      if (in_.terms == Terms::kPaper)
        formula += "5*B*A*S*S = " + tokens + "5*" + scores_shape;
      else
        formula += "B*A*S*S*b_a = " + tokens + scores_shape + "*" + n(in_.activation_bytes);
      widen(report_.add(Component::kActivations, "layers[].scores", kForward | kBackward,
                        checked_mul(live, scores_layer(in_)), formula),
            3);
    }
    if (in_.checkpoint_every) {
      const std::uint64_t kept = (in_.layers + in_.checkpoint_every - 1) / in_.checkpoint_every;
      report_.add(Component::kActivations, "checkpoints", kForward | kBackward, checked_mul(kept, state),
                  "ceil(L/n)*B*S*H*b_a = " + n(kept) + shape);
    }
  }

  void rest() {
    // A guess of the source, without a range: from nothing to twice as much.
    MemoryEntry& temporary = report_.add(
        Component::kWorkspace, "temporary", kForward | kBackward, p_.temporary,
        rules::shortest(in_.temporary / 1e4) + " % of activations = " + rules::shortest(in_.temporary / 1e4) +
            " % of " + n(p_.activations));
    temporary.lo = 0, temporary.hi = checked_mul(2, p_.temporary);
    buffers("all_reduce", "2*chunk", p_.all_reduce, 2);
    buffers("reduce_scatter", "(N-1)*chunk", p_.reduce_scatter, in_.ranks - 1);
    buffers("all_gather", "(N-1)*chunk", p_.all_gather, in_.ranks - 1);
    const Bytes others = p_.total - p_.fragmentation;
    MemoryEntry& gaps =
        report_.add(Component::kFragmentation, "fragmentation", kAlways, p_.fragmentation,
                    "f*(all the rest) = " + rules::shortest(in_.fragmentation / 1e6) + "*" + n(others));
    gaps.lo = std::min(gaps.bytes, share(others, 50'000));  // the source's range, 5 to 20 %
    gaps.hi = std::max(gaps.bytes, share(others, 200'000));
  }

  void buffers(const char* name, const char* formula, Bytes bytes, std::uint64_t chunks) {
    if (!bytes) return;
    assert(chunks && bytes % chunks == 0);  // a whole number of chunks: add_communication() in equation.cpp
    report_.add(Component::kCommunication, name, kBackward, bytes,
                formula + (" = " + n(chunks)) + "*" + n(bytes / chunks));
  }

  const Inputs& in_;
  const Parts& p_;
  rules::ReportBuilder report_;
};

}  // namespace

Inputs inputs_of(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_psi) {
  Inputs in;
  in.psi = s.parameters.value_or(true_psi);
  in.layers = m.layers, in.hidden = m.hidden, in.heads = m.heads;
  in.batch = r.micro_batch, in.seq = r.seq_len;
  // Types below one byte have size_of() 0 and count as one byte; notes.cpp says so.
  in.parameter_bytes = std::max(1u, size_of(r.weight));
  in.activation_bytes = r.weight == DType::kF32 ? 4 : 2;
  in.optimizer = r.optimizer;
  in.flash = s.flash.value_or(r.memory.attention == AttentionMemory::kFlash);
  // The source has full recomputation only. Any other policy is counted as none.
  in.checkpoint_every = r.recompute == Recompute::kFull ? std::max(1u, r.memory.recompute_every) : 0;
  in.terms = s.terms;
  // N counts data-parallel ranks. Other kinds of parallelism get a note.
  in.zero = r.parallel.zero, in.ranks = r.parallel.data;
  in.chunk = s.chunk, in.temporary = s.temporary, in.fragmentation = s.fragmentation;
  return in;
}

MemoryReport breakdown(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_psi) {
  if (r.mode == RunMode::kInference)
    throw usage_error("the memory equation is for training; plan.mode = \"inference\"",
                      "estimators for inference: vram-note, calculon");
  const Inputs in = inputs_of(m, r, s, true_psi);
  const Parts p = equation(in);
  return Builder(in, p).build(notes(m, r, in, p, true_psi));
}

}  // namespace trainhost::memory_equation
