// Tape: PyTorch's autograd with sizes only. A Tensor is a handle of a storage; the storage is freed with its
// last handle, so the local variables of a C++ function that is written like the Python code of a model have
// the lifetimes of that code. An operator creates its result and a Node, which keeps what autograd saves.
// run_backward() runs the nodes in the order of PyTorch's engine. Every allocation and free is an event of
// the trace. Single-threaded.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/frameworks/autograd/shape.hpp"
#include "core/frameworks/autograd/tape_pool.hpp"
#include "core/frameworks/trace/trace.hpp"

namespace trainhost::frameworks {

enum class Element : std::uint8_t {
  kF32,
  kBF16,
  kF16,
  kComplex,
  kI64,
  kI32,
  kBool,
  kByte
};  // kComplex: two f32
std::uint64_t bytes_of(Element e);
bool is_floating(Element e);

class Tape;
class ZeroScript;
struct Node;
struct TensorBody;

/// Counted reference. T has a member `references`.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* p) : p_(p) { add(); }
  Ref(const Ref& o) : p_(o.p_) { add(); }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() { drop(); }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  T* get() const { return p_; }
  explicit operator bool() const { return p_ != nullptr; }
  void reset() { *this = Ref(); }

 private:
  void add() {
    if (p_) ++p_->references;
  }
  void drop() {
    if (p_ && --p_->references == 0) delete p_;
  }
  T* p_ = nullptr;
};

/// Memory. references: tensors that share it.
struct StorageBody final : Pooled<StorageBody> {
  StorageBody(Tape& tape_, std::uint32_t index_) : tape(tape_), index(index_) {}
  ~StorageBody();
  Tape& tape;
  std::uint32_t index;  // in the trace
  std::uint32_t references = 0;
  bool present = true;  // false: no memory is allocated, as for a weight of FSDP that is not gathered
};

using Tensor = Ref<TensorBody>;

struct TensorBody final : Pooled<TensorBody> {
  std::uint32_t references = 0;
  Ref<StorageBody> storage;
  Shape shape;
  Element type = Element::kF32;
  bool requires_grad = false;  // of a leaf
  bool input_leaf = false;     // the input of the first layer, of which checkpoints need a gradient
  bool parameter = false;
  bool embedding = false;            // the weight of an nn.Embedding
  bool copies_gradient = false;      // a DTensor, whose first gradient AccumulateGrad copies
  std::uint8_t output = 0;           // of the node
  Ref<Node> node;                    // that computed it; none for a leaf
  Tensor grad;                       // of a leaf
  std::optional<Element> grad_type;  // of the gradient of a leaf, if it is not that of the leaf
  Tensor autocast_copy;              // in bf16, while the cache of autocast keeps it
  // State of the engine for a leaf.
  std::uint32_t waiting = 0;
  Tensor arrived;

  bool needs_grad() const { return requires_grad || node; }
  std::uint64_t bytes() const { return shape.count() * bytes_of(type); }
};

/// One call of a node in the backward pass. `grads`: of its outputs; `saved`: as the operator listed them;
/// `results`: of its inputs, to be filled where needs() is true. Move a gradient out of `grads` to free it
/// early.
struct BackwardCall {
  Tape& tape;
  std::vector<Tensor>& grads;
  std::vector<Tensor>& saved;
  std::vector<Tensor>& results;
  const Node& node;
  bool needs(std::size_t input) const;
  /// Gradient of the only output.
  Tensor take() { return std::move(grads[0]); }
};
using Backward = std::function<void(BackwardCall&)>;

struct Edge {
  Ref<Node> node;
  Tensor leaf;
  std::uint8_t output = 0;
  Shape shape;  // of the input: its gradient is summed and cast to it
  Element type = Element::kF32;
  bool exists() const { return node || leaf; }
};

struct Frame;

struct Node final : Pooled<Node> {
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();
  std::uint32_t references = 0;
  std::uint64_t sequence = 0;
  const char* operation = "";
  const char* module = "";
  std::int32_t layer = -1;
  bool of_loss = false;
  std::vector<Edge> edges;
  std::vector<Tensor> saved;
  Backward backward;
  std::function<void()> before;  // runs before the node, as a hook of its output does
  Ref<Frame> frame;              // of the checkpointed region that the node is part of
  std::uint32_t first_saved = 0, saved_count = 0;
  // State of the engine.
  std::uint32_t waiting = 0;
  bool visited = false;
  std::vector<Tensor> arrived;
};

/// A calculation that ends early leaves a graph that never runs, which is deeper than the stack allows: while
/// this object exists, the nodes that the thread frees free those before them one after the other.
class UnfinishedGraph {
 public:
  UnfinishedGraph();
  ~UnfinishedGraph();
  UnfinishedGraph(const UnfinishedGraph&) = delete;
  UnfinishedGraph& operator=(const UnfinishedGraph&) = delete;
};

struct CheckpointOptions {
  /// Keeps the results of attention and of every second product of matrices, from the first on.
  bool keeps_products = false;
  /// Of these, as many of the last ones are dropped, because no backward pass needs them, unless tensors
  /// behind them are needed.
  std::size_t dropped = 0;
  /// Recomputation ends with the last tensor that is needed; otherwise with the region.
  bool stops_early = true;
};

/// A checkpointed region: what was saved in it is dropped, and recomputed when its backward pass needs
/// it.
struct Frame {
  std::uint32_t references = 0;
  std::function<void()> compute_again;
  std::uint32_t expected = 0;
  bool refilled = false;
  std::vector<Tensor> tensors;
  CheckpointOptions options;
  std::vector<Tensor> kept;  // results that are not recomputed, in order
  std::size_t next_kept = 0;
  std::uint32_t products = 0;  // calls of keeps_product() in this pass
};

/// Options of the machine that runs the step.
struct TapeOptions {
  /// Gradients of one tensor are added into a new one, as for tensor subclasses (the fake tensors of
  /// tools/oracle).
  bool subclass_gradients = false;
  /// Memory that kernels of CUDA allocate and free inside one operator.
  bool kernel_temporaries = true;
  /// Dropout keeps a mask of one byte per element; otherwise noise in the type of its input.
  bool fused_dropout = true;
  /// LayerNorm keeps its statistics in f32, whatever the type of its input.
  bool f32_statistics = true;
  /// Step counters of AdamW foreach are on the device, not in host memory.
  bool counters_on_device = false;
  /// Of the device; ampere: compute capability 8.0 or higher.
  std::int64_t multiprocessors = 132;
  bool ampere = true;
  /// Bytes of each workspace that cuBLAS gets from the allocator.
  std::uint64_t cublas_workspace = 0;
  bool operator==(const TapeOptions&) const = default;
};

/// Thrown through the functions of a model when more bytes exist than the caller needs to know about.
struct PeakAboveLimit {
  std::uint64_t bytes;  // that exist
};

class Tape {
 public:
  Tape(Trace& trace, const TapeOptions& machine) : options(machine), writer_(trace) {}
  /// From the first event on: throws PeakAboveLimit as soon as storages have more than `bytes`, each rounded
  /// up to a multiple of `block`. Tensors that are freed while the exception propagates are still recorded,
  /// so the trace is then not usable.
  void stop_above(std::uint64_t bytes, std::uint64_t block);
  /// Throws it where `more` bytes than now would exceed them.
  void require_within_limit(std::uint64_t more) {
    if (limit_ != UINT64_MAX && writer_.bytes() + more > limit_) stop(writer_.bytes() + more);
  }

  void begin(Phase phase, std::uint32_t step, std::uint32_t micro_batch);

  /// New contiguous or strided memory, without history.
  Tensor make(const Shape& shape, Element type, const char* tensor);
  /// Another handle of the same memory, without history.
  Tensor alias(const Tensor& t, const Shape& shape);
  Tensor alias(const Tensor& t) { return alias(t, t->shape); }
  Tensor parameter(const Shape& shape, Element type, const char* module, bool trained);

  /// A trained parameter without memory, until make_present(); `bytes` may exceed its size.
  Tensor absent_parameter(const Shape& shape, Element type);
  void make_present(const Tensor& t, std::uint64_t bytes, std::int32_t layer_index, const char* module_name,
                    const char* tensor, Purpose p = Purpose::kWeights);
  void make_absent(const Tensor& t);

  /// Operator: allocates its result (or views `of`), and records a node if an input needs a gradient.
  struct Operation {
    const char* name;
    std::span<const Tensor> inputs;
    std::span<const Tensor> saved;  // of the inputs and of earlier results
    bool saves_output = false;      // after `saved`
    Backward backward;
    bool kept = false;        // make_result()
    bool saves_late = false;  // `saved` when the result exists
  };
  Tensor apply(const Operation& operation, const Shape& shape, Element type);
  Tensor apply_view(const Operation& operation, const Tensor& of, const Shape& shape);
  /// Several outputs that are views of one tensor (split, chunk).
  std::vector<Tensor> apply_views(const Operation& operation, const Tensor& of,
                                  std::span<const Shape> shapes);
  /// Several outputs; `make_outputs` allocates them.
  std::vector<Tensor> apply_many(const Operation& operation,
                                 const std::function<std::vector<Tensor>()>& make_outputs);

  /// Allocated and freed inside of one operator.
  void kernel_temporary(std::uint64_t bytes, const char* tensor);

  /// at_end runs after the last node, while `loss` and its gradient exist. gradient: of `loss`; none: ones.
  void run_backward(const Tensor& loss, const std::function<void()>& at_end = {},
                    const Tensor& gradient = {});
  /// Called when the gradient of a leaf is complete; none where it is empty.
  std::function<void(const Tensor& leaf)> after_gradient;
  /// Runs before the gradient of a leaf that is no parameter is kept, as a hook of that tensor does.
  std::function<void()> before_leaf;
  /// Runs `layer` and keeps of it only what `compute_again` needs.
  Tensor checkpointed(const std::function<Tensor()>& layer, std::function<void()> compute_again,
                      const CheckpointOptions& checkpoint = {});
  /// CheckpointFunction (torch.utils.checkpoint with use_reentrant, and Megatron Core): `region` runs without
  /// autograd, and `inputs` are kept. The backward pass runs it with detached inputs, to its end, and a
  /// backward pass of its result inside of the outer one. staged: memory into which the backward pass copies
  /// the first input, which is then not kept.
  Tensor checkpointed_reentrant(const std::vector<Tensor>& inputs,
                                std::function<Tensor(const std::vector<Tensor>&)> region,
                                const Tensor& staged = {});
  /// Called by a node that runs: `t`, which the object of the node has as an attribute, exists until the
  /// graph is freed.
  void keep_with_graph(const Tensor& t) { kept_with_graph_.push_back(t); }
  /// Whether a checkpointed region is recomputed, without reentrant checkpoints.
  bool recomputes() const { return refilling_ != nullptr; }
  /// While recomputes(): `t`, which an object of the second graph has as an attribute, exists until the
  /// region has been computed.
  void keep_while_recomputed(const Tensor& t) { kept_while_recomputed_.push_back(t); }
  /// Memory of an operator's result. `kept`: a region that keeps products keeps it too, and does not compute
  /// it again.
  Tensor make_result(const Shape& shape, Element type, const char* tensor, bool kept);
  /// Whether the next product of matrices is kept. Called once for each.
  bool keeps_product();

  /// Lower precision of an autocast region; a weight that needs a gradient is cast once per region.
  Tensor lowered(const Tensor& t);
  void enter_autocast() { autocast_on = true; }
  void leave_autocast();

  /// Marks memory as kept for the backward pass; operators do so with what they save.
  void note_saved(const Tensor& t);

  /// A storage of another trace with the same names, as it is there; returns its index.
  std::uint32_t copy_storage(const TraceStorage& s) {
    const std::uint32_t index = writer_.allocate(s);
    check_limit();
    return index;
  }
  TraceStorage& storage(const Tensor& t) { return writer_[t->storage->index]; }
  TraceWriter& writer() { return writer_; }
  Tensor new_storage(const Shape& shape, Element type, Purpose purpose, const char* module,
                     const char* tensor);

  TapeOptions options;
  /// Where a model under ZeRO 3 only notes its calls of it.
  ZeroScript* zero_script = nullptr;
  /// linear() is the function of DeepSpeed's stage 3: it saves its inputs last, and its input's gradient is
  /// computed first.
  bool linear_is_function = false;
  bool grad_enabled = true, autocast_on = false, recording = false, in_loss = false;
  Element autocast_type = Element::kBF16;
  /// Names of what is allocated now.
  std::int32_t layer = -1;
  const char* module = "";
  Purpose purpose = Purpose::kActivations;
  /// Bytes saved per layer while recording; [0]: outside of the layers, [1]: layer 0.
  std::vector<std::uint64_t> saved_bytes;

 private:
  friend struct StorageBody;
  bool needs(const Operation& operation) const;
  Ref<Node> record(const Operation& operation, std::span<const Tensor> outputs);
  void refill(const Tensor& t);
  void compute_again(Frame& frame);
  void run_node(Node& node, std::vector<Tensor>& results);
  void deliver(const Edge& edge, Tensor gradient);
  void accumulate(const Tensor& leaf, Tensor gradient);
  Tensor conformed(Tensor gradient, const Edge& edge);

  void check_limit() {
    if (writer_.bytes() > limit_) stop(writer_.bytes());
  }
  [[noreturn]] void stop(std::uint64_t bytes);

  TraceWriter writer_;
  std::optional<UnfinishedGraph> unfinished_;  // freed behind the nodes that the members below keep
  std::uint64_t limit_ = UINT64_MAX;           // bytes
  std::uint64_t sequence_ = 0;
  int backward_passes_ = 0;  // that run now, one inside of the other
  /// Regions of reentrant checkpoints whose backward pass has run.
  std::vector<std::function<Tensor(const std::vector<Tensor>&)>> finished_regions_;
  std::vector<Tensor> kept_with_graph_, kept_while_recomputed_;
  Frame* frame_ = nullptr;      // of the region that runs forward
  Frame* refilling_ = nullptr;  // of the region that is recomputed
  std::vector<Ref<Node>> ready_;
  std::vector<Tensor> cached_weights_;
};

/// Sets the module of allocations in a scope.
class ModuleScope {
 public:
  ModuleScope(Tape& tape, const char* module) : tape_(tape), before_(tape.module) { tape.module = module; }
  ~ModuleScope() { tape_.module = before_; }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  Tape& tape_;
  const char* before_;
};

/// Ends an autocast region also where recomputation stops in the middle of a layer.
class AutocastScope {
 public:
  AutocastScope(Tape& tape, bool on) : tape_(tape) { tape.autocast_on = on; }
  ~AutocastScope() { tape_.leave_autocast(); }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  Tape& tape_;
};

}  // namespace trainhost::frameworks
