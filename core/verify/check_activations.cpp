// MEM-002: the measured peak of activation memory is at most M_act * B = L*S*H*10*4*B. False in general,
// because a trainer that keeps every tensor holds three widths of I and more; so it is judged under recompute
// "full", the policy that trainhost owns for it, and the run's own policy is a row that is only reported,
// with the K that it measures.
//
// What counts as activation memory: everything that is alive at the peak of a step and is no weight,
// gradient, moment, work space of the trainer or generation cache; gradients of activations and layers made
// again for the backward pass are in it. Logits are not, the contract's ten tensors do not hold them: so the
// run's layers are measured with a vocabulary of 16, where the peak cannot fall into the head and no logits
// hide behind another name.
//
// Two measurements, and the larger one is judged. By name: the ledger's peak without what the trainer's
// report calls something else (what alignment costs is something else). By growth: what the ledger takes more
// for twice the sequences, which asks no plan at all; a trainer that books activations as work space is found
// by it, and work space that grows with the tokens counts.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/base/text.hpp"
#include "core/verify/contract_equations.hpp"
#include "core/verify/footprint.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/memory_checks.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint64_t kVocab = 16;

/// The run's layers under `policy`, decided for the run as it is before its vocabulary goes. One micro-batch:
/// M_act is of sequences that go through the model together, and a second micro-batch may be under way where
/// there are several.
runfile::RunConfig layers_alone(Context& context, const std::string& mode, std::optional<Recompute> policy) {
  runfile::RunConfig c = context.run;
  if (policy) c.run.recompute = *policy, c.run.recompute_layers = {};
  c.run = context.subjects.resolved(mode, c);
  c.model.vocab = std::min(c.model.vocab, kVocab);
  c.weights.reset();
  c.run.accumulate = 1;
  return c;
}

struct Activations {
  std::uint64_t by_name = 0;
  std::optional<std::uint64_t> by_growth;  // absent: no room for twice the sequences
  std::uint64_t most() const { return std::max(by_name, by_growth.value_or(0)); }
};

Activations measure(Context& context, const runfile::RunConfig& c, const std::string& mode) {
  Activations a;
  const Footprint once = footprint(context, c, mode, Measured::kTrained);
  a.by_name = once.bytes_of({Component::kActivations, Component::kLogits});
  runfile::RunConfig twice = c;
  twice.run.micro_batch *= 2;
  try {
    const Footprint f = footprint(context, twice, mode, Measured::kTrained);
    a.by_growth = f.ledger_bytes - std::min(f.ledger_bytes, once.ledger_bytes);
  } catch (const NotJudged&) {
  }
  return a;
}

Finding judge(Context& context, const std::string& mode, std::optional<Recompute> policy) {
  const runfile::RunConfig c = layers_alone(context, mode, policy);
  const Activations a = measure(context, c, mode);
  const std::uint64_t bound = contract_activation_bytes(c.model, c.run), most = a.most();
  const std::string named(name(policy.value_or(context.run.run.recompute)));
  const char* few = policy && most > bound && c.model.layers < 4
                        ? "; under any policy the layer whose backward pass runs is held whole, which few "
                          "layers do not make up for"
                        : "";
  return {
      most <= bound, double(most), double(bound),
      fmt::format(
          "recompute = \"{}\"{}: activations take {} bytes, K = {:.2f} where M_act*B has 10 ({} bytes); {} "
          "by name, {} by what twice the sequences add; logits left out{}",
          named, policy ? "" : ", the run's own", format_count(most), measured_k(c.model, c.run, most),
          format_count(bound), format_count(a.by_name),
          a.by_growth ? format_count(*a.by_growth) : "no room to measure", few)};
}

}  // namespace

Result check_activations(Context& context) {
  return over_modes(context, [&](const std::string& mode) { return judge(context, mode, Recompute::kFull); });
}

Result check_activations_run(Context& context) {
  return over_modes(context, [&](const std::string& mode) { return judge(context, mode, std::nullopt); });
}

}  // namespace trainhost::verify
