// Structure of a program: sections cover the operations, operands exist, in-place operands are the same
// buffer among inputs and outputs, parameters contain every tensor of the model exactly once. Runs before the
// other checks, which rely on valid operand indices.
#include <algorithm>
#include <array>
#include <cassert>

#include "core/base/checked.hpp"
#include "core/model/adapters.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/model/trainable.hpp"
#include "core/placement/check_findings.hpp"
#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"

namespace trainhost::placement {
namespace {

/// Operands by kind: number of inputs, mask of optional inputs, and per output the input that is changed in
/// place, or kNew for another buffer. Stated a second time here, independently of op_info().
constexpr int kNew = -1, kNone = -2;
struct Signature {
  std::uint8_t ins;
  std::uint32_t optional;
  std::array<int, 4> outs;
  int fifth_out = kNone, sixth_out = kNone, seventh_out = kNone;
};
const Signature& signature(OpKind k) {
  static constexpr Signature kTable[] = {
      {2, 0, {kNew, kNone, kNone, kNone}},       // embed
      {2, 0, {kNew, kNew, kNone, kNone}},        // rms_norm
      {4, 0b1100, {kNew, kNone, kNone, kNone}},  // linear
      {3, 0, {0, kNew, kNew, kNone}},            // qk_norm
      {2, 0, {0, kNone, kNone, kNone}},          // rope
      {3, 0b110, {kNew, kNew, kNone, kNone}},    // attention; 2 without documents
      {1, 0, {kNew, kNone, kNone, kNone}},       // swiglu
      // head_loss; the second output only with a gradient, the others with an adapter, with DoRA, and with
      // its dropout; inputs: inputs_of_head()
      {15, 0b11001000, {0, 3, 5, 8}, 10, 13, 14},
      {10, 0b1100000, {4, kNone, kNone, kNone}},   // head_eval; likewise
      {7, 0, {kNew, kNone, kNone, kNone}},         // head_logits; likewise
      {7, 0b110000, {4, 5, kNone, kNone}},         // rms_norm_bwd; without operand 4 the first output is new
      {2, 0, {kNew, kNone, kNone, kNone}},         // linear_dx
      {5, 0b11000, {2, 3, kNone, kNone}},          // linear_dw; the second output only with a bias
      {2, 0, {1, kNone, kNone, kNone}},            // swiglu_bwd
      {6, 0b100000, {kNew, kNone, kNone, kNone}},  // attention_bwd; 5 without documents
      {2, 0, {0, kNone, kNone, kNone}},            // rope_bwd
      {8, 0b1100000, {0, 5, 6, kNone}},            // qk_norm_bwd; the others only with gradients
      {4, 0b1000, {2, kNone, kNone, kNone}},       // embed_bwd
      {3, 0b100, {1, kNone, kNone, kNone}},        // grad_squares; the host needs no scratch
      {6, 0b100000, {1, 2, 3, 5}},                 // adamw; the last only with a master copy
      {4, 0b1000, {1, 3, kNone, kNone}},           // sgd; likewise
      {5, 0b10000, {1, 2, 4, kNone}},              // sgd_momentum; likewise
      {4, 0, {kNew, 1, 2, kNone}},                 // attention_step
      {1, 0, {kNew, kNone, kNone, kNone}},         // copy
      {2, 0b10, {kNone, kNone, kNone, kNone}},     // hold
      {3, 0, {0, 2, kNone, kNone}},                // cross_entropy
      {11, 0b1000, {1, 3, 4, 6}, 9, 10},           // head_bwd; as head_loss
      {2, 0, {1, kNone, kNone, kNone}},            // add_grad
      {3, 0, {2, kNone, kNone, kNone}},            // lora_b
      {2, 0, {kNew, kNone, kNone, kNone}},         // lora_b_dx
      {3, 0, {2, kNone, kNone, kNone}},            // lora_b_dw
      {3, 0, {2, kNone, kNone, kNone}},            // linear_dx_add
      {5, 0b10000, {1, 2, 4, kNone}},              // lion; the last only with a master copy
      {2, 0, {kNew, kNone, kNone, kNone}},         // dropout; 1 on the CPU
      {3, 0, {1, kNone, kNone, kNone}},            // dropout_add; 2 on the CPU
      {6, 0b100000, {1, 2, 3, 5}},                 // adamw_8bit; likewise
      // adafactor; likewise, column means only of a matrix; 7 unless TP ranks divide the parameter
      {9, 0b1001000, {1, 2, 3, 6}},
      {7, 0b1110000, {1, 2, 5, kNone}},        // muon; likewise; 6 without a direction
      {1, 0, {kNew, kNone, kNone, kNone}},     // dequantize
      {4, 0, {kNew, kNone, kNone, kNone}},     // dora_scale
      {5, 0b11100, {4, kNone, kNone, kNone}},  // dora; without operand 4 the output is new
      {4, 0, {1, 3, kNew, kNone}},             // dora_bwd; the last only with dropout
      {2, 0, {0, kNone, kNone, kNone}},        // all_reduce
      {2, 0, {0, kNone, kNone, kNone}},        // reduce_scatter
      {3, 0, {0, kNone, kNone, kNone}},        // all_gather; 2 without ZeRO 3
      {1, 0, {0, kNone, kNone, kNone}},        // wait
      {2, 0, {0, kNone, kNone, kNone}},        // sum_scalars
      {9, 0, {kNew, kNone, kNone, kNone}},     // head_stats; inputs: inputs_of_head()
      {2, 0b10, {kNew, kNone, kNone, kNone}},  // take_rows
      {3, 0, {kNew, kNone, kNone, kNone}},     // dora_squares
      {2, 0, {kNew, kNone, kNone, kNone}},     // dora_factors
      {3, 0, {1, kNew, kNone, kNone}},         // muon_direction
      {2, 0, {0, kNone, kNone, kNone}},        // muon_orthogonalise
      {6, 0b100000, {2, kNew, kNone, kNone}},  // adafactor_sums; with a master copy where there is one
      {6, 0b100, {2, kNew, kNone, kNone}},     // adafactor_change; of a vector the second output alone
      {1, 0, {kNew, kNone, kNone, kNone}},     // transpose
  };
  static_assert(std::size(kTable) == static_cast<std::size_t>(OpKind::kCount_));
  return kTable[static_cast<std::size_t>(k)];
}

/// Training programs have all four sections, inference programs eval and generate.
void check_sections(const Program& p, Findings& f) {
  std::uint32_t at = 0;
  for (const Section& s : p.sections) {
    if (s.begin != at || s.end < s.begin || s.end > p.ops.size())
      return f.add("the sections are not contiguous");
    at = s.end;
  }
  if (at != p.ops.size()) f.add("the sections do not cover all operations");
  const bool trains = p.run.mode != RunMode::kInference;
  const auto wanted = [&](SectionKind k, const char* name, bool there) {
    std::size_t n = 0;
    for (const Section& s : p.sections) n += s.kind == k;
    if (n != (there ? 1u : 0u))
      f.add(std::string("there are ") + std::to_string(n) + " " + name + " sections");
  };
  wanted(SectionKind::kMicro, "micro", trains);
  wanted(SectionKind::kUpdate, "update", trains);
  wanted(SectionKind::kEval, "eval", true);
  wanted(SectionKind::kGenerate, "generate", true);
}

/// True if TP ranks divide the matrices of the parameter with this gradient.
bool is_divided(const Program& p, BufferId grad) {
  if (p.run.parallel.tensor <= 1 || p.run.mode == RunMode::kInference) return false;
  for (const Param& q : p.params)
    if (q.grad == grad && grad != kNoBuffer)
      return division_of(p.tensor_infos[q.slices.front().tensor]) != Division::kNone;
  return false;
}

/// Muon gets its direction from other operations where the host has the weights, and where TP ranks divide
/// the matrices of the parameter with this gradient.
bool is_muon_in_parts(const Program& p, BufferId grad) {
  return p.traits.mode == "streamed" || is_divided(p, grad);
}

/// Inputs of an operation of the head: without statistics of TP ranks, without an adapter, without DoRA, or
/// without dropout it has fewer. In evaluation and generation nothing is dropped.
std::size_t inputs_of_head(const Program& p, const Op& o, bool has_stats) {
  using namespace operand;
  if (adapter_blocks(p.model, p.run, AdapterGroup::kHead, -1).count == 0)
    return least_inputs(o.kind) + std::size_t{has_stats};
  const bool backward = o.kind == OpKind::kHeadLoss || o.kind == OpKind::kHeadBwd,
             drops = p.run.memory.lora_dropout > 0 && (o.phase == kForward || o.phase == kBackward);
  In last = backward ? head::grad_b(o.kind) : head::b(o.kind);
  if (p.run.memory.dora) last = backward ? head::grad_magnitude(o.kind) : head::scale(o.kind);
  if (p.run.memory.dora && drops && o.kind != OpKind::kHeadEval) last = head::dropped(o.kind);
  return last.slot + std::size_t{1};
}

/// False if an index is invalid: the caller then skips checks that would use it.
bool operands_exist(const Program& p, std::uint32_t i, Findings& f) {
  const Op& o = p.ops[i];
  if (o.kind >= OpKind::kCount_) return f.at(i, "no such kind of operation"), false;
  const Signature& s = signature(o.kind);
  const bool attends = o.kind == OpKind::kAttention || o.kind == OpKind::kAttentionBwd;
  const bool drops = o.kind == OpKind::kDropout || o.kind == OpKind::kDropoutAdd;
  const bool tensor_ranks = p.run.parallel.tensor > 1 && p.run.mode != RunMode::kInference;
  // Rows of activations are gathered from a buffer of their own, as shards of weights are with ZeRO 3.
  const bool of_tensor_ranks = o.flags & kAmongTensorRanks, gathers = o.kind == OpKind::kAllGather,
             of_rows = gathers && of_tensor_ranks && p.run.parallel.sequence && o.ins == s.ins;
  const bool without_last = (gathers && !of_rows && (p.run.parallel.zero != 3 || of_tensor_ranks)) ||
                            (attends && !p.run.document_mask) || (drops && p.traits.tier != Tier::kDevice);
  std::size_t ins = s.ins - std::size_t{without_last};
  const bool heads = o.kind == OpKind::kHeadLoss || o.kind == OpKind::kHeadEval,
             logits =
                 o.kind == OpKind::kHeadLogits || o.kind == OpKind::kHeadBwd || o.kind == OpKind::kHeadStats;
  if (heads || logits) ins = inputs_of_head(p, o, heads && tensor_ranks);
  const bool in_parts = o.kind == OpKind::kMuon && is_muon_in_parts(p, o.in[operand::muon::kGrad.slot]);
  if (o.kind == OpKind::kMuon && !in_parts) --ins;
  if (o.kind == OpKind::kAdafactor && !is_divided(p, o.in[operand::adafactor::kGrad.slot])) ins -= 2;
  if (o.ins != ins)
    return f.at(i, "has " + std::to_string(o.ins) + " inputs, expected " + std::to_string(ins)), false;
  for (std::size_t k = 0; k < o.ins; ++k) {
    const bool needed = (heads && tensor_ranks && k == operand::head::stats(o.kind).slot) ||
                        (in_parts && k == operand::muon::kDirection.slot) ||
                        (o.kind == OpKind::kMuon && !in_parts && k == operand::muon::kWork.slot);
    if (in_parts && k == operand::muon::kWork.slot && o.in[k] != kNoBuffer)
      return f.at(i, "has scratch that it does not use"), false;
    if (o.in[k] == kNoBuffer && (needed || !(s.optional >> k & 1)))
      return f.at(i, "has no input " + std::to_string(k)), false;
    if (o.in[k] != kNoBuffer && o.in[k] >= p.buffers.size())
      return f.at(i, "uses a buffer that does not exist"), false;
  }
  if (o.outs > kMaxOutputs) return f.at(i, "has too many outputs"), false;
  for (BufferId b : o.outputs())
    if (b >= p.buffers.size()) return f.at(i, "uses a buffer that does not exist"), false;
  return true;
}

/// True if the output is absent where its input is: bias gradient, master copy, gradient of a frozen weight.
/// The other case is dx of a norm: without an input it is a new buffer.
bool is_omitted_without_input(OpKind k, int input) {
  if (k == OpKind::kRmsNormBwd) return input == operand::rms_norm_bwd::kGradWeight.slot;
  return k == OpKind::kLinearDw || k == OpKind::kAdamW || k == OpKind::kSgd || k == OpKind::kSgdMomentum ||
         k == OpKind::kLion || k == OpKind::kAdamW8bit || k == OpKind::kAdafactor || k == OpKind::kMuon ||
         k == OpKind::kHeadLoss || k == OpKind::kHeadBwd || k == OpKind::kQkNormBwd ||
         k == OpKind::kAdafactorChange;
}

/// The outputs are those of the kind, and only the inputs that the kind changes in place are written.
void check_outputs(const Program& p, std::uint32_t i, Findings& f) {
  const Op& o = p.ops[i];
  std::size_t n = 0;
  const auto& [ins, optional, outs, fifth_out, sixth_out, seventh_out] = signature(o.kind);
  for (int wanted : {outs[0], outs[1], outs[2], outs[3], fifth_out, sixth_out, seventh_out}) {
    if (wanted == kNone) continue;
    assert(wanted < kMaxOperands);  // kNoBuffer behind the last operand
    const BufferId same = wanted == kNew ? kNoBuffer : o.in[wanted];
    if (wanted != kNew && same == kNoBuffer && is_omitted_without_input(o.kind, wanted)) continue;
    // The embedding has no dropout.
    if (wanted == kNew && o.kind == OpKind::kDoraBwd && (p.run.memory.lora_dropout == 0 || o.layer < 0))
      continue;
    if (n >= o.outs) return f.at(i, "has " + std::to_string(o.outs) + " outputs, expected more");
    const BufferId out = o.out[n++];
    if (same != kNoBuffer && out != same)
      f.at(i, "must change " + p[same].name() + " in place but writes " + p[out].name());
    // A new output must not be an input: kernels may read and write in any order.
    if (same == kNoBuffer)
      for (BufferId in : o.inputs())
        if (in == out) f.at(i, "writes " + p[out].name() + " while it reads it");
  }
  if (n != o.outs) f.at(i, "has " + std::to_string(o.outs) + " outputs, expected " + std::to_string(n));
  const bool fresh = o.flags & kFreshDx;
  if (o.kind == OpKind::kRmsNormBwd && fresh != (o[operand::rms_norm_bwd::kDxIn] == kNoBuffer))
    f.at(i, fresh ? "overwrites dx but reads it" : "adds to dx but does not read it");
}

struct Shape {
  std::uint64_t rows, cols;
};

bool is_matrix(const Program& p, const Param& q) {
  return !q.slices.empty() && p.tensor_infos[q.slices.front().tensor].rank > 1;
}

/// Muon updates matrices of layers; what it leaves out is AdamW's.
bool has_second_moment(const Program& p, const Param& q) {
  switch (p.run.optimizer) {
    case Optimizer::kSgd:
    case Optimizer::kSgdMomentum:
    case Optimizer::kLion:
      return false;
    case Optimizer::kAdafactor:
      return is_matrix(p, q);
    case Optimizer::kMuon:
      return !is_matrix(p, q) || p.tensor_infos[q.slices.front().tensor].layer < 0;
    case Optimizer::kAdamW:
    case Optimizer::kAdamW8bit:
      break;
  }
  return true;
}

/// Elements of a parameter that this rank updates: under ZeRO a range of equal length on every rank, in
/// multiples of 16; what is left for the last ranks may be less or nothing.
std::uint64_t updated_count(const Program& p, std::uint64_t elements) {
  const Parallelism& r = p.run.parallel;
  if (r.zero == 0) return elements;
  const std::uint64_t each = ((elements + r.data - 1) / r.data + 15) / 16 * 16,
                      before = each * (r.data_rank - 1);
  return before >= elements ? 0 : std::min(each, elements - before);
}

/// That of the weight, or of factored or 8-bit state: one f32 per 256 elements and a byte per element for
/// tensors of at least 4,096 elements, else an f32 per element.
Shape shape_of_moment(const Program& p, const Param& q, std::uint64_t elements, bool second) {
  const Buffer& w = p[q.weight];
  if (p.run.parallel.zero > 0) return {updated_count(p, elements), 1};
  if (p.run.optimizer == Optimizer::kAdafactor && is_matrix(p, q))
    return second ? Shape{q.slices.size(), w.cols} : Shape{w.rows, 1};
  if (p.run.optimizer != Optimizer::kAdamW8bit) return {w.rows, w.cols};
  std::uint64_t bytes = 0, largest = 0;
  for (const Slice& s : q.slices) {
    // TP ranks that divide a tensor have the state of their part in the form of the whole.
    const TensorInfo& t = p.tensor_infos[s.tensor];
    const std::uint64_t n = t.elements(),
                        whole = division_of(t) == Division::kNone ? n : n * p.run.parallel.tensor;
    largest = std::max(largest, whole);
    bytes = checked_add(bytes, whole < 4096 ? 4 * n : checked_add(n, (n + 255) / 256 * 4));
  }
  return largest < 4096 ? Shape{w.rows, w.cols} : Shape{bytes, 1};
}

/// Bytes of the weight of a parameter with this number of elements. In QLoRA the matrices of the layers have
/// half a byte per element and per 64 elements a scale: in f32, or in one byte with an f32 scale per 256 of
/// them and one f32 mean per matrix.
std::uint64_t weight_bytes(const Program& p, const Param& q, std::uint64_t elements) {
  const DType stored = p.traits.f32_storage ? DType::kF32 : p.run.weight;
  std::uint64_t bytes = 0;
  for (const Slice& s : q.slices) {
    const TensorInfo& t = p.tensor_infos[s.tensor];
    const bool matrix_of_a_layer = t.rank == 2 && t.layer >= 0 && t.part == AdapterPart::kNone;
    if (p.run.mode != RunMode::kQlora || !matrix_of_a_layer) return elements * size_of(stored);
    const auto share = [](std::uint64_t n, std::uint64_t of) { return (n + of - 1) / of; };
    const std::uint64_t n = t.elements(), blocks = share(n, 64);
    bytes += share(n, 2) + (p.run.memory.double_quantized ? blocks + 4 * share(blocks, 256) + 4 : 4 * blocks);
  }
  return bytes;
}

/// Each tensor is in one parameter, slices are contiguous, and gradient, moments and master copy have the
/// shape of the weight.
void check_params(const Program& p, Findings& f) {
  std::vector<std::uint32_t> times_contained(p.tensor_infos.size(), 0);
  for (const Param& q : p.params) {
    if (q.weight >= p.buffers.size()) return f.add("a parameter has no weight buffer");
    const Buffer& w = p[q.weight];
    // Element at which the next tensor of the parameter must begin.
    std::uint64_t filled = 0;
    for (const Slice& s : q.slices) {
      if (s.tensor >= p.tensor_infos.size())
        return f.add(w.name() + " contains a tensor that does not exist");
      ++times_contained[s.tensor];
      if (s.first_element != filled) f.add(w.name() + ": its tensors are not contiguous");
      filled = checked_add(filled, p.tensor_infos[s.tensor].elements());
      if (q.decay != (p.tensor_infos[s.tensor].rank > 1))
        f.add(w.name() + ": weight decay is for tensors of two or more dimensions");
    }
    // ZeRO 2 divides gradients too, ZeRO 3 also weights, but none in NF4.
    const std::uint32_t zero = p.run.mode == RunMode::kInference ? 0 : p.run.parallel.zero;
    const bool divided = zero == 3 && w.dtype != DType::kU8;
    if (weight_bytes(p, q, divided ? updated_count(p, filled) : filled) != w.instance_bytes())
      f.add(w.name() + " has another size than its tensors");
    for (BufferId b : {q.weight, q.grad, q.m, q.v, q.master}) {
      const bool state = b == q.m || b == q.v || (b == q.master && zero > 0) || (b == q.grad && zero > 1);
      const Shape shape = state     ? shape_of_moment(p, q, filled, b == q.v)
                          : divided ? Shape{updated_count(p, filled), 1}
                                    : Shape{w.rows, w.cols};
      if (b != kNoBuffer && b < p.buffers.size() &&
          p[b].whole != ((b == q.weight ? divided : state && zero > 0) ? filled : 0))
        f.add(p[b].name() + " is marked as a shard of another size, or is not one");
      if (b != kNoBuffer &&
          (b >= p.buffers.size() || p[b].rows != shape.rows || p[b].cols != shape.cols || !p[b].persistent))
        f.add("gradient, moments or master copy of " + w.name() +
              " have another shape or are not persistent");
    }
    // The rules of the run decide; without any, the weights of the model are frozen beside adapters.
    const bool adapter =
        !q.slices.empty() && p.tensor_infos[q.slices.front().tensor].part != AdapterPart::kNone;
    const bool trains = (p.run.mode != RunMode::kInference && !adapter && !q.slices.empty() &&
                         trains_weight(p.run, p.tensor_infos[q.slices.front().tensor].name)) ||
                        (adapter && trains_adapters(p.run));
    if ((q.grad != kNoBuffer) != trains) f.add(w.name() + (trains ? " has no gradient" : " has a gradient"));
    const bool rounded = w.dtype != DType::kF32, updates = trains && updated_count(p, filled) > 0;
    if ((q.master != kNoBuffer) != (updates && rounded))
      f.add(w.name() + (rounded ? " has no f32 master copy" : " has a master copy that it does not need"));
    if ((q.m != kNoBuffer) != (updates && p.run.optimizer != Optimizer::kSgd) ||
        (q.v != kNoBuffer) != (updates && has_second_moment(p, q)))
      f.add(w.name() + " has other optimizer state than its optimizer needs");
  }
  for (std::size_t t = 0; t < times_contained.size(); ++t)
    if (times_contained[t] != 1)
      f.add(p.tensor_infos[t].name + " is in " + std::to_string(times_contained[t]) + " parameters");
  if (p.tensor_infos.size() != all_tensors(p.model, p.run).size())
    f.add("the tensors are not those of the model");
}

}  // namespace

/// check_outputs() indexes with operands, so it runs only if all of them exist.
void check_structure(const Program& p, Findings& f) {
  check_sections(p, f);
  for (std::uint32_t i = 0; i < p.ops.size(); ++i)
    if (operands_exist(p, i, f)) check_outputs(p, i, f);
  check_params(p, f);
}

}  // namespace trainhost::placement
