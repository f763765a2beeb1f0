// The step program: one training step as data. A flat list of operations over named buffers, in the order in
// which they run, divided into sections that are repeated. Placement, estimators and trainers read it;
// nothing here executes or allocates. Shapes are row-major [rows, cols]; M = B*S tokens of one micro-batch.
//
//   section micro     forward, then backward of one micro-batch; runs `accumulate` times per update
//   section update    global gradient norm, then the optimizer; runs once per update
//   section eval      forward and loss of one micro-batch, no gradients
//   section generate  one token at a time through a key/value cache (M = 1)
#pragma once
#include <array>
#include <cassert>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.hpp"
#include "core/model/adapters.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/nf4.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/shards.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::step {

using BufferId = std::uint32_t;
inline constexpr BufferId kNoBuffer = UINT32_MAX;

/// Who owns the bytes. kArena: the plan gives the buffer an offset. kExternal: token ids and targets that the
/// host passes with each step; no offset. kFed: their copies on a device, which have an offset in its arena
/// and are filled by the trainer before each micro-batch.
enum class Storage : std::uint8_t { kArena, kExternal, kFed };

struct Buffer {
  const char* role = "";    // static: "qkv", "attn_out", "grad.qkv"; unique together with layer and copy
  std::int32_t layer = -1;  // -1: belongs to no layer
  std::uint32_t copy = 0;   // enum Copy in buffer_names.hpp: recomputed, eval, generate, host, streamed
  Component component = Component::kActivations;
  Tier tier{};  // the trainer's compute tier, unless a device mode moves the buffer to another one
  DType dtype = DType::kF32;
  Storage storage = Storage::kArena;
  std::uint32_t ring = 1;    // number of instances; with 2, micro-batch i uses instance i % 2
  std::uint32_t stride = 0;  // of a ring: instances start at multiples of this many bytes (the alignment)
  // Keeps its contents between operations and steps: weights, moments, tables and scalars for the whole run,
  // gradients from the micro section through the update section.
  bool persistent = false;
  std::uint64_t rows = 1, cols = 1;
  // Of a persistent buffer that has one rank's shard of a parameter, in one column: elements of the whole
  // parameter (core/model/shards.hpp). 0: not a shard. A shard may have no elements.
  std::uint64_t whole = 0;
  /// Cannot overflow: the product is checked when the buffer is added to a program.
  std::uint64_t instance_bytes() const { return rows * cols * size_of(dtype); }
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
  // Adapters (core/model/adapters.hpp). A is multiplied by kLinear and kLinearDw, like any other weight.
  kLoraB,
  kLoraBDx,
  kLoraBDw,
  kLinearDxAdd,  // gradient of the input, added to
  kLion,
  kDropout,     // of an adapter's input
  kDropoutAdd,  // gradient of kDropout, added to
  kAdamW8bit,
  kAdafactor,
  kMuon,
  kDequantize,  // a frozen weight in NF4 (core/model/nf4.hpp) as a matrix for the next operation
  // DoRA (core/model/adapters.hpp): the rows of W + scale * B A have the norms m.
  kDoraScale,  // m / norm and 1 / norm of every output of a product
  kDora,       // the output of a product multiplied by m / norm
  kDoraBwd,
  // Collective operations (core/base/collectives.hpp), in place. The first three start one; their buffer may
  // not be used before its kWait.
  kAllReduce,      // of a gradient; among TP ranks of a sum of which each has a part
  kReduceScatter,  // of a gradient: this rank gets its shard
  kAllGather,  // of a weight, from the shards that the ranks have; among TP ranks of what each has computed
  kWait,
  kSumScalars,  // in micro: counted targets and the wish to stop; in update: loss and norm
  kHeadStats,   // of a part of the vocabulary: maximum, sum of exponentials, logit of the target
  kTakeRows,    // of a sum over the TP ranks: the rows of this rank
  // kDoraScale of a product whose inputs TP ranks divide, in two parts: the ranks sum the squares between.
  kDoraSquares,  // of the rows of this rank's columns of W + scale * B A
  kDoraFactors,  // m / norm and 1 / norm, from the sums
  // Muon in parts, where a matrix is divided among TP ranks or its weight is in host memory; kMuon then adds
  // the direction to the weight.
  kMuonDirection,      // momentum, and the direction that follows from it
  kMuonOrthogonalise,  // the direction of whole tensors
  // Adafactor of a parameter that TP ranks divide, whose sums they add up before kAdafactor: those of squared
  // gradients over parts of rows or columns, and those of squared changes.
  kAdafactorSums,
  kAdafactorChange,
  kTranspose,  // of B of the adapter of an embedding, which is A of that of the LM head
  kCount_,
};

/// Bits of Op::flags.
enum OpFlag : std::uint32_t {
  kFirstWrite = 1,       // gradient ops: on micro-batch 0 the gradient is overwritten, later added to
  kFreshDx = 2,          // kRmsNormBwd: dx is written, not added to
  kDecay = 4,            // optimizer ops: weight decay applies (tensors of two or more dimensions)
  kRecomputed = 8,       // forward op that runs again in the backward pass (activation checkpointing)
  kFreshGrad = 16,       // gradient ops: the buffer holds one micro-batch's gradient; always overwrite
  kActivationCopy = 32,  // kCopy: counted as transfer class `activation` (docs/memory-model.md)
  kSyncCopy = 64,        // kCopy: counted as transfer class `sync`: keeps host and device embedding equal
  kLastMicro = 128,  // collectives: only on the last micro-batch of an update, when gradients are complete
  kAmongTensorRanks = 256,  // collectives: among the TP ranks; without it among the DP ranks
};

inline constexpr int kMaxOperands = 15, kMaxOutputs = 7;

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

/// The part of a parameter buffer that is one tensor of a checkpoint.
struct Slice {
  std::uint32_t tensor;         // index into Program::tensor_infos
  std::uint64_t first_element;  // offset in the parameter's buffer, in elements
};

/// One parameter buffer with its gradient, optimizer state and master copy, all of the same shape, except the
/// state of kAdamW8bit and kAdafactor (operands.hpp). A frozen parameter, one of the model in a run that
/// trains adapters, has only a weight, which may be in NF4: then the buffer has bytes instead of rows and
/// columns, and each of its tensors is quantized by itself. q, k and v share one buffer (rows q | k | v), as
/// do gate and up and the matching biases: one matrix product instead of several.
struct Param {
  BufferId weight = kNoBuffer, grad = kNoBuffer, m = kNoBuffer, v = kNoBuffer;
  BufferId master = kNoBuffer;  // f32, where the weight is stored in a lower precision
  bool decay = false;
  std::vector<Slice> slices;
};

struct Program {
  ModelSpec model;  // of a TP rank: its part (core/model/tensor_parts.hpp), which tensor_infos describe too
  RunSpec run;
  TrainerTraits traits;
  std::vector<Buffer> buffers;
  std::vector<Op> ops;
  std::vector<Section> sections;
  std::vector<Param> params;             // in file order of their first tensor
  std::vector<TensorInfo> tensor_infos;  // all_tensors(model, run)

  const Buffer& operator[](BufferId b) const { return buffers[b]; }
  /// The section of that kind; an empty range if the program has none (inference has no update).
  Section section(SectionKind k) const;
  /// The buffer of that role, layer and copy, or kNoBuffer. Linear search, meant for setup and tests.
  BufferId find(std::string_view role, std::int32_t layer = -1, std::uint32_t copy = 0) const;
};

/// True if the host runs the operation of a device program: its first operand is not in device memory.
/// False for kCopy and kHold, which neither side computes.
bool runs_on_host(const Program& p, const Op& op);

/// The adapted matrices of the product whose stacked B or magnitudes, or their gradients, are in buffer b: of
/// kLoraB and its gradients, of kDoraScale and kDoraBwd. b must be such a buffer.
AdapterBlocks lora_blocks(const Program& p, BufferId b);

/// The product, as adapted_product_number(), whose adapters' input a kDropout or kDropoutAdd drops: what
/// makes the masks of two products independent.
std::uint32_t dropout_product(const Program& p, const Op& op);

/// One matrix of a parameter in NF4: where it is in the buffer, and where its elements are in the dequantized
/// matrix, in which the matrices of the parameter are stacked by rows.
struct QuantizedMatrix {
  nf4::Layout layout;
  std::uint64_t first_byte = 0, first_element = 0;
};
/// The matrices of a parameter in NF4; count is 0 if the parameter is not quantized.
struct QuantizedParam {
  std::array<QuantizedMatrix, 3> matrix{};
  std::uint32_t count = 0;
  std::uint64_t rows = 0, cols = 0;  // of the dequantized matrix
  std::uint64_t bytes = 0;           // of the buffer
  std::span<const QuantizedMatrix> all() const { return {matrix.data(), count}; }
};
QuantizedParam quantized_param(const Program& p, const Param& q);
/// Of the parameter whose weight is buffer b, or whose weight b is a copy of (device_modes.hpp). Linear
/// search: called once per operation that dequantizes a matrix.
QuantizedParam quantized_param(const Program& p, BufferId b);

/// The elements of a parameter of which this rank computes the part of the norm (core/model/shards.hpp), as a
/// range of buffer b, its weight or gradient: all of a buffer that has nothing but the shard, and in a run of
/// one rank.
Shard shard_of(const Program& p, BufferId b);
/// The elements that this rank updates and has optimizer state of: under ZeRO its shard, else all. Likewise a
/// range of buffer b.
Shard updated_elements(const Program& p, BufferId b);
/// Elements of the whole parameter whose weight or gradient is buffer b, of which b may have a shard.
std::uint64_t whole_elements(const Program& p, BufferId b);
/// The elements of a parameter that this rank has in buffer b, its weight, gradient or master copy: all or
/// its shard.
Shard present_elements(const Program& p, BufferId b);

/// Index of the first operation of phase backward in the micro section: the end of its forward part.
std::uint32_t backward_begin(const Program& p);

/// Indices into the "scalars" buffer (16 doubles), by which operations pass values to each other and to the
/// executor. Entries from kLossScale on are used only by trainers that keep the scalars on a device.
enum Scalar : std::uint32_t {
  kLossSum = 0,
  kNorm2 = 1,
  kClipFactor = 2,
  kEvalLossSum = 3,
  kLossScale = 4,  // 1 / counted targets of the update
  kLr = 5,
  kStepSize = 6,
  kInvSqrtBias2 = 7,
  kDecayFactor = 8,    // lr/(1-beta1^t), 1/sqrt(1-beta2^t), 1 - lr*weight_decay
  kGradNorm = 9,       // sqrt(norm2)
  kApplied = 10,       // 1: loss and norm are finite and the update changes weights; 0: it does not
  kMomentWeight = 11,  // of Adafactor: weight of the new squares in the second moment
  kRelativeLr = 12,    // of Adafactor: learning rate relative to the RMS of a tensor
  kCounted = 13,       // of several ranks: counted targets of the update
  kCancelled = 14,     // of several ranks: how many of them were asked to stop
  kScalarCount = 16
};

/// What transforms and dumps need to know of the operand slots.
struct OpInfo {
  const char* name;            // "linear_dw"; also the namespace of its slots in operands.hpp
  std::uint8_t inputs;         // number of input slots, optional ones included
  std::uint32_t inout_mask;    // bit i: input i is changed in place (and appears among the outputs)
  std::uint32_t scratch_mask;  // bit i: input i is scratch: written before it is read, unused afterwards
};
const OpInfo& op_info(OpKind k);
/// How many slots every operation of this kind has. Those behind them were added later: absent ones at the
/// end are left out, so that digests of other runs stay as they were.
std::uint8_t least_inputs(OpKind k);

/// Name of an operation for users: "layers.3 linear qkv" (with the parameter it belongs to), "layers.3
/// attention", "embed". Ends with "again" if the operation is recomputed.
std::string op_label(const Program& p, const Op& op);

/// Builds the program of one run and applies its recompute policy and device mode. Pure and deterministic.
/// Errors: usage_error, naming the run-file key, for a family or setting without a step program.
/// The order of operations is described in README.md.
Program build_program(const ModelSpec& model, const RunSpec& run, const TrainerTraits& traits);

/// FNV-1a over every field of buffers and operations that affects memory or results, and over the offsets if
/// given.
std::uint64_t digest(const Program& p, std::span<const std::uint64_t> offsets = {});

/// One line per buffer and per operation, identical on every machine; compared with tests/golden/plan.
std::string dump(const Program& p, std::span<const std::uint64_t> offsets = {});

}  // namespace trainhost::step
