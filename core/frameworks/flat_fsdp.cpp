// See flat_fsdp.hpp. Functions follow those of torch 2.15: _lazy_init(), _unshard(), _pre_backward_hook(),
// _post_backward_hook() and _reduce_grad(). Every buffer is allocated on the stream on which FSDP1 allocates
// it.
#include "core/frameworks/flat_fsdp.hpp"

#include <algorithm>
#include <utility>

#include "core/frameworks/operators.hpp"

namespace trainhost::frameworks {

FlatFsdp::FlatFsdp(Tape& tape, const FsdpPolicy& policy, std::size_t layers)
    : t_(tape), policy_(policy), units_(layers + 1) {
  for (std::size_t i = 0; i < units_.size(); ++i) units_[i].layer = static_cast<std::int32_t>(i) - 1;
  // The hook of the flat parameter's AccumulateGrad.
  t_.after_gradient = [this](const Tensor& flat) {
    for (Unit& u : units_)
      if (u.flat.get() == flat.get()) unit_after_backward(u);
  };
}

ShardedUnits::Weight FlatFsdp::parameter(std::int32_t index, const Shape& shape, Element type, const char*,
                                         Element, bool) {
  Unit& u = unit(std::max(index, kRoot));
  u.type = type;
  View v;
  // use_orig_params aligns each parameter of the gathered tensor to 16 bytes.
  constexpr std::uint64_t kAlignment = 16;
  const std::uint64_t multiple = kAlignment / bytes_of(type);
  if (policy_.original_parameters) v.padding = (multiple - u.elements % multiple) % multiple;
  u.elements += v.padding + shape.count();
  v.tensor = t_.absent_parameter(shape, type);
  v.tensor->requires_grad = false;  // it is a view of the flat parameter, which does
  u.views.push_back(v);
  return {v.tensor, {}};
}

std::vector<Tensor> FlatFsdp::start() {
  std::vector<Tensor> updated;
  for (Unit& u : units_) {
    // Where parameters are padded, the flat tensor is too, so that the reduction needs no copy.
    if (policy_.original_parameters)
      u.padding_behind = (policy_.ranks - u.elements % policy_.ranks) % policy_.ranks;
    u.elements += u.padding_behind;
    u.part = (u.elements + policy_.ranks - 1) / policy_.ranks;
    t_.layer = u.layer;
    u.shard = t_.parameter({static_cast<std::int64_t>(u.part)}, policy_.shards, "flat parameter", true);
    u.flat = t_.absent_parameter({static_cast<std::int64_t>(u.elements)}, u.type);
    for (View& v : u.views) v.tensor->storage = u.flat->storage;
    if (policy_.original_parameters) {
      // The optimizer updates the parts of parameters that are in the shard of rank 0.
      std::uint64_t begin = 0;
      for (const View& v : u.views) {
        begin += v.padding;
        const std::uint64_t end = std::min(begin + v.tensor->shape.count(), u.part);
        if (begin < end) u.updated.push_back(t_.alias(u.shard, {static_cast<std::int64_t>(end - begin)}));
        begin += v.tensor->shape.count();
      }
    } else {
      u.updated.push_back(u.shard);
    }
    updated.insert(updated.end(), u.updated.begin(), u.updated.end());
  }
  t_.layer = -1;
  return updated;
}

Tensor FlatFsdp::buffer(const Unit& u, std::uint64_t elements, Element type, Purpose purpose,
                        const char* name, Stream stream) {
  const std::int32_t layer = std::exchange(t_.layer, u.layer);
  Tensor b = t_.new_storage({static_cast<std::int64_t>(elements)}, type, purpose, "flat parameter", name);
  t_.storage(b).stream = stream;
  t_.layer = layer;
  return b;
}

/// init_flat_param_attributes(): the tensors that are resized later are allocated and freed once, in mixed
/// precision also a gathered one in the type of the shards.
void FlatFsdp::allocate_once() {
  for (const Unit& u : units_) {
    const auto once = [&](std::uint64_t elements, Element type, const char* name) {
      buffer(u, elements, type, Purpose::kCommunication, name, Stream::kCompute);
    };
    if (is_cast(u)) once(u.part, u.type, "shard, cast");
    once(u.part * policy_.ranks, u.type, "gathered weights");
    if (is_cast(u)) once(u.part * policy_.ranks, policy_.shards, "gathered weights in full precision");
  }
}

void FlatFsdp::gather(Unit& u) {
  if (std::exchange(u.is_gathered, true)) return;
  Tensor shard;  // until the weights are gathered
  if (is_cast(u)) shard = buffer(u, u.part, u.type, Purpose::kCommunication, "shard, cast", Stream::kCast);
  t_.make_present(u.flat, u.part * policy_.ranks * bytes_of(u.type), u.layer, "flat parameter",
                  "gathered weights");
  t_.storage(u.flat).stream = Stream::kGather;
}

/// _use_unsharded_views(): the weights of the model are views of the flat tensor, of split() and view().
void FlatFsdp::make_views(Unit& u) {
  std::vector<Shape> parts;
  std::vector<std::uint64_t> padding;
  const auto add = [&](std::uint64_t elements, bool pads) {
    if (elements == 0) return;
    parts.push_back({static_cast<std::int64_t>(elements)});
    if (pads) padding.push_back(elements);
  };
  std::vector<std::size_t> part_of_view;
  for (const View& v : u.views) {
    add(v.padding, true);
    part_of_view.push_back(parts.size());
    add(v.tensor->shape.count(), false);
  }
  add(u.padding_behind, true);
  const std::int32_t layer = std::exchange(t_.layer, u.layer);
  const std::vector<Tensor> split = t_.apply_views(
      {"split",
       std::span(&u.flat, 1),
       {},
       false,
       [this, &u, padding](BackwardCall& c) {
         // split_with_sizes_backward(): zeros for the padding, then all gradients are concatenated.
         std::vector<Tensor> zeros;
         for (const std::uint64_t n : padding)
           zeros.push_back(t_.make({static_cast<std::int64_t>(n)}, u.type, "gradient of the padding"));
         c.results[0] = t_.make(u.flat->shape, u.type, "gradients of the unit");
       }},
      u.flat, parts);
  for (std::size_t i = 0; i < u.views.size(); ++i) {
    const Tensor& weight = u.views[i].tensor;
    const Tensor v = view(t_, split[part_of_view[i]], weight->shape);
    weight->node = v->node;
    weight->output = v->output;
  }
  t_.layer = layer;
}

void FlatFsdp::free_weights(Unit& u) {
  if (std::exchange(u.is_gathered, false)) t_.make_absent(u.flat);
}

void FlatFsdp::before_forward(std::int32_t index) {
  if (index < kRoot) return;
  if (index == kRoot) {
    if (!std::exchange(started_, true)) allocate_once();
    for (Unit& u : units_)
      // _reset_flat_param_grad_info_if_needed(): with use_orig_params the gradient that zero_grad() has taken
      // from the parameters stays until here.
      if (!u.updated.front()->grad) u.reduced.reset();
  }
  Unit& u = unit(index);
  const auto use = [this](Unit& used) {
    gather(used);
    make_views(used);
    used.awaits_backward = true;
  };
  if (!u.awaits_backward) use(u);
  // forward_prefetch follows the order that the first iteration has recorded.
  const auto next = static_cast<std::size_t>(index + 2);
  if (policy_.prefetches_forward && order_known_ && next < units_.size()) use(units_[next]);
}

void FlatFsdp::after_forward(std::int32_t index, const Tensor& output) {
  if (index < kRoot) return;
  if (policy_.reshard_after_forward && index != kRoot) free_weights(unit(index));
  if (output->node)
    output->node->before = [this, at = static_cast<std::size_t>(index + 1)] { unit_before_backward(at); };
}

/// The unit before another one in the order of the forward passes, in which the root is last.
void FlatFsdp::gather_before(std::size_t index) {
  const std::size_t before = index == 0 ? units_.size() - 1 : index - 1;
  if (before > 0 && units_[before].awaits_backward) gather(units_[before]);
}

void FlatFsdp::unit_before_backward(std::size_t index) {
  Unit& u = units_[index];
  if (!std::exchange(u.awaits_backward, false)) return;
  gather(u);
  if (policy_.backward_prefetch == BackwardPrefetch::kBefore) gather_before(index);
}

void FlatFsdp::unit_after_backward(Unit& u) {
  // Without reduction, weights that stayed after the forward pass stay for the next micro-batch.
  if (reduces_ || policy_.reshard_after_forward) free_weights(u);
  if (policy_.backward_prefetch == BackwardPrefetch::kAfter)
    gather_before(static_cast<std::size_t>(u.layer + 1));
  if (reduces_) reduce(u);
}

void FlatFsdp::reduce(Unit& u) {
  // _reduce_grad(): the gradient that autograd computed is freed when the reduction ends.
  const Tensor computed = std::move(u.flat->grad);
  u.flat->grad.reset();
  Tensor cast, padded;
  if (policy_.reduce != u.type)
    cast = buffer(u, u.elements, policy_.reduce, Purpose::kCommunication, "gradients, cast", Stream::kReduce);
  if (u.elements % policy_.ranks)
    padded = buffer(u, u.part * policy_.ranks, policy_.reduce, Purpose::kCommunication, "gradients to reduce",
                    Stream::kReduce);
  const auto result = [&](Element type) {
    return buffer(u, u.part, type, Purpose::kGradients, "sharded gradients", Stream::kReduce);
  };
  Tensor reduced = result(policy_.reduce);
  if (policy_.reduce != policy_.shards) reduced = result(policy_.shards);
  // Those of later micro-batches are added in place.
  Tensor& sum = policy_.original_parameters ? u.reduced : u.shard->grad;
  if (!sum) sum = std::move(reduced);
}

void FlatFsdp::after_backward() {
  order_known_ = true;
  for (Unit& u : units_) {
    u.awaits_backward = false;
    if (!policy_.original_parameters || !reduces_) continue;
    for (const Tensor& p : u.updated)
      if (!p->grad) p->grad = t_.alias(u.reduced, p->shape);
  }
}

}  // namespace trainhost::frameworks
