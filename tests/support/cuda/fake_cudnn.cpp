// A libcudnn.so.9 for tests: the functions that the engine loads. A graph of operations is evaluated in f32,
// one operation after another, with every virtual tensor in memory, so a test sees whether the graph computes
// what it should. What the real library accepts and fuses is tested by cudnn_plans_test.cpp where it is
// installed.
#include "tests/support/cuda/fake_cudnn.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace {

using namespace trainhost::cuda::cudnn;
using Dims = std::array<std::int64_t, 4>;

struct Node;
using NodeRef = std::shared_ptr<Node>;
/// A descriptor. Attributes are kept as they were set; descriptors among them as shared references.
struct Node {
  DescriptorType type;
  bool final = false;
  int proposal = 0;  // of an engine configuration
  std::map<Attribute, std::vector<char>> values;
  std::map<Attribute, std::vector<NodeRef>> nodes;

  template <class T>
  T get(Attribute a, T otherwise = T()) const {
    const auto it = values.find(a);
    if (it != values.end())
      std::memcpy(&otherwise, it->second.data(), std::min(sizeof(T), it->second.size()));
    return otherwise;
  }
  Node* node(Attribute a) const {
    const auto it = nodes.find(a);
    return it == nodes.end() ? nullptr : it->second[0].get();
  }
};
NodeRef& ref(Descriptor d) { return *static_cast<NodeRef*>(d); }

struct View {
  std::int64_t id;
  DataType type;
  Dims dims, strides;
  bool is_virtual;
  explicit View(const Node& n)
      : id(n.get<std::int64_t>(Attribute::kTensorId)),
        type(n.get<DataType>(Attribute::kTensorDataType)),
        dims(n.get<Dims>(Attribute::kTensorDimensions)),
        strides(n.get<Dims>(Attribute::kTensorStrides)),
        is_virtual(n.get<bool>(Attribute::kTensorIsVirtual)) {}
  std::int64_t offset(const Dims& i) const {
    return i[0] * strides[0] + i[1] * strides[1] + i[2] * strides[2] + i[3] * strides[3];
  }
};

template <class F>
void each(const Dims& d, F&& f) {
  for (Dims i{}; i[0] < d[0]; ++i[0])
    for (i[1] = 0; i[1] < d[1]; ++i[1])
      for (i[2] = 0; i[2] < d[2]; ++i[2])
        for (i[3] = 0; i[3] < d[3]; ++i[3]) f(i);
}

/// Rounds to nearest even, as the conversion of the hardware.
float rounded(float x) {
  if (std::isnan(x)) return x;
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  std::memcpy(&x, &bits, 4);
  return x;
}

/// The tensors of one execution. Elements of all tensors are addressed by their offset.
class Evaluation {
 public:
  explicit Evaluation(std::map<std::int64_t, void*> memory) : memory_(std::move(memory)) {}

  float read(const View& v, Dims i, const Dims& out) const {
    for (int k = 0; k < 4; ++k)
      i[k] = v.dims[k] == 1 ? 0 : v.dims[k] == out[k] ? i[k] : i[k] / (out[k] / v.dims[k]);
    return at(v, v.offset(i));
  }
  float at(const View& v, std::int64_t offset) const {
    if (v.is_virtual) return virtual_.at(v.id).at(static_cast<std::size_t>(offset));
    const char* p = static_cast<const char*>(memory_.at(v.id));
    float x = 0;
    if (v.type == DataType::kBFloat16)
      std::memcpy(reinterpret_cast<char*>(&x) + 2, p + offset * 2, 2);
    else
      std::memcpy(&x, p + offset * 4, 4);
    return x;
  }
  void write(const View& v, const Dims& i, float x) {
    const std::int64_t offset = v.offset(i);
    if (v.type == DataType::kBFloat16) x = rounded(x);
    if (v.is_virtual) {
      std::vector<float>& values = virtual_[v.id];
      if (values.empty())
        values.resize(
            static_cast<std::size_t>(v.offset({v.dims[0] - 1, v.dims[1] - 1, v.dims[2] - 1, v.dims[3] - 1})) +
            1);
      return void(values[static_cast<std::size_t>(offset)] = x);
    }
    char* p = static_cast<char*>(memory_.at(v.id));
    if (v.type == DataType::kBFloat16)
      std::memcpy(p + offset * 2, reinterpret_cast<const char*>(&x) + 2, 2);
    else
      std::memcpy(p + offset * 4, &x, 4);
  }

  void matmul(const Node& op) {
    const View a(*op.node(Attribute::kMatmulOpA)), b(*op.node(Attribute::kMatmulOpB)),
        c(*op.node(Attribute::kMatmulOpC));
    each(c.dims, [&](const Dims& i) {
      float sum = 0;
      for (std::int64_t k = 0; k < a.dims[3]; ++k)
        sum += read(a, {i[0], i[1], i[2], k}, {c.dims[0], c.dims[1], c.dims[2], a.dims[3]}) *
               read(b, {i[0], i[1], k, i[3]}, {c.dims[0], c.dims[1], a.dims[3], c.dims[3]});
      write(c, i, sum);
    });
  }
  void pointwise(const Node& op) {
    const Node& f = *op.node(Attribute::kPointwiseOpDescriptor);
    const PointwiseMode mode = f.get<PointwiseMode>(Attribute::kPointwiseMode);
    const std::int64_t axis = f.get<std::int64_t>(Attribute::kPointwiseAxis, -1);
    const Node *bn = op.node(Attribute::kPointwiseOpB), *tn = op.node(Attribute::kPointwiseOpT);
    const View x(*op.node(Attribute::kPointwiseOpX)), y(*op.node(Attribute::kPointwiseOpY)),
        b(bn ? View(*bn) : x), t(tn ? View(*tn) : x);
    each(y.dims, [&](const Dims& i) {
      const float p = mode == PointwiseMode::kGenIndex ? 0 : read(x, i, y.dims);
      const float q = bn ? read(b, i, y.dims) : 0;
      write(y, i, [&]() -> float {
        switch (mode) {
          case PointwiseMode::kAdd:
            return p + q;
          case PointwiseMode::kMul:
            return p * q;
          case PointwiseMode::kDiv:
            return p / q;
          case PointwiseMode::kSub:
            return p - q;
          case PointwiseMode::kExp:
            return std::exp(p);
          case PointwiseMode::kLog:
            return std::log(p);
          case PointwiseMode::kCmpGt:
            return p > q;
          case PointwiseMode::kCmpGe:
            return p >= q;
          case PointwiseMode::kGenIndex:
            return static_cast<float>(i[static_cast<std::size_t>(axis)]);
          case PointwiseMode::kBinarySelect:
            return read(t, i, y.dims) != 0 ? p : q;
        }
        return std::numeric_limits<float>::quiet_NaN();
      }());
    });
  }
  void reduce(const Node& op) {
    const View x(*op.node(Attribute::kReductionOpX)), y(*op.node(Attribute::kReductionOpY));
    const bool max =
        op.node(Attribute::kReductionOpDescriptor)->get<ReduceMode>(Attribute::kReductionOperator) ==
        ReduceMode::kMax;
    each(y.dims, [&](const Dims& i) {
      float sum = max ? -std::numeric_limits<float>::infinity() : 0;
      const Dims many = {x.dims[0] / y.dims[0], x.dims[1] / y.dims[1], x.dims[2] / y.dims[2],
                         x.dims[3] / y.dims[3]};
      each(many, [&](const Dims& j) {
        const float v = at(x, x.offset({i[0] * many[0] + j[0], i[1] * many[1] + j[1], i[2] * many[2] + j[2],
                                        i[3] * many[3] + j[3]}));
        sum = max ? std::max(sum, v) : sum + v;
      });
      write(y, i, sum);
    });
  }
  void reshape(const Node& op) {
    const View x(*op.node(Attribute::kReshapeOpX)), y(*op.node(Attribute::kReshapeOpY));
    each(y.dims, [&](const Dims& i) { write(y, i, at(x, y.offset(i))); });
  }
  void run(const Node& op) {
    switch (op.type) {
      case DescriptorType::kMatmulOp:
        return matmul(op);
      case DescriptorType::kPointwiseOp:
        return pointwise(op);
      case DescriptorType::kReductionOp:
        return reduce(op);
      default:
        return reshape(op);
    }
  }

 private:
  std::map<std::int64_t, void*> memory_;  // by tensor
  std::unordered_map<std::int64_t, std::vector<float>> virtual_;
};

constexpr Status kBadParameter = 2000, kUnsupported = 3000;

}  // namespace

struct trainhost::cuda::cudnn::Context {
  cudaStream_t stream = nullptr;
};

extern "C" {

__attribute__((visibility("default"))) trainhost::test::FakeCudnn fake_cudnn;

#define FAKE __attribute__((visibility("default")))

FAKE std::size_t cudnnGetVersion() { return fake_cudnn.version; }
FAKE const char* cudnnGetErrorString(Status s) {
  return s / 1000 == 3   ? "CUDNN_STATUS_NOT_SUPPORTED"
         : s / 1000 == 5 ? "CUDNN_STATUS_EXECUTION_FAILED"
                         : "CUDNN_STATUS";
}
FAKE void cudnnGetLastErrorString(char* text, std::size_t bytes) {
  std::strncpy(text, "the fake library refuses", bytes);
}
FAKE Status cudnnCreate(Handle* h) { return *h = new Context, ++fake_cudnn.objects, 0; }
FAKE Status cudnnDestroy(Handle h) { return delete h, --fake_cudnn.objects, 0; }
FAKE Status cudnnSetStream(Handle h, cudaStream_t s) { return h->stream = s, 0; }

FAKE Status cudnnBackendCreateDescriptor(DescriptorType type, Descriptor* d) {
  *d = new NodeRef(std::make_shared<Node>(Node{type, false, 0, {}, {}}));
  return ++fake_cudnn.objects, 0;
}
FAKE Status cudnnBackendDestroyDescriptor(Descriptor d) { return delete &ref(d), --fake_cudnn.objects, 0; }
FAKE Status cudnnBackendSetAttribute(Descriptor d, Attribute a, ValueType type, std::int64_t count,
                                     const void* data) {
  Node& n = *ref(d);
  if (n.final) return kBadParameter;
  if (type == ValueType::kDescriptor) {
    std::vector<NodeRef>& kept = n.nodes[a];
    for (std::int64_t i = 0; i < count; ++i) {
      kept.push_back(ref(static_cast<const Descriptor*>(data)[i]));
      if (!kept.back()->final) return kBadParameter;
    }
    return 0;
  }
  const std::size_t size =
      type == ValueType::kBoolean || type == ValueType::kChar                                      ? 1
      : type == ValueType::kInt64 || type == ValueType::kVoidPointer || type == ValueType::kHandle ? 8
                                                                                                   : 4;
  const char* bytes = static_cast<const char*>(data);
  n.values[a].assign(bytes, bytes + static_cast<std::size_t>(count) * size);
  return 0;
}
FAKE Status cudnnBackendFinalize(Descriptor d) {
  Node& n = *ref(d);
  if (n.final) return kBadParameter;
  if (n.type == DescriptorType::kExecutionPlan && fake_cudnn.failing_plans > 0)
    return --fake_cudnn.failing_plans, kUnsupported;
  n.final = true;
  return 0;
}
FAKE Status cudnnBackendGetAttribute(Descriptor d, Attribute a, ValueType, std::int64_t requested,
                                     std::int64_t* count, void* data) {
  Node& n = *ref(d);
  if (!n.final) return kBadParameter;
  const auto objects = static_cast<Descriptor*>(data);
  switch (a) {
    case Attribute::kHeuristicsResults: {
      *count = std::min<std::int64_t>(requested, fake_cudnn.proposes ? fake_cudnn.unsuitable + 1 : 0);
      for (std::int64_t i = 0; i < *count; ++i)
        *ref(objects[i]) = Node{DescriptorType::kEngineConfig,
                                true,
                                static_cast<int>(i),
                                {},
                                {{Attribute::kEngineGraph, n.nodes.at(Attribute::kHeuristicsGraph)}}};
      return 0;
    }
    case Attribute::kConfigEngine:
      *count = 1;
      *ref(objects[0]) = Node{DescriptorType::kEngine, true, n.proposal, {}, {}};
      return 0;
    case Attribute::kEngineNumericalNotes: {
      const std::int32_t notes[] = {0, kNondeterministic};
      *count = n.proposal < fake_cudnn.unsuitable ? 2 : 1;
      std::memcpy(data, notes, 4 * static_cast<std::size_t>(*count));
      return 0;
    }
    case Attribute::kPlanWorkspace:
      *count = 1;
      std::memcpy(data, &fake_cudnn.workspace_bytes, 8);
      return 0;
    default:
      return kBadParameter;
  }
}
FAKE Status cudnnBackendExecute(Handle h, Descriptor plan, Descriptor pack) {
  if (fake_cudnn.execute_status) return fake_cudnn.execute_status;
  const Node& p = *ref(pack);
  const std::vector<char>&ids = p.values.at(Attribute::kPackIds), &at = p.values.at(Attribute::kPackPointers);
  char* workspace = p.get<char*>(Attribute::kPackWorkspace);
  if (!workspace || reinterpret_cast<std::uintptr_t>(workspace) % 256) return kBadParameter;
  const NodeRef graph = ref(plan)->node(Attribute::kPlanConfig)->nodes.at(Attribute::kEngineGraph)[0];
  // Values that are passed by value are read now, as the interface says; memory when the work runs.
  std::map<std::int64_t, void*> memory;
  for (std::size_t i = 0; i < ids.size() / 8; ++i) {
    std::int64_t id;
    std::memcpy(&id, ids.data() + 8 * i, 8), std::memcpy(&memory[id], at.data() + 8 * i, 8);
    if (reinterpret_cast<std::uintptr_t>(memory[id]) % 4) return kBadParameter;
  }
  auto constants = std::make_shared<std::map<std::int64_t, float>>();
  const auto scan = [&](const Node& tensor) {
    if (!tensor.get<bool>(Attribute::kTensorIsByValue)) return;
    const std::int64_t id = tensor.get<std::int64_t>(Attribute::kTensorId);
    std::memcpy(&(*constants)[id], memory.at(id), 4);
  };
  for (const NodeRef& op : graph->nodes.at(Attribute::kGraphOps))
    for (const auto& [slot, nodes] : op->nodes)
      for (const NodeRef& tensor : nodes)
        if (tensor->type == DescriptorType::kTensor) scan(*tensor);
  for (auto& [id, value] : *constants) memory[id] = &value;
  ++fake_cudnn.executed;
  const auto bytes = static_cast<std::size_t>(fake_cudnn.workspace_bytes);
  auto work = [graph, memory, constants, workspace, bytes] {
    std::memset(workspace, 0xff, bytes);  // NaN: a test fails if the workspace contains data of others
    Evaluation e(memory);
    for (const NodeRef& op : graph->nodes.at(Attribute::kGraphOps)) e.run(*op);
  };
  fake_cudnn.queue ? fake_cudnn.queue(h->stream, work) : work();
  return 0;
}

}  // extern "C"
