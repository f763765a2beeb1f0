// Translation of graphs to cuDNN's backend descriptors. See cudnn_graph.hpp.
#include "plugins/cuda/engine/cudnn_graph.hpp"

#include <algorithm>
#include <cassert>

#include "core/abi/error_guard.hpp"
#include "trainhost/status.h"

namespace trainhost::cuda::cudnn {
namespace {

constexpr const char* kBuilding = "describing attention to cuDNN";
constexpr std::int64_t kMaxProposals = 16;

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
  made.resize(static_cast<std::size_t>(
      std::clamp<std::int64_t>(from.get(a, ValueType::kDescriptor, most, raw.data()), 0, most)));
  return made;
}

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
  t.id = static_cast<std::int64_t>(tensors_.size());
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
  Tensor& t = add(DataType::kFloat, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
  t.is_constant = true, t.by_value = value;
  return t;
}

Tensor& Graph::matmul(const Tensor& a, const Tensor& b, Tensor& c) {
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
  std::vector<Descriptor> raw;
  for (const Object& o : graph_.ops_) raw.push_back(o.get());
  ops_.set(Attribute::kGraphOps, ValueType::kDescriptor, std::span<const Descriptor>(raw));
  if (target.handle) ops_.set(Attribute::kGraphHandle, ValueType::kHandle, target.handle);
  ops_.finalize(what_);

  std::string why = "cuDNN proposes no engine";
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
    config.set(Attribute::kConfigKnobs, ValueType::kDescriptor, std::span<const Descriptor>(raw_knobs));
    config.finalize(what_);
    if (try_config(config, target, workspace_limit, why)) return;
  } else {
    Object heuristics(DescriptorType::kEngineHeuristics);
    heuristics.set(Attribute::kHeuristicsGraph, ops_);
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
  const std::vector<Object> engine =
      read_objects(config, Attribute::kConfigEngine, DescriptorType::kEngine, 1);
  if (engine.empty() || !deterministic(engine[0])) return why = "the engine is not deterministic", false;
  Object plan(DescriptorType::kExecutionPlan);
  plan.set(Attribute::kPlanConfig, config);
  if (target.handle) plan.set(Attribute::kPlanHandle, ValueType::kHandle, target.handle);
  if (target.properties) plan.set(Attribute::kPlanDevice, *target.properties);
  if (plan.try_finalize() != 0) return why = last_reason(), false;
  std::int64_t bytes = 0;
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
  std::string text(static_cast<std::size_t>(plan_.get(Attribute::kPlanJson, ValueType::kChar, 0, nullptr)),
                   0);
  plan_.get(Attribute::kPlanJson, ValueType::kChar, static_cast<std::int64_t>(text.size()), text.data());
  return text;
}

void Plan::run(Handle handle, std::span<void* const> addresses, void* workspace) {
  assert(addresses.size() == graph_.memory_.size());
  std::vector<std::int64_t> ids = graph_.memory_;
  std::vector<void*> at(addresses.begin(), addresses.end());
  for (Tensor& t : graph_.tensors_)
    if (t.is_constant) ids.push_back(t.id), at.push_back(&t.by_value);
  Object pack(DescriptorType::kVariantPack);
  pack.set(Attribute::kPackIds, ValueType::kInt64, std::span<const std::int64_t>(ids));
  pack.set(Attribute::kPackPointers, ValueType::kVoidPointer, std::span<void* const>(at));
  pack.set(Attribute::kPackWorkspace, ValueType::kVoidPointer, workspace);
  pack.finalize(what_);
  check(library().cudnnBackendExecute(handle, plan_.get(), pack.get()), what_);
}

}  // namespace trainhost::cuda::cudnn
