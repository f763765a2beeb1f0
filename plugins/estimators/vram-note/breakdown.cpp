// Builds the entries in the order of the source, then one note per topic: the rule, its inputs, types,
// omissions. The arithmetic is in note.cpp; here are formulas with numbers, bounds, and the true values where
// the model or the run differs. Mistakes of the source: docs/memory-model.md ("Known mistakes of these
// rules").
#include "plugins/estimators/vram-note/breakdown.hpp"

#include <algorithm>

#include "core/base/checked.hpp"
#include "plugins/estimators/common/number_format.hpp"
#include "plugins/estimators/common/report_builder.hpp"

namespace trainhost::vram_note {
namespace {

using rules::bytes;
using rules::count;
using rules::n;

class Builder {
 public:
  Builder(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_parameters)
      : m_(m),
        r_(r),
        s_(s),
        true_p_(true_parameters),
        infers_(r.mode == RunMode::kInference),
        in_(inputs_of(m, r, s, true_parameters)),
        p_(infers_ ? inference(in_) : training(in_)) {}

  MemoryReport build() {
    add_entries();
    note_summary();
    note_inputs();
    note_types();
    note_omissions();
    return report_.finish(infers_ ? kForward : kBackward);
  }

 private:
  void add_entries() {
    const std::string tokens = n(in_.batch) + "*" + n(in_.seq);
    // Phases in which activations and outputs exist. All entries are counted at the peak.
    const std::uint32_t at_work = infers_ ? kForward | kEval | kGenerate : kForward | kBackward;
    // Lower bound: the measurement of the calculator that the source cites.
    report_.add(Component::kRuntime, "cuda", kAlways, p_.cuda, "2 GiB").lo = kCudaMeasured;
    report_.add(Component::kWeights, "parameters", kAlways, p_.parameters,
                "P*2 = " + n(in_.parameters) + "*2");
    if (!infers_) {
      const std::string trained = "r*P*2 = " + n(in_.trainable) + "*2";
      auto add = [&](Component c, const char* name, Bytes size) {
        report_.add(c, name, kAlways, size, trained).hi =
            checked_mul(2, size);  // f32, as frameworks keep adapters
      };
      add(Component::kGradients, "gradients", p_.gradients);
      add(Component::kOptimizerState, "first_moments", p_.first_moments);
      add(Component::kOptimizerState, "second_moments", p_.second_moments);
    }
    // The source keeps one tensor per layer. With recomputation even these are not all kept at the same time,
    // so the lower bound is 0; without it an eager GPT block keeps 34*B*S*H bytes, 17 times 2*B*S*H.
    MemoryEntry& activations =
        report_.add(Component::kActivations, "layers[].hidden", at_work, p_.activations,
                    "L*B*S*H*2 = " + n(in_.layers) + "*" + tokens + "*" + n(in_.hidden) + "*2");
    activations.lo = 0, activations.hi = checked_mul(p_.activations, infers_ ? 1 : 17);
    // Logits in f32 take twice the bytes; computed in chunks, next to none.
    MemoryEntry& logits = report_.add(
        Component::kLogits, "outputs", at_work, p_.outputs,
        (infers_ ? "B*S*V*2 = " : "B*S*V*2*2 = ") + tokens + "*" + n(in_.vocab) + (infers_ ? "*2" : "*2*2"));
    logits.lo = 0, logits.hi = checked_mul(p_.outputs, 2);
  }

  void note_summary() {
    report_.note(infers_
                     ? "Rule of thumb: 2 bytes per parameter, one hidden state per layer, 2 GiB for CUDA, "
                       "logits of every token; no KV cache."
                     : "Rule of thumb: 2 bytes per number (moments too), one hidden state per layer, 2 GiB "
                       "for CUDA; no master weights.");
  }

  void note_inputs() {
    if (!infers_) {
      const std::string ratio = rules::percent(in_.trainable, in_.parameters);
      const bool adapters = !s_.ratio && adapter_parameters(m_, r_);
      report_.note("Trained: " + count(in_.trainable) + " parameters, " + ratio +
                   (adapters ? ", the adapters of rank " + n(r_.lora_rank) +
                                   " on the run's targets; the source assumes 2 %."
                             : "."));
      // Gradients and moments of the adapters are counted, their weights are not.
      if (r_.mode != RunMode::kFull)
        report_.note("The source does not count the adapters themselves: " +
                     bytes(checked_mul(in_.trainable, kHalf)) + ".");
    }
    // An option may replace each symbol. The note then has the bytes with the value of the model.
    if (true_p_ && in_.parameters != true_p_)
      report_.note("P = " + count(in_.parameters) + " is set by the option; the model has " + count(true_p_) +
                   ": weights " + bytes(checked_mul(true_p_, kHalf)) + ".");
    if (in_.hidden != m_.hidden)
      report_.note("H = " + n(in_.hidden) + " is set by the option; the model's hidden size is " +
                   n(m_.hidden) + ": activations " +
                   bytes(checked_mul(in_.layers, in_.batch, in_.seq, m_.hidden, kHalf)) + ".");
    if (m_.vocab && in_.vocab != m_.vocab)
      report_.note("V = " + n(in_.vocab) + " is set by the option; the model's vocabulary is " + n(m_.vocab) +
                   ": outputs " + bytes(checked_mul(in_.batch, in_.seq, m_.vocab, kHalf, infers_ ? 1 : 2)) +
                   ".");
  }

  void note_types() {
    // With adapters the base may have a type of its own (lora.base).
    const DType base = r_.memory.frozen == DType::kNone ? r_.weight : r_.memory.frozen;
    if (bits_of(base) != 16)
      report_.note("The source counts 2 bytes per weight; the weights of this run are " +
                   std::string(name(base)) + ": " + bytes(weights_of(base)) + ".");
    if (infers_) return;
    if (r_.optimizer != Optimizer::kAdamW)
      report_.note("The source counts the two moments of Adam; " + std::string(name(r_.optimizer)) +
                   " has other state.");
    report_.note(
        "Adam's moments are counted with 2 bytes per number; frameworks keep moments and adapters in f32: " +
        bytes(checked_mul(in_.trainable, 2, 4)) + " of moments instead of " +
        count(p_.first_moments + p_.second_moments) + ".");
  }

  std::uint64_t weights_of(DType t) const {
    // size_of() is 0 for types below one byte.
    return size_of(t) ? checked_mul(in_.parameters, size_of(t))
                      : in_.parameters * bits_of(t) / 8;  // 4 bits of less than 2^62
  }

  void note_omissions() {
    // Omissions are stated for the model, also where an option replaces its vocabulary.
    Inputs real = in_;
    if (m_.vocab) real.vocab = m_.vocab;
    if (infers_)
      report_.note("The KV cache is not counted: 2*L*K*D*B*S*2 = " +
                   bytes(kv_cache(real, m_.kv_width(), kHalf)) + ".");
    report_.note("Outputs are half of those of the calculator that the source cites, which counts 4 bytes" +
                 std::string(infers_ ? ": " : ", twice: ") + bytes(outputs(real, 4, infers_ ? 1 : 2)) + ".");
    if (!infers_)
      report_.note(
          "Activations are counted as one tensor per layer; autograd keeps 17 or more of that size: " +
          bytes(checked_mul(in_.layers, in_.batch, in_.seq, m_.hidden, kHalf, 17)) + " or more.");
    // Sharding would divide most lines; the source has no symbol for ranks.
    if (checked_mul(r_.parallel.data, r_.parallel.tensor, r_.parallel.pipeline, r_.parallel.context) > 1 ||
        r_.parallel.zero)
      report_.note("The source is for one device: nothing is sharded over ranks.");
  }

  const ModelSpec& m_;
  const RunSpec& r_;
  const Settings& s_;
  std::uint64_t true_p_;
  bool infers_;
  Inputs in_;
  Parts p_;
  rules::ReportBuilder report_;
};

}  // namespace

std::uint64_t adapter_parameters(const ModelSpec& m, const RunSpec& r) {
  if (r.mode == RunMode::kFull || r.mode == RunMode::kInference || !r.lora_rank || !r.lora_targets) return 0;
  // A rank-r adapter of a matrix [rows, columns] is the product of [rows, r] and [r, columns].
  const std::uint64_t H = m.hidden, I = m.intermediate;
  // In the order of lora.targets' bits: q, k, v, o, gate, up, down; rows + columns of each.
  const std::uint64_t rows_plus_columns[] = {
      H + m.q_width(), H + m.kv_width(), H + m.kv_width(), m.q_width() + H, H + I, H + I, I + H};
  std::uint64_t width = 0;
  for (std::uint32_t bit = 0; bit < std::size(rows_plus_columns); ++bit)
    if (r.lora_targets >> bit & 1) width += rows_plus_columns[bit];
  return checked_mul(m.layers, r.lora_rank, width);
}

Inputs inputs_of(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_parameters) {
  Inputs in;
  in.parameters = s.parameters.value_or(true_parameters);
  in.layers = m.layers, in.batch = r.micro_batch, in.seq = r.seq_len;
  in.hidden = s.hidden.value_or(m.hidden), in.vocab = s.vocab.value_or(m.vocab);
  const std::uint64_t adapters = adapter_parameters(m, r);
  // The most explicit source counts: the option, the adapters of [lora], the assumption of the source.
  if (s.ratio)
    in.trainable = trainable(in.parameters, *s.ratio);
  else if (adapters)
    in.trainable = adapters;
  else
    in.trainable = r.mode == RunMode::kFull ? in.parameters : trainable(in.parameters, kLoraRatio);
  return in;
}

MemoryReport breakdown(const ModelSpec& m, const RunSpec& r, const Settings& s,
                       std::uint64_t true_parameters) {
  return Builder(m, r, s, true_parameters).build();
}

}  // namespace trainhost::vram_note
