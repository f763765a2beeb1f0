// The context in which an operation of the step program is queued: program, buffers, stream and the state of
// the step; and the functions that queue one operation as kernels or cuBLASLt calls, implemented in
// ops_*.cpp. The order of operations and the choice of streams are decided by Executor (executor.hpp).
// Operand slots: core/step/operands.hpp.
#pragma once
#include <cstdint>
#include <span>

#include "core/step/program.hpp"
#include "plugins/cuda/engine/arenas.hpp"
#include "plugins/cuda/engine/gemm.hpp"
#include "plugins/cuda/kernels/kernel_functions.hpp"

namespace trainhost::cuda {

class CudnnAttention;

struct StepState {
  std::uint64_t rows = 0;      // tokens of a micro-batch, or 1 in generation
  std::uint32_t micro = 0;     // index of the micro-batch in the update
  std::uint32_t instance = 0;  // instance of ring buffers (Buffer::ring) that this micro-batch uses
  bool first_micro = true;     // gradients with kFirstWrite are overwritten, not added to
  std::uint32_t position = 0;  // of the generated token
};

struct OpContext {
  const step::Program& program;
  const Arenas& arenas;
  Gemm& gemm;
  cudaStream_t stream = nullptr;  // stream of all kernels and products
  StepState step;
  step::BufferId scalars = step::kNoBuffer;  // 16 doubles in device memory, indexed by step::Scalar
  std::uint64_t launches = 0;                // kernels and products queued so far
  CudnnAttention* cudnn = nullptr;           // null: own kernels compute attention

  const ModelSpec& model() const { return program.model; }
  const step::Buffer& buffer(step::BufferId b) const { return program.buffers[b]; }
  bool bf16() const { return program.run.weight == DType::kBF16; }
  bool tf32() const { return program.run.compute == DType::kTF32; }
  /// Address of a buffer (for a ring, of the instance of this micro-batch); null for kNoBuffer.
  template <class T>
  T* get(step::BufferId b) const {
    return arenas.get<T>(b, step.instance);
  }
  double* scalar(step::Scalar which) const { return arenas.get<double>(scalars) + which; }
  /// Rows of an operation: those of the micro-batch, or with sequence parallelism those of this rank.
  std::uint64_t rows_of(const step::Op& op) const { return op.rows < step.rows ? op.rows : step.rows; }
  /// The number of the TP rank, from 0: it has `part` tokens of the vocabulary, from this times `part` on.
  std::uint32_t tensor_rank() const {
    const std::uint32_t rank = program.run.parallel.tensor_rank;
    return rank ? rank - 1 : 0;
  }
  /// True if the operation overwrites its gradient, false if it adds to it.
  bool overwrite(const step::Op& op) const {
    return (op.flags & step::kFreshGrad) || ((op.flags & step::kFirstWrite) && step.first_micro);
  }
  /// Counts a kernel launch of `op`; throws if the launch failed.
  void check_launch(cudaError_t status, const step::Op& op);
};

/// Queues one operation of the device, or several consecutive ones of a kind for which shares_launch() is
/// true.
void queue_ops(OpContext& ctx, std::span<const step::Op> ops);
/// Queues rows [first, first + rows) of kHeadLogits. The hybrid mode computes the logits in pieces.
void queue_head_logits(OpContext& ctx, const step::Op& op, std::uint64_t first, std::uint64_t rows);

/// 1 - beta is computed in double: in f32, 1 - 0.999 has a relative error of up to 3e-5.
inline AdamW adamw_constants(const RunSpec& r) {
  const auto f32 = [](double x) { return static_cast<float>(x); };
  return {f32(r.beta1), f32(1.0 - r.beta1), f32(r.beta2), f32(1.0 - r.beta2), f32(r.eps)};
}

/// True for the operations of the update: consecutive ones of one kind share kernel launches.
bool shares_launch(step::OpKind kind);

/// Rows of logits per piece of the hybrid head: about 32 MiB, so that the product of one piece, the copies of
/// others and cross-entropy overlap. At least one row.
std::uint64_t head_piece_rows(const step::Buffer& logits);

// Functions by kind of operation; T is the storage type, float or Bf16.
template <class T>
void queue_rows(OpContext&, const step::Op&);  // embedding, norms, rotary positions, SwiGLU
template <class T>
void queue_attention(OpContext&, const step::Op&);
template <class T>
void queue_head(OpContext&, const step::Op&);  // kHeadLoss, kHeadEval, kHeadBwd
template <class T>
void queue_head_stats(OpContext&, const step::Op&);
template <class T>
void queue_update(OpContext&, std::span<const step::Op>);  // kGradSquares and optimizers of f32 elements
template <class T>
void queue_adamw_8bit(OpContext&, std::span<const step::Op>);
template <class T>
void queue_adafactor(OpContext&, const step::Op&);
template <class T>
void queue_adafactor_sums(OpContext&, const step::Op&);
template <class T>
void queue_adafactor_change(OpContext&, const step::Op&);
template <class T>
void queue_muon(OpContext&, const step::Op&);
void queue_muon_direction(OpContext&, const step::Op&);
void queue_muon_orthogonalise(OpContext&, const step::Op&);
void queue_add_grad(OpContext&, const step::Op&);
void queue_lora(OpContext&, const step::Op&);  // kLoraB and its gradients
template <class T>
void queue_dropout(OpContext&, const step::Op&);  // kDropout, kDropoutAdd
template <class T>
void queue_dequantize(OpContext&, const step::Op&);
template <class T>
void queue_transpose(OpContext&, const step::Op&);
template <class T>
void queue_dora(OpContext&, const step::Op&);  // kDora, kDoraBwd; kDoraScale, kDoraSquares, kDoraFactors
void queue_linear_dx_add(OpContext&, const step::Op&);
void queue_linear(OpContext&, const step::Op&);  // kLinear, kLinearDx, kLinearDw
template <class T>
void queue_bias_gradient(OpContext&, const step::Op&);
/// Queues the computation of gradient norm, clip factor and kApplied from the partial sums of squares.
/// any_squares: any kGradSquares operation of the device; null if there is none.
void queue_finish_norm(OpContext&, const step::Op* any_squares);

}  // namespace trainhost::cuda
