// A graph of cuDNN operations, and the plan that executes it. Tensors have four dimensions; a dimension of 1
// is broadcast, and a matrix product broadcasts heads of its right operand over groups of heads. Virtual
// tensors exist only inside the graph; the library fuses the operations that produce and read them.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "plugins/cuda/engine/cudnn_library.hpp"

namespace trainhost::cuda::cudnn {

using Dims = std::array<std::int64_t, 4>;
/// Strides of a tensor without gaps, in elements.
Dims packed(const Dims& d);

/// A tensor of a Graph.
struct Tensor {
  Object object;
  Dims dims;
  std::int64_t id = 0;
  bool is_constant = false;
  float by_value = 0;  // of a constant
};

class Graph {
 public:
  /// Tensor in device memory, 16-byte aligned, bound by Plan::run().
  Tensor& memory(DataType type, const Dims& dims, const Dims& strides);
  Tensor& scratch(const Dims& dims, DataType type = DataType::kFloat);
  Tensor& scratch(const Dims& dims, const Dims& strides, DataType type);
  /// A float that all elements have; passed to the library by value.
  Tensor& constant(float value);

  /// c[b,h,m,n] = a[b,h,m,k] b[b,g,k,n]; head h of a uses head h / (heads of a / heads of b) of b.
  Tensor& matmul(const Tensor& a, const Tensor& b, Tensor& c);
  /// y = f(x), f(x, b), or for kBinarySelect x where t else b. axis: of kGenIndex.
  Tensor& pointwise(PointwiseMode mode, const Tensor& x, const Tensor* b, Tensor& y,
                    const Tensor* t = nullptr, DataType precision = DataType::kFloat, std::int64_t axis = -1);
  /// y = sum or maximum of x over the dimensions in which y has 1, or over groups of heads.
  Tensor& reduce(ReduceMode mode, const Tensor& x, Tensor& y);
  /// y: the same elements as x with other dimensions.
  Tensor& reshape(const Tensor& x, Tensor& y);

 private:
  friend class Plan;
  Tensor& add(DataType type, const Dims& dims, const Dims& strides, bool is_virtual, bool by_value);

  std::deque<Tensor> tensors_;        // a deque: references stay valid
  std::vector<std::int64_t> memory_;  // ids of the tensors of memory(), in order
  std::vector<Object> ops_, parts_;   // parts: descriptors that operations refer to
};

/// Where a plan is made for: the device of a handle, or a description of a device in cuDNN's JSON format, for
/// which a plan can be made without the device but not run.
struct Target {
  Handle handle = nullptr;
  const Object* properties = nullptr;
};
/// Device properties from JSON.
Object device_properties(const std::string& json);

/// Engine that a plan must use instead of those that the library proposes. knobs: type and value.
struct EngineChoice {
  std::int64_t index = -1;  // -1: proposed by the library
  std::vector<std::array<std::int64_t, 2>> knobs;
};

class Plan {
 public:
  /// Uses the library's first proposal that is deterministic (it has no numerical note of the opposite), is
  /// supported, and needs at most `workspace_limit` bytes; which one that is depends only on library and
  /// device, so bits stay the same from run to run. Throws abi::StatusError (TH_E_UNSUPPORTED) if there is
  /// none; the message gives the reason of the last proposal. `what`: for messages.
  Plan(Graph graph, const Target& target, const EngineChoice& engine, std::uint64_t workspace_limit,
       std::string what);

  std::uint64_t workspace_bytes() const { return workspace_bytes_; }
  /// Engine and knobs as the library reports them, for logs and tests.
  std::string description() const;
  /// Queues the operations on the stream of `handle`. addresses[i]: of the tensor that the i-th call of
  /// Graph::memory() returned. workspace: workspace_bytes() bytes, 256-byte aligned.
  void run(Handle handle, std::span<void* const> addresses, void* workspace);

 private:
  bool try_config(const Object& config, const Target& target, std::uint64_t workspace_limit,
                  std::string& why);

  Graph graph_;
  std::string what_;
  Object ops_, plan_;
  std::uint64_t workspace_bytes_ = 0;
};

}  // namespace trainhost::cuda::cudnn
