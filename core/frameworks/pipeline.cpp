// See pipeline.hpp. Functions follow PipelineStage, Schedule1F1B and ScheduleInterleaved1F1B of
// torch.distributed.pipelining.
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

StageOfPipeline StageOfPipeline::of_rank(std::uint32_t n) const {
  StageOfPipeline s = *this;
  s.index += n * ranks();
  s.per_rank = 1;
  return s;
}

std::uint32_t rounds_of_schedule(const StageOfPipeline& stage, std::uint32_t micro_batches) {
  return std::max(1u, micro_batches / stage.ranks());
}

std::vector<StageAction> schedule_of_rank(const StageOfPipeline& stage, std::uint32_t micro_batches) {
  std::vector<StageAction> out;
  const std::uint32_t all = micro_batches * stage.per_rank, left = stage.ranks() - 1 - stage.index;
  // Micro-batches go through the stages of a rank in groups.
  const std::uint32_t group = micro_batches / rounds_of_schedule(stage, micro_batches);
  const std::uint32_t ahead = stage.per_rank == 1 ? left + 1 : (stage.per_rank - 1) * group + 2 * left;
  const std::uint32_t warmup = std::min(all, ahead);
  const auto forward = [&](std::uint32_t i) { out.push_back({i / group % stage.per_rank, true}); };
  const auto backward = [&](std::uint32_t i) {
    out.push_back({stage.per_rank - 1 - i / group % stage.per_rank, false});
  };
  std::uint32_t forwards = 0;
  while (forwards < warmup) forward(forwards++);
  for (std::uint32_t i = 0; i < all; ++i) {
    // 1F1B begins with a backward pass, the interleaved schedule with a forward pass.
    if (stage.per_rank > 1 && forwards < all) forward(forwards++);
    backward(i);
    if (stage.per_rank == 1 && forwards < all) forward(forwards++);
  }
  return out;
}

Pipeline::Pipeline(Tape& tape, const std::vector<StageModel*>& models, const StageOfPipeline& stage,
                   std::uint32_t micro_batches)
    : t_(tape), micro_batches_(micro_batches), actions_(schedule_of_rank(stage, micro_batches)) {
  for (std::uint32_t n = 0; n < stage.per_rank; ++n) {
    Stage& s = stages_.emplace_back();
    s.model = models[n];
    s.place = stage.of_rank(n);
    s.inputs.resize(micro_batches);
    s.gradients.resize(micro_batches);
    if (stage.buffers == StageBuffers::kUntilSent) continue;
    if (!s.place.first())
      for (Tensor& t : s.inputs) t = received(s, "received activations");
    if (!s.place.last())
      for (Tensor& t : s.gradients) t = received(s, "received gradients");
  }
}

Tensor Pipeline::received(const Stage& s, const char* name) {
  Tensor t = t_.new_storage(s.model->boundary(), s.model->boundary_type(), Purpose::kCommunication, "", name);
  t->requires_grad = true;
  return t;
}

bool Pipeline::keeps_outputs(const Stage& s) const {
  return s.place.buffers == StageBuffers::kUntilNextStep ||
         (s.place.buffers == StageBuffers::kOutputsOfLastStage && s.place.last());
}

void Pipeline::run(std::uint32_t step) {
  for (Stage& s : stages_) {
    s.outputs.clear();
    for (const Tensor& t : s.inputs)
      if (t) t->grad.reset();
    s.forwards = s.backwards = 0;
  }
  for (const StageAction& action : actions_) {
    Stage& s = stages_[action.stage];
    action.forward ? forward(step, s) : backward(step, s);
  }
  for (Stage& s : stages_) {
    s.sent.reset();
    if (s.place.buffers == StageBuffers::kUntilSent)
      for (Tensor& t : s.inputs) t.reset();
    if (!s.place.last() || !keeps_outputs(s)) continue;
    // The schedule returns the outputs of all micro-batches as one tensor.
    Shape all = s.outputs.front()->shape;
    all.size[0] *= micro_batches_;
    t_.make(all.made_contiguous(), s.outputs.front()->type, "logits of all micro-batches");
  }
}

void Pipeline::forward(std::uint32_t step, Stage& s) {
  const std::uint32_t micro_batch = ++s.forwards;
  t_.begin(kForward, step, micro_batch);
  Tensor& input = s.inputs[micro_batch - 1];
  if (!s.place.first() && !input) input = received(s, "received activations");
  t_.recording = step == 1 && micro_batch == 1 && &s == &stages_.front();
  s.in_flight.push_back(s.model->pass(input));
  t_.recording = false;
  StageModel::Pass& pass = s.in_flight.back();
  if (keeps_outputs(s)) s.outputs.push_back(pass.output);
  if (s.place.buffers != StageBuffers::kUntilSent || s.place.last()) return;
  // The output of the micro-batch before has been sent. That of this one is freed in the same way; its
  // history remains.
  Tensor history(new TensorBody);
  history->node = pass.output->node;
  history->shape = pass.output->shape;
  history->type = pass.output->type;
  s.sending = std::exchange(pass.output, std::move(history));
}

void Pipeline::backward(std::uint32_t step, Stage& s) {
  const std::uint32_t micro_batch = ++s.backwards;
  t_.begin(kBackward, step, micro_batch);
  const StageModel::Pass pass = std::move(s.in_flight.front());
  s.in_flight.pop_front();
  Tensor& gradient = s.gradients[micro_batch - 1];
  if (!s.place.last() && !gradient) gradient = received(s, "received gradients");
  s.sending.reset();  // sent while the gradient is received
  ShardedUnits* fsdp = s.model->fsdp();
  if (fsdp) fsdp->before_backward(false);
  t_.run_backward(
      s.place.last() ? pass.loss : pass.output,
      [&] {
        if (fsdp) fsdp->after_backward();
      },
      gradient);
  if (fsdp && micro_batch == micro_batches_) fsdp->reduce_all();
  if (s.place.buffers != StageBuffers::kUntilSent) return;
  gradient.reset();
  Tensor& input = s.inputs[micro_batch - 1];
  s.sent = input ? std::exchange(input->grad, {}) : Tensor();
  // The losses of a step refer to the inputs through their history, until the step ends.
  if (!s.place.last()) input.reset();
}

}  // namespace trainhost::frameworks
