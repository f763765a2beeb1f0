// A program as text: one line per buffer and per operation. tests/golden/plan contains three programs, so
// that a change of memory behaviour is visible in review. Only integers, so the text is the same on every
// machine.
#include <string>

#include "core/step/program.hpp"

namespace trainhost::step {
namespace {

const char* name(SectionKind k) {
  switch (k) {
    case SectionKind::kMicro:
      return "micro";
    case SectionKind::kUpdate:
      return "update";
    case SectionKind::kEval:
      return "eval";
    case SectionKind::kGenerate:
      return "generate";
  }
  return "?";
}

// "-" keeps the slot visible.
std::string operand_name(const Program& p, BufferId b) { return b == kNoBuffer ? "-" : p[b].name(); }

std::string line(const Program& p, BufferId id, std::span<const std::uint64_t> offsets) {
  const Buffer& b = p[id];
  std::string s = "  " + b.name() + "  " + std::string(name(b.dtype)) + "[" + std::to_string(b.rows) + "," +
                  std::to_string(b.cols) + "]  " + std::string(name(b.component));
  // External memory has no place in the arena.
  if (b.storage == Storage::kExternal) return s + "  external";
  if (b.storage == Storage::kFed) s += "  fed";
  if (b.tier != p.traits.tier) s += "  " + std::string(name(b.tier));
  if (b.persistent) s += "  persistent";
  if (b.ring > 1) s += "  ring " + std::to_string(b.ring);
  if (b.whole) s += "  shard of " + std::to_string(b.whole);
  if (id < offsets.size()) s += "  @" + std::to_string(offsets[id]) + "+" + std::to_string(b.bytes());
  return s;
}

std::string line(const Program& p, const Op& o) {
  std::string s = "  ";
  s += op_info(o.kind).name;
  for (BufferId b : o.inputs()) s += " " + operand_name(p, b);
  s += " ->";
  for (BufferId b : o.outputs()) s += " " + operand_name(p, b);
  // In the order of the flags' bits; names that no program has are not printed.
  if (o.flags & kFirstWrite) s += "  first_write";
  if (o.flags & kFreshDx) s += "  fresh_dx";
  if (o.flags & kDecay) s += "  decay";
  if (o.flags & kRecomputed) s += "  recomputed";
  if (o.flags & kFreshGrad) s += "  fresh_grad";
  if (o.flags & kActivationCopy) s += "  activation";
  if (o.flags & kSyncCopy) s += "  sync";
  if (o.flags & kAmongTensorRanks) s += "  tensor";
  return s;
}

}  // namespace

std::string dump(const Program& p, std::span<const std::uint64_t> offsets) {
  std::string s = "buffers " + std::to_string(p.buffers.size()) + "\n";
  for (std::size_t i = 0; i < p.buffers.size(); ++i) s += line(p, static_cast<BufferId>(i), offsets) + "\n";
  for (const Section& sec : p.sections) {
    s += std::string("section ") + name(sec.kind) + "\n";
    for (std::uint32_t i = sec.begin; i < sec.end; ++i) s += line(p, p.ops[i]) + "\n";
  }
  return s;
}

}  // namespace trainhost::step
