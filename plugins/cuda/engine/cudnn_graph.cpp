// Translation of graphs to cuDNN's backend descriptors: tensors and operations become descriptors when they
// are added, Plan combines them and asks the library for a kernel. Contains nothing about attention; the
// graphs are in cudnn_attention.cpp, the numbers of attributes in cudnn_api.hpp. See cudnn_graph.hpp.
#include "plugins/cuda/engine/cudnn_graph.hpp"

#include <algorithm>
#include <cassert>

#include "core/abi/error_guard.hpp"
#include "trainhost/status.h"

namespace trainhost::cuda::cudnn {
namespace {

// For messages about single descriptors; a Plan knows which pass it is made for and names that.
constexpr const char* kBuilding = "describing attention to cuDNN";
// Proposals are ranked by expected speed. Those after the first 16 are not read.
constexpr std::int64_t kMaxProposals = 16;

// Must be called directly after the call that failed: the text of a later error replaces it.
std::string last_reason() {
  char reason[256] = "";
  library().cudnnGetLastErrorString(reason, sizeof reason);
  return *reason ? reason : "no reason given";
}

/// Values of an attribute that are descriptors: the caller creates them, the library fills them.
std::vector<Object> read_objects(const Object& from, Attribute a, DescriptorType type, std::int64_t most) {
  std::vector<Object> made;
  std::vector<Descriptor> raw;
  for (std::int64_t i = 0; i < most; ++i) made.emplace_back(type), raw.push_back(made.back().get());
  // The library returns how many values the attribute has, which may be more than it was asked to write.
  made.resize(static_cast<std::size_t>(
      std::clamp<std::int64_t>(from.get(a, ValueType::kDescriptor, most, raw.data()), 0, most)));
  return made;
}

/// False if the engine has the note that its results may differ from run to run: kernels that add with atomic
/// operations. The array is large enough for every note that exists.
bool deterministic(const Object& engine) {
  std::array<std::int32_t, kNumericalNotes> notes{};
  const std::int64_t count =
      engine.get(Attribute::kEngineNumericalNotes, ValueType::kNumericalNote, kNumericalNotes, notes.data());
  return std::find(notes.begin(), notes.begin() + std::clamp<std::int64_t>(count, 0, kNumericalNotes),
                   kNondeterministic) == notes.begin() + std::clamp<std::int64_t>(count, 0, kNumericalNotes);
}

}  // namespace

Dims packed(const Dims& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }

Tensor& Graph::add(DataType type, const Dims& dims, const Dims& strides, bool is_virtual, bool by_value) {
  Tensor& t = tensors_.emplace_back(Tensor{Object(DescriptorType::kTensor), dims});
  // Unique in the graph, from 1 on. run() binds addresses to tensors by these ids.
  t.id = static_cast<std::int64_t>(tensors_.size());
  // A promise to the library, which may use 16-byte accesses. Planned buffers are aligned to 256 bytes, and a
  // head starts at a multiple of 16 bytes inside a row, because head_dim is a multiple of 8 (cudnn_limit()).
  // A backward call starts at such a multiple in the statistics too (cudnn_backward_sequences()).
  const std::int64_t alignment = 16;
  t.object.set(Attribute::kTensorDataType, ValueType::kDataType, type);
  t.object.set(Attribute::kTensorDimensions, ValueType::kInt64, std::span<const std::int64_t>(dims));
  t.object.set(Attribute::kTensorStrides, ValueType::kInt64, std::span<const std::int64_t>(strides));
  t.object.set(Attribute::kTensorId, ValueType::kInt64, t.id);
  t.object.set(Attribute::kTensorAlignment, ValueType::kInt64, alignment);
  t.object.set(Attribute::kTensorIsVirtual, ValueType::kBoolean, is_virtual);
  t.object.set(Attribute::kTensorIsByValue, ValueType::kBoolean, by_value);
  t.object.finalize(kBuilding);
  return t;
}

Tensor& Graph::memory(DataType type, const Dims& dims, const Dims& strides) {
  Tensor& t = add(type, dims, strides, false, false);
  memory_.push_back(t.id);
  return t;
}

Tensor& Graph::scratch(const Dims& dims, DataType type) { return scratch(dims, packed(dims), type); }

Tensor& Graph::scratch(const Dims& dims, const Dims& strides, DataType type) {
  return add(type, dims, strides, true, false);
}

Tensor& Graph::constant(float value) {
  // One element, broadcast to the other operand. It has no device memory: run() passes a host address.
  Tensor& t = add(DataType::kFloat, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
  t.is_constant = true, t.by_value = value;
  return t;
}

Tensor& Graph::matmul(const Tensor& a, const Tensor& b, Tensor& c) {
  // Sums are in f32 for operands of either type, as in the own kernels.
  Object product(DescriptorType::kMatmul), op(DescriptorType::kMatmulOp);
  product.set(Attribute::kMatmulPrecision, ValueType::kDataType, DataType::kFloat);
  product.finalize(kBuilding);
  op.set(Attribute::kMatmulOpA, a.object).set(Attribute::kMatmulOpB, b.object);
  op.set(Attribute::kMatmulOpC, c.object).set(Attribute::kMatmulOpDescriptor, product);
  op.finalize(kBuilding);
  ops_.push_back(std::move(op)), parts_.push_back(std::move(product));
  return c;
}

Tensor& Graph::pointwise(PointwiseMode mode, const Tensor& x, const Tensor* b, Tensor& y, const Tensor* t,
                         DataType precision, std::int64_t axis) {
  Object point(DescriptorType::kPointwise), op(DescriptorType::kPointwiseOp);
  point.set(Attribute::kPointwiseMode, ValueType::kPointwiseMode, mode);
  point.set(Attribute::kPointwisePrecision, ValueType::kDataType, precision);
  if (axis >= 0) point.set(Attribute::kPointwiseAxis, ValueType::kInt64, axis);
  point.finalize(kBuilding);
  op.set(Attribute::kPointwiseOpDescriptor, point).set(Attribute::kPointwiseOpX, x.object);
  if (b) op.set(Attribute::kPointwiseOpB, b->object);
  if (t) op.set(Attribute::kPointwiseOpT, t->object);
  op.set(Attribute::kPointwiseOpY, y.object).finalize(kBuilding);
  ops_.push_back(std::move(op)), parts_.push_back(std::move(point));
  return y;
}

Tensor& Graph::reduce(ReduceMode mode, const Tensor& x, Tensor& y) {
  // Which dimensions are summed follows from the shapes: those in which y has 1, or fewer heads.
  Object reduction(DescriptorType::kReduction), op(DescriptorType::kReductionOp);
  reduction.set(Attribute::kReductionOperator, ValueType::kReductionOperator, mode);
  reduction.set(Attribute::kReductionPrecision, ValueType::kDataType, DataType::kFloat);
  reduction.finalize(kBuilding);
  op.set(Attribute::kReductionOpX, x.object).set(Attribute::kReductionOpY, y.object);
  op.set(Attribute::kReductionOpDescriptor, reduction).finalize(kBuilding);
  ops_.push_back(std::move(op)), parts_.push_back(std::move(reduction));
  return y;
}

Tensor& Graph::reshape(const Tensor& x, Tensor& y) {
  // Dimensions and strides are those of the two tensors, so the operation has no descriptor of its own.
  Object op(DescriptorType::kReshapeOp);
  op.set(Attribute::kReshapeOpX, x.object).set(Attribute::kReshapeOpY, y.object).finalize(kBuilding);
  ops_.push_back(std::move(op));
  return y;
}

Object device_properties(const std::string& json) {
  Object o(DescriptorType::kDeviceProperties);
  o.set(Attribute::kDeviceJson, ValueType::kChar, std::span<const char>(json))
      .finalize("describing a device");
  return o;
}

Plan::Plan(Graph graph, const Target& target, const EngineChoice& choice, std::uint64_t workspace_limit,
           std::string what)
    : graph_(std::move(graph)), what_(std::move(what)), ops_(DescriptorType::kOperationGraph) {
  // The operation graph takes an array of descriptors, not of owners. graph_ owns them and is moved into this
  // object first, because they must exist as long as the plan.
  std::vector<Descriptor> raw;
  for (const Object& o : graph_.ops_) raw.push_back(o.get());
  ops_.set(Attribute::kGraphOps, ValueType::kDescriptor, std::span<const Descriptor>(raw));
  // With a handle the library knows the device. Without one, `properties` describes it to engine, heuristic
  // and plan.
  if (target.handle) ops_.set(Attribute::kGraphHandle, ValueType::kHandle, target.handle);
  ops_.finalize(what_);

  std::string why = "cuDNN proposes no engine";
  // A given engine is the only attempt: another one would give other bits without a message.
  if (choice.index >= 0) {
    Object engine(DescriptorType::kEngine), config(DescriptorType::kEngineConfig);
    engine.set(Attribute::kEngineGraph, ops_).set(Attribute::kEngineIndex, ValueType::kInt64, choice.index);
    if (target.properties) engine.set(Attribute::kEngineDevice, *target.properties);
    engine.finalize(what_);
    config.set(Attribute::kConfigEngine, engine);
    std::vector<Object> knobs;
    std::vector<Descriptor> raw_knobs;
    for (const auto& [type, value] : choice.knobs) {
      Object& k = knobs.emplace_back(DescriptorType::kKnobChoice);
      k.set(Attribute::kKnobType, ValueType::kKnobType, static_cast<std::int32_t>(type));
      k.set(Attribute::kKnobValue, ValueType::kInt64, value).finalize(what_);
      raw_knobs.push_back(k.get());
    }
    // Knobs that are not listed keep the defaults of the engine.
    config.set(Attribute::kConfigKnobs, ValueType::kDescriptor, std::span<const Descriptor>(raw_knobs));
    config.finalize(what_);
    if (try_config(config, target, workspace_limit, why)) return;
  } else {
    Object heuristics(DescriptorType::kEngineHeuristics);
    heuristics.set(Attribute::kHeuristicsGraph, ops_);
    // Mode A supports most graphs at a low cost on the host. Its ranking depends on device, library and graph
    // only, so the first usable proposal is the same in every run.
    heuristics.set(Attribute::kHeuristicsMode, ValueType::kHeuristicMode, kHeuristicModeA);
    if (target.properties) heuristics.set(Attribute::kHeuristicsDevice, *target.properties);
    heuristics.finalize(what_);
    for (const Object& config : read_objects(heuristics, Attribute::kHeuristicsResults,
                                             DescriptorType::kEngineConfig, kMaxProposals))
      if (try_config(config, target, workspace_limit, why)) return;
  }
  throw abi::StatusError(TH_E_UNSUPPORTED, what_ + ": " + why, "set plugin.cuda.attention = \"own\"");
}

bool Plan::try_config(const Object& config, const Target& target, std::uint64_t workspace_limit,
                      std::string& why) {
  // In the order of their costs: reading notes is cheap, finalizing a plan may compile a kernel.
  const std::vector<Object> engine =
      read_objects(config, Attribute::kConfigEngine, DescriptorType::kEngine, 1);
  if (engine.empty() || !deterministic(engine[0])) return why = "the engine is not deterministic", false;
  Object plan(DescriptorType::kExecutionPlan);
  plan.set(Attribute::kPlanConfig, config);
  if (target.handle) plan.set(Attribute::kPlanHandle, ValueType::kHandle, target.handle);
  if (target.properties) plan.set(Attribute::kPlanDevice, *target.properties);
  if (plan.try_finalize() != 0) return why = last_reason(), false;
  std::int64_t bytes = 0;
  // Only a finalized plan knows its workspace. It is compared with the planned buffer, which cannot grow.
  plan.get(Attribute::kPlanWorkspace, ValueType::kInt64, 1, &bytes);
  if (bytes < 0 || static_cast<std::uint64_t>(bytes) > workspace_limit) {
    why = "the engine needs " + std::to_string(bytes) + " bytes of workspace, planned are " +
          std::to_string(workspace_limit);
    return false;
  }
  plan_ = std::move(plan), workspace_bytes_ = static_cast<std::uint64_t>(bytes);
  return true;
}

std::string Plan::description() const {
  // The first call, with no buffer, returns the length.
  std::string text(static_cast<std::size_t>(plan_.get(Attribute::kPlanJson, ValueType::kChar, 0, nullptr)),
                   0);
  plan_.get(Attribute::kPlanJson, ValueType::kChar, static_cast<std::int64_t>(text.size()), text.data());
  return text;
}

void Plan::run(Handle handle, std::span<void* const> addresses, void* workspace) {
  // Addresses differ from call to call (layers, instances of rings), so every call has its own variant pack.
  // Host memory only: nothing is allocated on the device.
  assert(addresses.size() == graph_.memory_.size());
  std::vector<std::int64_t> ids = graph_.memory_;
  std::vector<void*> at(addresses.begin(), addresses.end());
  // Constants are bound like tensors, but by an address in host memory.
  for (Tensor& t : graph_.tensors_)
    if (t.is_constant) ids.push_back(t.id), at.push_back(&t.by_value);
  // Virtual tensors are not bound: they have no memory.
  Object pack(DescriptorType::kVariantPack);
  pack.set(Attribute::kPackIds, ValueType::kInt64, std::span<const std::int64_t>(ids));
  pack.set(Attribute::kPackPointers, ValueType::kVoidPointer, std::span<void* const>(at));
  pack.set(Attribute::kPackWorkspace, ValueType::kVoidPointer, workspace);
  pack.finalize(what_);
  check(library().cudnnBackendExecute(handle, plan_.get(), pack.get()), what_);
}

}  // namespace trainhost::cuda::cudnn
