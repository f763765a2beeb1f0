// Makes the argument struct of a kernel (kernels.hpp) from an operation of the program: pointers from the
// storage, shapes from the buffers, the model and the step. Operand slots: core/step/operands.hpp.
#pragma once
#include "core/executor/backend.hpp"
#include "core/executor/kernels.hpp"

namespace trainhost::executor {

/// Arguments of the four kernels of the head for one chunk of tokens; the gradients only in training.
struct HeadChunk {
  Linear logits;
  CrossEntropy loss;
  LinearDw weight_gradient;
  LinearDx hidden_gradient;  // runs after weight_gradient, which reads the hidden states that it overwrites
};

class KernelArguments {
 public:
  KernelArguments(const step::Program& program, Storage& storage) : program_(program), storage_(storage) {}

  Embed embed(const step::Op&, const StepState&) const;
  EmbedBwd embed_bwd(const step::Op&, const StepState&) const;
  RmsNorm rms_norm(const step::Op&, const StepState&) const;
  RmsNormBwd rms_norm_bwd(const step::Op&, const StepState&) const;
  Linear linear(const step::Op&, const StepState&) const;
  LinearDx linear_dx(const step::Op&, const StepState&) const;
  LinearDw linear_dw(const step::Op&, const StepState&) const;
  QkNorm qk_norm(const step::Op&, const StepState&) const;
  QkNormBwd qk_norm_bwd(const step::Op&, const StepState&) const;
  Rope rope(const step::Op&, const StepState&) const;  // forward and back
  Attention attention(const step::Op&, const StepState&) const;
  AttentionBwd attention_bwd(const step::Op&, const StepState&) const;
  AttentionStep attention_step(const step::Op&, const StepState&) const;
  SwiGlu swiglu(const step::Op&, const StepState&) const;
  SwiGluBwd swiglu_bwd(const step::Op&, const StepState&) const;
  SumSquares sum_squares(const step::Op&) const;
  AdamW adamw(const step::Op&, const StepState&) const;
  Sgd sgd(const step::Op&, const StepState&) const;
  SgdMomentum sgd_momentum(const step::Op&, const StepState&) const;
  Lion lion(const step::Op&, const StepState&) const;

  /// For kHeadLoss and kHeadEval: the chunk of tokens that starts at `first`.
  HeadChunk head(const step::Op&, const StepState&, std::uint64_t first) const;
  std::uint64_t head_chunk_rows(const step::Op&) const;
  Linear head_logits(const step::Op&) const;
  /// The scalar that the operation adds to (kLossSum, kEvalLossSum or kNorm2).
  double& sum(const step::Op&) const;

 private:
  float* f32(step::BufferId b) const { return storage_.f32(b); }
  const step::Buffer& buffer(step::BufferId b) const { return program_[b]; }
  std::uint64_t elements(step::BufferId b) const { return program_[b].rows * program_[b].cols; }
  Heads heads() const { return {program_.model.heads, program_.model.kv_heads, program_.model.head_dim}; }
  float eps() const { return static_cast<float>(program_.model.norm_eps); }
  float decay(const step::Op& op, const StepState& s) const;
  float* updated(step::BufferId b) const;
  float clip_factor(const step::Op& op) const;

  const step::Program& program_;
  Storage& storage_;
};

}  // namespace trainhost::executor
