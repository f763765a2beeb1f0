// See flat_fsdp.hpp. Functions follow those of torch 2.15: _lazy_init(), _unshard(), _pre_backward_hook(),
// _post_backward_hook() and _reduce_grad(). Every buffer is allocated on the stream on which FSDP1 allocates
// it.
#include "core/frameworks/sharding/flat_fsdp.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {

FlatFsdp::FlatFsdp(Tape& tape, const FsdpPolicy& policy, std::size_t layers)
    : t_(tape), policy_(policy), units_(layers + 1), last_layer_(static_cast<std::int32_t>(layers) - 1) {
  for (std::size_t i = 0; i < units_.size(); ++i) units_[i].layer = static_cast<std::int32_t>(i) - 1;
}

ShardedUnits::Weight FlatFsdp::parameter(std::int32_t index, const Shape& shape, Element type, const char*,
                                         Element, bool trained) {
  index = std::max(index, kRoot);
  if (const auto count = static_cast<std::size_t>(index) + 2; count > units_.size()) units_.resize(count);
  Unit& u = unit(index);
  assert((u.views.empty() || u.trained == trained || policy_.original_parameters) &&
         "without use_orig_params a unit is trained or frozen");
  u.type = type;
  u.trained |= trained;
  u.shard_type = u.trained ? policy_.shards : policy_.frozen.value_or(policy_.shards);
  u.layer = t_.layer;
  View v;
  v.trained = trained;
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
  // The hook of the flat parameter's AccumulateGrad. A second model, which is frozen, has none.
  if (std::ranges::any_of(units_, &Unit::trained))
    t_.after_gradient = [this](const Tensor& flat) {
      const auto found = unit_of_flat_.find(flat.get());
      if (found != unit_of_flat_.end()) unit_after_backward(units_[found->second]);
    };
  for (Unit& u : units_) {
    // Where parameters are padded, the flat tensor is too, so that the reduction needs no copy.
    if (policy_.original_parameters)
      u.padding_behind = (policy_.ranks - u.elements % policy_.ranks) % policy_.ranks;
    u.elements += u.padding_behind;
    u.part = (u.elements + policy_.ranks - 1) / policy_.ranks;
    t_.layer = u.layer;
    const Shape part{static_cast<std::int64_t>(u.part)};
    u.shard = policy_.offloads ? t_.absent_parameter(part, u.shard_type)
                               : t_.parameter(part, u.shard_type, "flat parameter", u.trained);
    u.shard->requires_grad = u.trained;
    u.flat = t_.absent_parameter({static_cast<std::int64_t>(u.elements)}, u.type);
    u.flat->requires_grad = u.trained;
    unit_of_flat_.emplace(u.flat.get(), static_cast<std::size_t>(&u - units_.data()));
    for (View& v : u.views) v.tensor->storage = u.flat->storage;
    if (!u.trained) continue;
    if (policy_.original_parameters) {
      // The optimizer updates the parts of parameters that are in the shard of rank 0.
      std::uint64_t begin = 0;
      for (const View& v : u.views) {
        begin += v.padding;
        const std::uint64_t end = std::min(begin + v.tensor->shape.count(), u.part);
        if (v.trained && begin < end)
          u.updated.push_back(t_.alias(u.shard, {static_cast<std::int64_t>(end - begin)}));
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
  // As Fsdp::buffer().
  Tensor b = t_.new_storage({static_cast<std::int64_t>(elements)}, type, purpose, "flat parameter", name);
  t_.storage(b).layer = u.layer;
  t_.storage(b).stream = stream;
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
    if (is_cast(u)) once(u.part * policy_.ranks, u.shard_type, "gathered weights in full precision");
  }
}

void FlatFsdp::gather(Unit& u) {
  u.shows_gathered = true;
  if (std::exchange(u.is_gathered, true)) return;
  Tensor shard;  // until the weights are gathered
  if (is_cast(u)) shard = buffer(u, u.part, u.type, Purpose::kCommunication, "shard, cast", Stream::kCast);
  if (policy_.offloads) {
    // _use_low_precision_shard() casts from a copy on the device; flat_param_to() gathers from one.
    const Tensor copy = buffer(u, u.part, u.shard_type, Purpose::kCommunication,
                               "shard, copied from host memory", Stream::kCast);
    if (!is_cast(u)) shard = copy;
  }
  t_.make_present(u.flat, u.part * policy_.ranks * bytes_of(u.type), u.layer, "flat parameter",
                  "gathered weights");
  t_.storage(u.flat).stream = Stream::kGather;
}

/// _use_unsharded_views(): the weights of the model are views of the flat tensor, of split() and view().
void FlatFsdp::make_views(Unit& u) {
  if (!u.trained) return;  // views without a gradient
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
  // Recorded in the layer that runs, which may be the one before, for repeat_layers().
  const std::vector<Tensor> split = t_.apply_views(
      {"split",
       std::span(&u.flat, 1),
       {},
       false,
       [this, &u, padding](BackwardCall& c) {
         // split_with_sizes_backward(): zeros for the padding, then all gradients are concatenated.
         std::vector<Tensor> zeros;
         const auto gradient = [&](const Shape& shape, const char* name) {
           Tensor g = t_.make(shape, u.type, name);
           t_.storage(g).layer = u.layer;
           return g;
         };
         for (const std::uint64_t n : padding)
           zeros.push_back(gradient({static_cast<std::int64_t>(n)}, "gradient of the padding"));
         c.results[0] = gradient(u.flat->shape, "gradients of the unit");
       }},
      u.flat, parts);
  for (std::size_t i = 0; i < u.views.size(); ++i) {
    const Tensor& weight = u.views[i].tensor;
    const Tensor v = view(t_, split[part_of_view[i]], weight->shape);
    if (!v->node) continue;  // a recomputation records no nodes: the weight keeps the one that it has
    weight->node = v->node;
    weight->output = v->output;
  }
}

void FlatFsdp::free_weights(Unit& u) {
  u.shows_gathered = false;
  if (std::exchange(u.is_gathered, false)) t_.make_absent(u.flat);
}

void FlatFsdp::use(Unit& u) {
  gather(u);
  make_views(u);
  if (!std::exchange(u.was_used, true)) {
    // forward_prefetch follows the order of the first iteration.
    const auto at = static_cast<std::size_t>(&u - units_.data());
    if (last_begun_ != kNoPlace) units_[last_begun_].next = at;
    last_begun_ = at;
  }
  u.has_views = true;
  u.awaits_forward = false;
}

/// With use_orig_params a weight is a part of the shard outside of its unit. Otherwise it is the view that
/// the last forward pass has used.
Element FlatFsdp::visible_type(std::int32_t index) {
  const Unit& u = unit(index);
  return (policy_.original_parameters ? u.shows_gathered : u.was_used) ? u.type : u.shard_type;
}

void FlatFsdp::before_forward(std::int32_t index) {
  if (index < kRoot) return;
  if (index == kRoot) {
    if (!std::exchange(started_, true)) allocate_once();
    for (Unit& u : units_) {
      u.awaits_forward = true;
      // _reset_flat_param_grad_info_if_needed(): with use_orig_params the gradient that zero_grad() has taken
      // from the parameters stays until here.
      if (u.trained && (u.updated.empty() || !u.updated.front()->grad)) u.reduced.reset();
    }
  }
  Unit& u = unit(index);
  if (u.in_backward) return;
  if (!u.has_views) use(u);
  if (policy_.prefetches_forward && order_known_ && u.next != kNoPlace && units_[u.next].awaits_forward)
    use(units_[u.next]);
}

/// Where a unit has no gradient of its own, _post_backward_reshard_only_hook() is a hook of its input, after
/// the one with which the unit before is gathered.
Tensor FlatFsdp::input(std::int32_t index, const Tensor& x) {
  if (index <= kRoot || unit(index).trained || !t_.grad_enabled || !x->needs_grad()) return x;
  const auto hook = [this, index] {
    const std::int32_t running = std::exchange(t_.layer, index);
    unit_after_backward(unit(index));
    t_.layer = running;
  };
  if (!x->node) {
    t_.before_leaf = hook;
    // register_multi_grad_hook(): the hook has the input's AccumulateGrad, until it is removed.
    kept_inputs_.push_back(x);
  } else if (std::function<void()>& before = x->node->before) {
    before = [first = std::move(before), hook] { first(), hook(); };
  } else {
    before = hook;
  }
  return x;
}

void FlatFsdp::after_forward(std::int32_t index, const Tensor& output) {
  if (index < kRoot) return;
  Unit& u = unit(index);
  if (u.in_backward) return;
  const auto at = static_cast<std::size_t>(index + 1);
  if (u.place == kNoPlace) {
    u.place = order_.size();
    order_.push_back(at);
  }
  u.has_views = false;
  if (policy_.reshard_after_forward && index != kRoot) free_weights(u);
  // Views of weights that stay are replaced by parts of the shard where no gradient can be computed with
  // them.
  if (!t_.grad_enabled) {
    // _register_pre_backward_hooks() changes nothing then.
    u.shows_gathered = false;
    return;
  }
  u.awaits_backward = output->needs_grad();
  if (!output->node) return;
  // For repeat_layers(): the hook that frees a frozen layer follows the one that gathers the layer before it,
  // so both count as events of the layer that is freed.
  const bool frozen_layer = !u.trained && index > kRoot;
  output->node->before = [this, at, behind = std::min(index + 1, last_layer_), frozen_layer] {
    const std::int32_t running = t_.layer;
    if (frozen_layer) t_.layer = behind;
    unit_before_backward(at);
    t_.layer = running;
  };
}

/// The unit whose forward pass ended before that of `u`.
void FlatFsdp::gather_before(const Unit& u) {
  if (u.place == kNoPlace || u.place == 0) return;
  Unit& before = units_[order_[u.place - 1]];
  if (before.awaits_backward) gather(before);
}

void FlatFsdp::unit_before_backward(std::size_t index) {
  Unit& u = units_[index];
  if (!std::exchange(u.awaits_backward, false)) return;
  u.in_backward = true;
  u.has_views = false;  // a recomputation may have ended in the middle of the unit
  gather(u);
  if (policy_.backward_prefetch == BackwardPrefetch::kBefore) gather_before(u);
}

void FlatFsdp::unit_after_backward(Unit& u) {
  u.in_backward = u.shows_gathered = false;
  // Without reduction, weights that stayed after the forward pass stay for the next micro-batch.
  if (reduces_ || policy_.reshard_after_forward) free_weights(u);
  if (policy_.backward_prefetch == BackwardPrefetch::kAfter) gather_before(u);
  if (u.trained && reduces_) reduce(u);
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
  // Those of later micro-batches are added in place. Offloaded ones (_offload_grad()) stay until
  // prepare_gradient_for_optim() takes the copy in host memory.
  Tensor& sum = policy_.original_parameters || policy_.offloads ? u.reduced : u.shard->grad;
  if (!sum) sum = std::move(reduced);
}

std::vector<ShardedUnits::OffloadedShard> FlatFsdp::offloaded() const {
  std::vector<OffloadedShard> shards;
  if (!policy_.offloads) return shards;
  for (const Unit& u : units_) shards.push_back({u.part, u.shard_type, u.trained, u.layer});
  return shards;
}

void FlatFsdp::after_backward() {
  order_known_ = true;
  // _finalize_params() removes the hooks. An input is freed as an event of its layer, for repeat_layers().
  for (Tensor& x : kept_inputs_) {
    t_.layer = t_.storage(x).layer;
    x.reset();
  }
  t_.layer = -1;
  kept_inputs_.clear();
  order_.clear();
  for (Unit& u : units_) {
    // _catch_all_reshard(): of units without a gradient whose input has none.
    if (reduces_ || policy_.reshard_after_forward) free_weights(u);
    u.awaits_backward = u.in_backward = u.has_views = u.shows_gathered = false;
    u.place = kNoPlace;
    if (policy_.offloads && reduces_) u.reduced.reset();
    if (!policy_.original_parameters || policy_.offloads || !reduces_) continue;
    for (const Tensor& p : u.updated)
      if (!p->grad) p->grad = t_.alias(u.reduced, p->shape);
  }
}

}  // namespace trainhost::frameworks
