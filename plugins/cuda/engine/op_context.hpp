// What an operation sees while it is queued: the program, where its buffers lie, the stream, and the state of
// the step. queue_op() puts one operation of the device on a stream; executor.cpp decides order and streams.
#pragma once
#include <cstdint>
#include <span>

#include "core/step/program.hpp"
#include "plugins/cuda/engine/arenas.hpp"
#include "plugins/cuda/engine/gemm.hpp"
#include "plugins/cuda/kernels/kernel_functions.hpp"

namespace trainhost::cuda {

struct StepState {
  std::uint64_t rows = 0;      // tokens of this micro-batch; fewer than planned only in evaluation
  std::uint32_t micro = 0;     // which micro-batch of the update
  std::uint32_t instance = 0;  // of rings
  bool first_micro = true;     // gradients with kFirstWrite are overwritten
  std::uint32_t position = 0;  // of generate
};

struct OpContext {
  const step::Program& program;
  const Arenas& arenas;
  Gemm& gemm;
  cudaStream_t stream = nullptr;
  StepState step;
  step::BufferId scalars = step::kNoBuffer;  // the device's
  std::uint64_t launches = 0;

  const ModelSpec& model() const { return program.model; }
  const step::Buffer& buffer(step::BufferId b) const { return program.buffers[b]; }
  bool bf16() const { return program.run.weight == DType::kBF16; }
  bool tf32() const { return program.run.compute == DType::kTF32; }
  template <class T>
  T* get(step::BufferId b) const {
    return arenas.get<T>(b, step.instance);
  }
  double* scalar(step::Scalar which) const { return arenas.get<double>(scalars) + which; }
  bool overwrite(const step::Op& op) const {
    return (op.flags & step::kFreshGrad) || ((op.flags & step::kFirstWrite) && step.first_micro);
  }
  /// After a launch: counts it, throws where it failed.
  void queued(cudaError_t status, const step::Op& op);
};

/// Queues one operation of the device, or neighbours of the update for which one_launch() holds.
/// Rows [first, first + rows) of the operands of kHeadLogits alone where `rows` is given: the hybrid mode's
/// pieces.
void queue_ops(OpContext& ctx, std::span<const step::Op> ops);
void queue_head_logits(OpContext& ctx, const step::Op& op, std::uint64_t first, std::uint64_t rows);

/// Are operations of this kind launched together with their neighbours? (Those of the update.)
bool one_launch(step::OpKind kind);

/// Every matrix product that the program will ask for with full rows.
void prepare_products(OpContext& ctx);

// By kind, for a storage type; ops_*.cpp.
template <class T>
void queue_rows(OpContext&, const step::Op&);  // embedding, norms, rotation, SwiGLU
template <class T>
void queue_attention(OpContext&, const step::Op&);
template <class T>
void queue_head(OpContext&, const step::Op&);  // kHeadLoss, kHeadEval, kHeadBwd
template <class T>
void queue_update(OpContext&, std::span<const step::Op>);
void queue_linear(OpContext&, const step::Op&);  // forward, dx, dw and the bias's gradient
template <class T>
void queue_bias_gradient(OpContext&, const step::Op&);
/// Norm and clip factor from the squares that were queued: between the two halves of the update.
void queue_finish_norm(OpContext&, const step::Op* any_squares);

}  // namespace trainhost::cuda
