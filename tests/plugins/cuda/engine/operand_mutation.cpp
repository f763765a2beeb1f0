// Compiles the parts of the executor that queue operations, with the calls that start one replaced by
// functions that change the operand of the selected mutation. Linked before the engine's library, so that the
// linker uses this object instead of the engine's own.
#include "tests/plugins/cuda/engine/operand_mutation.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "core/step/operands.hpp"
#include "plugins/cuda/engine/executor.hpp"

namespace trainhost::test {

SelectedMutation selected;

OperandMutation mutation_of(const step::Program& p, const step::Op& op, unsigned slot) {
  const auto index = static_cast<std::uint32_t>(&op - p.ops.data());
  const auto section = std::find_if(p.sections.begin(), p.sections.end(), [&](const step::Section& s) {
    return index >= s.begin && index < s.end;
  });
  const step::Buffer& b = p[op.in[slot]];
  return {section->kind, op.kind, op.layer, slot, b.role, b.copy};
}

namespace {

/// True if `op` is the operation of the selected mutation.
bool is_selected(const step::Program& p, const step::Op& op) {
  const OperandMutation* m = selected.mutation;
  return m && op.kind == m->kind && op.layer == m->layer && m->slot < op.ins &&
         op.in[m->slot] != step::kNoBuffer && mutation_of(p, op, m->slot) == *m;
}

void fill(void* data, DType type, std::uint64_t elements) {
  const int value = selected.replacement == Replacement::kOnes ? 1 : 0;
  if (type == DType::kF64)
    std::fill_n(static_cast<double*>(data), elements, value);
  else if (type == DType::kI32)
    std::fill_n(static_cast<std::int32_t*>(data), elements, value);
  else
    std::fill_n(static_cast<float*>(data), elements, static_cast<float>(value));
}

/// Contents of an operand that an operation of the device gets instead of its own. The operation runs between
/// two functions of its stream: the first replaces the contents, the second restores them.
struct Replaced {
  void* data;
  DType type;
  std::uint64_t elements;
  bool in_place;  // the operation changes the operand: its result stays
  std::vector<std::byte> before = {};
};
// A deque: the functions have addresses of its elements. Never freed; a few per mutation.
std::deque<Replaced> replaced;

template <class Queue>
void with_replaced_operand(cuda::OpContext& ctx, const step::Op& op, Queue queue) {
  if (!is_selected(ctx.program, op)) return queue();
  if (selected.replacement == Replacement::kLeftOut) return;
  const unsigned slot = selected.mutation->slot;
  const step::Buffer& b = ctx.program[op.in[slot]];
  Replaced& r = replaced.emplace_back(Replaced{ctx.get<void>(op.in[slot]), b.dtype, b.rows * b.cols,
                                               (step::op_info(op.kind).inout_mask >> slot & 1) != 0});
  const auto queue_function = [&](void (*function)(void*)) {
    cuda::check(cudaLaunchHostFunc(ctx.stream, function, &r), "replacing an operand");
  };
  queue_function([](void* x) {
    Replaced& own = *static_cast<Replaced*>(x);
    const auto* bytes = static_cast<const std::byte*>(own.data);
    own.before.assign(bytes, bytes + own.elements * size_of(own.type));
    fill(own.data, own.type, own.elements);
  });
  queue();
  queue_function([](void* x) {
    const Replaced& own = *static_cast<const Replaced*>(x);
    if (!own.in_place) std::copy(own.before.begin(), own.before.end(), static_cast<std::byte*>(own.data));
  });
}

/// Operations of a group run one by one while one of them is mutated.
void queue_mutated(cuda::OpContext& ctx, std::span<const step::Op> ops) {
  if (std::none_of(ops.begin(), ops.end(), [&](const step::Op& o) { return is_selected(ctx.program, o); }))
    return cuda::queue_ops(ctx, ops);
  for (const step::Op& op : ops) with_replaced_operand(ctx, op, [&] { cuda::queue_ops(ctx, {&op, 1}); });
}

void queue_mutated_logits(cuda::OpContext& ctx, const step::Op& op, std::uint64_t first, std::uint64_t rows) {
  with_replaced_operand(ctx, op, [&] { cuda::queue_head_logits(ctx, op, first, rows); });
}

/// An operation of the host. It runs on a thread of the emulation; other operations may read the same buffers
/// at that time, so an operand that it only reads is replaced by a copy.
template <class Run>
void run_on_host(const step::Program& p, const step::Op& op, cuda::host::Operands at, cuda::host::Step* step,
                 Run run) {
  if (!is_selected(p, op)) return run(at);
  if (selected.replacement == Replacement::kLeftOut) return;
  const unsigned slot = selected.mutation->slot;
  const step::Buffer& b = p[op.in[slot]];
  std::vector<std::byte> other(b.rows * b.cols * size_of(b.dtype));
  fill(other.data(), b.dtype, b.rows * b.cols);
  if (b.storage == step::Storage::kExternal)
    (op.kind == step::OpKind::kCrossEntropy ? step->targets : step->ids) =
        reinterpret_cast<const std::int32_t*>(other.data());
  else if (step::op_info(op.kind).inout_mask >> slot & 1)
    std::copy(other.begin(), other.end(), static_cast<std::byte*>(at.in[slot]));
  else
    at.in[slot] = other.data();
  run(at);
}

/// A copy, of `bytes` from row `first` on. Its source is replaced by another buffer.
cudaError_t copy_mutated(const step::Program& p, const step::Op& op, void* to, const void* from,
                         std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (!is_selected(p, op)) return cudaMemcpyAsync(to, from, bytes, kind, stream);
  if (selected.replacement == Replacement::kLeftOut) return cudaSuccess;
  const step::Buffer& b = p[op[step::operand::copy::kFrom]];
  if (selected.replacement == Replacement::kLastRowLeftOut)
    return cudaMemcpyAsync(to, from, bytes - b.cols * size_of(b.dtype), kind, stream);
  static std::deque<std::vector<std::byte>> sources;  // never freed: copies may be pending
  std::vector<std::byte>& other = sources.emplace_back(bytes);
  fill(other.data(), b.dtype, bytes / size_of(b.dtype));
  return cudaMemcpyAsync(to, other.data(), bytes, kind, stream);
}

}  // namespace
}  // namespace trainhost::test

namespace trainhost::cuda {
namespace {

void run_mutated(ThreadPool& pool, const step::Program& p, const step::Op& op, const host::Operands& at,
                 host::Step step) {
  test::run_on_host(p, op, at, &step, [&](const host::Operands& o) { host::run(pool, p, op, o, step); });
}
void run_squares_mutated(ThreadPool& pool, const step::Program& p, const step::Op& op,
                         const host::Operands& at) {
  test::run_on_host(p, op, at, nullptr, [&](const host::Operands& o) { host::run_squares(pool, p, op, o); });
}
void run_update_mutated(ThreadPool& pool, const step::Program& p, const step::Op& op,
                        const host::Operands& at) {
  test::run_on_host(p, op, at, nullptr, [&](const host::Operands& o) { host::run_update(pool, p, op, o); });
}

}  // namespace

namespace host {
using cuda::run_mutated;
using cuda::run_squares_mutated;
using cuda::run_update_mutated;
}  // namespace host
}  // namespace trainhost::cuda

#define queue_ops test::queue_mutated
#define queue_head_logits test::queue_mutated_logits
#define run run_mutated
#define run_squares run_squares_mutated
#define run_update run_update_mutated
// `op` is the argument of queue_copy(), the only function here that calls it.
#define cudaMemcpyAsync(...) test::copy_mutated(program_, op, __VA_ARGS__)
#include "plugins/cuda/engine/executor_queues.cpp"
#undef cudaMemcpyAsync
#undef run
#include "plugins/cuda/engine/executor_update.cpp"
