#include "core/frameworks/tape.hpp"

#include <algorithm>

#include "core/frameworks/operators.hpp"

namespace trainhost::frameworks {
namespace {

/// Thrown through the functions of a model when everything that the backward pass needs has been computed
/// again.
struct StopRecomputation {};

}  // namespace

std::uint64_t bytes_of(Element e) {
  switch (e) {
    case Element::kF32:
    case Element::kI32:
      return 4;
    case Element::kBF16:
    case Element::kF16:
      return 2;
    case Element::kComplex:
    case Element::kI64:
      return 8;
    case Element::kBool:
    case Element::kByte:
      return 1;
  }
  return 0;
}

bool is_floating(Element e) { return e <= Element::kComplex; }

StorageBody::~StorageBody() {
  if (present) tape.writer_.free(index);
}

bool BackwardCall::needs(std::size_t input) const { return node.edges[input].exists(); }

void Tape::begin(Phase phase, std::uint32_t step, std::uint32_t micro_batch) {
  writer_.begin(phase, step, micro_batch);
  purpose = phase == kUpdate     ? Purpose::kUpdate
            : phase == kBackward ? Purpose::kBackward
                                 : Purpose::kActivations;
}

Tensor Tape::new_storage(const Shape& shape, Element type, Purpose p, const char* module_name,
                         const char* tensor) {
  Tensor t(new TensorBody);
  t->shape = shape;
  t->type = type;
  t->storage = Ref(new StorageBody(*this, writer_.allocate(t->bytes(), p, layer, module_name, tensor)));
  return t;
}

Tensor Tape::make(const Shape& shape, Element type, const char* tensor) {
  return new_storage(shape, type, purpose, module, tensor);
}

Tensor Tape::alias(const Tensor& t, const Shape& shape) {
  Tensor out(new TensorBody);
  out->shape = shape;
  out->type = t->type;
  out->storage = t->storage;
  return out;
}

Tensor Tape::parameter(const Shape& shape, Element type, const char* module_name, bool trained) {
  Tensor t = new_storage(shape, type, Purpose::kWeights, module_name, "weight");
  t->parameter = true;
  t->requires_grad = trained;
  return t;
}

Tensor Tape::absent_parameter(const Shape& shape, Element type) {
  Tensor t(new TensorBody);
  t->shape = shape;
  t->type = type;
  t->storage = Ref(new StorageBody(*this, 0));
  t->storage->present = false;
  t->parameter = t->requires_grad = true;
  return t;
}

void Tape::make_present(const Tensor& t, std::uint64_t bytes, std::int32_t layer_index,
                        const char* module_name, const char* tensor, Purpose p) {
  t->storage->index = writer_.allocate(bytes, p, layer_index, module_name, tensor);
  t->storage->present = true;
}

void Tape::make_absent(const Tensor& t) {
  writer_.free(t->storage->index);
  t->storage->present = false;
}

bool Tape::needs(const Operation& operation) const {
  return grad_enabled && std::any_of(operation.inputs.begin(), operation.inputs.end(),
                                     [](const Tensor& t) { return t && t->needs_grad(); });
}

void Tape::note_saved(const Tensor& t) {
  TraceStorage& s = storage(t);
  if (s.saved || t->parameter || s.purpose == Purpose::kWeights) return;
  s.saved = true;
  if (!recording) return;
  const auto at = static_cast<std::size_t>(layer + 1);
  if (saved_bytes.size() <= at) saved_bytes.resize(at + 1);
  saved_bytes[at] += s.bytes;
}

void Tape::refill(const Tensor& t) {
  refilling_->tensors.push_back(alias(t));
  if (TraceStorage& s = storage(t); s.purpose != Purpose::kWeights) s.saved = true;
  if (refilling_->options.stops_early && refilling_->tensors.size() >= refilling_->expected)
    throw StopRecomputation{};
}

Ref<Node> Tape::record(const Operation& operation, std::span<const Tensor> outputs) {
  Ref<Node> node(new Node);
  node->sequence = ++sequence_;
  node->operation = operation.name;
  node->module = module;
  node->layer = layer;
  node->of_loss = in_loss;
  node->backward = operation.backward;
  node->edges.reserve(operation.inputs.size());
  for (const Tensor& t : operation.inputs) {
    Edge e;
    if (t && t->needs_grad()) {
      if (t->node)
        e = {t->node, {}, t->output, t->shape, t->type};
      else
        e = {{}, t, 0, t->shape, t->type};
    }
    node->edges.push_back(std::move(e));
  }
  const std::size_t own = operation.saves_output ? 1 : 0;
  node->saved_count = static_cast<std::uint32_t>(operation.saved.size() + own);
  if (frame_) {
    if (node->saved_count) node->frame = Ref(frame_);
    node->first_saved = frame_->expected;
    frame_->expected += node->saved_count;
  } else {
    node->saved.reserve(node->saved_count);
    for (const Tensor& t : operation.saved) {
      node->saved.push_back(t->parameter ? t : alias(t));  // a parameter may get other memory
      note_saved(t);
    }
    if (own) {
      node->saved.push_back(alias(outputs[0]));
      note_saved(outputs[0]);
    }
  }
  node->arrived.resize(outputs.size());
  return node;
}

std::vector<Tensor> Tape::apply_many(const Operation& operation,
                                     const std::function<std::vector<Tensor>()>& make_outputs) {
  const bool needed = needs(operation);
  if (needed && refilling_)
    for (const Tensor& t : operation.saved) refill(t);
  std::vector<Tensor> outputs = make_outputs();
  if (!needed) return outputs;
  if (refilling_) {
    for (Tensor& t : outputs) t->requires_grad = is_floating(t->type);
    if (operation.saves_output) refill(outputs[0]);
    return outputs;
  }
  const Ref<Node> node = record(operation, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (is_floating(outputs[i]->type)) {
      outputs[i]->node = node;
      outputs[i]->output = static_cast<std::uint8_t>(i);
    }
  return outputs;
}

Tensor Tape::apply(const Operation& operation, const Shape& shape, Element type) {
  const bool needed = needs(operation);
  if (needed && refilling_ && !operation.saves_late)
    for (const Tensor& t : operation.saved) refill(t);
  Tensor out = make_result(shape, type, operation.name, operation.kept);
  if (!needed) return out;
  if (refilling_) {
    if (operation.saves_late)
      for (const Tensor& t : operation.saved) refill(t);
    out->requires_grad = true;
    if (operation.saves_output) refill(out);
  } else {
    out->node = record(operation, std::span(&out, 1));
  }
  return out;
}

Tensor Tape::apply_view(const Operation& operation, const Tensor& of, const Shape& shape) {
  Tensor out = alias(of, shape);
  if (!needs(operation)) return out;
  if (refilling_)
    for (const Tensor& t : operation.saved) refill(t);
  if (refilling_)
    out->requires_grad = true;
  else
    out->node = record(operation, std::span(&out, 1));
  return out;
}

std::vector<Tensor> Tape::apply_views(const Operation& operation, const Tensor& of,
                                      std::span<const Shape> shapes) {
  return apply_many(operation, [&] {
    std::vector<Tensor> out;
    for (const Shape& s : shapes) out.push_back(alias(of, s));
    return out;
  });
}

void Tape::kernel_temporary(std::uint64_t bytes, const char* tensor) {
  if (!options.kernel_temporaries || bytes == 0) return;
  writer_.free(writer_.allocate(bytes, Purpose::kKernel, layer, module, tensor));
}

Tensor Tape::lowered(const Tensor& t) {
  if (!autocast_on || t->type != Element::kF32) return t;
  if (t->autocast_copy) return t->autocast_copy;
  Tensor out = to(*this, t, autocast_type);
  if (t->parameter && t->requires_grad) {
    t->autocast_copy = out;
    cached_weights_.push_back(t);
  }
  return out;
}

void Tape::leave_autocast() {
  autocast_on = false;
  for (const Tensor& t : cached_weights_) t->autocast_copy.reset();
  cached_weights_.clear();
}

Tensor Tape::make_result(const Shape& shape, Element type, const char* tensor, bool kept) {
  Frame* frame = frame_ ? frame_ : refilling_;
  if (!kept || !frame || !frame->options.keeps_products) return make(shape, type, tensor);
  if (refilling_) return std::move(frame->kept[frame->next_kept++]);
  Tensor t = make(shape, type, tensor);
  storage(t).saved = true;
  frame->kept.push_back(alias(t));
  return t;
}

bool Tape::keeps_product() {
  Frame* frame = frame_ ? frame_ : refilling_;
  return frame && frame->options.keeps_products && ++frame->products % 2 == 1;
}

Tensor Tape::checkpointed(const std::function<Tensor()>& region, std::function<void()> compute_again,
                          const CheckpointOptions& checkpoint) {
  Ref<Frame> frame(new Frame);
  frame->options = checkpoint;
  frame->compute_again = std::move(compute_again);
  frame_ = frame.get();
  Tensor out = region();
  frame_ = nullptr;
  if (!checkpoint.keeps_last_product && !frame->kept.empty()) frame->kept.pop_back();
  return out;
}

/// Sum over broadcast dimensions, then cast: what the engine does with a gradient that a node returned.
Tensor Tape::conformed(Tensor g, const Edge& edge) {
  if (!g->shape.same_sizes(edge.shape)) {
    const int leading = g->shape.dims - edge.shape.dims;
    bool reduced = leading > 0;
    for (int i = 0; i < edge.shape.dims; ++i)
      reduced |= edge.shape.size[i] == 1 && g->shape.size[i + leading] != 1;
    g = reduced ? make(edge.shape.made_contiguous(), g->type, "gradient, summed") : alias(g, edge.shape);
  }
  const Element type = edge.leaf ? edge.leaf->grad_type.value_or(edge.type) : edge.type;
  if (g->type != type) g = make(elementwise(g->shape), type, "gradient, cast");
  return g;
}

void Tape::compute_again(Frame& frame) {
  const Purpose before = std::exchange(purpose, Purpose::kActivations);
  refilling_ = &frame;
  frame.products = 0;
  try {
    frame.compute_again();
  } catch (const StopRecomputation&) {
  }
  refilling_ = nullptr;
  purpose = before;
}

void Tape::run_node(Node& node, std::vector<Tensor>& results) {
  layer = node.layer;
  module = node.module;
  purpose = node.of_loss ? Purpose::kLogits : Purpose::kBackward;
  if (node.before) {
    node.before();
    node.before = nullptr;
  }
  if (node.frame) {
    Frame& frame = *node.frame;
    if (node.saved_count && !frame.refilled) {
      frame.refilled = true;
      compute_again(frame);
      layer = node.layer;
      module = node.module;
    }
    for (std::uint32_t i = 0; i < node.saved_count; ++i)
      node.saved.push_back(std::move(frame.tensors.at(node.first_saved + i)));
  }
  results.assign(node.edges.size(), {});
  BackwardCall call{*this, node.arrived, node.saved, results, node};
  if (std::any_of(node.arrived.begin(), node.arrived.end(), [](const Tensor& g) { return bool(g); }))
    node.backward(call);
  if (node.frame) node.saved.clear();  // recomputed tensors are freed before the engine sums and casts
  for (std::size_t i = 0; i < results.size(); ++i)
    if (results[i]) results[i] = conformed(std::move(results[i]), node.edges[i]);
  node.arrived.clear();  // after the casts, unless the operator has taken them
  node.saved.clear();
  node.frame.reset();
  node.backward = nullptr;
}

void Tape::deliver(const Edge& edge, Tensor g) {
  Tensor& slot = edge.leaf ? edge.leaf->arrived : edge.node->arrived[edge.output];
  if (!g) return;
  if (!slot) {
    slot = std::move(g);
    return;
  }
  const bool in_place =
      !options.subclass_gradients && slot->references == 1 && slot->storage->references == 1;
  if (!in_place) slot = make(elementwise(slot->shape, g->shape), g->type, "gradients, added");
}

// The first gradient is kept as it is where nothing else refers to it; later ones are added in place.
void Tape::accumulate(const Tensor& leaf, Tensor g) {
  if (before_leaf && !leaf->parameter) std::exchange(before_leaf, nullptr)();
  if (!leaf->grad) {
    const bool stolen = g->references == 1;
    leaf->grad = stolen ? std::move(g) : make(leaf->shape, g->type, "gradient");
    TraceStorage& s = storage(leaf->grad);
    const TraceStorage& own = writer_[leaf->storage->index];
    if (leaf->parameter) {
      s.purpose = Purpose::kGradients;
      s.module = own.module;
      s.layer = own.layer;
      s.saved = false;
    }
  }
  g.reset();
  if (after_gradient && leaf->parameter) after_gradient(leaf);
}

void Tape::run_backward(const Tensor& loss, const std::function<void()>& at_end, const Tensor& gradient) {
  const auto older = [](const Ref<Node>& a, const Ref<Node>& b) { return a->sequence < b->sequence; };
  std::vector<Node*> stack{loss->node.get()};
  loss->node->visited = true;
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (const Edge& e : node->edges) {
      if (e.leaf) ++e.leaf->waiting;
      if (!e.node) continue;
      ++e.node->waiting;
      if (!std::exchange(e.node->visited, true)) stack.push_back(e.node.get());
    }
  }
  const Tensor ones = gradient ? gradient : make(loss->shape, loss->type, "ones");
  loss->node->arrived[0] = alias(ones);
  ready_.push_back(std::exchange(loss->node, {}));
  std::vector<Tensor> results;
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end(), older);
    const Ref<Node> node = std::move(ready_.back());
    ready_.pop_back();
    run_node(*node, results);
    for (std::size_t i = 0; i < results.size(); ++i) {
      Edge& e = node->edges[i];
      if (!e.exists()) continue;
      deliver(e, std::move(results[i]));
      if (e.leaf) {
        if (--e.leaf->waiting == 0 && e.leaf->arrived) accumulate(e.leaf, std::move(e.leaf->arrived));
      } else if (--e.node->waiting == 0) {
        ready_.push_back(e.node);
        std::push_heap(ready_.begin(), ready_.end(), older);
      }
    }
    node->edges.clear();
  }
  layer = -1;
  module = "";
  purpose = Purpose::kBackward;
  if (at_end) at_end();
}

}  // namespace trainhost::frameworks
