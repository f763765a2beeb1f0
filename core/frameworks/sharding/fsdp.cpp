// See fsdp.hpp. Functions follow FSDPParamGroup of torch 2.15: unshard(), wait_for_unshard(), pre_backward(),
// post_backward(), and foreach_all_gather() and foreach_reduce(). Every buffer is allocated on the stream on
// which FSDP2 allocates it, which decides what the allocator can reuse it for.
#include "core/frameworks/sharding/fsdp.hpp"

#include <utility>

namespace trainhost::frameworks {

Fsdp::Fsdp(Tape& tape, const FsdpPolicy& policy, std::size_t layers)
    : t_(tape), policy_(policy), layers_(static_cast<std::int32_t>(layers)), units_(layers + 3) {
  for (Unit& u : units_) u.ranks = policy.ranks;
}

void Fsdp::separate_experts(std::uint32_t ranks) {
  explicit_ = true;
  const std::size_t before = units_.size();
  units_.resize(before + static_cast<std::size_t>(layers_));
  for (std::size_t i = before; i < units_.size(); ++i) units_[i].ranks = ranks;
}

Fsdp::Unit& Fsdp::unit(std::int32_t index) {
  if (index == kRoot || policy_.one_unit || (index < 0 && !policy_.separate_ends)) return units_.front();
  const auto behind_layers = static_cast<std::size_t>(layers_) + 2;
  if (index == kLast) return units_[behind_layers];
  if (index <= kExperts) return units_[behind_layers + 1 + static_cast<std::size_t>(kExperts - index)];
  return units_[index == kFirst ? 1 : static_cast<std::size_t>(index) + 2];
}

Fsdp::Weight Fsdp::parameter(std::int32_t index, const Shape& shape, Element type, const char* module,
                             Element gradient, bool trained) {
  // Shard(0) of DTensor: chunks of the first dimension; rank 0 has one of the largest. The full weight has no
  // memory until its unit is gathered; the model refers to it all the same.
  const std::uint32_t ranks = unit(index).ranks;
  Shape part = shape;
  part.size[0] = (shape[0] + ranks - 1) / ranks;
  return sharded(index, part, shape, type, module, gradient, trained);
}

Tensor Fsdp::expert_parameter(std::int32_t layer, const Shape& shape, Element type, const char* module,
                              int dim, Tensor& shard) {
  const std::int32_t index = kExperts - layer;
  Shape part = shape;
  const auto at = static_cast<std::size_t>(dim);
  part.size[at] = (shape[dim] + unit(index).ranks - 1) / unit(index).ranks;
  const Weight w = sharded(index, part, shape, type, module, type, true);
  shard = w.shard;
  return w.full;
}

Fsdp::Weight Fsdp::sharded(std::int32_t index, Shape part, const Shape& shape, Element type,
                           const char* module, Element gradient, bool trained) {
  part = part.made_contiguous();
  const Element shard_type = trained ? policy_.shards : policy_.frozen.value_or(policy_.shards);
  Tensor shard = policy_.offloads ? t_.absent_parameter(part, shard_type)
                                  : t_.parameter(part, shard_type, module, trained);
  shard->requires_grad = trained;
  return {add(index, shape, type, module, gradient, shard), shard};
}

Tensor Fsdp::tied_parameter(std::int32_t index, const Shape& shape, Element type, const char* module,
                            Element gradient, const Tensor& shard) {
  return add(index, shape, type, module, gradient, shard);
}

Tensor Fsdp::add(std::int32_t index, const Shape& shape, Element type, const char* module, Element gradient,
                 const Tensor& shard) {
  Tensor full = t_.absent_parameter(shape, type);
  full->requires_grad = shard->requires_grad;
  const std::uint64_t bytes = shard->shape.count() * bytes_of(type);
  Unit& u = unit(index);
  u.parameters.push_back({full, shard, module, t_.layer, gradient, {}});
  u.gathered_bytes += bytes;
  if (type != shard->type) u.cast_bytes += bytes;
  return full;
}

/// Tape::layer stays that of the layer that runs, by which repeat_layers() orders events; the buffer is named
/// after its unit.
Tensor Fsdp::buffer(const Unit& u, std::uint64_t bytes, Purpose purpose, const char* name, Stream stream) {
  Tensor b = t_.new_storage({static_cast<std::int64_t>(bytes)}, Element::kByte, purpose, "", name);
  t_.storage(b).layer = u.parameters.front().layer;
  t_.storage(b).stream = stream;
  return b;
}

void Fsdp::gather(Unit& u) {
  if (u.gathered || u.whole || u.parameters.empty()) return;
  if (u.ranks == 1) {  // nothing to gather: weights are copied when they are needed
    u.gathered = t_.alias(u.parameters.front().shard);
    return;
  }
  // foreach_all_gather(): one buffer for all weights of the unit, of which the input of this rank is a part.
  // Only where shards are cast is the input a tensor of its own, freed when this function returns; so are
  // copies of shards in host memory.
  Tensor input, copies;
  if (policy_.offloads) {
    std::uint64_t bytes = 0;
    for (const Parameter& p : u.parameters) bytes += p.shard->bytes();
    copies = buffer(u, bytes, Purpose::kCommunication, "shards to gather, copied from host memory",
                    Stream::kGather);
  }
  if (u.cast_bytes != 0)
    input = buffer(u, u.cast_bytes, Purpose::kCommunication, "shards to gather, cast", Stream::kGather);
  u.gathered =
      buffer(u, u.gathered_bytes * u.ranks, Purpose::kCommunication, "gathered weights", Stream::kGather);
}

void Fsdp::copy_out(Unit& u, bool forward) {
  if (!u.gathered) return;
  // In the forward pass the buffer is kept until the next unit has been gathered (all_gather_state): it is
  // freed on another stream than it was allocated on. In the backward pass it is freed here.
  if (forward) last_gathered_.reset();
  // all_gather_inputs of one rank: a cast of each shard, which stays until the next one has been made.
  Tensor input;
  for (const Parameter& p : u.parameters) {
    if (u.ranks == 1)
      input = p.full->type == p.shard->type
                  ? Tensor()
                  : buffer(u, p.full->bytes(), Purpose::kCommunication, "shard, cast", Stream::kCompute);
    // Padded to a multiple of the ranks.
    const std::uint64_t bytes = p.shard->shape.count() * u.ranks * bytes_of(p.full->type);
    t_.make_present(p.full, bytes, p.layer, p.module, "gathered weight");
  }
  u.whole = true;
  if (forward) last_gathered_ = u.gathered;
  u.gathered.reset();
}

void Fsdp::free_weights(Unit& u) {
  if (!std::exchange(u.whole, false)) return;
  for (const Parameter& p : u.parameters) t_.make_absent(p.full);
}

void Fsdp::before_forward(std::int32_t index) {
  if (index != kRoot && policy_.one_unit) return;
  Unit& u = unit(index);
  gather(u);
  copy_out(u, true);
  if (!explicit_ || t_.recomputes()) return;
  if (index == kFirst) gather(unit(0));
  if (index < 0) return;
  index + 1 < layers_ ? gather_layer(index + 1) : gather(unit(kLast));
}

void Fsdp::gather_layer(std::int32_t layer) {
  gather(unit(layer));
  gather(unit(kExperts - layer));
}

Tensor Fsdp::input(std::int32_t index, const Tensor& x) {
  if (policy_.one_unit || (index < kRoot && !policy_.separate_ends)) return x;
  // RegisterPostBackwardFunction: the node of the input runs after all nodes of the unit.
  return t_.apply_view({"input",
                        std::span(&x, 1),
                        {},
                        false,
                        [this, index](BackwardCall& c) {
                          unit_after_backward(unit(index));
                          c.results[0] = c.take();
                        }},
                       x, x->shape);
}

void Fsdp::after_forward(std::int32_t index, const Tensor& output) {
  if (index < kRoot && !policy_.separate_ends) return;
  if (index != kRoot && policy_.one_unit) return;
  Unit& u = unit(index);
  // Recomputed, a unit inside of a layer is neither freed nor a use; it ends a forward pass of its own.
  if (t_.recomputes()) return last_gathered_.reset();
  if (!u.parameters.empty()) {
    // The order of the forward passes decides what the backward pass gathers early. The hook is on the
    // output.
    if (!stays_gathered(index)) free_weights(u);
    u.uses.push_back(order_.size());
    order_.push_back(&u);
    const auto hook = [this, &u] { unit_before_backward(u); };
    // The root may end a unit inside of it whose modules have not all run: both hooks are on its output.
    if (output->node && index == kRoot && output->node->before)
      output->node->before = [first = std::move(output->node->before), hook] { first(), hook(); };
    else if (output->node)
      output->node->before = hook;
    else if (output->requires_grad)  // embeddings of a frozen table, of which checkpoints need a gradient
      t_.before_leaf = hook;
  }
  if (index == kRoot) last_gathered_.reset();
}

bool Fsdp::stays_gathered(std::int32_t index) const {
  return !policy_.reshard_after_forward || policy_.reduces_at_end || (index == kRoot && !policy_.one_unit) ||
         (index == kLast && !policy_.frees_last) || (index == layers_ - 1 && policy_.keeps_last_layer);
}

void Fsdp::before_backward(bool reduces) {
  reduces_ = reduces;
  for (Unit& u : units_)
    for (const Parameter& p : u.parameters) {
      // reduce_grads off (no_sync): the first gradient is cast to the type of the reduction, in which later
      // ones are added to it. Otherwise gradients have the type of the weights until they are copied for the
      // reduction.
      const bool casts = !reduces && !p.full->grad && !policy_.sums_by_unit;
      p.full->grad_type = casts ? policy_.reduce : p.gradient_type;
    }
}

void Fsdp::unit_before_backward(Unit& u) {
  if (std::exchange(u.state, State::kBeforeBackward) == State::kBeforeBackward) return;
  gather(u);
  copy_out(u, false);
  if (u.uses.empty()) return;
  // A layer, or the last unit: its backward pass gathers what it was told to.
  const auto number = &u - units_.data() - 2;
  if (explicit_ && number >= 0 && number <= layers_) {
    if (number == layers_)
      gather(unit(layers_ - 1));
    else if (number == 0)
      gather(unit(kFirst));
    else
      gather_layer(static_cast<std::int32_t>(number) - 1);
    return;
  }
  const std::size_t at = u.uses.back();
  u.uses.pop_back();
  // _backward_prefetch(): the unit whose backward pass is next is gathered while this one computes. Two units
  // are gathered at a time, and the buffer of the early one exists besides its weights' later copies.
  if (at > 0) gather(*order_[at - 1]);
}

void Fsdp::unit_after_backward(Unit& u) {
  u.state = State::kAfterBackward;
  // Gradients of earlier micro-batches have been summed into `sum`; the newest is added to it and freed.
  for (Parameter& p : u.parameters)
    if (p.sum) p.full->grad.reset();
  if (!policy_.reduces_at_end) free_weights(u);
  if (!reduces_) {
    if (policy_.sums_by_unit) sum_gradients(u);
    return;
  }
  reduce(u);
}

/// The first gradients are cast, one after the other.
void Fsdp::sum_gradients(Unit& u) {
  for (Parameter& p : u.parameters) {
    if (!p.full->grad || p.full->grad->type == policy_.reduce) continue;
    const std::int32_t layer = std::exchange(t_.layer, p.layer);
    p.sum = t_.new_storage(p.full->shape, policy_.reduce, Purpose::kGradients, p.module, "gradient, summed");
    t_.layer = layer;
    p.full->grad.reset();
  }
}

void Fsdp::reduce(Unit& u) {
  std::uint64_t elements = 0;
  for (const Parameter& p : u.parameters)
    if (p.gradient()) elements += p.shard->shape.count();
  if (elements == 0) return;
  // reduce_scatter_states: the input of the reduction before is waited for and freed when the next one
  // begins.
  reduced_.reset();
  // foreach_reduce(): all gradients of the unit, padded to the ranks, are copied into one input in the type
  // of the reduction. The unsharded gradients are freed after the copy.
  reduced_ = buffer(u, elements * u.ranks * bytes_of(policy_.reduce), Purpose::kCommunication,
                    "gradients to reduce", Stream::kCompute);
  std::vector<const Parameter*> with_gradient;
  for (const Parameter& p : u.parameters)
    if (p.gradient()) with_gradient.push_back(&p);
  for (Parameter& p : u.parameters) p.sum.reset(), p.full->grad.reset();
  const auto result = [&](Element type) {
    Tensor t =
        buffer(u, elements * bytes_of(type), Purpose::kGradients, "sharded gradients", Stream::kReduce);
    t->type = type;
    return t;
  };
  // One buffer of this rank's shards; where the type differs, a cast of it, and the first is freed.
  Tensor sharded = result(policy_.reduce);
  // Of one rank the input is copied, divided by the ranks of the other weights if there are some.
  if (u.ranks == 1 && policy_.ranks > 1)
    buffer(u, elements * bytes_of(policy_.reduce), Purpose::kCommunication, "gradients, divided",
           Stream::kReduce);
  if (policy_.reduce != policy_.shards) sharded = result(policy_.shards);
  // Copied to host memory, and freed.
  if (policy_.offloads) return;
  for (const Parameter* p : with_gradient)
    // The shards are views of the buffer, which stays until the optimizer's step has freed all of them. Those
    // of later micro-batches are added in place.
    if (!p->shard->grad) p->shard->grad = t_.alias(sharded, p->shard->shape);
}

std::vector<ShardedUnits::OffloadedShard> Fsdp::offloaded() const {
  std::vector<OffloadedShard> shards;
  if (!policy_.offloads) return shards;
  for (const Unit& u : units_)
    for (const Parameter& p : u.parameters)
      shards.push_back({p.shard->shape.count(), p.shard->type, p.shard->requires_grad, p.layer});
  return shards;
}

void Fsdp::reduce_all() {
  for (Unit& u : units_) {
    // As in buffer(): by the layer that runs, equal layers have equal events.
    if (!u.parameters.empty()) t_.layer = u.parameters.front().layer;
    free_weights(u);
    reduce(u);
  }
  t_.layer = -1;
  if (!policy_.keeps_last_reduction) reduced_.reset();
}

void Fsdp::after_backward() {
  for (Unit& u : units_)
    // The root, and units whose input needs no gradient: their hook does not run; the final callback of the
    // backward pass does the same.
    if (u.state != State::kAfterBackward) unit_after_backward(u);
  for (Unit& u : units_) {
    u.state = State::kIdle;
    u.gathered.reset();
    u.uses.clear();
  }
  order_.clear();
  if (!policy_.keeps_last_reduction) reduced_.reset();
}

}  // namespace trainhost::frameworks
