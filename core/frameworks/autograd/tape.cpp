// The forward pass on the tape: memory of tensors, nodes with what they save, autocast, and activation
// checkpointing (torch.utils.checkpoint, both kinds). The backward pass: tape_engine.cpp. Operators are
// written with this in operators.cpp and its neighbours.
#include "core/frameworks/autograd/tape.hpp"

#include <algorithm>
#include <cassert>

#include "core/frameworks/autograd/operators.hpp"

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

namespace {

/// What a node keeps that leads to other nodes.
struct Links {
  std::vector<Edge> edges;
  std::vector<Tensor> saved;
  Ref<Frame> frame;
  Backward backward;
};

/// Links of nodes that are being freed; null where nodes free them directly.
constinit thread_local std::vector<Links>* links_to_free = nullptr;

}  // namespace

Node::~Node() {
  if (links_to_free)
    links_to_free->push_back({std::move(edges), std::move(saved), std::move(frame), std::move(backward)});
}

UnfinishedGraph::UnfinishedGraph() { links_to_free = new std::vector<Links>; }

UnfinishedGraph::~UnfinishedGraph() {
  while (!links_to_free->empty()) {
    // Frees nodes, which add to the list.
    const Links last = std::move(links_to_free->back());
    links_to_free->pop_back();
  }
  delete std::exchange(links_to_free, nullptr);
}

bool BackwardCall::needs(std::size_t input) const { return node.edges[input].exists(); }

void Tape::stop_above(std::uint64_t bytes, std::uint64_t block) {
  limit_ = bytes;
  writer_.count_bytes(block);
}

void Tape::stop(std::uint64_t bytes) {
  unfinished_.emplace();
  throw PeakAboveLimit{bytes};
}

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
  t->storage = Ref(new StorageBody(*this, writer_.allocate_named(t->bytes(), p, layer, module_name, tensor)));
  check_limit();
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
  assert(!t->storage->present);
  t->storage->index = writer_.allocate_named(bytes, p, layer_index, module_name, tensor);
  t->storage->present = true;
  check_limit();
}

void Tape::make_absent(const Tensor& t) {
  assert(t->storage->present);
  writer_.free(t->storage->index);
  t->storage->present = false;
}

bool Tape::needs(const Operation& operation) const {
  return grad_enabled && std::any_of(operation.inputs.begin(), operation.inputs.end(),
                                     [](const Tensor& t) { return t && t->needs_grad(); });
}

void Tape::note_saved(const Tensor& t) {
  // A storage counts once, for the first operator that saves it; weights do not count, because they exist
  // anyway. Copies of weights in another type do.
  TraceStorage& s = storage(t);
  if (s.saved || t->parameter || s.purpose == Purpose::kWeights) return;
  s.saved = true;
  if (!recording) return;
  const auto at = static_cast<std::size_t>(layer + 1);
  if (saved_bytes.size() <= at) saved_bytes.resize(at + 1);
  saved_bytes[at] += s.bytes;
}

void Tape::refill(const Tensor& t) {
  // The operators of the recomputation save in the order of the forward pass, so that the n-th tensor is the
  // n-th that the forward pass would have saved: record() has numbered them.
  // Only tensors that need a gradient are detached: of a frozen parameter the tensor itself is kept, whose
  // memory may be freed and gathered again until then.
  refilling_->tensors.push_back(t->parameter && !t->needs_grad() ? t : alias(t));
  if (TraceStorage& s = storage(t); s.purpose != Purpose::kWeights) s.saved = true;
  // torch raises an exception too (_StopRecomputationError): the operators behind the last tensor that is
  // needed do not run, and their results do not exist.
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
    // A tensor without a gradient has an edge to nothing: BackwardCall::needs() is false for it.
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
    // Inside a checkpointed region nothing is kept. The node notes which of the tensors that the
    // recomputation saves are its own, and keeps the region.
    node->first_saved = frame_->expected;
    frame_->expected += node->saved_count;
  } else {
    node->saved.reserve(node->saved_count);
    // An alias keeps the memory without the history of the tensor. Of a parameter the tensor itself is
    // saved: the memory that it has in the backward pass may be another, gathered again by FSDP2 or ZeRO 3.
    for (const Tensor& t : operation.saved) {
      node->saved.push_back(t->parameter ? t : alias(t));
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
  // Inputs are saved before the operator runs, as in torch's generated code: a recomputation that ends with
  // them does not allocate the results.
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
  // saves_late: a torch.autograd.Function, which saves in its forward() after it has computed.
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
  const std::uint32_t storage = writer_.allocate_named(bytes, Purpose::kKernel, layer, module, tensor);
  check_limit();
  writer_.free(storage);
}

Tensor Tape::lowered(const Tensor& t) {
  // cached_cast() of torch's autocast: leaves that need a gradient are cast once until the region ends; their
  // copies are kept that long, also where a checkpointed region drops its activations. All others, frozen
  // weights too, are cast by each operator that uses them.
  if (!autocast_on || t->type != Element::kF32) return t;
  if (t->autocast_copy) return t->autocast_copy;
  Tensor out = to(*this, t, autocast_type);
  if ((t->parameter || t->input_leaf) && t->requires_grad) {
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
  // Selective checkpointing: the result exists from the forward pass until the recomputation takes it, in the
  // order in which it was kept.
  Frame* frame = frame_ ? frame_ : refilling_;
  if (!kept || !frame || !frame->options.keeps_products) return make(shape, type, tensor);
  if (refilling_ && frame->next_kept < frame->kept.size()) return std::move(frame->kept[frame->next_kept++]);
  Tensor t = make(shape, type, tensor);
  // One of CheckpointOptions::dropped, where later tensors are needed: it is recomputed with them.
  assert(!refilling_ || frame->options.dropped);
  if (refilling_) return t;
  storage(t).saved = true;
  frame->kept.push_back(alias(t));
  return t;
}

bool Tape::keeps_product() {
  // torchtitan's policy counts products per pass of a region and keeps every second one; `products` starts
  // from 0 again in the recomputation, so that both passes decide alike.
  Frame* frame = frame_ ? frame_ : refilling_;
  return frame && frame->options.keeps_products && ++frame->products % 2 == 1;
}

Tensor Tape::checkpointed(const std::function<Tensor()>& region, std::function<void()> compute_again,
                          const CheckpointOptions& checkpoint) {
  assert(!frame_ && !refilling_ && "checkpointed regions are not nested");
  Ref<Frame> frame(new Frame);
  frame->options = checkpoint;
  frame->compute_again = std::move(compute_again);
  frame_ = frame.get();
  Tensor out = region();
  frame_ = nullptr;
  frame->kept.resize(frame->kept.size() - std::min(checkpoint.dropped, frame->kept.size()));
  return out;
}

Tensor Tape::checkpointed_reentrant(const std::vector<Tensor>& inputs,
                                    std::function<Tensor(const std::vector<Tensor>&)> region,
                                    const Tensor& staged) {
  grad_enabled = false;
  const Tensor out = region(inputs);
  grad_enabled = true;
  const std::span<const Tensor> saved = std::span(inputs).subspan(staged ? 1 : 0);
  return apply_view({"output", inputs, saved, false,
                     [this, region = std::move(region), staged, shape = inputs[0]->shape](BackwardCall& c) {
                       const std::int32_t outer_layer = layer;
                       std::vector<Tensor> detached;
                       if (staged) detached.push_back(alias(staged, shape.made_contiguous()));
                       for (const Tensor& kept : c.saved) detached.push_back(alias(kept));
                       for (std::size_t i = 0; i < detached.size(); ++i)
                         detached[i]->requires_grad = c.needs(i);
                       const Purpose before = std::exchange(purpose, Purpose::kActivations);
                       // The variable `outputs` of the function, and the gradient that it was called with,
                       // exist until the inner backward pass has ended.
                       const Tensor outputs = region(detached);
                       run_backward(outputs, {}, c.grads[0]);
                       purpose = before;
                       layer = outer_layer;
                       // ctx.run_function, with the tensors that it holds, exists as long as the graph.
                       finished_regions_.push_back(region);
                       // Not moved: a unit of FSDP1 may keep a detached input, and with it this gradient.
                       for (std::size_t i = 0; i < detached.size(); ++i) c.results[i] = detached[i]->grad;
                     }},
                    out, out->shape);
}

void Tape::compute_again(Frame& frame) {
  // Runs inside the backward pass; what it allocates is an activation nevertheless.
  const Purpose before = std::exchange(purpose, Purpose::kActivations);
  refilling_ = &frame;
  frame.products = 0;
  try {
    frame.compute_again();
  } catch (const StopRecomputation&) {
  }
  assert(frame.tensors.size() >= frame.expected);
  refilling_ = nullptr;
  kept_while_recomputed_.clear();
  purpose = before;
}

}  // namespace trainhost::frameworks
