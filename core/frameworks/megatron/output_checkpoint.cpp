// See output_checkpoint.hpp.
#include "core/frameworks/megatron/output_checkpoint.hpp"

#include <cassert>
#include <span>
#include <utility>

namespace trainhost::frameworks {

struct OutputCheckpoint::State {
  Region region;
  std::vector<Tensor> inputs;    // until they are recomputed
  std::vector<Tensor> outputs;   // whose memory was freed
  std::vector<Tensor> detached;  // inputs of the second calculation
  std::vector<Tensor> again;     // its outputs, until the region's backward pass has ended
};

OutputCheckpoint::OutputCheckpoint(Tape& tape, const std::vector<Tensor>& inputs, Region region)
    : t_(tape), state_(std::make_shared<State>()) {
  state_->region = std::move(region);
  const bool records = std::exchange(t_.grad_enabled, false);
  std::vector<Tensor> made = state_->region(inputs);
  t_.grad_enabled = records;
  const auto backward = [this_tape = &t_, state = state_](BackwardCall& c) {
    Tape& t = *this_tape;
    // One backward pass of all outputs: a node that hands each its gradient.
    std::vector<Tensor> gradients(c.grads.begin(), c.grads.end());
    const Tensor root = t.apply_view({"outputs",
                                      state->again,
                                      {},
                                      false,
                                      [&gradients](BackwardCall& inner) {
                                        for (std::size_t i = 0; i < gradients.size(); ++i)
                                          inner.results[i] = gradients[i];
                                      }},
                                     state->again[0], state->again[0]->shape);
    t.run_backward(root, {}, c.grads[0]);
    state->again.clear();
    for (std::size_t i = 0; i < state->detached.size(); ++i)
      if (c.needs(i)) c.results[i] = std::move(state->detached[i]->grad);
    state->detached.clear();
  };
  outputs_ = t_.apply_many({"outputs", inputs, inputs, false, backward}, [&] { return std::move(made); });
  state_->inputs = inputs;
}

void OutputCheckpoint::discard(const Tensor& consumer) {
  const bool needed = consumer && consumer->node && outputs_[0]->node;
  for (Tensor& x : outputs_) {
    if (t_.recording && t_.storage(x).saved) {
      const auto at = static_cast<std::size_t>(t_.storage(x).layer + 1);
      assert(at < t_.saved_bytes.size() && t_.saved_bytes[at] >= t_.storage(x).bytes);
      t_.saved_bytes[at] -= t_.storage(x).bytes;
    }
    t_.storage(x).saved = false;
    t_.make_absent(x);
    // Metadata without history, which would keep the graph.
    if (needed) state_->outputs.push_back(t_.alias(x));
  }
  std::vector<bool> wants;
  for (const Tensor& x : state_->inputs) wants.push_back(x->needs_grad());
  // The node that saved the inputs keeps their memory; the hook takes handles without history.
  for (Tensor& x : state_->inputs) x = t_.alias(x);
  outputs_.clear();
  if (!needed) return;
  consumer->node->before = [tape = &t_, state = state_, wants, name_of_layer = t_.layer] {
    Tape& t = *tape;
    const std::int32_t layer = std::exchange(t.layer, name_of_layer);
    const Purpose purpose = std::exchange(t.purpose, Purpose::kActivations);
    state->detached = std::exchange(state->inputs, {});
    for (std::size_t i = 0; i < wants.size(); ++i) state->detached[i]->requires_grad = wants[i];
    state->again = state->region(state->detached);
    for (std::size_t i = 0; i < state->outputs.size(); ++i)
      t.make_present(state->outputs[i], state->outputs[i]->bytes(), t.layer, t.module, "restored output",
                     Purpose::kActivations);
    state->outputs.clear();
    state->region = nullptr;
    t.purpose = purpose;
    t.layer = layer;
  };
}

}  // namespace trainhost::frameworks
