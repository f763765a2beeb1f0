// See zero.hpp. Functions follow those of DeepSpeedZeroOptimizer (stages 1 and 2) in DeepSpeed 0.19. Values
// are left out: the scalars of the loss scale and of the check for overflow are not allocated here.
#include "core/frameworks/sharding/zero.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/frameworks/optimizer_step.hpp"
#include "core/frameworks/sharding/zero_script.hpp"
#include "core/frameworks/step_settings.hpp"

namespace trainhost::frameworks {
namespace {

std::uint64_t elements_of(const Tensor& t) { return t->shape.count(); }

}  // namespace

Zero::Zero(Tape& tape, const StepSettings& settings, const std::vector<Tensor>& trained)
    : t_(tape),
      s_(settings),
      policy_(settings.zero),
      script_(tape.zero_script),
      trained_(trained),
      type_(settings.weights) {
  if (script_) {
    declare();
    return;
  }
  // The Trainer of transformers gives the optimizer two groups: weight decay for matrices only. Each group
  // has a flat tensor, a partition and a step of its own.
  std::vector<Tensor> matrices, vectors;
  for (const Tensor& p : trained)
    (policy_.separate_vectors && p->shape.dims < 2 ? vectors : matrices).push_back(p);
  groups_.reserve(2);
  for (std::vector<Tensor>* group : {&matrices, &vectors})
    if (!group->empty()) add_group(std::move(*group));
  choose_rank();
  if (!policy_.offload_optimizer) return;
  std::uint64_t largest = 0;
  for (const Tensor& p : trained) largest = std::max(largest, elements_of(p));
  // temp_grad_buffer_for_gpu_offload; the one in host memory is never used.
  from_host_ = buffer(largest, type_, Purpose::kGradients, "sums of gradients from the host");
  host_.add(largest * bytes_of(type_), Purpose::kGradients, "sums of gradients to copy", policy_.pinned);
}

Zero::~Zero() = default;

void Zero::add_group(std::vector<Tensor> parameters) {
  Group g;
  std::uint64_t elements = 0;
  for (const Tensor& p : parameters) {
    g.offsets.push_back(elements);
    places_[p.get()] = {groups_.size(), elements, elements_of(p)};
    elements += elements_of(p);
  }
  g.parameters = std::move(parameters);
  // Partitions begin at multiples of two elements (nccl_start_alignment_factor). The parameters are views of
  // the flat tensor, so that only its padding is further memory.
  const std::uint64_t alignment = std::uint64_t{2} * policy_.ranks;
  const std::uint64_t padded = (elements + alignment - 1) / alignment * alignment;
  g.partition = padded / policy_.ranks;
  if (padded > elements)
    padding_.push_back(buffer(padded - elements, type_, Purpose::kWeights, "padding of the weights"));
  if (policy_.offload_optimizer) {
    offload_partition(g.partition);
    groups_.push_back(std::move(g));
    return;
  }
  g.master.push_back(buffer(g.partition, Element::kF32, Purpose::kMasterWeights, "f32 weights"));
  groups_.push_back(std::move(g));
  // Built in its final place: the optimizer refers to `master`.
  Group& placed = groups_.back();
  placed.optimizer = std::make_unique<OptimizerStep>(t_, s_, placed.master);
}

/// DeepSpeedCPUAdam updates weights, gradients and moments in f32; updated weights are copied in the type of
/// the model. The moments are not pinned.
void Zero::offload_partition(std::uint64_t elements) {
  const std::uint64_t f32 = elements * bytes_of(Element::kF32);
  host_.add(f32, Purpose::kMasterWeights, "f32 weights", policy_.pinned);
  host_.add(elements * bytes_of(type_), Purpose::kWeights, "updated weights to copy", policy_.pinned);
  host_.add(f32, Purpose::kGradients, "f32 gradients", policy_.pinned);
  const int moments = s_.optimizer == Optimizer::kAdamW ? 2 : s_.optimizer == Optimizer::kSgdMomentum ? 1 : 0;
  for (int i = 0; i < moments; ++i) host_.add(f32, Purpose::kOptimizerState, "moments", false);
}

/// A parameter counts whole for each rank that has a part of it, because grads_in_partition holds the
/// gradients of such parameters in full. So ranks differ, and the report is of the one with most.
void Zero::choose_rank() {
  std::vector<std::uint64_t> elements(policy_.ranks);
  for (const auto& [parameter, at] : places_) {
    const std::uint64_t size = groups_[at.group].partition;
    for (std::uint64_t r = at.offset / size; r * size < at.offset + at.elements; ++r)
      elements[r] += at.elements;
  }
  rank_ =
      policy_.rank != kFullestRank
          ? policy_.rank
          : static_cast<std::uint32_t>(std::max_element(elements.begin(), elements.end()) - elements.begin());
  own_elements_ = elements[rank_];
}

/// Elements of a parameter that the partition has.
std::uint64_t Zero::own_part(const Place& p) const {
  const std::uint64_t size = groups_[p.group].partition, begin = size * rank_;
  const std::uint64_t from = std::max(begin, p.offset), to = std::min(begin + size, p.offset + p.elements);
  return from < to ? to - from : 0;
}

bool Zero::is_own(const Place& p) const { return own_part(p) > 0; }

Tensor Zero::buffer(std::uint64_t elements, Element type, Purpose purpose, const char* name) {
  return t_.new_storage({static_cast<std::int64_t>(elements)}, type, purpose, "", name);
}

void Zero::before_backward(bool boundary) {
  if (script_) script_->note(boundary ? ZeroCall::kBeforeLastBackward : ZeroCall::kBeforeBackward);
  boundary_ = boundary;
  // Stage 1 reduces once per step.
  if (!boundary && policy_.stage == 2) sums_micro_batches_ = true;
}

void Zero::after_gradient(const Tensor& parameter) {
  const bool buckets_now = policy_.stage == 2 || (policy_.overlap && boundary_);
  if (script_) return note_gradient(parameter, buckets_now);
  // Stage 1 keeps its bucket until the gradients are reduced at the end of the step.
  if (buckets_.empty())
    for (int i = 0; i < (policy_.overlap ? 2 : 1); ++i)
      buckets_.push_back(buffer(policy_.bucket, type_, Purpose::kCommunication, "bucket of gradients"));
  if (buckets_now) put_into_bucket(parameter);
}

void Zero::put_into_bucket(const Tensor& parameter) {
  const std::uint64_t elements = elements_of(parameter);
  if (bucket_elements_ + elements > policy_.bucket) reduce_bucket();
  // Copied into the bucket: the gradient becomes a view of it and its own memory is free. A gradient that is
  // larger than the bucket is reduced where it is.
  if (elements <= policy_.bucket)
    parameter->grad.reset();
  else if (policy_.offload_optimizer)  // cloned, because other streams read it
    parameter->grad = buffer(elements, type_, Purpose::kGradients, "gradient");
  in_bucket_.push_back(parameter);
  bucket_elements_ += elements;
}

/// average_tensor(): the bucket is cut into slices of one rank each, which are copied into one tensor that is
/// reduced (allreduce_and_copy_with_multiple_ranks()). A single slice is reduced where it is.
void Zero::flatten_slices() {
  std::uint64_t elements = 0, slices = 0;
  std::pair<std::size_t, std::uint64_t> owner_before{~std::size_t{0}, 0};
  const auto flush = [&] {
    if (slices > 1) buffer(elements, type_, Purpose::kCommunication, "gradients to reduce");
    elements = slices = 0;
  };
  std::vector<std::uint64_t> sizes;
  for (const Tensor& p : in_bucket_) {
    const Place& at = place(p);
    const std::uint64_t size = groups_[at.group].partition;
    for (std::uint64_t from = at.offset, end = at.offset + at.elements; from < end;) {
      // A parameter across a boundary between partitions has a slice per rank.
      const std::uint64_t rank = from / size, to = std::min(end, (rank + 1) * size);
      // Slices of one rank are merged, also of different groups.
      if (!sizes.empty() && rank == owner_before.second)
        sizes.back() += to - from;
      else
        sizes.push_back(to - from);
      owner_before = {at.group, rank};
      from = to;
    }
  }
  for (const std::uint64_t size : sizes) {
    elements += size;
    ++slices;
    if (elements > policy_.bucket) flush();
  }
  flush();
}

void Zero::reduce_bucket() {
  flatten_slices();
  for (const Tensor& p : in_bucket_) {
    // copy_grads_in_partition(). own_ is allocated with the first such gradient of the micro-batch.
    if (is_own(place(p)) && policy_.offload_optimizer) {
      copy_to_host(p);
    } else if (is_own(place(p))) {
      if (!own_) own_ = buffer(own_elements_, type_, Purpose::kGradients, "gradients of the partition");
      p->grad.reset();
    } else if (policy_.stage == 2) {
      p->grad.reset();
    }
  }
  in_bucket_.clear();
  bucket_elements_ = 0;
}

/// copy_grads_in_partition() with offload. Sums of micro-batches have the type of the model and the size of
/// the whole parameter.
void Zero::copy_to_host(const Tensor& parameter) {
  const std::uint64_t elements = own_part(place(parameter));
  if (sums_micro_batches_ && summed_on_host_.insert(parameter.get()).second)
    host_.add(elements_of(parameter) * bytes_of(type_), Purpose::kGradients, "sums of gradients",
              policy_.pinned);
  if (!boundary_) return;
  Tensor in_f64 = buffer(2 * elements, Element::kF32, Purpose::kUpdate, "gradient in f64");
  norms_.push_back(buffer(2, Element::kF32, Purpose::kUpdate, "norm of a gradient"));
  in_f64.reset();
  if (type_ != Element::kF32) buffer(elements, Element::kF32, Purpose::kUpdate, "gradient in f32");
  parameter->grad.reset();
}

void Zero::after_backward() {
  if (script_) return note_after_backward();
  // Stage 1 lets autograd sum the gradients of micro-batches, whole, and reduces once per step.
  if (policy_.stage == 1 && !boundary_) return;
  if (policy_.stage == 1 && !policy_.overlap)
    for (const Group& g : groups_)
      for (const Tensor& p : g.parameters)
        if (p->grad) put_into_bucket(p);
  reduce_bucket();
  // all_grad_tensors: the buffer of the first micro-batch is kept, later ones are added to it and freed.
  if (!summed_)
    summed_ = std::move(own_);
  else
    own_.reset();
  buckets_.clear();
  for (const Group& g : groups_)
    for (const Tensor& p : g.parameters) p->grad.reset();
}

void Zero::step() {
  if (script_) return script_->note(ZeroCall::kStep);
  if (policy_.offload_optimizer) {
    norms_.clear();
    return;
  }
  std::vector<std::size_t> slices;
  for (const Group& g : groups_) {
    std::size_t count = 0;
    std::uint64_t covered = 0;
    const std::uint64_t begin = g.partition * rank_, end = begin + g.partition;
    for (std::size_t i = 0; i < g.parameters.size(); ++i) {
      const std::uint64_t from = std::max(begin, g.offsets[i]);
      const std::uint64_t to = std::min(end, g.offsets[i] + elements_of(g.parameters[i]));
      if (from >= to) continue;
      ++count;
      covered += to - from;
      // The norm is computed in f64, tensor by tensor.
      buffer(2 * (to - from), Element::kF32, Purpose::kUpdate, "gradient in f64");
    }
    // get_flat_partition() appends zeros where the last parameters end before the partition does.
    if (covered < g.partition) {
      ++count;
      gradient_padding_.push_back(
          buffer(g.partition - covered, type_, Purpose::kGradients, "padding of the gradients"));
    }
    slices.push_back(count);
  }
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    Group& g = groups_[i];
    // A single slice stays where it is, and f32 gradients are not copied into another type.
    const Shape shape{static_cast<std::int64_t>(g.partition)};
    Tensor gradient = slices[i] > 1
                          ? buffer(g.partition, type_, Purpose::kUpdate, "gradients of the partition, flat")
                      : summed_ ? t_.alias(summed_, shape)
                                : Tensor();
    if (type_ != Element::kF32 || !gradient)
      gradient = buffer(g.partition, Element::kF32, Purpose::kUpdate, "f32 gradients");
    g.master.front()->grad = std::move(gradient);
    // averaged_gradients of the groups are views of one buffer, which the last of them frees.
    if (i + 1 == groups_.size()) {
      summed_.reset();
      gradient_padding_.clear();
    }
    g.optimizer->run();
  }
}

}  // namespace trainhost::frameworks
