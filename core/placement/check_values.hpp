// What a buffer holds, as far as the mathematics of the step is concerned: "qkv of layer 3, turned", "the
// gradient of the residual stream before layer 3". The checker runs the program on these instead of numbers.
#pragma once
#include <cstdint>
#include <string>

#include "core/placement/check_arena.hpp"
#include "core/placement/check_findings.hpp"

namespace trainhost::placement {

enum class Thing : std::uint8_t {
  kNothing,
  kResidual,
  kNormed,
  kRstd,
  kQkv,
  kQkvNormed,
  kQkvTurned,
  kQkPre,
  kQkRstd,
  kAttnOut,
  kLse,
  kGateUp,
  kAct,
  kLogits,
  kKeys,
  kValues,
  kWeightCopy,  // of the weight of parameter `at`, on the other side
  kGradPart,    // one micro-batch's gradient of parameter `at`
};

/// `at`: the layer; for residual stream, norm outputs and their 1/rms the half step: 2l before layer l's
/// attention, 2l + 1 before its MLP, 2L after the last layer.
struct Value {
  Thing thing = Thing::kNothing;
  std::int32_t at = 0;
  bool gradient = false;
  bool operator==(const Value&) const = default;
};
std::string text(const Value& v);

/// Runs all sections as training would (micro twice, update, eval, generate twice, micro, update) on values,
/// with every write taking its bytes in the arena. Finds reads of what was never written, has other contents
/// or was overwritten; gradients without or with two first writers, or with contributions missing; parameters
/// that nobody updates.
void check_values(const Program& p, const MemoryPlan& plan, Findings& f);

}  // namespace trainhost::placement
