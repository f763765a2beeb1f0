// See check_values.hpp: the names of the values in messages. The state of the run is in check_execution.hpp,
// the rules of the operations are in check_ops.cpp.
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
                                           "rotated qkv",
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
                                           "the inner product of the adapters",
                                           "the dropped input of the adapters",
                                           "one micro-batch's gradient",
                                           "the ranks' sum of one micro-batch's gradient",
                                           "the unscaled output",
                                           "the DoRA factors",
                                           "the squared norms of rows",
                                           "the statistics of the logits",
                                           "the direction",
                                           "the orthogonalised direction",
                                           "the sums of squared gradients",
                                           "the sums of squared changes",
                                           "A of the adapter of the head"};
  std::string s = v.gradient ? "the gradient of " : "";
  if (v.lacks == Lacks::kAdapters) s = "the part without adapters of " + s;
  if (v.lacks == Lacks::kMagnitudes) s = "the part without magnitudes of " + s;
  if (v.lacks == Lacks::kTensorRanks) s = "this rank's part of " + s;
  if (v.lacks == Lacks::kResidual) s = "the part without residual of " + s;
  if (v.own_rows) s = "this rank's rows of " + s;
  s += kNames[static_cast<std::size_t>(v.quantity)];
  if (v.quantity == Quantity::kNothing || v.quantity == Quantity::kLogits ||
      v.quantity == Quantity::kHeadStats || v.quantity == Quantity::kTransposed)
    return s;
  if (v.quantity == Quantity::kWeightCopy || v.quantity == Quantity::kGradPart ||
      v.quantity == Quantity::kGradSum || v.quantity == Quantity::kDirection ||
      v.quantity == Quantity::kOrthogonal || v.quantity == Quantity::kFactored ||
      v.quantity == Quantity::kChange)
    return s + " of parameter " + std::to_string(v.at);
  if (v.quantity == Quantity::kLoraInner || v.quantity == Quantity::kDropped ||
      v.quantity == Quantity::kUnscaled || v.quantity == Quantity::kDoraScale ||
      v.quantity == Quantity::kDoraSquares)
    return s + " of product " + std::to_string(v.at % 4) + " of layer " + std::to_string(v.at / 4);
  const bool counts_half_layers =
      v.quantity == Quantity::kResidual || v.quantity == Quantity::kNormed || v.quantity == Quantity::kRstd;
  if (!counts_half_layers) return s + " of layer " + std::to_string(v.at);
  return s + (v.at % 2 ? " before the MLP of layer " : " before layer ") + std::to_string(v.at / 2);
}

void check_values(const Program& p, const MemoryPlan& plan, Findings& f) { ValueRun(p, plan, f).all(); }

}  // namespace trainhost::placement
