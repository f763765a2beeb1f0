// See notes.hpp.
#include "plugins/estimators/memory-equation/notes.hpp"

#include <cmath>

#include "core/base/checked.hpp"
#include "plugins/estimators/common/words.hpp"

namespace trainhost::memory_equation {
namespace {

using rules::bytes;
using rules::count;
using rules::fixed;
using rules::n;

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

std::string optimizer_words(Optimizer o) {
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

  std::vector<std::string> all() {
    why();
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
  void say(std::string s) { notes_.push_back(std::move(s)); }

  void why() {
    say("A rule of thumb: " + n(state_.total()) + " bytes a parameter, a GPT block's 11*B*S*H" +
        (in_.flash ? "" : " + B*A*S^2") + " a layer, " + rules::shortest(in_.temporary / 1e4) +
        " % temporary, " + rules::shortest(in_.fragmentation / 1e4) +
        " % fragmentation; logits, loss and the CUDA context are not in it.");
  }

  void parameters() {
    if (in_.psi != true_psi_ && true_psi_)
      say("Psi = " + count(in_.psi) + " as the option says; the model has " + count(true_psi_) + " (" +
          rules::percent_off(in_.psi, true_psi_) + "), whose state is " +
          bytes(checked_mul(true_psi_, state_.total())) + ".");
  }

  void types() {
    const std::uint32_t grad = size_of(r_.grad);
    if (grad != state_.gradients)
      say("The equation keeps gradients in the type of the parameters; this run's are " +
          std::string(name(r_.grad)) + ": " + bytes(checked_mul(in_.psi, grad)) + " where it counts " +
          count(checked_mul(in_.psi, state_.gradients)) +
          (in_.zero >= 2 && in_.ranks > 1 ? ", before ZeRO divides either." : "."));
    if (state_.master && r_.master == DType::kNone)
      say("The equation counts master weights of 4 bytes a parameter; this run keeps none.");
    if (r_.optimizer == Optimizer::kSgdMomentum)
      say("The source's table gives SGD with momentum 12 bytes a parameter in mixed precision, its code 8: "
          "the code forgets the master weights; the table is followed.");
    if (r_.optimizer != Optimizer::kAdamW && r_.optimizer != Optimizer::kSgd &&
        r_.optimizer != Optimizer::kSgdMomentum)
      say("The source does not name " + optimizer_words(r_.optimizer) + "; its state is taken as " +
          n(state_.moments) + " bytes a parameter.");
    if (bits_of(r_.weight) < 8)
      say("Parameters of " + std::string(name(r_.weight)) + " are counted as one byte each.");
  }

  void attention() {
    Inputs other = in_;
    other.flash = !in_.flash;
    const Bytes total = equation(other).total;
    const Bytes scores =
        in_.flash ? activations(other) - activations(in_) : activations(in_) - activations(other);
    say((in_.flash ? "Flash attention: no scores of B*A*S^2 are kept; materialised they take "
                   : "Scores of B*A*S^2 are kept: ") +
        bytes(scores) + (in_.flash ? ", and the total is " : "; with flash attention the total is ") +
        bytes(total) + ".");
    std::string crossovers =
        "Scores outweigh the rest of a layer from S = " + rules::shortest(crossover(in_.hidden, in_.heads)) +
        " (11H/A, this equation); the source's exercise says " +
        rules::shortest(crossover_of_exercise(in_.hidden, in_.heads)) +
        " (34H/A) and the paper that it cites " +
        fixed(std::floor(crossover_of_paper(in_.hidden, in_.heads)), 0) + " (34h/5a).";
    say(std::move(crossovers));
  }

  void block() {
    if (!m_.intermediate || !trainable_family(m_.family)) return;
    const Bytes linear = checked_mul(in_.layers, linear_layer(in_)), real = gated_block_activations(m_, in_);
    say("The block of 11*B*S*H is GPT's: a LLaMA block keeps gate, up and their product at width I = " +
        n(m_.intermediate) + ": " + bytes(real) + " instead of " + count(linear) + ", scores aside.");
  }

  void sharding() {
    if (in_.zero == 0 || in_.ranks < 2) return;
    if (in_.zero == 2)
      say("The source's example of ZeRO-2 (13B on 8 devices) prints 48.25 GB; its own formula, used here, "
          "gives 48.75.");
    if (in_.zero == 3)
      say("ZeRO-3 divides the state and never shrinks its sum: " + bytes(checked_mul(p_.state(), in_.ranks)) +
          " over " + n(in_.ranks) +
          " ranks. The source's 2, 2 and 1 devices for 70B with ZeRO-3 are 14, 11 and 7, and its 93 % of "
          "efficiency is 11.7 %.");
    if (in_.zero < 3)
      say("The source's efficiencies of 15 % and 20 % for ZeRO-1 and ZeRO-2 belong to no number of ranks; on "
          "8 they are 36.4 % and 53.3 % of the state.");
  }

  void parallel() {
    if (checked_mul(r_.parallel.tensor, r_.parallel.pipeline, r_.parallel.context, r_.parallel.expert) > 1)
      say("The equation knows data-parallel ranks alone: tensor, pipeline, context and expert parallelism "
          "are not in it.");
    if (r_.mode != RunMode::kFull) say("The equation trains every parameter; adapters are not in it.");
    if (in_.checkpoint_every)
      say("Recomputation as in the source's exercise: one input every " + n(in_.checkpoint_every) +
          " layers, and that many layers alive in the backward pass.");
    else if (r_.recompute != Recompute::kNone)
      say("The equation knows whole layers made again, not '" + std::string(name(r_.recompute)) +
          "': everything is counted as kept.");
    if (r_.memory.weights_in != Tier::kDevice || r_.memory.optimizer_in != Tier::kDevice ||
        r_.memory.activations_in != Tier::kDevice)
      say("Offloading is not in the equation: everything is counted on the device.");
  }

  void derived() {
    const Timeline t = timeline(p_);
    say("One step, without fragmentation: before forward " + format_bytes(t.before_forward) +
        ", after forward " + format_bytes(t.after_forward) + ", peak in backward " + format_bytes(t.peak) +
        ", after backward " + format_bytes(t.after_backward) + ", after the optimizer " +
        format_bytes(t.after_optimizer) + ".");
    say("One layer keeps " + bytes(layer_activations(in_)) + ": attention " + count(attention_bytes()) +
        ", feed-forward " + count(hidden_states(5)) + ", norms " + count(hidden_states(2)) +
        "; all layers are alike.");
    say("Memory efficiency: parameters are " + percent(efficiency(p_.parameters, p_.total)) +
        " of the total, " + percent(efficiency(p_.parameters, p_.state())) +
        " of the state. Fragmentation is " +
        percent(fragmentation_ratio(p_.total, p_.total - p_.fragmentation)) + " of what is allocated: " +
        std::string(severity(fragmentation_ratio(p_.total, p_.total - p_.fragmentation))) + ".");
  }

  Bytes hidden_states(std::uint64_t times) const {
    return checked_mul(times, in_.batch, in_.seq, in_.hidden, in_.activation_bytes);
  }
  Bytes attention_bytes() const { return checked_add(hidden_states(4), scores_layer(in_), "attention"); }

  void budget() {
    const Bytes device = r_.device_budget;
    if (!device) return;
    const std::uint64_t most = largest_batch(in_, device);
    say(most ? "Largest micro-batch in " + format_bytes(device) + ": " + count(most) + "."
             : "No micro-batch fits " + format_bytes(device) + ": the state alone is " +
                   format_bytes(p_.state()) + ".");
    std::string devices;
    for (Optimizer o : {Optimizer::kAdamW, Optimizer::kSgdMomentum, Optimizer::kSgd})
      devices +=
          (devices.empty() ? "" : ", ") + optimizer_words(o) + " " +
          count(devices_for(checked_mul(in_.psi, state_bytes(o, in_.parameter_bytes).total()), device));
    say("Devices of " + format_bytes(device) + " that the state needs: " + devices +
        "; ZeRO-3 needs as many.");
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
  // two norm inputs and the down projection's output; q and the attention's output; k and v; gate, up and
  // their product.
  const std::uint64_t widths =
      3 * in.hidden + 2 * m.q_width() + 2 * m.kv_width() + 3 * std::uint64_t{m.intermediate};
  return checked_mul(in.layers, in.batch, in.seq, widths, in.activation_bytes);
}

std::vector<std::string> notes(const ModelSpec& m, const RunSpec& r, const Inputs& in, const Parts& p,
                               std::uint64_t true_psi) {
  return Notes(m, r, in, p, true_psi).all();
}

}  // namespace trainhost::memory_equation
