// See zero3.hpp. What a rank has before the first step, on the device or, with offload, in host memory: parts
// of the weights and of their gradients, f32 weights and moments. Follows the constructor of
// DeepSpeedZeroOptimizer_Stage3 in DeepSpeed 0.19.
#include "core/frameworks/optimizer_step.hpp"
#include "core/frameworks/sharding/zero3.hpp"
#include "core/frameworks/sharding/zero_script.hpp"
#include "core/frameworks/step_settings.hpp"

namespace trainhost::frameworks {

/// sub_group_size: the optimizer's step casts and updates one group after another, so only one of them has
/// f32 gradients. Groups are cut where they reach that number of elements of this rank.
void Zero3::add_groups(const std::vector<std::size_t>& parameters) {
  const bool whole = policy_.sub_group >= part_of(parameters);
  Group g;
  for (const std::size_t i : parameters) {
    g.parameters.push_back(i);
    const bool last = i == parameters.back();
    if (last || (!whole && part_of(g.parameters) >= policy_.sub_group))
      groups_.push_back(std::exchange(g, Group{}));
  }
}

void Zero3::mark_persistent() {
  // In the order of the parameters: a small one that exceeds the limit of the sum is sharded like a large
  // one.
  std::uint64_t sum = 0;
  for (Parameter& p : parameters_) {
    if (p.elements > policy_.persistence || p.elements + sum > policy_.persistence_sum) continue;
    p.persists = true;
    sum += p.elements;
  }
}

void Zero3::start() {
  if (script_) return script_->note(ZeroCall::kStart);
  mark_persistent();
  std::vector<std::size_t> matrices, vectors, all, frozen;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].tensor->requires_grad) {
      frozen.push_back(i);
      continue;
    }
    all.push_back(i);
    (policy_.separate_vectors && parameters_[i].tensor->shape.dims < 2 ? vectors : matrices).push_back(i);
  }
  trained_ = all.size();
  if (policy_.offload_parameters) {
    // zero.Init pins each part; then those of a group are copied to one flat tensor, which is always pinned.
    const std::uint64_t bytes = bytes_of(s_.weights);
    for (const std::vector<std::size_t>* group : {&matrices, &vectors})
      host_.add(part_of(*group) * bytes, Purpose::kWeights, "part of the weights", true);
    if (policy_.pinned)
      for (const std::size_t i : all) host_.add_freed(parameters_[i].part * bytes);
    for (const std::size_t i : frozen)
      host_.add(parameters_[i].part * bytes, Purpose::kWeights, "part of the frozen weights", policy_.pinned);
  } else {
    keep_weights(all, frozen);
  }
  add_groups(matrices);
  add_groups(vectors);
  start_groups();
  if (all.empty()) return;  // DeepSpeedZeRoOffload, without an optimizer
  // The bucket of gradients exists during the whole run; the gradients of the parts are one flat tensor.
  kept_.push_back(buffer(policy_.bucket, s_.weights, Purpose::kCommunication, "bucket of gradients"));
  const std::uint64_t parts = part_of(all);
  if (policy_.offload_optimizer)
    host_.add(parts * bytes_of(s_.weights), Purpose::kGradients, "sums of gradients", policy_.pinned);
  else
    gradients_of_parts_ = buffer(parts, s_.weights, Purpose::kGradients, "part of the gradients");
}

/// The parts of all trained parameters are one flat tensor; those of frozen ones are tensors of their own.
void Zero3::keep_weights(const std::vector<std::size_t>& trained, const std::vector<std::size_t>& frozen) {
  kept_.push_back(buffer(part_of(trained), s_.weights, Purpose::kWeights, "part of the weights"));
  for (const std::size_t i : frozen) {
    const Parameter& p = parameters_[i];
    const std::int32_t layer = std::exchange(t_.layer, p.layer);
    kept_.push_back(t_.new_storage({static_cast<std::int64_t>(p.part)}, s_.weights, Purpose::kWeights,
                                   p.module, "part of the weight"));
    t_.layer = layer;
  }
}

void Zero3::start_groups() {
  const int moments = s_.optimizer == Optimizer::kAdamW ? 2 : s_.optimizer == Optimizer::kSgdMomentum ? 1 : 0;
  for (Group& g : groups_) {
    if (policy_.offload_optimizer) {
      const std::uint64_t f32 = part_of(g.parameters) * bytes_of(Element::kF32);
      host_.add(f32, Purpose::kMasterWeights, "f32 weights", false);
      host_.add(f32, Purpose::kGradients, "f32 gradients", policy_.pinned);
      for (int i = 0; i < moments; ++i) host_.add(f32, Purpose::kOptimizerState, "moments", false);
      continue;
    }
    // fp32_partitioned_groups_flat: a copy also where the model is f32.
    g.master.push_back(buffer(part_of(g.parameters), Element::kF32, Purpose::kMasterWeights, "f32 weights"));
    g.optimizer = std::make_unique<OptimizerStep>(t_, s_, g.master);
  }
}

}  // namespace trainhost::frameworks
