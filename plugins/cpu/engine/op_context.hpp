// The context in which an operation runs: program, storage, threads, kernels and state of the step; and one
// run_*() per operation, implemented in ops_*.cpp and called by cpu_backend.cpp. Operand slots:
// core/step/operands.hpp.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "core/executor/backend.hpp"
#include "core/step/program.hpp"
#include "plugins/cpu/common/workspace.hpp"
#include "plugins/cpu/engine/thread_pool.hpp"
#include "plugins/cpu/kernels/bf16.hpp"
#include "plugins/cpu/kernels/kernel_table.hpp"

namespace trainhost::cpu {

using executor::StepState;
using executor::Storage;

/// A range of rows or columns.
struct Range {
  std::uint64_t begin, end;
  std::uint64_t size() const { return end - begin; }
};
/// The i-th of n equal parts of [0, whole).
inline Range part(std::uint64_t whole, std::uint64_t i, std::uint64_t n) {
  return {whole * i / n, whole * (i + 1) / n};
}

struct OpContext {
  const step::Program& program;
  Storage& storage;
  ThreadPool& pool;
  const Kernels& kernels;
  StepState step;
  std::vector<double> partials;                // partial sums, one per task; added in the order of the tasks
  step::BufferId workspace = step::kNoBuffer;  // layout: common/workspace.hpp
  const Bf16Kernels* bf16 = nullptr;           // null: products in f32
  bool own_products = true;                    // large products in f32 by large_product.hpp, else by OpenBLAS
  // Sums of squares of the gradients of the last update: of those outside the layers, then of every layer.
  // Negative before the first update.
  std::vector<double> layer_squares = std::vector<double>(program.model.layers + std::size_t{1}, -1.0);

  // Of each tile of a large product in progress: the parts of the inner elements that have been added.
  std::vector<std::uint16_t> finished_parts = std::vector<std::uint16_t>(kCountedTiles);
  static constexpr std::size_t kCountedTiles = 16384;

  const ModelSpec& model() const { return program.model; }
  const step::Buffer& buffer(step::BufferId b) const { return program.buffers[b]; }
  /// True if weights and activations are stored in bf16, else in f32.
  bool stores_bf16() const { return !program.traits.f32_storage && program.run.weight == DType::kBF16; }
  /// Calls f(T{}) with the type in which weights and activations are stored: float or Bf16.
  template <class F>
  void by_storage(F&& f) {
    if (stores_bf16())
      f(Bf16{});
    else
      f(float{});
  }
  /// The loops over rows that are stored as T.
  template <class T>
  const RowKernels<T>& rows() const {
    if constexpr (std::is_same_v<T, float>)
      return kernels;
    else
      return kernels.bf16;
  }
  /// The elements of a buffer; null if absent.
  template <class T>
  T* at(step::BufferId b) {
    return b == step::kNoBuffer ? nullptr : static_cast<T*>(storage.at(b));
  }
  float* f32(step::BufferId b) { return b == step::kNoBuffer ? nullptr : static_cast<float*>(storage.at(b)); }
  double* f64(step::BufferId b) { return static_cast<double*>(storage.at(b)); }
  /// The part that all threads share: packed operands, or slots of a weight's gradient.
  float* shared_workspace() { return f32(workspace); }
  /// The part of the workspace that one thread of the pool uses.
  float* worker_workspace(std::uint32_t worker) {
    assert(worker < program.traits.threads);
    // The parts of the threads are the end of the workspace (workspace_floats()).
    return f32(workspace) + buffer(workspace).bytes() / sizeof(float) -
           (program.traits.threads - worker) * worker_floats(model(), program.run, program.traits);
  }
  bool overwrite(const step::Op& op) const { return step.overwrite(op); }
  /// The number of the TP rank, from 0: it has `part` tokens of the vocabulary, from this times `part` on.
  std::uint32_t tensor_rank() const {
    const std::uint32_t rank = program.run.parallel.tensor_rank;
    return rank ? rank - 1 : 0;
  }

  /// Rows of an operation: those of the micro-batch, of which evaluation may have fewer than planned, or with
  /// sequence parallelism those of this rank.
  std::uint64_t rows_of(const step::Op& op) const { return std::min(step.rows, op.rows); }

  /// Runs f(first_row, rows) on parts of all rows; the parts depend only on the shape.
  template <class F>
  void over_rows(std::uint64_t rows, std::uint64_t cols, F&& f) {
    std::uint32_t parts = row_parts(rows, cols);
    pool.run(parts, [&](std::uint32_t i, std::uint32_t) {
      Range r = part(rows, i, parts);
      f(r.begin, r.size());
    });
  }
  /// Number of parts: about 16K elements each, at least one row.
  static std::uint32_t row_parts(std::uint64_t rows, std::uint64_t cols) {
    std::uint64_t per = cols >= 16384 ? 1 : 16384 / cols;
    std::uint64_t parts = (rows + per - 1) / per;
    return static_cast<std::uint32_t>(parts < 1 ? 1 : parts);
  }
};

/// Runs operations with the state ctx.step: one, or consecutive ones of a kind for which run_together() is
/// true.
void run_ops(OpContext& ctx, std::span<const step::Op> ops);
/// True for the operations of the update, which are passed to run_ops() together.
bool run_together(step::OpKind kind);

/// Maximum number of entries of OpContext::partials that an operation of the program uses.
std::size_t partials_needed(const step::Program& p);

void run_embed(OpContext&, const step::Op&);
void run_embed_bwd(OpContext&, const step::Op&);
void run_take_rows(OpContext&, const step::Op&);
void run_rms_norm(OpContext&, const step::Op&);
void run_rms_norm_bwd(OpContext&, const step::Op&);
void run_qk_norm(OpContext&, const step::Op&);
void run_qk_norm_bwd(OpContext&, const step::Op&);
void run_rope(OpContext&, const step::Op&, float sign);
void run_swiglu(OpContext&, const step::Op&);
void run_swiglu_bwd(OpContext&, const step::Op&);
void run_linear(OpContext&, const step::Op&);
void run_linear_dx(OpContext&, const step::Op&);
void run_linear_dw(OpContext&, const step::Op&);
void run_linear_dx_add(OpContext&, const step::Op&);
void run_dequantize(OpContext&, const step::Op&);
void run_lora_b(OpContext&, const step::Op&);
void run_lora_b_dx(OpContext&, const step::Op&);
void run_lora_b_dw(OpContext&, const step::Op&);
void run_transpose(OpContext&, const step::Op&);
void run_dora_scale(OpContext&, const step::Op&);
void run_dora_squares(OpContext&, const step::Op&);
void run_dora_factors(OpContext&, const step::Op&);
void run_dora(OpContext&, const step::Op&);
void run_dora_bwd(OpContext&, const step::Op&);
void run_dropout(OpContext&, const step::Op&);
void run_dropout_add(OpContext&, const step::Op&);
void run_attention(OpContext&, const step::Op&);
void run_attention_bwd(OpContext&, const step::Op&);
void run_attention_step(OpContext&, const step::Op&);
void run_head(OpContext&, const step::Op&);  // kHeadLoss and kHeadEval
void run_head_stats(OpContext&, const step::Op&);
void run_head_logits(OpContext&, const step::Op&);
void run_grad_squares(OpContext&, std::span<const step::Op>);
/// Elements of a weight that an optimizer changes, from one element on.
struct UpdatedWeight {
  float* values;  // the master copy where there is one, else the weight
  Bf16* stored;   // the weight, rounded from the master copy; null without one
  /// Rounds n elements after `first` of `values` has been updated.
  void store(const Kernels& kernels, std::uint64_t first, std::uint64_t n) const {
    if (stored) kernels.narrow(n, values + first, stored + first);
  }
};
/// From element `first` of those that this rank updates on.
UpdatedWeight updated_weight(OpContext&, const step::Op&, std::uint64_t first);
/// The factors of an AdamW update that are equal for all elements.
AdamConstants adam_constants(const OpContext&, bool decay, double clip_factor);
/// Partial sums of a norm in run_muon().
inline constexpr std::uint32_t kMuonTasks = 64;
void run_adamw_8bit(OpContext&, std::span<const step::Op>);
void run_adafactor(OpContext&, const step::Op&);
void run_adafactor_sums(OpContext&, const step::Op&);
void run_adafactor_change(OpContext&, const step::Op&);
void run_muon(OpContext&, const step::Op&);
void run_muon_direction(OpContext&, const step::Op&);
void run_muon_orthogonalise(OpContext&, const step::Op&);
void run_add_grad(OpContext&, std::span<const step::Op>);
void run_optimizer(OpContext&, std::span<const step::Op>);  // kAdamW, kSgd, kSgdMomentum, kLion

}  // namespace trainhost::cpu
