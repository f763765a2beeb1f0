// Names and facts about programs: what a buffer is called, which operands an operation has, where a section
// lies. Pure look-ups; programs are made in build_program.cpp.
#include "core/step/program.hpp"

#include <iterator>

#include "core/step/buffer_names.hpp"

namespace trainhost::step {
namespace {

constexpr std::uint32_t bits(std::initializer_list<int> operands) {
  std::uint32_t m = 0;
  for (int i : operands) m |= 1u << i;
  return m;
}

// By OpKind: name, inout operands, scratch operands.
constexpr OpInfo kOps[] = {
    {"embed", 0, 0},
    {"rms_norm", 0, 0},
    {"linear", 0, 0},
    {"qk_norm", bits({0}), 0},
    {"rope", bits({0}), 0},
    {"attention", 0, bits({1})},
    {"swiglu", 0, 0},
    {"head_loss", bits({0, 3, 5}), bits({4, 6})},
    {"head_eval", bits({4}), bits({3, 5})},
    {"head_logits", 0, 0},
    {"rms_norm_bwd", bits({4, 5}), bits({6})},
    {"linear_dx", 0, 0},
    {"linear_dw", bits({2, 3}), bits({4})},
    {"swiglu_bwd", bits({1}), 0},
    {"attention_bwd", 0, bits({4})},
    {"rope_bwd", bits({0}), 0},
    {"qk_norm_bwd", bits({0, 5, 6}), bits({7})},
    {"embed_bwd", bits({2}), 0},
    {"grad_squares", bits({1}), bits({2})},
    {"adamw", bits({1, 2, 3, 5}), 0},
    {"sgd", bits({1, 3}), 0},
    {"sgd_momentum", bits({1, 2, 4}), 0},
    {"attention_step", bits({1, 2}), bits({3})},
    {"copy", 0, 0},
    {"hold", 0, 0},
    {"cross_entropy", bits({0, 2}), 0},
    {"head_bwd", bits({1, 3}), 0},
    {"add_grad", bits({1}), 0},
};
static_assert(std::size(kOps) == static_cast<std::size_t>(OpKind::kCount_));

}  // namespace

const OpInfo& op_info(OpKind k) { return kOps[static_cast<std::size_t>(k)]; }

std::string Buffer::name() const {
  std::string n = copy == kOfEval ? "eval." : copy == kOfGenerate ? "generate." : "";
  if (layer >= 0) n += "layers." + std::to_string(layer) + ".";
  n += role;
  if (copy == kRemade) n += "'";
  if (copy == kOnHost) return n + " (host)";
  if (copy == kTokenOnHost) return "generate." + n + " (host)";
  if (copy >= kStreamed) return n + " (streamed " + std::to_string(copy - kStreamed + 1) + ")";
  for (std::uint32_t i = kRemadeAgain; i <= copy; ++i) n += i == kRemadeAgain ? "''" : "'";
  return n;
}

std::string op_label(const Program& p, const Op& op) {
  std::string label = op.layer >= 0 ? "layers." + std::to_string(op.layer) + " " : "";
  label += op_info(op.kind).name;
  for (BufferId b : op.inputs()) {
    if (b == kNoBuffer) continue;
    const std::string_view role = p[b].role;
    const std::size_t prefix = role.starts_with("w.") ? 2 : role.starts_with("grad.") ? 5 : 0;
    if (prefix == 0) continue;
    const std::string_view of = role.substr(prefix);
    if (of != op_info(op.kind).name && op.kind != OpKind::kEmbedBwd) label.append(" ").append(of);
    break;
  }
  if (op.flags & kRecomputed) label += " again";
  return label;
}

bool runs_on_host(const Program& p, const Op& op) {
  return p.profile.tier == Tier::kDevice && op.kind != OpKind::kCopy && op.kind != OpKind::kHold &&
         p[op.in[0]].tier != Tier::kDevice;
}

std::uint32_t backward_begin(const Program& p) {
  const Section micro = p.section(SectionKind::kMicro);
  std::uint32_t i = micro.begin;
  while (i < micro.end && p.ops[i].phase == kForward) ++i;
  return i;
}

Section Program::section(SectionKind k) const {
  for (const Section& s : sections)
    if (s.kind == k) return s;
  return {k, 0, 0};
}

BufferId Program::find(std::string_view role, std::int32_t layer, std::uint32_t copy) const {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].layer == layer && buffers[i].copy == copy && buffers[i].role == role)
      return static_cast<BufferId>(i);
  return kNoBuffer;
}

}  // namespace trainhost::step
