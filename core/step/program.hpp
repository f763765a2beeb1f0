// The step program: one training step as data. A flat list of operations over named buffers, in the order in
// which they run; sections say what is repeated. Everything else reads it: the placer, the estimators, the
// trainers. Nothing here executes or allocates. Shapes are row-major [rows, cols]; M = B*S tokens of one
// micro-batch.
//
//   section micro     forward, then backward of one micro-batch; runs `accumulate` times an update
//   section update    global gradient norm, then the optimizer; once an update
//   section eval      forward and loss of one micro-batch, no gradients
//   section generate  one token at a time through a key/value cache (M = 1)
#pragma once
#include <cassert>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::step {

using BufferId = std::uint32_t;
inline constexpr BufferId kNoBuffer = UINT32_MAX;

/// Who holds the bytes. External buffers (token ids, targets) belong to the host and are handed in with each
/// step; fed ones are their copies on a device: they have a place in its arena, and the trainer fills them
/// before each micro-batch.
enum class Storage : std::uint8_t { kArena, kExternal, kFed };

struct Buffer {
  const char* role = "";    // static: "qkv", "attn_out", "grad.qkv"; unique together with layer and copy
  std::int32_t layer = -1;  // -1: not of a layer
  std::uint32_t copy =
      0;  // 1: made again by a recompute policy, 4: once more; 2, 3: of eval, generate (buffer_names.hpp)
  Component component = Component::kActivations;
  Tier tier{};  // the trainer's, unless a mode moves it elsewhere
  DType dtype = DType::kF32;
  Storage storage = Storage::kArena;
  std::uint32_t ring = 1;  // 2: one instance a micro-batch in flight, micro-batch i uses instance i % 2
  std::uint32_t stride =
      0;  // of a ring: instances begin at multiples of this many bytes (the trainer's alignment)
  bool persistent =
      false;  // keeps its bytes between operations and steps: weights, gradients, moments, tables,
              // scalars; gradients through micro and update, the others for the whole run
  std::uint64_t rows = 1, cols = 1;
  std::uint64_t instance_bytes() const {
    return rows * cols * size_of(dtype);
  }  // checked when the buffer was added
  std::uint64_t instance_stride() const {
    return stride ? (instance_bytes() + stride - 1) / stride * stride : 0;
  }
  std::uint64_t bytes() const { return (ring - 1) * instance_stride() + instance_bytes(); }
  std::string name() const;  // "layers.3.qkv", "layers.3.qkv'" (recomputed), "eval.x"
};

/// Operations. operands.hpp lists the operands of each, with shapes and meaning. The order of this enum is
/// part of digests: a new operation goes before kCount_. README.md lists what a new operation needs.
enum class OpKind : std::uint8_t {
  kEmbed,
  kRmsNorm,
  kLinear,
  kQkNorm,
  kRope,
  kAttention,
  kSwiGlu,
  kHeadLoss,  // logits, loss and gradients of the head, a chunk of tokens at a time
  kHeadEval,  // logits and loss, a chunk of tokens at a time
  kHeadLogits,
  kRmsNormBwd,
  kLinearDx,  // gradient of the input
  kLinearDw,  // gradients of weight and bias
  kSwiGluBwd,
  kAttentionBwd,
  kRopeBwd,
  kQkNormBwd,
  kEmbedBwd,
  kGradSquares,  // contribution of one gradient to the global norm
  kAdamW,
  kSgd,
  kSgdMomentum,
  kAttentionStep,  // attention of one generated token through the key/value cache
  // Used where a program spans more than one memory tier (device_modes.hpp). An operation runs on the side
  // whose memory holds its first operand.
  kCopy,  // asynchronous transfer between tiers: see kHold
  kHold,  // no work; extends the lifetime of two buffers until a copy between them has finished
  kCrossEntropy,
  kHeadBwd,
  kAddGrad,
  kCount_,
};

/// Bits of Op::flags.
enum OpFlag : std::uint32_t {
  kFirstWrite =
      1,  // gradient ops: on micro-batch 0 this op is the first to touch its gradient: overwrite, do not add
  kFreshDx = 2,          // kRmsNormBwd: dx is written, not added to
  kDecay = 4,            // optimizer ops: weight decay applies (tensors of two or more dimensions)
  kRecomputed = 8,       // a forward op that a recompute policy runs again in the backward pass
  kFreshGrad = 16,       // gradient ops: the gradient is of this micro-batch alone: overwrite always
  kActivationCopy = 32,  // kCopy: class `activation` of the CUDA trainer's contract
  kSyncCopy = 64,        // kCopy: class `sync`: what keeps the embedding equal on both sides
};

inline constexpr int kMaxOperands = 8, kMaxOutputs = 4;

/// An operand slot: index into Op::in or Op::out. operands.hpp names the slots of every operation.
struct In {
  std::uint8_t slot;
};
struct Out {
  std::uint8_t slot;
};

struct Op {
  OpKind kind{};
  Phase phase = kForward;
  std::int32_t layer = -1;
  std::uint32_t flags = 0;
  std::uint64_t rows = 0;  // M of this op: B*S in micro and eval, 1 in generate
  std::uint8_t ins = 0, outs = 0;
  BufferId in[kMaxOperands];  // kNoBuffer where an optional operand is absent
  BufferId out[kMaxOutputs];
  /// The buffer in a slot: op[linear::kWeight].
  BufferId operator[](In i) const { return assert(i.slot < kMaxOperands), in[i.slot]; }
  BufferId& operator[](In i) { return assert(i.slot < kMaxOperands), in[i.slot]; }
  BufferId operator[](Out o) const { return assert(o.slot < kMaxOutputs), out[o.slot]; }
  BufferId& operator[](Out o) { return assert(o.slot < kMaxOutputs), out[o.slot]; }
  std::span<const BufferId> inputs() const { return {in, ins}; }
  std::span<const BufferId> outputs() const { return {out, outs}; }
};

enum class SectionKind : std::uint8_t { kMicro, kUpdate, kEval, kGenerate };
struct Section {
  SectionKind kind{};
  std::uint32_t begin = 0, end = 0;  // ops [begin, end)
};

/// A piece of a fused parameter buffer that has a name of its own in checkpoints.
struct Slice {
  std::uint32_t tensor;         // index into Program::tensor_infos
  std::uint64_t first_element;  // where it starts in the parameter's buffer
};

/// One parameter buffer with its gradient, its optimizer state and its master copy, all of the same shape. q,
/// k, v share one buffer (rows q | k | v), so do gate and up, and the biases likewise: one matrix product
/// each.
struct Param {
  BufferId weight = kNoBuffer, grad = kNoBuffer, m = kNoBuffer, v = kNoBuffer;
  BufferId master = kNoBuffer;  // f32, where the weight is stored in a lower precision
  bool decay = false;
  std::vector<Slice> slices;
};

struct Program {
  ModelSpec model;
  RunSpec run;
  TrainerTraits traits;
  std::vector<Buffer> buffers;
  std::vector<Op> ops;
  std::vector<Section> sections;
  std::vector<Param> params;             // in file order of their first tensor
  std::vector<TensorInfo> tensor_infos;  // tensors(model)

  const Buffer& operator[](BufferId b) const { return buffers[b]; }
  /// The section of that kind; empty range when the program has none (no update in inference).
  Section section(SectionKind k) const;
  /// The buffer of that role and layer, first copy; kNoBuffer when there is none. Linear search: for tests
  /// and load.
  BufferId find(std::string_view role, std::int32_t layer = -1, std::uint32_t copy = 0) const;
};

/// Does the host run it while the rest runs on a device? Copies belong to neither.
bool runs_on_host(const Program& p, const Op& op);

/// Where the forward part of the micro section ends: its first operation of phase backward.
std::uint32_t backward_begin(const Program& p);

/// Layout of the "scalars" buffer (16 doubles): what ops leave for the executor and for each other. From
/// kLossScale on: of trainers whose scalars lie on a device, which read the constants of a step there too.
enum Scalar : std::uint32_t {
  kLossSum = 0,
  kNorm2 = 1,
  kClipFactor = 2,
  kEvalLossSum = 3,
  kLossScale = 4,  // 1 / counted targets of the update
  kLr = 5,
  kStepSize = 6,
  kInvSqrtBias2 = 7,
  kDecayFactor = 8,  // lr/(1-beta1^t), 1/sqrt(1-beta2^t), 1 - lr*weight_decay
  kGradNorm = 9,     // sqrt(norm2)
  kApplied = 10,     // 1: loss and norm are finite and the update changes weights; 0: it does not
  kScalarCount = 16
};

/// What transforms and dumps need to know of the operand slots.
struct OpInfo {
  const char* name;            // "linear_dw"; also the namespace of its slots in operands.hpp
  std::uint8_t inputs;         // number of input slots, optional ones included
  std::uint32_t inout_mask;    // bit i: input i is also written (appears among outputs)
  std::uint32_t scratch_mask;  // bit i: input i is scratch: written before it is read, dead afterwards
};
const OpInfo& op_info(OpKind k);

/// What people call it: "layers.3 linear qkv" (the parameter that it belongs to), "layers.3 attention",
/// "embed"; with "again" at its end where a recompute policy runs it once more.
std::string op_label(const Program& p, const Op& op);

/// Builds the program of one run, recompute policy applied. Throws usage_error when the family cannot be
/// trained or the run asks for what no program can do yet. Pure and deterministic. Op order: README.md here.
Program build_program(const ModelSpec& model, const RunSpec& run, const TrainerTraits& traits);

/// FNV-1a over every field of buffers and ops that changes memory or meaning, plus offsets when given.
std::uint64_t digest(const Program& p, std::span<const std::uint64_t> offsets = {});

/// One line a buffer and an op, stable across machines: the golden text that reviews see.
std::string dump(const Program& p, std::span<const std::uint64_t> offsets = {});

}  // namespace trainhost::step
