// See check_values.hpp. The state of a run is in check_execution.hpp, the rules are in check_ops.cpp; here,
// values in words.
#include "core/placement/check_values.hpp"

#include "core/placement/check_execution.hpp"

namespace trainhost::placement {

std::string text(const Value& v) {
  static constexpr const char* kNames[] = {"nothing",
                                           "the residual stream",
                                           "the norm's output",
                                           "the norm's 1/rms",
                                           "raw qkv",
                                           "normed qkv",
                                           "turned qkv",
                                           "q and k before their norm",
                                           "1/rms of q and k",
                                           "the attention output",
                                           "lse",
                                           "gate and up",
                                           "the SwiGLU product",
                                           "logits",
                                           "the key cache",
                                           "the value cache",
                                           "a copy of the weight",
                                           "a part of the gradient"};
  std::string s = v.gradient ? "the gradient of " : "";
  s += kNames[static_cast<std::size_t>(v.thing)];
  if (v.thing == Thing::kNothing || v.thing == Thing::kLogits) return s;
  if (v.thing == Thing::kWeightCopy || v.thing == Thing::kGradPart)
    return s + " of parameter " + std::to_string(v.at);
  const bool half = v.thing == Thing::kResidual || v.thing == Thing::kNormed || v.thing == Thing::kRstd;
  if (!half) return s + " of layer " + std::to_string(v.at);
  return s + (v.at % 2 ? " before the MLP of layer " : " before layer ") + std::to_string(v.at / 2);
}

void check_values(const Program& p, const MemoryPlan& plan, Findings& f) { ValueRun(p, plan, f).all(); }

}  // namespace trainhost::placement
