// The backward pass: PyTorch's autograd engine (torch/csrc/autograd) of one device thread. It calls each node
// when all gradients of its outputs have arrived, the latest node of the forward pass first, and frees what a
// node has saved after the call. How nodes are recorded, and regions recomputed: tape.cpp.
#include <algorithm>
#include <cassert>
#include <utility>

#include "core/frameworks/autograd/tape.hpp"

namespace trainhost::frameworks {

/// validate_outputs(): sums the gradient that a node returned over broadcast dimensions, then casts it to the
/// type of the input.
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

void Tape::run_node(Node& node, std::vector<Tensor>& results) {
  layer = node.layer;
  module = node.module;
  purpose = node.of_loss ? Purpose::kLogits : Purpose::kBackward;
  // A hook of the output of an FSDP2 unit: it gathers the weights before the node, or a recomputation in
  // front of it, uses them.
  if (node.before) {
    node.before();
    node.before = nullptr;
  }
  if (node.frame) {
    Frame& frame = *node.frame;
    // The first node of the region that needs a saved tensor recomputes all of them; the others find theirs.
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
  // A node without any gradient is not called: nothing that the loss depends on used its outputs.
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
  // InputBuffer::add(): a tensor that two operators used has a second gradient. It is added in place where
  // nothing else has a handle of the first one or of its memory, otherwise the sum is a third tensor.
  const bool in_place =
      !options.subclass_gradients && slot->references == 1 && slot->storage->references == 1;
  if (!in_place) slot = make(elementwise(slot->shape, g->shape), g->type, "gradients, added");
}

// AccumulateGrad: the first gradient of a leaf is kept as it is where nothing else refers to it, otherwise
// copied; those of later micro-batches are added in place, so that one further tensor exists at a time.
void Tape::accumulate(const Tensor& leaf, Tensor g) {
  if (before_leaf && !leaf->parameter) std::exchange(before_leaf, nullptr)();
  if (!leaf->grad) {
    const bool stolen = g->references == 1 && !leaf->copies_gradient;
    leaf->grad = stolen ? std::move(g) : make(leaf->shape, g->type, "gradient");
    TraceStorage& s = storage(leaf->grad);
    const TraceStorage& own = writer_[leaf->storage->index];
    // The memory was a temporary of the backward pass; from now on it is the gradient of a weight.
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
  // The engine's ready queue: of the nodes that are ready the one that was recorded last runs first.
  const auto older = [](const Ref<Node>& a, const Ref<Node>& b) { return a->sequence < b->sequence; };
  // Of the backward pass that this one runs in, as reentrant checkpointing does.
  std::vector<Ref<Node>> outer = std::exchange(ready_, {});
  const std::int32_t layer_before = layer;
  const std::size_t kept_before = kept_with_graph_.size();
  ++backward_passes_;
  // compute_dependencies(): how many gradients each node and each leaf waits for.
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
  // loss.backward() has a gradient of ones; it exists until the end, as the caller's variable `loss` does.
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
      // Accumulated as soon as it is complete: torch gives such nodes the highest number in the queue.
      if (e.leaf) {
        if (--e.leaf->waiting == 0 && e.leaf->arrived) accumulate(e.leaf, std::move(e.leaf->arrived));
      } else if (--e.node->waiting == 0) {
        ready_.push_back(e.node);
        std::push_heap(ready_.begin(), ready_.end(), older);
      }
    }
    // Nodes before this one are kept by its edges; their handles go, and with them what nothing else keeps.
    node->edges.clear();
  }
  assert(ready_.empty());
  ready_ = std::move(outer);
  // What an inner pass frees when it returns belongs to the layer that it ran for.
  layer = --backward_passes_ ? layer_before : -1;
  module = "";
  purpose = Purpose::kBackward;
  if (at_end) at_end();
  if (!backward_passes_) finished_regions_.clear();
  // The graph of this pass is freed; that of an outer one is not. What a layer kept is freed as an event of
  // it, so that equal layers have equal events.
  const std::int32_t layer_after = layer;
  for (std::size_t i = kept_before; i < kept_with_graph_.size(); ++i) {
    layer = storage(kept_with_graph_[i]).layer;
    kept_with_graph_[i].reset();
  }
  layer = layer_after;
  kept_with_graph_.resize(kept_before);
}

}  // namespace trainhost::frameworks
