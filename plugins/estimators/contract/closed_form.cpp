// Builds the report of the contract estimator: entries, then notes, one per broken assumption. The equations
// are at the end; core/verify/contract_equations.cpp has its own copy of them, so that one mistake cannot
// hide in both. The contract and its mistakes: docs/memory-model.md.
#include "plugins/estimators/contract/closed_form.hpp"

#include <algorithm>
#include <cstdio>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/model/architecture.hpp"
#include "plugins/estimators/common/model_match.hpp"

namespace trainhost::contract {
namespace {

// K tensors of H f32 numbers per token and layer; two f32 moments per parameter.
constexpr std::uint64_t kK = 10, kF32 = 4, kAdamBytes = 8;

std::string n(std::uint64_t v) { return std::to_string(v); }
std::string count(std::uint64_t v) { return format_count(v); }

/// Relative error of the formula, "-1.95 %".
std::string relative_error(std::uint64_t formula, std::uint64_t truth) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.2f %%", 100.0 * (double(formula) - double(truth)) / double(truth));
  return text;
}

std::string ratio(std::uint64_t more, std::uint64_t less) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", double(more) / double(less));
  return text;
}

/// Bytes per parameter of the working copy, and of the f32 master copy that a narrower type needs.
std::uint64_t weight_size(const RunSpec& r) { return size_of(r.weight); }
std::uint64_t master_size(const RunSpec& r) { return size_of(r.master); }

class Builder {
 public:
  Builder(const ModelSpec& m, const RunSpec& r, Tier tier)
      : m_(m), r_(r), tier_(tier), p_(parameters(m)), true_p_(rules::true_parameters(m)) {}

  MemoryReport build() {
    // Stated by the source. Where it does not hold for a trainer, activation_notes() has the true size.
    report_.claim = Claim::kUpperBound;
    add_entries();
    note("A closed form: " + n(weight_size(r_) + master_size(r_) + kF32 + kAdamBytes) +
         " bytes per parameter, 40*L*S*H bytes of activations for one sequence, 512 MiB; logits and loss are "
         "not counted.");
    parameter_notes();
    activation_notes();
    run_notes();
    // All entries exist at the peak, which the contract has in the backward pass.
    std::uint64_t total = 0;
    for (const MemoryEntry& entry : report_.entries)
      total = checked_add(total, entry.bytes, "the closed form's total");
    report_.tiers.push_back({tier_, total, kBackward});
    return std::move(report_);
  }

 private:
  MemoryEntry& add(const char* name, Component c, std::uint32_t phases, std::uint64_t bytes,
                   std::string formula) {
    MemoryEntry entry;
    entry.id = static_cast<std::uint32_t>(report_.entries.size() + 1);
    entry.tier = tier_;
    entry.component = c;
    entry.phases = phases;
    entry.bytes = entry.lo = entry.hi = entry.bytes_at_peak = bytes;
    entry.has_at_peak = true;
    entry.name = name;
    entry.formula = std::move(formula);
    report_.entries.push_back(std::move(entry));
    return report_.entries.back();
  }

  /// `size` bytes for each of P parameters: exact where P is exact, otherwise between P and the true count.
  void per_parameter(const char* name, Component c, std::uint64_t size) {
    MemoryEntry& entry =
        add(name, c, kAlways, checked_mul(p_, size), "P*" + n(size) + " = " + n(p_) + "*" + n(size));
    if (p_ == true_p_) return;
    entry.claim = Claim::kApproximation;
    entry.lo = checked_mul(std::min(p_, true_p_), size);
    entry.hi = checked_mul(std::max(p_, true_p_), size);
  }

  void add_entries() {
    per_parameter("weights", Component::kWeights, weight_size(r_));
    if (master_size(r_)) per_parameter("master_weights", Component::kMasterWeights, master_size(r_));
    per_parameter("gradients", Component::kGradients, kF32);
    per_parameter("optimizer_state", Component::kOptimizerState, kAdamBytes);
    // For one sequence, whatever the micro-batch: M_act has no batch factor. Recomputation may keep fewer.
    add("activations", Component::kActivations, kForward | kBackward, activation_bytes(m_, r_),
        "L*S*H*10*4 = " + n(m_.layers) + "*" + n(r_.seq_len) + "*" + n(m_.hidden) + "*10*4")
        .claim = Claim::kUpperBound;
    report_.entries.back().lo = 0;
    // A round figure of the source for context, workspace and allocator: from nothing to twice as much.
    MemoryEntry& runtime = add("runtime", Component::kRuntime, kAlways, kRuntimeBytes, "512 MiB");
    runtime.claim = Claim::kApproximation;
    runtime.lo = 0;
    runtime.hi = 2 * kRuntimeBytes;
  }

  void note(const std::string& sentence) { report_.notes.push_back(sentence); }

  /// Parameters that P leaves out, one note per kind, and the true count.
  void parameter_notes() {
    // One note per condition of "exact if the head is tied, A*D = H, and there are no biases and no q/k
    // norms".
    std::uint64_t H = m_.hidden, layers = m_.layers;
    if (!m_.tied)
      note("The formula leaves out the untied LM head: V*H = " + count(checked_mul(m_.vocab, H)) +
           " parameters.");
    // D = H/A is part of the formula, also where the model has another head dimension.
    std::uint64_t assumed = m_.heads ? H / m_.heads : 0;
    if (m_.head_dim != assumed || m_.q_width() != H)
      note("The formula assumes head_dim = H/A = " + n(assumed) + "; this model has " + n(m_.head_dim) + ".");
    if (m_.qkv_bias)
      note("The formula leaves out the biases of q, k and v: " + count(checked_mul(layers, m_.qkv_width())) +
           " parameters.");
    if (m_.o_bias)
      note("The formula leaves out the bias of the attention output: " + count(checked_mul(layers, H)) +
           " parameters.");
    if (m_.mlp_bias)
      note("The formula leaves out the biases of gate, up and down: " +
           count(checked_mul(layers, 2 * std::uint64_t{m_.intermediate} + H)) + " parameters.");
    // Trainable families have the two norms per layer of the formula.
    if (!trainable_family(m_.family)) norms_of(model::from_model(m_));
    if (m_.qk_norm)
      note("The formula leaves out the norms of q and k: " + count(checked_mul(layers, 2, m_.head_dim)) +
           " parameters.");
    if (p_ != true_p_)
      note("True parameter count: " + count(true_p_) + "; the formula gives " + count(p_) + " (" +
           relative_error(p_, true_p_) + "). True weights " +
           count(checked_mul(true_p_, weight_size(r_) + master_size(r_))) + " bytes, gradients " +
           count(checked_mul(true_p_, kF32)) + ", optimizer state " +
           count(checked_mul(true_p_, kAdamBytes)) + ".");
  }

  void norms_of(const model::Architecture& a) {
    const std::uint32_t norms = a.layers.front().layer.norms;
    note("The formula is for LLaMA; this model is of the family " + escaped(m_.family) +
         (norms == 2 ? "." : ", with " + n(norms) + " norms per layer; the formula has 2."));
  }

  /// The bound does not hold for a trainer that keeps every activation; the note has the true size.
  void activation_notes() {
    // The ten tensors that K = 10 names, at their true widths.
    std::uint64_t bound = activation_bytes(m_, r_), real = ten_tensor_bytes(m_, r_);
    if (real > bound)
      note("K = 10 is not an upper bound for a trainer that keeps every tensor: the ten named tensors take " +
           count(real) + " bytes per sequence, " + ratio(real, bound) +
           " times the bound (scores are A*S*S, gate and up have width I).");
    if (r_.micro_batch > 1)
      note("The activation bound is for one sequence; " + n(r_.micro_batch) +
           " sequences per micro-batch compare with " + count(checked_mul(bound, r_.micro_batch)) +
           " bytes.");
    if (r_.recompute != Recompute::kNone)
      note("The formula does not include recomputation; this run uses '" + std::string(name(r_.recompute)) +
           "'.");
    note("Logits are not counted: S*V*4 = " + count(checked_mul(r_.seq_len, m_.vocab, kF32)) +
         " bytes per sequence where they are materialised.");
  }

  void run_notes() {
    // 8 bytes per parameter are AdamW's. The entry keeps them, because the contract has no other optimizer.
    if (r_.optimizer == Optimizer::kSgd)
      note("The formula counts AdamW's two moments; SGD without momentum has no state: 0 bytes.");
    if (r_.optimizer == Optimizer::kSgdMomentum)
      note("The formula counts AdamW's two moments; SGD with momentum has one: " +
           count(checked_mul(true_p_, kF32)) + " bytes.");
    if (size_of(r_.grad) != kF32)
      note("The formula counts gradients in f32; this run keeps them in " + std::string(name(r_.grad)) +
           ": " + count(checked_mul(true_p_, size_of(r_.grad))) + " bytes.");
    if (r_.mode != RunMode::kFull)
      note(r_.mode == RunMode::kInference
               ? "The formula is for full training; this run is inference."
               : "The formula is for full training; this run trains only adapters.");
    if (checked_mul(r_.parallel.data, r_.parallel.tensor, r_.parallel.pipeline) > 1 || r_.parallel.zero)
      note("The formula is for one rank; sharding is not included.");
    // The contract of the hybrid mode, which only a device has.
    if (tier_ == Tier::kDevice) {
      char ms[32];
      std::snprintf(ms, sizeof ms, "%.2f",
                    transfer_milliseconds(transfer_bytes(m_, r_), kPcie4BytesPerSecond));
      note("In hybrid mode one sequence transfers S*(H + 2V)*4 = " + count(transfer_bytes(m_, r_)) +
           " bytes per step over PCIe, " + ms + " ms at 32 GB/s.");
    }
    if (tier_ == Tier::kHost)
      note("The formula includes 512 MiB of CUDA runtime, although this run uses no device.");
  }

  const ModelSpec& m_;
  const RunSpec& r_;
  Tier tier_;
  std::uint64_t p_, true_p_;
  MemoryReport report_;
};

}  // namespace

std::uint64_t parameters(const ModelSpec& m) {
  std::uint64_t H = m.hidden, I = m.intermediate;
  // K*(H/A) and not K*D: the formula as its source writes it. A model without heads has no such term.
  std::uint64_t d_kv = m.heads ? checked_mul(m.kv_heads, H / m.heads) : 0;
  // Two norms; q and o; then k and v; then gate, up and down.
  std::uint64_t layer = checked_add(checked_mul(2, H), checked_mul(2, H, H));
  layer = checked_add(layer, checked_mul(2, H, d_kv));
  layer = checked_add(layer, checked_mul(3, H, I));
  return checked_add(checked_add(checked_mul(m.vocab, H), checked_mul(m.layers, layer)), H);
}

std::uint64_t activation_bytes(const ModelSpec& m, const RunSpec& r) {
  return checked_mul(m.layers, r.seq_len, m.hidden, kK, kF32);
}

std::uint64_t ten_tensor_bytes(const ModelSpec& m, const RunSpec& r) {
  std::uint64_t S = r.seq_len, H = m.hidden;
  // Widths of q, attention output, k, v, gate, up, down and two residuals; then the scores.
  std::uint64_t widths = 2 * m.q_width() + 2 * m.kv_width() + 2 * std::uint64_t{m.intermediate} + 3 * H;
  std::uint64_t layer = checked_add(checked_mul(S, widths), checked_mul(m.heads, S, S));
  return checked_mul(m.layers, layer, kF32);
}

std::uint64_t transfer_bytes(const ModelSpec& m, const RunSpec& r) {
  // Hidden states, logits and their gradient in f32, for one sequence: the contract has no batch factor.
  return checked_mul(r.seq_len, checked_add(m.hidden, checked_mul(2, m.vocab)), kF32);
}

double transfer_milliseconds(std::uint64_t bytes, double bytes_per_second) {
  return 1e3 * double(bytes) / bytes_per_second;
}

MemoryReport estimate(const ModelSpec& m, const RunSpec& r, Tier tier) { return Builder(m, r, tier).build(); }

}  // namespace trainhost::contract
