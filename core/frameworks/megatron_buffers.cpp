#include "core/frameworks/megatron_buffers.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace trainhost::frameworks {
namespace {

/// Parameters begin at multiples of this in the buffers of the distributed optimizer.
constexpr std::uint64_t kAlignment = 64;

std::uint64_t next_multiple(std::uint64_t n, std::uint64_t of) { return (n + of - 1) / of * of; }

}  // namespace

MegatronBuffers::MegatronBuffers(Tape& tape, const MegatronPolicy& policy, std::uint32_t ranks,
                                 std::vector<Tensor> parameters)
    : t_(tape), policy_(policy), ranks_(ranks), parameters_(std::move(parameters)) {
  // Gradients are complete from the last parameter to the first.
  std::ranges::reverse(parameters_);
  std::uint64_t elements = 0;
  for (const Tensor& p : parameters_) {
    if (policy_.distributed) elements = next_multiple(elements, kAlignment);
    offsets_.push_back(elements);
    elements += p->shape.count();
  }
  if (policy_.distributed) {
    elements = next_multiple(elements, std::lcm<std::uint64_t>(ranks_, 128));
    weights_ = buffer(elements, parameters_.front()->type, Purpose::kWeights, "weights");
  }
  gradients_ = buffer(elements, policy_.gradients, Purpose::kGradients, "gradients");
  if (policy_.distributed)
    for (const Tensor& p : parameters_) t_.make_absent(p);
  add_main_weights(elements);
}

Tensor MegatronBuffers::buffer(std::uint64_t elements, Element type, Purpose purpose, const char* name) {
  return t_.new_storage({static_cast<std::int64_t>(elements)}, type, purpose, "", name);
}

/// Of the first rank; all have equal parts. Each weight is copied before it is converted.
void MegatronBuffers::add_main_weights(std::uint64_t elements) {
  const std::uint64_t end = policy_.distributed ? elements / ranks_ : elements;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::uint64_t from = offsets_[i], to = std::min(end, from + parameters_[i]->shape.count());
    if (from >= to) break;
    const TraceStorage of = t_.storage(parameters_[i]);
    t_.layer = of.layer;
    const Tensor copy = buffer(to - from, parameters_[i]->type, Purpose::kUpdate, "copy of the weight");
    main_.push_back(buffer(to - from, Element::kF32, Purpose::kMasterWeights, "f32 weight"));
    main_.back()->parameter = true;
    t_.storage(main_.back()).module = of.module;
  }
  t_.layer = -1;
}

void MegatronBuffers::before_update() {
  for (const Tensor& p : main_)
    p->grad = policy_.gradients == Element::kF32
                  ? t_.alias(gradients_, p->shape)
                  : buffer(p->shape.count(), Element::kF32, Purpose::kUpdate, "f32 gradient");
}

}  // namespace trainhost::frameworks
