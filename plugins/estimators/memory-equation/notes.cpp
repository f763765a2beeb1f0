// The sentences below the report: what the rule counts, where this run breaks its assumptions, and where the
// source is wrong. One function per topic; each adds no note if the equation holds for the run. The equation
// itself: equation.cpp. All known mistakes of the source: docs/memory-model.md ("Known mistakes of these
// rules").
#include "plugins/estimators/memory-equation/breakdown.hpp"

#include <cmath>

#include "core/base/checked.hpp"
#include "plugins/estimators/common/number_format.hpp"

namespace trainhost::memory_equation {
namespace {

using rules::bytes;
using rules::count;
using rules::fixed;
using rules::n;

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

// The three optimizers of the source by the names that it uses.
std::string optimizer_title(Optimizer o) {
  return o == Optimizer::kAdamW         ? "AdamW"
         : o == Optimizer::kSgd         ? "SGD"
         : o == Optimizer::kSgdMomentum ? "SGD with momentum"
                                        : std::string(name(o));
}

class Notes {
 public:
  Notes(const ModelSpec& m, const RunSpec& r, const Inputs& in, const Parts& p, std::uint64_t true_psi)
      : m_(m),
        r_(r),
        in_(in),
        p_(p),
        true_psi_(true_psi),
        state_(state_bytes(in.optimizer, in.parameter_bytes)) {}

  // In order of importance.
  std::vector<std::string> collect() {
    summary();
    parameters();
    types();
    attention();
    block();
    sharding();
    parallel();
    derived();
    budget();
    return std::move(notes_);
  }

 private:
  void note(std::string s) { notes_.push_back(std::move(s)); }

  void summary() {
    note("Rule of thumb: " + n(state_.total()) + " bytes per parameter, 11*B*S*H" +
         (in_.flash ? "" : " + B*A*S^2") + " per GPT block, " + rules::shortest(in_.temporary / 1e4) +
         " % temporary, " + rules::shortest(in_.fragmentation / 1e4) +
         " % fragmentation; logits, loss and CUDA context are not counted.");
  }

  void parameters() {
    if (in_.psi != true_psi_ && true_psi_)
      // With an unknown family the true count is 0 and there is nothing to compare with.
      note("Psi = " + count(in_.psi) + " is set by the option; the model has " + count(true_psi_) + " (" +
           rules::relative_error(in_.psi, true_psi_) + "), with a state of " +
           bytes(checked_mul(true_psi_, state_.total())) + ".");
  }

  void types() {
    // Where a type is named in the run file but the equation has another one, the note has the bytes of both.
    const std::uint32_t grad = size_of(r_.grad);
    if (grad != state_.gradients)
      note("The equation has gradients in the type of the parameters; this run has " +
           std::string(name(r_.grad)) + " gradients: " + bytes(checked_mul(in_.psi, grad)) + " instead of " +
           count(checked_mul(in_.psi, state_.gradients)) +
           (in_.zero >= 2 && in_.ranks > 1 ? ", both before ZeRO sharding." : "."));
    // plan.master = "none": weights narrower than f32 that are updated in their own type.
    if (state_.master && r_.master == DType::kNone)
      note("The equation counts master weights of 4 bytes per parameter; this run has none.");
    if (r_.optimizer == Optimizer::kSgdMomentum)
      note(
          "For SGD with momentum in mixed precision the table of the source has 12 bytes per parameter and "
          "its code "
          "8 (without master weights); the table is used.");
    if (r_.optimizer != Optimizer::kAdamW && r_.optimizer != Optimizer::kSgd &&
        r_.optimizer != Optimizer::kSgdMomentum)
      note("The source does not cover " + optimizer_title(r_.optimizer) + "; its state is counted as " +
           n(state_.moments) + " bytes per parameter.");
    // b_p is a whole number: inputs_of() rounds up.
    if (bits_of(r_.weight) < 8)
      note("Parameters of " + std::string(name(r_.weight)) + " are counted as one byte each.");
  }

  void attention() {
    // The difference of two equations, so that it has the layers that recomputation leaves.
    Inputs other = in_;
    other.flash = !in_.flash;
    const Bytes total = equation(other).total;
    const Bytes scores =
        in_.flash ? activations(other) - activations(in_) : activations(in_) - activations(other);
    note((in_.flash ? "Flash attention: scores are not kept; materialised scores (B*A*S^2) would take "
                    : "Scores (B*A*S^2) are kept: ") +
         bytes(scores) + (in_.flash ? ", and the total is " : "; with flash attention the total is ") +
         bytes(total) + ".");
    // Three lengths, because the source has three formulas of a layer. The last one is no whole number (870.4
    // for H = 128*A) and is rounded down.
    std::string crossovers =
        "Scores are more than half of a layer's activations from S = " +
        rules::shortest(crossover(in_.hidden, in_.heads)) +
        " (11H/A, this equation); S = " + rules::shortest(crossover_of_exercise(in_.hidden, in_.heads)) +
        " by the exercise of the source (34H/A) and S = " +
        fixed(std::floor(crossover_of_paper(in_.hidden, in_.heads)), 0) +
        " by the paper that it cites (34h/5a).";
    note(std::move(crossovers));
  }

  void block() {
    // Trainable families have LLaMA blocks. Other blocks differ in more than the width of the MLP.
    if (!m_.intermediate || !trainable_family(m_.family)) return;
    const Bytes linear = checked_mul(in_.layers, linear_layer(in_)), real = gated_block_activations(m_, in_);
    note("11*B*S*H is for a GPT block; a LLaMA block keeps gate, up and their product at width I = " +
         n(m_.intermediate) + ": " + bytes(real) + " instead of " + count(linear) + ", without scores.");
  }

  void sharding() {
    if (in_.zero == 0 || in_.ranks < 2) return;
    // 13e9 * (2 + (2 + 12)/8) = 48.75 GB: stage 2 keeps the weights whole and divides 14 of the 16 bytes.
    if (in_.zero == 2)
      note(
          "For ZeRO-2 the example of the source (13B on 8 devices) prints 48.25 GB; its formula, used here, "
          "gives "
          "48.75.");
    // 70e9 * 16, 12 and 8 bytes on devices of 80 GB. Sharding does not change the sum over the ranks.
    if (in_.zero == 3)
      note("ZeRO-3 shards the state; the sum over ranks stays " + bytes(checked_mul(p_.state(), in_.ranks)) +
           " on " + n(in_.ranks) +
           " ranks. The source has 2, 2 and 1 devices for 70B with ZeRO-3, correct are 14, 11 and 7; it has "
           "an "
           "efficiency of 93 %, correct is 11.7 %.");
    // With 8 ranks: 2 / (2 + 2 + 12/8) and 2 / (2 + 14/8).
    if (in_.zero < 3)
      note(
          "The source has efficiencies of 15 % and 20 % for ZeRO-1 and ZeRO-2, which no number of ranks "
          "gives; with 8 "
          "ranks they are 36.4 % and 53.3 % of the state.");
  }

  void parallel() {
    // Settings that the equation has no symbol for. The report ignores them instead of refusing the run.
    if (checked_mul(r_.parallel.tensor, r_.parallel.pipeline, r_.parallel.context, r_.parallel.expert) > 1)
      note(
          "The equation includes data parallelism only: tensor, pipeline, context and expert parallelism are "
          "ignored.");
    if (r_.mode != RunMode::kFull) note("The equation is for full training; adapters are not counted.");
    if (in_.checkpoint_every)
      note("Recomputation as in the exercise of the source: one kept input per " + n(in_.checkpoint_every) +
           " layers, and the activations of that many layers during the backward pass.");
    else if (r_.recompute != Recompute::kNone)
      note("The equation includes full recomputation only, not '" + std::string(name(r_.recompute)) +
           "': all activations are counted as kept.");
    if (r_.memory.weights_in != Tier::kDevice || r_.memory.optimizer_in != Tier::kDevice ||
        r_.memory.activations_in != Tier::kDevice)
      note("The equation does not include offloading: everything is counted on the device.");
  }

  void derived() {
    // Figures that the source derives from the equation, for the reader who compares the two.
    const Timeline t = timeline(p_);
    note("Memory during a step, without fragmentation: before forward " + format_bytes(t.before_forward) +
         ", after forward " + format_bytes(t.after_forward) + ", peak in backward " + format_bytes(t.peak) +
         ", after backward " + format_bytes(t.after_backward) + ", after the optimizer " +
         format_bytes(t.after_optimizer) + ".");
    // 4 + 5 + 2 of the 11 hidden states (kKept in breakdown.cpp), and the scores. With other terms the first
    // figure is theirs, and the parts remain those of the equation.
    note("One layer keeps " + bytes(layer_activations(in_)) + ": attention " + count(attention_bytes()) +
         ", feed-forward " + count(hidden_states(5)) + ", norms " + count(hidden_states(2)) +
         "; all layers are equal.");
    note("Memory efficiency: parameters are " + percent(efficiency(p_.parameters, p_.total)) +
         " of the total and " + percent(efficiency(p_.parameters, p_.state())) +
         " of the state. Fragmentation is " +
         percent(fragmentation_ratio(p_.total, p_.total - p_.fragmentation)) + " of the allocated memory: " +
         std::string(severity(fragmentation_ratio(p_.total, p_.total - p_.fragmentation))) + ".");
  }

  Bytes hidden_states(std::uint64_t times) const {
    return checked_mul(times, in_.batch, in_.seq, in_.hidden, in_.activation_bytes);
  }
  Bytes attention_bytes() const { return checked_add(hidden_states(4), scores_layer(in_), "attention"); }

  void budget() {
    // Only with a known device: without one no number of devices can be stated.
    const Bytes device = r_.device_budget;
    if (!device) return;
    const std::uint64_t most = largest_batch(in_, device);
    note(most ? "Largest micro-batch in " + format_bytes(device) + ": " + count(most) + "."
              : "No micro-batch fits in " + format_bytes(device) + ": the state takes " +
                    format_bytes(p_.state()) + ".");
    // State only, as in the source. ZeRO 3 divides it without changing its sum, so the number is the same.
    std::string devices;
    for (Optimizer o : {Optimizer::kAdamW, Optimizer::kSgdMomentum, Optimizer::kSgd})
      devices +=
          (devices.empty() ? "" : ", ") + optimizer_title(o) + " " +
          count(devices_for(checked_mul(in_.psi, state_bytes(o, in_.parameter_bytes).total()), device));
    note("Number of devices of " + format_bytes(device) + " for the state: " + devices +
         "; the same with ZeRO-3.");
  }

  const ModelSpec& m_;
  const RunSpec& r_;
  const Inputs& in_;
  const Parts& p_;
  std::uint64_t true_psi_;
  StateBytes state_;
  std::vector<std::string> notes_;
};

}  // namespace

Bytes gated_block_activations(const ModelSpec& m, const Inputs& in) {
  // Two norm inputs and the output of the down projection; q and the attention output; k and v; gate, up and
  // their product.
  const std::uint64_t widths =
      3 * in.hidden + 2 * m.q_width() + 2 * m.kv_width() + 3 * std::uint64_t{m.intermediate};
  return checked_mul(in.layers, in.batch, in.seq, widths, in.activation_bytes);
}

std::vector<std::string> notes(const ModelSpec& m, const RunSpec& r, const Inputs& in, const Parts& p,
                               std::uint64_t true_psi) {
  return Notes(m, r, in, p, true_psi).collect();
}

}  // namespace trainhost::memory_equation
