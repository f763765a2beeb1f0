// Entries of the calculon report, one function per group: weights, gradients and optimizer state,
// activations, embedding. Each has its formula with numbers. Sizes: closed_form.cpp; notes: notes.cpp.
#include "plugins/estimators/calculon/report.hpp"

#include <algorithm>
#include <initializer_list>

#include "core/base/checked.hpp"

namespace trainhost::calculon {
namespace {

std::string n(std::uint64_t v) { return std::to_string(v); }

/// Formula of the weight elements of a block on one rank, with numbers: (4*H*AD + 2*H*F)/t + 4*H.
std::string elements_formula(const Application& a, const Execution& e) {
  const std::string H = n(a.hidden), q = n(a.attn_heads) + "*" + n(a.attn_size), F = n(a.feedforward);
  const std::string split = e.tensor_par == 1 ? "" : "/" + n(e.tensor_par);
  // q, k, v and o; with one key/value head, q and o are divided and k and v exist whole on every rank.
  const std::string projections = e.multiquery ? "2*" + H + "*" + q : "4*" + H + "*" + q;
  const std::string whole = e.multiquery ? " + 2*" + H + "*" + n(a.attn_size) : "";
  return "((" + projections + " + 2*" + H + "*" + F + ")" + split + whole + " + 4*" + H + ")";
}

/// "/shards", empty for one shard.
std::string over(std::uint64_t shards) { return shards == 1 ? "" : "/" + n(shards); }

class Builder {
 public:
  Builder(const RunSpec& r, const Mapped& mapped, Tier device)
      : r_(r),
        a_(mapped.application),
        e_(mapped.execution),
        embedding_(mapped.embedding),
        device_(device),
        s_(sizes(a_, e_)),
        elements_(elements_formula(a_, e_)) {
    // Only for the formulas; the sizes are those of s_.
    block(a_, e_, &derivation_);
    // Bounds: the same run without score matrices, which Calculon always counts.
    Execution flash = e_;
    flash.scores = false;
    without_scores_ = sizes(a_, flash);
  }

  MemoryReport build() {
    report_.claim = Claim::kApproximation;
    weights();
    if (e_.training) optimizer_and_gradients();
    activations();
    if (embedding_.matrices) embedding();
    for (Tier t : {Tier::kDevice, Tier::kHost, Tier::kDisk}) total(t);
    return std::move(report_);
  }

 private:
  /// Adds an entry unless it has 0 bytes. lo: lower bound of the approximation.
  void add(const char* name, Component c, Tier tier, std::uint32_t phases, std::uint64_t bytes,
           std::string formula, std::uint64_t lo) {
    if (bytes == 0) return;
    MemoryEntry l;
    l.id = static_cast<std::uint32_t>(report_.entries.size() + 1);
    l.tier = tier, l.component = c, l.claim = Claim::kApproximation, l.phases = phases;
    l.bytes = l.bytes_at_peak = bytes, l.has_at_peak = true;
    // Within a factor of two, as report.hpp states; capped where twice the bytes exceed 63 bits.
    l.lo = std::min(lo, bytes), l.hi = bytes > kMaxBytes / 2 ? kMaxBytes : 2 * bytes;
    l.name = name, l.formula = std::move(formula);
    report_.entries.push_back(std::move(l));
  }

  /// Adds the entries in tier 1 and tier 2. If offloaded, tier 1 has the part in use.
  void add_both_tiers(const char* name, Component c, std::uint32_t phases, const Space& space, Tier tier2,
                      const std::string& tier1_formula, const std::string& tier2_formula) {
    add(name, c, device_, phases, space.tier1, tier1_formula, space.tier1 / 2);
    add(name, c, tier2, phases, space.tier2, tier2_formula, space.tier2 / 2);
  }

  Tier optimizer_tier() const { return r_.memory.optimizer_in; }

  void weights() {
    // Bytes per element times elements of one block; offloaded, two blocks are on the device.
    const std::string one = n(e_.bytes_per_element) + "*" + elements_, all = n(s_.blocks) + "*" + one;
    add_both_tiers("weights.blocks", Component::kWeights, kAlways, s_.weights, r_.memory.weights_in,
                   e_.weight_offload ? "2*" + one : all, all);
  }

  void optimizer_and_gradients() {
    const std::string b = n(e_.bytes_per_element), shards = over(e_.optimizer_shards()),
                      blocks = n(s_.blocks);
    // The blocks other than the current one: gradients in the type of the weights, divided like the optimizer
    // state.
    const auto rest = [&](const std::string& count) { return count + "*" + b + "*" + elements_ + shards; };
    const bool offloaded = e_.optimizer_offload;
    add_both_tiers("gradients.blocks", Component::kGradients, kBackward | kUpdate, s_.gradients,
                   optimizer_tier(),
                   "4*" + elements_ + " + " + rest(offloaded ? "1" : "(" + blocks + " - 1)"), rest(blocks));
    const auto state = [&](const char* bytes, bool here) {
      return std::string(bytes) + "*" + (here && offloaded ? "2" : blocks) + "*" + elements_ + shards;
    };
    add_both_tiers("master_weights.blocks", Component::kMasterWeights, kAlways, s_.master, optimizer_tier(),
                   state("4", true), state("4", false));
    add_both_tiers("optimizer_state.blocks", Component::kOptimizerState, kAlways, s_.moments,
                   optimizer_tier(), state("2*4", true), state("2*4", false));
  }

  /// blocks * micro-batches in flight, as a factor with numbers.
  std::string kept_blocks() const {
    const InFlight f = s_.in_flight;
    return n(s_.blocks) + "*" + n(f.numerator) + over(f.denominator);
  }

  void activations() {
    const std::uint32_t phases = e_.training ? kForward | kBackward : kForward | kEval | kGenerate;
    const Sizes& bare = without_scores_;
    add("activations.working_block", Component::kActivations, device_, phases, s_.block.working,
        derivation_.working, bare.block.working / 2);
    // What is kept for other blocks, besides the working set of the current one.
    const std::uint64_t waiting = s_.activations.tier1 - s_.block.working;
    add("activations.waiting_blocks", Component::kActivations, device_, phases, waiting,
        "(" + derivation_.stored + ")*" + (e_.activations_offload ? "1" : "(" + kept_blocks() + " - 1)"),
        (bare.activations.tier1 - bare.block.working) / 2);
    add("activations", Component::kActivations, r_.memory.activations_in, phases, s_.activations.tier2,
        "all blocks: " + n(s_.activations.all), bare.activations.tier2 / 2);
    const std::string input = n(s_.block.checkpoint) + "*";  // B*S*H*b of one block's input
    add_both_tiers("activations.block_inputs", Component::kActivations, phases, s_.checkpoints,
                   r_.memory.activations_in, input + (e_.activations_offload ? "2" : kept_blocks()),
                   input + kept_blocks());
    add("activations.gradients", Component::kActivations, device_, kBackward, s_.activation_gradients,
        derivation_.gradients, bare.activation_gradients / 2);
  }

  void embedding() {
    const EmbeddingSizes s = embedding_sizes(embedding_, e_);
    const std::string elements =
        n(embedding_.matrices) + "*" + n(embedding_.rows) + "*" + n(embedding_.hidden);
    const std::string shards = over(e_.optimizer_shards()), b = n(e_.bytes_per_element);
    // On the only stage, an untied head is a second matrix.
    const char* const name = embedding_.matrices == 2 ? "weights.embedding_and_head" : "weights.embedding";
    add_both_tiers(name, Component::kWeights, kAlways, s.weights, r_.memory.weights_in, b + "*" + elements,
                   b + "*" + elements);
    add_both_tiers("master_weights.embedding", Component::kMasterWeights, kAlways, s.master, optimizer_tier(),
                   "4*" + elements + shards, "4*" + elements + shards);
    add_both_tiers("optimizer_state.embedding", Component::kOptimizerState, kAlways, s.moments,
                   optimizer_tier(), "2*4*" + elements + shards, "2*4*" + elements + shards);
  }

  void total(Tier t) {
    std::uint64_t bytes = 0;
    for (const MemoryEntry& l : report_.entries)
      if (l.tier == t) bytes = checked_add(bytes, l.bytes, "calculon's total");
    // A tier without entries is not listed.
    if (bytes) report_.tiers.push_back({t, bytes, e_.training ? kBackward : kForward});
  }

  const RunSpec& r_;
  const Application a_;
  const Execution e_;
  const Embedding embedding_;
  const Tier device_;
  const Sizes s_;
  Sizes without_scores_;
  const std::string elements_;
  Derivation derivation_;
  MemoryReport report_;
};

}  // namespace

MemoryReport report(const ModelSpec& m, const RunSpec& r, const Options& o, Tier device) {
  MemoryReport out = Builder(r, map(m, r, o), device).build();
  out.notes = notes(m, r, o);
  return out;
}

}  // namespace trainhost::calculon
