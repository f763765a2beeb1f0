// See builder.hpp. push() checks the size of every buffer for overflow, so Buffer::bytes() need not. A
// BufferId is an index into Program::buffers, which only grows, so ids stay valid.
#include "core/step/builder.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/checked.hpp"

namespace trainhost::step {
namespace {

BufferId push(Program& p, Buffer b) {
  checked_mul(b.rows, b.cols, size_of(b.dtype));
  // Without a tier of its own a buffer is where the trainer computes.
  if (b.tier == Tier{}) b.tier = p.traits.tier;
  p.buffers.push_back(b);
  return static_cast<BufferId>(p.buffers.size() - 1);
}

}  // namespace

BufferId Builder::add(const char* role, std::int32_t layer, Component c, std::uint64_t buffer_rows,
                      std::uint64_t cols, DType t) {
  Buffer b;
  b.role = role, b.layer = layer, b.copy = copy, b.component = c, b.dtype = t;
  b.rows = buffer_rows, b.cols = cols;
  return push(p, b);
}

// Persistent buffers belong to no section: they have the copy mark of the original.
BufferId Builder::add_persistent(const char* role, std::int32_t layer, Component c, std::uint64_t buffer_rows,
                                 std::uint64_t cols, DType t) {
  Buffer b;
  b.role = role, b.layer = layer, b.component = c, b.dtype = t, b.persistent = true;
  b.rows = buffer_rows, b.cols = cols;
  return push(p, b);
}

BufferId Builder::add_host_input(const char* role, std::uint64_t buffer_rows, std::uint32_t of_copy) {
  Buffer b;
  b.role = role, b.copy = of_copy, b.component = Component::kWorkspace, b.dtype = DType::kI32;
  // On a device the ids are fed by a copy before the section; on the host the caller's memory is used
  // directly.
  b.storage = on_device() ? Storage::kFed : Storage::kExternal;
  b.persistent = on_device();
  b.rows = buffer_rows;
  return push(p, b);
}

BufferId Builder::add_pinned(const char* role, std::uint64_t bytes) {
  Buffer b;
  b.role = role, b.component = Component::kWorkspace, b.dtype = DType::kU8, b.persistent = true,
  b.tier = Tier::kPinned;
  b.rows = bytes;
  return push(p, b);
}

void Builder::op(OpKind kind, std::int32_t layer, std::initializer_list<BufferId> in,
                 std::initializer_list<BufferId> out, std::uint32_t flags) {
  Op o;
  o.kind = kind, o.phase = phase, o.layer = layer, o.flags = flags;
  const bool of_own_rows =
      kind == OpKind::kRmsNorm || kind == OpKind::kRmsNormBwd || kind == OpKind::kTakeRows;
  o.rows = of_own_rows ? own_rows() : rows;
  // Slots are fixed per kind: kernels find an operand by its position (operands.hpp).
  assert(in.size() == op_info(kind).inputs && "every slot is given, absent operands as kNoBuffer");
  assert(out.size() <= kMaxOutputs);
  std::fill(std::begin(o.in), std::end(o.in), kNoBuffer);
  std::fill(std::begin(o.out), std::end(o.out), kNoBuffer);
  for (BufferId b : in) o.in[o.ins++] = b;
  while (o.ins > least_inputs(kind) && o.in[o.ins - 1] == kNoBuffer) --o.ins;
  // Outputs are a list, so absent ones are left out.
  for (BufferId b : out)
    if (b != kNoBuffer) o.out[o.outs++] = b;
  for ([[maybe_unused]] BufferId b : in) assert(b == kNoBuffer || b < p.buffers.size());
  p.ops.push_back(o);
}

BufferId Builder::matrix(const Weight& w, std::int32_t layer, const char* role) {
  if (w.cols == 0) return w.w;
  const BufferId m = scratch(role, layer, w.rows, w.cols, storage_type());
  op(OpKind::kDequantize, layer, {w.w}, {m});
  return m;
}

void Builder::begin(SectionKind kind, Phase first_phase, std::uint32_t section_copy,
                    std::uint64_t section_rows) {
  // Sections are contiguous and in order: ends are begins of the next.
  const auto at = static_cast<std::uint32_t>(p.ops.size());
  assert((p.sections.empty() || p.sections.back().end == at) && "the previous section is complete");
  p.sections.push_back({kind, at, at});
  phase = first_phase, copy = section_copy, rows = section_rows;
}

void Builder::end() {
  p.sections.back().end = static_cast<std::uint32_t>(p.ops.size());
  assert(p.sections.back().begin < p.sections.back().end && "a section has operations");
}

}  // namespace trainhost::step
