// See account.hpp. The leaves first, then the notes; the note that says why this estimate differs comes first
// of them.
#include "plugins/estimators/vram-note/account.hpp"

#include <algorithm>

#include "core/base/checked.hpp"
#include "plugins/estimators/common/sheet.hpp"
#include "plugins/estimators/common/words.hpp"

namespace trainhost::vram_note {
namespace {

using rules::bytes;
using rules::count;
using rules::n;

class Account {
 public:
  Account(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_parameters)
      : m_(m),
        r_(r),
        s_(s),
        true_p_(true_parameters),
        infers_(r.mode == RunMode::kInference),
        in_(inputs_of(m, r, s, true_parameters)),
        p_(infers_ ? inference(in_) : training(in_)) {}

  MemoryReport build() {
    leaves();
    why();
    inputs();
    types();
    left_out();
    return sheet_.finish(infers_ ? kForward : kBackward);
  }

 private:
  void leaves() {
    const std::string tokens = n(in_.batch) + "*" + n(in_.seq);
    const std::uint32_t at_work = infers_ ? kForward | kEval | kGenerate : kForward | kBackward;
    sheet_.leaf(Component::kRuntime, "cuda", kAlways, p_.cuda, "2 GiB").lo = kCudaMeasured;
    sheet_.leaf(Component::kWeights, "parameters", kAlways, p_.parameters,
                "P*2 = " + n(in_.parameters) + "*2");
    if (!infers_) {
      const std::string trained = "r*P*2 = " + n(in_.trainable) + "*2";
      auto leaf = [&](Component c, const char* name, Bytes size) {
        sheet_.leaf(c, name, kAlways, size, trained).hi =
            checked_mul(2, size);  // f32, as frameworks keep adapters
      };
      leaf(Component::kGradients, "gradients", p_.gradients);
      leaf(Component::kOptimizerState, "first_moments", p_.first_moments);
      leaf(Component::kOptimizerState, "second_moments", p_.second_moments);
    }
    MemoryEntry& activations =
        sheet_.leaf(Component::kActivations, "layers[].hidden", at_work, p_.activations,
                    "L*B*S*H*2 = " + n(in_.layers) + "*" + tokens + "*" + n(in_.hidden) + "*2");
    activations.lo = 0, activations.hi = checked_mul(p_.activations, infers_ ? 1 : 17);
    MemoryEntry& logits = sheet_.leaf(
        Component::kLogits, "outputs", at_work, p_.outputs,
        (infers_ ? "B*S*V*2 = " : "B*S*V*2*2 = ") + tokens + "*" + n(in_.vocab) + (infers_ ? "*2" : "*2*2"));
    logits.lo = 0, logits.hi = checked_mul(p_.outputs, 2);
  }

  void why() {
    sheet_.note(infers_ ? "A rule of thumb: 2 bytes a parameter, one hidden state a layer, 2 GiB for CUDA; "
                          "logits of every token, and no KV cache."
                        : "A rule of thumb: 2 bytes for every number, one hidden state a layer, 2 GiB for "
                          "CUDA; moments in 2 bytes too, and no master weights.");
  }

  void inputs() {
    if (!infers_) {
      const std::string ratio = rules::percent(in_.trainable, in_.parameters);
      const bool adapters = !s_.ratio && adapter_parameters(m_, r_);
      sheet_.note("Trained: " + count(in_.trainable) + " parameters, " + ratio +
                  (adapters ? ", the adapters of rank " + n(r_.lora_rank) +
                                  " on the run's targets; the source guesses 2 %."
                            : "."));
      if (r_.mode != RunMode::kFull)
        sheet_.note("The source adds no memory for the adapters themselves: " +
                    bytes(checked_mul(in_.trainable, kHalf)) + ".");
    }
    if (true_p_ && in_.parameters != true_p_)
      sheet_.note("P = " + count(in_.parameters) + " as the option says; the model has " + count(true_p_) +
                  ": weights " + bytes(checked_mul(true_p_, kHalf)) + ".");
    if (in_.hidden != m_.hidden)
      sheet_.note("H = " + n(in_.hidden) + " as the option says; the model's hidden size is " + n(m_.hidden) +
                  ": activations " + bytes(checked_mul(in_.layers, in_.batch, in_.seq, m_.hidden, kHalf)) +
                  ".");
    if (m_.vocab && in_.vocab != m_.vocab)
      sheet_.note("V = " + n(in_.vocab) + " as the option says; the model's vocabulary is " + n(m_.vocab) +
                  ": outputs " + bytes(checked_mul(in_.batch, in_.seq, m_.vocab, kHalf, infers_ ? 1 : 2)) +
                  ".");
  }

  void types() {
    const DType base = r_.memory.frozen == DType::kNone ? r_.weight : r_.memory.frozen;
    if (bits_of(base) != 16)
      sheet_.note("The note counts weights in 2 bytes; this run's are " + std::string(name(base)) + ": " +
                  bytes(weights_of(base)) + ".");
    if (infers_) return;
    if (r_.optimizer != Optimizer::kAdamW)
      sheet_.note("The note counts the two moments of Adam; " + std::string(name(r_.optimizer)) +
                  " keeps other state.");
    sheet_.note("Adam's moments are counted in 2 bytes; frameworks keep them, and adapters, in f32: " +
                bytes(checked_mul(in_.trainable, 2, 4)) + " of moments instead of " +
                count(p_.first_moments + p_.second_moments) + ".");
  }

  std::uint64_t weights_of(DType t) const {
    return size_of(t) ? checked_mul(in_.parameters, size_of(t))
                      : in_.parameters * bits_of(t) / 8;  // 4 bits of less than 2^62
  }

  void left_out() {
    Inputs real = in_;
    if (m_.vocab) real.vocab = m_.vocab;
    if (infers_)
      sheet_.note("No KV cache is counted: 2*L*K*D*B*S*2 = " + bytes(kv_cache(real, m_.kv_width(), kHalf)) +
                  ".");
    sheet_.note("Outputs are counted at half of the calculator that the note cites, which takes 4 bytes" +
                std::string(infers_ ? ": " : ", twice: ") + bytes(outputs(real, 4, infers_ ? 1 : 2)) + ".");
    if (!infers_)
      sheet_.note("Activations are one tensor a layer; autograd keeps 17 or more of that size: " +
                  bytes(checked_mul(in_.layers, in_.batch, in_.seq, m_.hidden, kHalf, 17)) + " and above.");
    if (checked_mul(r_.parallel.data, r_.parallel.tensor, r_.parallel.pipeline, r_.parallel.context) > 1 ||
        r_.parallel.zero)
      sheet_.note("The note knows one device: nothing is divided among ranks.");
  }

  const ModelSpec& m_;
  const RunSpec& r_;
  const Settings& s_;
  std::uint64_t true_p_;
  bool infers_;
  Inputs in_;
  Parts p_;
  rules::Sheet sheet_;
};

}  // namespace

std::uint64_t adapter_parameters(const ModelSpec& m, const RunSpec& r) {
  if (r.mode == RunMode::kFull || r.mode == RunMode::kInference || !r.lora_rank || !r.lora_targets) return 0;
  const std::uint64_t H = m.hidden, I = m.intermediate;
  // In the order of lora.targets' bits: q, k, v, o, gate, up, down; rows + columns of each.
  const std::uint64_t sides[] = {
      H + m.q_width(), H + m.kv_width(), H + m.kv_width(), m.q_width() + H, H + I, H + I, I + H};
  std::uint64_t width = 0;
  for (std::uint32_t bit = 0; bit < std::size(sides); ++bit)
    if (r.lora_targets >> bit & 1) width += sides[bit];
  return checked_mul(m.layers, r.lora_rank, width);
}

Inputs inputs_of(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_parameters) {
  Inputs in;
  in.parameters = s.parameters.value_or(true_parameters);
  in.layers = m.layers, in.batch = r.micro_batch, in.seq = r.seq_len;
  in.hidden = s.hidden.value_or(m.hidden), in.vocab = s.vocab.value_or(m.vocab);
  const std::uint64_t adapters = adapter_parameters(m, r);
  if (s.ratio)
    in.trainable = trainable(in.parameters, *s.ratio);
  else if (adapters)
    in.trainable = adapters;
  else
    in.trainable = r.mode == RunMode::kFull ? in.parameters : trainable(in.parameters, kLoraRatio);
  return in;
}

MemoryReport account(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_parameters) {
  return Account(m, r, s, true_parameters).build();
}

}  // namespace trainhost::vram_note
