// AdamW with moments of 8 bits, block by block: parameters are divided into tasks of whole blocks of one
// tensor, as blocks of bitsandbytes begin with a tensor. The form of the moments: core/step/state_layout.hpp.
#include <algorithm>

#include "core/step/moment_codes.hpp"
#include "core/step/operands.hpp"
#include "core/step/state_layout.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

constexpr std::uint64_t kMomentsPerTask = 64 * kMomentBlock;

MomentTables moment_tables(bool is_signed) {
  const step::MomentCodes& c = step::moment_codes(is_signed);
  return {c.value.data(), c.highest.data(), c.first.data()};
}

/// One task: elements [begin, end) of a tensor.
void update_tensor(OpContext& ctx, const step::Op& op, const step::Moment8bit& tensor, Range r,
                   const AdamConstants& c) {
  static const MomentTables first = moment_tables(true), second = moment_tables(false);
  const float* g = ctx.f32(op[adamw_8bit::kGrad]) + tensor.first_element;
  const UpdatedWeight updated = updated_weight(ctx, op, tensor.first_element);
  float* w = updated.values;
  auto* m = static_cast<std::byte*>(ctx.storage.at(op[adamw_8bit::kM]));
  auto* v = static_cast<std::byte*>(ctx.storage.at(op[adamw_8bit::kV]));
  float *m_floats = reinterpret_cast<float*>(m + tensor.floats),
        *v_floats = reinterpret_cast<float*>(v + tensor.floats);
  if (!tensor.coded) {
    ctx.kernels.adamw(r.size(), g + r.begin, w + r.begin, m_floats + r.begin, v_floats + r.begin, c);
    return updated.store(ctx.kernels, r.begin, r.size());
  }
  auto *m_codes = reinterpret_cast<std::uint8_t*>(m + tensor.codes),
       *v_codes = reinterpret_cast<std::uint8_t*>(v + tensor.codes);
  for (std::uint64_t i = r.begin; i < r.end; i += kMomentBlock) {
    const std::uint64_t block = i / kMomentBlock;
    ctx.kernels.adamw_8bit(std::min(kMomentBlock, r.end - i), g + i, w + i, {m_codes + i, m_floats + block},
                           {v_codes + i, v_floats + block}, first, second, c);
  }
  updated.store(ctx.kernels, r.begin, r.size());
}

}  // namespace

void run_adamw_8bit(OpContext& ctx, std::span<const step::Op> ops) {
  const double clip = ctx.f64(ops.front()[adamw_8bit::kScalars])[step::kClipFactor];
  const AdamConstants c[2] = {adam_constants(ctx, false, clip), adam_constants(ctx, true, clip)};
  struct Part {
    const step::Op* op;
    step::Moment8bit tensor;
    std::uint32_t tasks;
  };
  std::vector<Part> parts;
  std::uint32_t tasks = 0;
  for (const step::Op& op : ops)
    for (const step::Moment8bit& t :
         step::moments_8bit(ctx.program, step::param_of_gradient(ctx.program, op[adamw_8bit::kGrad]))) {
      const auto n = static_cast<std::uint32_t>((t.elements + kMomentsPerTask - 1) / kMomentsPerTask);
      parts.push_back({&op, t, n}), tasks += n;
    }
  ctx.pool.run(tasks, [&](std::uint32_t task, std::uint32_t) {
    std::uint32_t i = task;
    const Part* p = parts.data();
    for (; i >= p->tasks; ++p) i -= p->tasks;
    const std::uint64_t begin = i * kMomentsPerTask;
    update_tensor(ctx, *p->op, p->tensor, {begin, std::min(p->tensor.elements, begin + kMomentsPerTask)},
                  c[(p->op->flags & step::kDecay) != 0]);
  });
}

}  // namespace trainhost::cpu
