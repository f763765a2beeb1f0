// What both modes share: the embedding on the host, and helpers that add buffers and operations. A mode
// rewrites the sections of a resident program; the tensors and the order of the arithmetic stay, so all modes
// give the same results.
#include "core/step/device_modes.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "core/base/checked.hpp"
#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/model/adapters.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"

namespace trainhost::step {

// After recomputation and before placement: the modes add buffers whose lifetimes placement must see.
void apply_mode(Program& p) {
  const std::string& mode = p.traits.mode;
  if (mode.empty() || mode == "resident") return;
  if (mode == "hybrid") return apply_hybrid(p);
  if (mode == "streamed") return apply_streamed(p);
  // The mode comes from the trainer's plugin, hence an error and not an assertion.
  throw usage_error(
      "trainer \"" + escaped(p.traits.trainer) + "\" returned the unknown mode \"" + escaped(mode) + "\"",
      "supported modes: resident, hybrid, streamed");
}

bool has_embedding_magnitudes(const Program& p) {
  return p.run.memory.dora && adapter_blocks(p.model, p.run, AdapterGroup::kEmbed, -1).count > 0;
}

EmbeddingCopy embedding_copy(const Program& p) {
  const BufferId host = p.find(role::kEmbed.weight, -1, kOnHost);
  return host == kNoBuffer ? EmbeddingCopy{} : EmbeddingCopy{p.params.front().weight, host};
}

Op make_op_like(const Op& like, OpKind kind, std::initializer_list<BufferId> in,
                std::initializer_list<BufferId> out, std::uint32_t flags) {
  assert(in.size() == op_info(kind).inputs && out.size() <= kMaxOutputs);
  Op o;
  o.kind = kind, o.phase = like.phase, o.layer = like.layer, o.rows = like.rows, o.flags = flags;
  std::fill(std::begin(o.in), std::end(o.in), kNoBuffer);
  std::fill(std::begin(o.out), std::end(o.out), kNoBuffer);
  // Every slot of `in` keeps its position; absent outputs are left out, as in Builder::op().
  for (BufferId b : in) o.in[o.ins++] = b;
  while (o.ins > least_inputs(kind) && o.in[o.ins - 1] == kNoBuffer) --o.ins;
  for (BufferId b : out)
    if (b != kNoBuffer) o.out[o.outs++] = b;
  return o;
}

BufferId HostBuffers::add(Buffer b) {
  // Throws if the size overflows.
  checked_mul(b.rows, b.cols, size_of(b.dtype));
  p_.buffers.push_back(b);
  return static_cast<BufferId>(p_.buffers.size() - 1);
}

BufferId HostBuffers::scalars() {
  // Made on first use: not every section needs each buffer.
  if (scalars_ != kNoBuffer) return scalars_;
  device_scalars_ = p_.find(role::kScalars);
  Buffer b = p_[device_scalars_];
  b.copy = kOnHost, b.tier = Tier::kPinned;
  return scalars_ = add(b);
}

BufferId HostBuffers::ids(std::uint64_t rows, bool of_generate) {
  BufferId& made = of_generate ? token_ : ids_;
  if (made != kNoBuffer) return made;
  // External: the batch of the caller, which is not copied.
  Buffer b;
  b.role = role::kIds, b.copy = of_generate ? kTokenOnHost : kOnHost;
  b.component = Component::kWorkspace, b.tier = Tier::kHost, b.dtype = DType::kI32,
  b.storage = Storage::kExternal, b.rows = rows;
  return made = add(b);
}

BufferId HostBuffers::targets() {
  if (targets_ != kNoBuffer) return targets_;
  Buffer b;
  b.role = role::kTargets, b.copy = kOnHost, b.component = Component::kWorkspace, b.tier = Tier::kHost;
  b.dtype = DType::kI32, b.storage = Storage::kExternal, b.rows = p_.run.tokens_per_micro_batch();
  return targets_ = add(b);
}

BufferId HostBuffers::pinned(const char* role, std::int32_t layer, std::uint32_t copy, std::uint64_t rows,
                             std::uint64_t cols, DType t) {
  Buffer b;
  b.role = role, b.layer = layer, b.copy = copy, b.component = Component::kCommunication,
  b.tier = Tier::kPinned;
  b.dtype = t, b.rows = rows, b.cols = cols;
  return add(b);
}

// The table stays on the host: rows of the batch's tokens are gathered there, and only the hidden state is
// copied. `copy_class` counts the copy as activation or as stream.
void HostBuffers::update_on_host(Op op, std::vector<Op>& out) {
  const BufferId host = scalars();
  for (BufferId& b : op.in)
    if (b == device_scalars_) b = host;
  for (BufferId& b : op.out)
    if (b == device_scalars_) b = host;
  if (op.kind == OpKind::kGradSquares) op[operand::grad_squares::kPartials] = kNoBuffer;
  if (op.kind == OpKind::kAdafactor) {
    BufferId& sums = op[operand::adafactor::kSums];
    if (sums_ == kNoBuffer) {
      Buffer b = p_[sums];
      b.copy = kOnHost, b.tier = Tier::kHost;
      sums_ = add(b);
    }
    sums = sums_;
  }
  out.push_back(op);
}

void HostBuffers::muon_with_device(const Op& op, std::vector<Op>& out, std::vector<Op>& rest) {
  namespace muon = operand::muon;
  const BufferId grad = op[muon::kGrad], m = op[muon::kM];
  const Buffer g = p_[grad];
  const BufferId on_host = pinned(g.role, g.layer, kDirectionOnHost, g.rows, g.cols, DType::kF32);
  Buffer b = p_[on_host];
  b.copy = kDirection, b.tier = Tier::kDevice;
  const BufferId on_device = add(b);
  out.push_back(make_op_like(op, OpKind::kMuonDirection, {grad, m, scalars()}, {m, on_host}));
  out.push_back(make_op_like(op, OpKind::kCopy, {on_host}, {on_device}));
  out.push_back(make_op_like(op, OpKind::kMuonOrthogonalise, {on_device, op[muon::kWork]}, {on_device}));
  out.push_back(make_op_like(op, OpKind::kCopy, {on_device}, {on_host}));
  rest.push_back(make_op_like(op, OpKind::kHold, {on_device, on_host}, {}));
  rest.push_back(make_op_like(op, OpKind::kMuon,
                              {grad, op[muon::kWeight], m, scalars(), kNoBuffer, op[muon::kMaster], on_host},
                              {op[muon::kWeight], m, op[muon::kMaster]}, op.flags));
}

void HostBuffers::replace_embed(const Op& op, BufferId table, std::uint32_t copy_class,
                                std::vector<Op>& out) {
  const Buffer x = p_[op[operand::embed::kX]];
  const BufferId hidden = pinned(role::kHidden, -1, x.copy, x.rows, x.cols, x.dtype);
  out.push_back(make_op_like(op, OpKind::kEmbed, {table, ids(x.rows, x.copy == kOfGenerate)}, {hidden}));
  out.push_back(make_op_like(op, OpKind::kCopy, {hidden}, {op[operand::embed::kX]}, copy_class));
}

// The reverse: the gradient of the hidden state is copied to the host, which adds it to the table's gradient.
void HostBuffers::replace_embed_bwd(const Op& op, std::uint32_t copy_class, std::vector<Op>& out) {
  const Buffer dx = p_[op[operand::embed_bwd::kDx]];
  const BufferId down = pinned(role::kDHidden, -1, kOriginal, dx.rows, dx.cols, dx.dtype);
  out.push_back(make_op_like(op, OpKind::kCopy, {op[operand::embed_bwd::kDx]}, {down}, copy_class));
  out.push_back(make_op_like(op, OpKind::kEmbedBwd,
                             {down, ids(dx.rows, false), op[operand::embed_bwd::kGradTable], kNoBuffer},
                             {op[operand::embed_bwd::kGradTable]}, op.flags));
}

}  // namespace trainhost::step
