#include "core/frameworks/megatron_pipeline.hpp"

#include <algorithm>
#include <utility>

namespace trainhost::frameworks {

Tensor MegatronPipeline::received(const char* name) {
  return t_.new_storage(model_.boundary(), model_.boundary_type(), Purpose::kCommunication, "", name);
}

void MegatronPipeline::receive_input() {
  if (stage_.first()) return;
  Tensor next = received("received activations");
  next->requires_grad = true;
  input_ = std::move(next);
}

void MegatronPipeline::run(std::uint32_t step) {
  const std::uint32_t ahead = std::min(micro_batches_, stage_.stages - stage_.index - 1);
  std::uint32_t forwards = 0;
  while (forwards < ahead) {
    receive_input();
    forward(step, ++forwards);
    free_output();
  }
  if (forwards < micro_batches_) receive_input();
  for (std::uint32_t i = 1; i <= micro_batches_; ++i) {
    const bool steady = forwards < micro_batches_;
    if (steady) forward(step, ++forwards);
    if (!stage_.last()) output_gradient_ = received("received gradient");
    if (steady) free_output();
    backward(step, i);
    if (forwards < micro_batches_) receive_input();
  }
  input_.reset();
  output_gradient_.reset();
  input_gradient_.reset();
}

void MegatronPipeline::forward(std::uint32_t step, std::uint32_t micro_batch) {
  t_.begin(kForward, step, micro_batch);
  t_.recording = step == 1 && micro_batch == 1;
  in_flight_.push_back({input_, model_.pass(input_).output});
  t_.recording = false;
}

/// The backward pass needs only the node that computed it.
void MegatronPipeline::free_output() {
  if (!stage_.last()) t_.make_absent(in_flight_.back().output);
}

void MegatronPipeline::backward(std::uint32_t step, std::uint32_t micro_batch) {
  t_.begin(kBackward, step, micro_batch);
  const InFlight pass = std::move(in_flight_.front());
  in_flight_.pop_front();
  input_ = pass.input;
  t_.run_backward(pass.output, {}, output_gradient_);
  if (pass.input) input_gradient_ = std::move(pass.input->grad);
}

}  // namespace trainhost::frameworks
