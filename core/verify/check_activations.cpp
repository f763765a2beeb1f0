// MEM-002: the peak of activation memory is at most M_act * B = L*S*H*10*4*B. This is false for a trainer
// that keeps every tensor (three of width I and more per layer), so it is tested under recompute "full".
// MEM-002/run reports the run's own policy with its factor K.
//
// Activation memory is everything live at the peak of a step except weights, gradients, moments, workspace
// and the generation cache. It includes gradients of activations and recomputed layers. The contract omits
// logits, so the layers are measured with a vocabulary of 16: the peak is then never in the head.
//
// The larger of two measurements counts. By name: the peak of the ledger minus the bytes that the trainer's
// report assigns to other components (fragmentation is another component). By growth: the additional bytes in
// the ledger for twice the sequences, which needs no report; it finds activations that are reported as
// workspace, and it counts workspace that grows with the tokens.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/base/text.hpp"
#include "core/verify/contract_equations.hpp"
#include "core/verify/contract_table.hpp"
#include "core/verify/footprint.hpp"
#include "core/verify/judge_modes.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint64_t kVocab = 16;

/// The run under `policy` with a vocabulary of 16. The policy is resolved before the vocabulary changes. One
/// micro-batch, because M_act is for one and a trainer may have two in flight.
runfile::RunConfig run_without_logits(Context& context, const std::string& mode,
                                      std::optional<Recompute> policy) {
  runfile::RunConfig c = context.run;
  if (policy) c.run.recompute = *policy, c.run.recompute_layers = {};
  c.run = context.trainers.resolve_run(mode, c);
  c.model.vocab = std::min(c.model.vocab, kVocab);
  c.weights.reset();
  c.run.accumulate = 1;
  return c;
}

struct Activations {
  std::uint64_t by_name = 0;
  std::optional<std::uint64_t> by_growth;  // absent: twice the sequences do not fit
  std::uint64_t most() const { return std::max(by_name, by_growth.value_or(0)); }
};

Activations measure_activations(Context& context, const runfile::RunConfig& c, const std::string& mode) {
  Activations a;
  const Footprint once = measure_footprint(context, c, mode, Measured::kTrained);
  a.by_name = once.bytes_of({Component::kActivations, Component::kLogits});
  runfile::RunConfig twice = c;
  twice.run.micro_batch *= 2;
  try {
    const Footprint f = measure_footprint(context, twice, mode, Measured::kTrained);
    a.by_growth = f.ledger_bytes - std::min(f.ledger_bytes, once.ledger_bytes);
  } catch (const CheckSkipped&) {
  }
  return a;
}

Finding judge_activations(Context& context, const std::string& mode, std::optional<Recompute> policy) {
  const runfile::RunConfig c = run_without_logits(context, mode, policy);
  const Activations a = measure_activations(context, c, mode);
  const std::uint64_t bound = contract_activation_bytes(c.model, c.run), most = a.most();
  const std::string named(name(policy.value_or(context.run.run.recompute)));
  const char* few = policy && most > bound && c.model.layers < 4
                        ? "; under any policy all tensors of the layer in its backward pass are live, which "
                          "exceeds the bound for few layers"
                        : "";
  return {most <= bound, double(most), double(bound),
          fmt::format(
              "recompute = \"{}\"{}: activations take {} bytes, K = {:.2f}; M_act*B has K = 10 ({} bytes); "
              "measured {} by name, {} by growth with twice the sequences; without logits{}",
              named, policy ? "" : " (the run's own)", format_count(most), measured_k(c.model, c.run, most),
              format_count(bound), format_count(a.by_name),
              a.by_growth ? format_count(*a.by_growth) : "not measured (does not fit)", few)};
}

}  // namespace

Result check_activations(Context& context) {
  return run_in_every_mode(
      context, [&](const std::string& mode) { return judge_activations(context, mode, Recompute::kFull); });
}

Result check_activations_run(Context& context) {
  return run_in_every_mode(
      context, [&](const std::string& mode) { return judge_activations(context, mode, std::nullopt); });
}

}  // namespace trainhost::verify
