// The fused head of TRL 1.15 and newer (add_fused_lm_head(), ChunkedLogProbFunction), which multiplies the
// head in tiles and keeps no logits. Other losses: cut_loss.hpp, liger.hpp, operators.hpp,
// preference_loss.cpp.
#pragma once
#include <vector>

#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {

/// What a model with the fused head returns, [B, S - 1].
struct TiledOutputs {
  Tensor log_probabilities;  // of the labels
  std::vector<Tensor> metrics;
};

/// Which metrics the kernels compute beside the log-probabilities: entropy and is_top1 for SFT, mean_logits
/// too for DPO, none for a second model.
enum class TiledMetrics : std::uint8_t { kNone, kSft, kDpo };

/// Log-probabilities of hidden [B, S, H] with the head [V, H]. Products are in `compute`: the type of
/// autocast, or that of hidden. labels: [B, S], i64; none of them is ignored. Gradients are summed in f32 and
/// cast to the types of hidden and head.
TiledOutputs tiled_log_probabilities(Tape& t, const Tensor& hidden, const Tensor& head, const Tensor& labels,
                                     Element compute, TiledMetrics metrics);

}  // namespace trainhost::frameworks
