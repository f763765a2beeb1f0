// See pipeline.hpp. Functions follow PipelineStage and Schedule1F1B of torch.distributed.pipelining.
#include "core/frameworks/pipeline.hpp"

#include <algorithm>

namespace trainhost::frameworks {

std::pair<std::uint32_t, std::uint32_t> layers_of_stage(std::uint32_t layers, const StageOfPipeline& stage) {
  if (stage.stages == 1) return {0, layers};
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
    : t_(tape), model_(model), stage_(stage), micro_batches_(micro_batches) {
  const auto buffers = [&](const char* name) {
    std::vector<Tensor> out;
    for (std::uint32_t i = 0; i < micro_batches_; ++i)
      out.push_back(
          t_.new_storage(model_.boundary(), model_.boundary_type(), Purpose::kCommunication, "", name));
    return out;
  };
  if (!stage_.first()) inputs_ = buffers("received activations");
  if (!stage_.last()) gradients_ = buffers("received gradients");
  for (const Tensor& t : inputs_) t->requires_grad = true;
}

void Pipeline::run(std::uint32_t step) {
  outputs_.clear();
  for (const Tensor& t : inputs_) t->grad.reset();
  std::uint32_t forwards = 0;
  const std::uint32_t ahead = std::min(micro_batches_, stage_.stages - stage_.index);
  while (forwards < ahead) forward(step, ++forwards);
  for (std::uint32_t i = 1; i <= micro_batches_; ++i) {
    backward(step, i);
    if (forwards < micro_batches_) forward(step, ++forwards);
  }
  if (!stage_.last()) return;
  // The schedule returns the outputs of all micro-batches as one tensor.
  Shape all = outputs_.front()->shape;
  all.size[0] *= micro_batches_;
  t_.make(all.made_contiguous(), outputs_.front()->type, "logits of all micro-batches");
}

void Pipeline::forward(std::uint32_t step, std::uint32_t micro_batch) {
  t_.begin(kForward, step, micro_batch);
  t_.recording = step == 1 && micro_batch == 1;
  in_flight_.push_back(model_.pass(stage_.first() ? Tensor() : inputs_[micro_batch - 1]));
  t_.recording = false;
  outputs_.push_back(in_flight_.back().output);
}

void Pipeline::backward(std::uint32_t step, std::uint32_t micro_batch) {
  t_.begin(kBackward, step, micro_batch);
  const StageModel::Pass pass = std::move(in_flight_.front());
  in_flight_.pop_front();
  ShardedUnits* fsdp = model_.fsdp();
  if (fsdp) fsdp->before_backward(false);
  t_.run_backward(
      stage_.last() ? pass.loss : pass.output,
      [&] {
        if (fsdp) fsdp->after_backward();
      },
      stage_.last() ? Tensor() : gradients_[micro_batch - 1]);
  if (fsdp && micro_batch == micro_batches_) fsdp->reduce_all();
}

}  // namespace trainhost::frameworks
