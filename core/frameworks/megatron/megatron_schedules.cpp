// The schedules of Megatron-LM: which micro-batches are in flight on a pipeline rank, what is received, and
// what stays after it was sent. One stage, 1F1B, and interleaved 1F1B, in which a rank has several virtual
// stages and each group of micro-batches goes through all of them in turn.
#include <algorithm>
#include <cassert>
#include <utility>

#include "core/frameworks/autograd/operators.hpp"
#include "core/frameworks/megatron/decoder_megatron.hpp"

namespace trainhost::frameworks {

/// RotaryEmbedding.forward(): positions and angles of the whole sequence; with context parallelism the rank's
/// tokens are copied.
Tensor MegatronDecoder::rotary_angles() {
  const auto storage = [&](const Shape& shape, const char* name) {
    return t_.new_storage(shape, Element::kF32, Purpose::kBuffers, "", name);
  };
  const std::int64_t rank_tokens = tokens_ / batch_, tokens = rank_tokens * s_.context;
  Tensor positions = storage({tokens}, "positions");
  positions = storage({tokens}, "positions with the offset");
  const Tensor half = storage({tokens, rotated_dim_ / 2}, "angles of one half");
  positions.reset();
  const Tensor all = storage({tokens, rotated_dim_}, "rotary angles");
  return s_.context > 1 ? storage({rank_tokens, rotated_dim_}, "rotary angles") : all;
}

Tensor MegatronDecoder::forward(const Tensor& input, std::size_t index) {
  const VirtualStage& stage = virtual_stages_[index];
  // get_batch(): the embedding keeps the ids; the rest is freed when the function returns.
  const auto of_tokens = [&](Element type, const char* name) {
    return t_.new_storage({batch_, tokens_ / batch_}, type, Purpose::kBuffers, "", name);
  };
  const bool ends = stage.first || stage.last;
  Tensor ids, labels, mask, positions;
  if (ends) {
    ids = of_tokens(Element::kI64, "token ids");
    labels = of_tokens(Element::kI64, "labels");
    mask = of_tokens(Element::kF32, "mask of the loss");
    positions = of_tokens(Element::kI64, "positions");
  }
  Tensor x = stage.first ? embedded(ids) : input;
  if (!angles_[index]) angles_[index] = rotary_angles();  // a cache keeps them
  x = layers(std::move(x), stage);
  t_.layer = -1;
  if (!stage.last) return x;
  {
    const ModuleScope scope(t_, "final_layernorm");
    x = rms_norm(t_, x, final_norm_);
  }
  const Tensor logits = head(x);
  x.reset();
  return loss_of(logits);
}

Tensor MegatronDecoder::received(const char* name) {
  const Tensor x = t_.new_storage({rows_, hidden_}, s_.weights, Purpose::kCommunication, "", name);
  x->requires_grad = true;
  return x;
}

/// Returns the output, which is freed when it has been sent; its history remains. None in the last stage.
Tensor MegatronDecoder::run_forward(std::uint32_t step, const Tensor& input, std::size_t stage) {
  t_.begin(kForward, step, ++forwards_);
  t_.recording = step == 1 && forwards_ == 1;
  last_inputs_[stage] = input;
  Tensor output = forward(input, stage);
  t_.recording = false;
  if (virtual_stages_[stage].last) {
    in_flight_[stage].push_back({input, std::move(output)});
    return {};
  }
  Tensor sent(new TensorBody);
  sent->node = output->node;
  sent->shape = output->shape;
  sent->type = output->type;
  in_flight_[stage].push_back({input, std::move(sent)});
  return output;
}

/// Returns the gradient of the input, if there is one.
Tensor MegatronDecoder::run_backward(std::uint32_t step, const Tensor& gradient, std::size_t stage) {
  t_.begin(kBackward, step, ++backwards_);
  assert(!in_flight_[stage].empty());
  const Pass pass = std::move(in_flight_[stage].front());
  in_flight_[stage].pop_front();
  t_.run_backward(pass.output, {}, gradient);
  return pass.input ? pass.input->grad : Tensor();
}

/// forward_backward_pipelining_without_interleaving(), whose local variables keep the last gradients that
/// were received and sent.
void MegatronDecoder::run_stage(std::uint32_t step) {
  const std::uint32_t micro_batches = s_.accumulate;
  const std::uint32_t warm_up = std::min(micro_batches, s_.stage.stages - s_.stage.index - 1);
  const auto forward_pass = [&] {
    run_forward(step, s_.stage.first() ? Tensor() : received("received activations"));
  };
  Tensor from_next, to_previous;
  const auto backward_pass = [&] { to_previous = run_backward(step, from_next); };
  for (std::uint32_t i = 0; i < warm_up; ++i) forward_pass();
  for (std::uint32_t i = warm_up; i < micro_batches; ++i) {
    forward_pass();
    if (!s_.stage.last()) from_next = received("received gradient");
    backward_pass();
  }
  for (std::uint32_t i = 0; i < warm_up; ++i) {
    from_next = received("received gradient");
    backward_pass();
  }
}

/// forward_backward_pipelining_with_interleaving(), communication overlapped as by default. Groups of as many
/// micro-batches as there are ranks go through the virtual stages in turn: pass k of the forward passes is in
/// stage (k / ranks) % stages, backward passes in the reverse order. The input of the next pass is received
/// before the backward pass between them, and the output is freed after that; the gradient of the next
/// backward pass is received before the forward pass between them.
void MegatronDecoder::run_virtual_stages(std::uint32_t step) {
  const std::uint32_t ranks = s_.stage.stages, virtual_stages = s_.megatron.virtual_stages;
  const std::uint32_t passes = s_.accumulate * virtual_stages;
  const std::uint32_t warm_up =
      std::min(passes, 2 * (ranks - s_.stage.index - 1) + (virtual_stages - 1) * ranks);
  const auto stage_of_pass = [&](std::uint32_t pass, bool of_forward) -> std::size_t {
    const std::uint32_t stage = pass / ranks % virtual_stages;
    return of_forward ? stage : virtual_stages - 1 - stage;
  };
  // What pass k needs from another rank; none after the last pass.
  const auto receive_input = [&](std::uint32_t k) {
    return k < passes && !virtual_stages_[stage_of_pass(k, true)].first ? received("received activations")
                                                                        : Tensor();
  };
  const auto receive_gradient = [&](std::uint32_t k) {
    return k < passes && !virtual_stages_[stage_of_pass(k, false)].last ? received("received gradient")
                                                                        : Tensor();
  };
  Tensor input = receive_input(0), gradient, output, to_previous;
  const auto forward_pass = [&](std::uint32_t k) {
    output.reset();  // it was sent
    output = run_forward(step, std::exchange(input, {}), stage_of_pass(k, true));
    input = receive_input(k + 1);
  };
  const auto backward_pass = [&](std::uint32_t k) {
    to_previous = run_backward(step, std::exchange(gradient, {}), stage_of_pass(k, false));
    gradient = receive_gradient(k + 1);
  };
  for (std::uint32_t k = 0; k < warm_up; ++k) {
    forward_pass(k);
    output.reset();  // communication is not overlapped yet
  }
  gradient = receive_gradient(0);
  for (std::uint32_t k = warm_up; k < passes; ++k) {
    forward_pass(k);
    backward_pass(k - warm_up);
  }
  output.reset();
  for (std::uint32_t k = passes - warm_up; k < passes; ++k) backward_pass(k);
}

void MegatronDecoder::run_passes(std::uint32_t step) {
  forwards_ = backwards_ = 0;
  step_ = step;
  t_.begin(kForward, step, 1);  // before anything is received
  if (s_.megatron.virtual_stages > 1) {
    run_virtual_stages(step);
  } else if (s_.stage.stages > 1) {
    run_stage(step);
  } else {
    for (std::uint32_t i = 0; i < s_.accumulate; ++i) {
      run_forward(step, {});
      run_backward(step, {});
    }
  }
}

void MegatronDecoder::run_update(std::uint32_t step) {
  t_.begin(kUpdate, step, 0);
  update();
}

}  // namespace trainhost::frameworks
