// See pipeline.hpp. Functions follow PipelineStage and Schedule1F1B of torch.distributed.pipelining.
#include "core/frameworks/pipeline.hpp"

#include <algorithm>

namespace trainhost::frameworks {

std::pair<std::uint32_t, std::uint32_t> layers_of_stage(std::uint32_t layers, const StageOfPipeline& stage) {
  if (stage.stages == 1 || stage.alone) return {0, layers};
  if (stage.first_layers || stage.last_layers) {
    const std::uint32_t given = (stage.first_layers > 0) + (stage.last_layers > 0);
    const std::uint32_t others =
        stage.stages == given ? 0
                              : (layers - stage.first_layers - stage.last_layers) / (stage.stages - given);
    const std::uint32_t first = stage.first_layers ? stage.first_layers : others;
    const auto begin_of = [&](std::uint32_t index) {
      if (index == stage.stages) return layers;
      return index == 0 ? 0 : first + (index - 1) * others;
    };
    return {begin_of(stage.index), begin_of(stage.index + 1)};
  }
  const std::uint32_t parts = layers + (stage.ends_count ? 2 : 0);
  const std::uint32_t each = parts / stage.stages, more = parts % stage.stages;
  const auto begin = [&](std::uint32_t index) {
    if (index == 0) return 0u;
    if (index == stage.stages) return layers;
    return index * each + (stage.ends_count ? std::min(index, more) - 1 : std::min(index - 1, more));
  };
  return {begin(stage.index), begin(stage.index + 1)};
}

Pipeline::Pipeline(Tape& tape, StageModel& model, const StageOfPipeline& stage, std::uint32_t micro_batches)
    : t_(tape),
      model_(model),
      stage_(stage),
      micro_batches_(micro_batches),
      inputs_(micro_batches),
      gradients_(micro_batches) {
  if (stage_.buffers == StageBuffers::kUntilSent) return;
  if (!stage_.first())
    for (Tensor& t : inputs_) t = received("received activations");
  if (!stage_.last())
    for (Tensor& t : gradients_) t = received("received gradients");
}

Tensor Pipeline::received(const char* name) {
  Tensor t = t_.new_storage(model_.boundary(), model_.boundary_type(), Purpose::kCommunication, "", name);
  t->requires_grad = true;
  return t;
}

bool Pipeline::keeps_outputs() const {
  return stage_.buffers == StageBuffers::kUntilNextStep ||
         (stage_.buffers == StageBuffers::kOutputsOfLastStage && stage_.last());
}

void Pipeline::run(std::uint32_t step) {
  outputs_.clear();
  for (const Tensor& t : inputs_)
    if (t) t->grad.reset();
  std::uint32_t forwards = 0;
  const std::uint32_t ahead = std::min(micro_batches_, stage_.stages - stage_.index);
  while (forwards < ahead) forward(step, ++forwards);
  for (std::uint32_t i = 1; i <= micro_batches_; ++i) {
    backward(step, i);
    if (forwards < micro_batches_) forward(step, ++forwards);
  }
  sent_.reset();
  if (stage_.buffers == StageBuffers::kUntilSent)
    for (Tensor& t : inputs_) t.reset();
  if (!stage_.last() || !keeps_outputs()) return;
  // The schedule returns the outputs of all micro-batches as one tensor.
  Shape all = outputs_.front()->shape;
  all.size[0] *= micro_batches_;
  t_.make(all.made_contiguous(), outputs_.front()->type, "logits of all micro-batches");
}

void Pipeline::forward(std::uint32_t step, std::uint32_t micro_batch) {
  t_.begin(kForward, step, micro_batch);
  Tensor& input = inputs_[micro_batch - 1];
  if (!stage_.first() && !input) input = received("received activations");
  t_.recording = step == 1 && micro_batch == 1;
  in_flight_.push_back(model_.pass(input));
  t_.recording = false;
  StageModel::Pass& pass = in_flight_.back();
  if (keeps_outputs()) outputs_.push_back(pass.output);
  if (stage_.buffers != StageBuffers::kUntilSent || stage_.last()) return;
  // The output of the micro-batch before has been sent. That of this one is freed in the same way; its
  // history remains.
  Tensor history(new TensorBody);
  history->node = pass.output->node;
  history->shape = pass.output->shape;
  history->type = pass.output->type;
  sending_ = std::exchange(pass.output, std::move(history));
}

void Pipeline::backward(std::uint32_t step, std::uint32_t micro_batch) {
  t_.begin(kBackward, step, micro_batch);
  const StageModel::Pass pass = std::move(in_flight_.front());
  in_flight_.pop_front();
  Tensor& gradient = gradients_[micro_batch - 1];
  if (!stage_.last() && !gradient) gradient = received("received gradients");
  sending_.reset();  // sent while the gradient is received
  ShardedUnits* fsdp = model_.fsdp();
  if (fsdp) fsdp->before_backward(false);
  t_.run_backward(
      stage_.last() ? pass.loss : pass.output,
      [&] {
        if (fsdp) fsdp->after_backward();
      },
      gradient);
  if (fsdp && micro_batch == micro_batches_) fsdp->reduce_all();
  if (stage_.buffers != StageBuffers::kUntilSent) return;
  gradient.reset();
  Tensor& input = inputs_[micro_batch - 1];
  sent_ = input ? std::exchange(input->grad, {}) : Tensor();
  // The losses of a step refer to the inputs through their history, until the step ends.
  if (!stage_.last()) input.reset();
}

}  // namespace trainhost::frameworks
