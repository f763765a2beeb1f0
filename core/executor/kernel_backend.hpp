// Backend for a class of kernels: one kernel call per operation, except for the head, which calls four
// kernels per chunk of tokens.
#pragma once
#include <cassert>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/executor/kernel_arguments.hpp"
#include "core/executor/own_kernels.hpp"
#include "core/step/buffer_names.hpp"

namespace trainhost::executor {

/// K: a class with the kernels of kernels.hpp. require_kernels() lists missing ones at compile time. Calls
/// are made on the thread of step(); kernels may use threads of their own.
template <class K>
class KernelBackend final : public Backend {
 public:
  KernelBackend(std::shared_ptr<K> kernels, const step::Program& program, Storage& storage,
                std::string kernel_set)
      : kernels_(std::move(kernels)), arguments_(program, storage), kernel_set_(std::move(kernel_set)) {
    require_kernels<K>();
    const step::BufferId workspace = program.find(step::role::kVendorWorkspace);
    // Optional members of K are found with `requires`, so that a class without them compiles.
    if constexpr (requires(void* p, std::uint64_t n) { kernels_->workspace(p, n); })
      if (workspace != step::kNoBuffer)
        kernels_->workspace(storage.at(workspace), program[workspace].bytes());
  }

  // together() is false for every kind, so a span has one operation.
  void run(std::span<const step::Op> ops, const StepState& step) override { run_op(ops.front(), step); }
  std::string kernel_set() const override { return kernel_set_; }
  double peak_flops() override {
    if constexpr (requires {
                    { kernels_->peak_flops() } -> std::convertible_to<double>;
                  })
      return kernels_->peak_flops();
    return 0.0;
  }

 private:
  void run_op(const step::Op& op, const StepState& s) {
    using step::OpKind;
    K& k = *kernels_;
    const KernelArguments& o = arguments_;
    switch (op.kind) {
      case OpKind::kEmbed:
        return k.embed(o.embed(op, s));
      case OpKind::kEmbedBwd:
        return k.embed_bwd(o.embed_bwd(op, s));
      case OpKind::kRmsNorm:
        return k.rms_norm(o.rms_norm(op, s));
      case OpKind::kRmsNormBwd:
        return k.rms_norm_bwd(o.rms_norm_bwd(op, s));
      case OpKind::kLinear:
        return k.linear(o.linear(op, s));
      case OpKind::kLinearDx:
        return k.linear_dx(o.linear_dx(op, s));
      case OpKind::kLinearDw:
        return k.linear_dw(o.linear_dw(op, s));
      case OpKind::kQkNorm:
        return k.qk_norm(o.qk_norm(op, s));
      case OpKind::kQkNormBwd:
        return k.qk_norm_bwd(o.qk_norm_bwd(op, s));
      case OpKind::kRope:
        return k.rope(o.rope(op, s));
      case OpKind::kRopeBwd:
        return k.rope(o.rope(op, s));
      case OpKind::kAttention:
        return k.attention(o.attention(op, s));
      case OpKind::kAttentionBwd:
        return k.attention_bwd(o.attention_bwd(op, s));
      case OpKind::kAttentionStep:
        return k.attention_step(o.attention_step(op, s));
      case OpKind::kSwiGlu:
        return k.swiglu(o.swiglu(op, s));
      case OpKind::kSwiGluBwd:
        return k.swiglu_bwd(o.swiglu_bwd(op, s));
      case OpKind::kHeadLoss:
        return head(op, s);
      case OpKind::kHeadEval:
        return head(op, s);
      case OpKind::kHeadLogits:
        return k.linear(o.head_logits(op));
      // In double, because a sum over all parameters loses digits in float.
      case OpKind::kGradSquares:
        o.sum(op) += k.sum_squares(o.sum_squares(op));
        return;
      case OpKind::kAdamW:
        return k.adamw(o.adamw(op, s));
      case OpKind::kSgd:
        return k.sgd(o.sgd(op, s));
      case OpKind::kSgdMomentum:
        return k.sgd_momentum(o.sgd_momentum(op, s));
      case OpKind::kLion:
        return run_lion(k, o.lion(op, s));
      // Only in programs that use more than one memory tier.
      case OpKind::kCopy:
      case OpKind::kHold:
      case OpKind::kCrossEntropy:
      case OpKind::kHeadBwd:
      case OpKind::kAddGrad:
      // Only in runs that require_f32_on_one_rank() rejects: of adapters, and of these optimizers.
      case OpKind::kAdamW8bit:
      case OpKind::kAdafactor:
      case OpKind::kMuon:
      case OpKind::kMuonDirection:
      case OpKind::kMuonOrthogonalise:
      case OpKind::kLoraB:
      case OpKind::kLoraBDx:
      case OpKind::kLoraBDw:
      case OpKind::kLinearDxAdd:
      case OpKind::kDropout:
      case OpKind::kDropoutAdd:
      case OpKind::kDequantize:
      case OpKind::kDoraScale:
      case OpKind::kDora:
      case OpKind::kDoraBwd:
      // The walker runs collective operations.
      case OpKind::kAllReduce:
      case OpKind::kReduceScatter:
      case OpKind::kAllGather:
      case OpKind::kWait:
      case OpKind::kSumScalars:
      // Only of tensor-parallel ranks, likewise.
      case OpKind::kHeadStats:
      case OpKind::kTakeRows:
      case OpKind::kDoraSquares:
      case OpKind::kDoraFactors:
      case OpKind::kTranspose:
      case OpKind::kAdafactorSums:
      case OpKind::kAdafactorChange:
      case OpKind::kCount_:
        break;
    }
    // build_program() makes such operations only for traits with several tiers, which these trainers never
    // state, and for runs that were rejected.
    throw std::logic_error("operation that kernels.hpp does not have");
  }

  /// Logits of all tokens are never in memory at once: the buffer has the rows of one chunk
  /// (docs/memory-model.md, "Activations of one layer").
  void head(const step::Op& op, const StepState& s) {
    double loss = 0.0;
    assert(arguments_.head_chunk_rows(op) > 0);
    for (std::uint64_t first = 0; first < s.rows; first += arguments_.head_chunk_rows(op)) {
      const HeadChunk c = arguments_.head(op, s, first);
      kernels_->linear(c.logits);
      loss += kernels_->cross_entropy(c.loss);
      if (!c.loss.gradient) continue;
      kernels_->linear_dw(c.weight_gradient);
      kernels_->linear_dx(c.hidden_gradient);
    }
    arguments_.sum(op) += loss;
  }

  std::shared_ptr<K> kernels_;
  KernelArguments arguments_;
  const std::string kernel_set_;
};

}  // namespace trainhost::executor
