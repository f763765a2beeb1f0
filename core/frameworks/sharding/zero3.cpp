// See zero3.hpp. Which parameters are gathered, kept and released follows PartitionedParameterCoordinator of
// DeepSpeed 0.19 (fetch_sub_module(), release_sub_module()); the reduction and the step follow
// DeepSpeedZeroOptimizer_Stage3. What exists before the first step: zero3_start.cpp.
#include "core/frameworks/sharding/zero3.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "core/frameworks/optimizer_step.hpp"
#include "core/frameworks/sharding/zero_script.hpp"
#include "core/frameworks/step_settings.hpp"

namespace trainhost::frameworks {
namespace {

bool has(const std::vector<std::size_t>& indices, std::size_t i) {
  return std::binary_search(indices.begin(), indices.end(), i);
}

void add(std::vector<std::size_t>& indices, std::size_t i) {
  const auto at = std::ranges::lower_bound(indices, i);
  if (at == indices.end() || *at != i) indices.insert(at, i);
}

}  // namespace

Zero3::Zero3(Tape& tape, const StepSettings& settings)
    : t_(tape), s_(settings), policy_(settings.zero), script_(tape.zero_script) {
  // zero.Init replaces torch.nn.functional.linear() (memory_efficient_linear, on by default).
  t_.linear_is_function = true;
}

Zero3::~Zero3() = default;

Tensor Zero3::parameter(const Shape& shape, Element type, const char* name, bool trained) {
  Parameter p;
  p.tensor = t_.absent_parameter(shape, type);
  p.tensor->requires_grad = trained;
  p.elements = shape.count();
  p.part = (p.elements + policy_.ranks - 1) / policy_.ranks;
  p.layer = t_.layer;
  p.ordinal = parameters_of_layer_[t_.layer]++;
  p.module = name;
  if (script_) script_->declare(shape, type, name, trained);
  index_of_[p.tensor.get()] = parameters_.size();
  // The module is named by the layer that is being built, later by the layer that runs.
  add(modules_[module(name)], parameters_.size());
  parameters_.push_back(p);
  return p.tensor;
}

void Zero3::share(const Tensor& parameter, const char* name) {
  const std::size_t i = index_of_.at(parameter.get());
  if (script_ && parameters_[i].layer != t_.layer) script_->fail();
  if (script_) script_->note(ZeroCall::kShare, name, parameters_[i].ordinal);
  add(modules_[module(name)], i);
}

void Zero3::read(const Tensor& parameter, const char* name) {
  // ZeROOrderedDict registers it as an external parameter of the module that runs.
  const std::size_t i = index_of_.at(parameter.get());
  if (script_) {
    if (parameters_[i].layer != t_.layer) script_->fail();
    script_->note(ZeroCall::kRead, name, parameters_[i].ordinal);
    add(modules_[module(name)], i);
    view_parameter(parameters_[i]);
    return;
  }
  if (parameters_[i].state != State::kAbsent) return;
  add(modules_[module(name)], i);
  gather({i});
  wait(i);
}

std::size_t Zero3::module(const char* name) {
  const auto layer = static_cast<std::size_t>(t_.layer + 1);
  if (modules_of_layer_.size() <= layer) modules_of_layer_.resize(layer + 1);
  std::vector<std::size_t>& known = modules_of_layer_[layer];
  for (const std::size_t m : known)
    if (names_[m].second == name || std::strcmp(names_[m].second, name) == 0) return m;
  known.push_back(modules_.size());
  modules_.emplace_back();
  recomputed_.emplace_back();
  names_.emplace_back(t_.layer, name);
  return known.back();
}

Tensor Zero3::buffer(std::uint64_t elements, Element type, Purpose purpose, const char* name) {
  return t_.new_storage({static_cast<std::int64_t>(elements)}, type, purpose, "", name);
}

std::uint64_t Zero3::part_of(const std::vector<std::size_t>& parameters) const {
  std::uint64_t sum = 0;
  for (const std::size_t i : parameters) sum += parameters_[i].part;
  return sum;
}

Tensor Zero3::weight_memory(const Parameter& p, std::uint64_t elements) {
  const std::int32_t layer = std::exchange(t_.layer, p.layer);
  Tensor t = t_.new_storage({static_cast<std::int64_t>(elements)}, p.tensor->type, Purpose::kWeights,
                            p.module, "gathered weight");
  // Allocated on the stream of the gathers: once freed it serves only gathers, not activations.
  t_.storage(t).stream = Stream::kGather;
  t_.layer = layer;
  return t;
}

/// all_gather_coalesced(): one parameter is gathered into its own memory, which is padded to a multiple of
/// the ranks; several into one flat buffer, from which wait() copies them, so that they exist twice until
/// then.
void Zero3::gather(const Indices& parameters) {
  if (std::ranges::none_of(parameters, [&](std::size_t i) { return parameters_[i].state == State::kAbsent; }))
    return;
  const auto handle = std::make_shared<Gather>();
  std::uint64_t elements = 0;
  for (const std::size_t i : parameters) {
    Parameter& p = parameters_[i];
    if (p.state != State::kAbsent) continue;
    p.state = State::kInFlight;
    p.gather = handle;
    handle->parameters.push_back(i);
    elements += p.part * policy_.ranks;
    gathered_elements_ += static_cast<std::int64_t>(p.elements);
  }
  if (policy_.ranks == 1) {
    for (const std::size_t i : handle->parameters) use_own_part(parameters_[i]);
  } else if (handle->parameters.size() == 1) {
    const Parameter& p = parameters_[handle->parameters.front()];
    p.tensor->storage = weight_memory(p, elements)->storage;
    parts_from_host(handle->parameters);
  } else if (!handle->parameters.empty()) {
    handle->flat = buffer(elements, s_.weights, Purpose::kCommunication, "gathered weights");
    t_.storage(handle->flat).stream = Stream::kGather;
    parts_from_host(handle->parameters);
  }
}

/// NoGatherHandle, of one rank: the weight is a view of its part, or a copy of a part in host memory.
void Zero3::use_own_part(Parameter& p) {
  p.tensor->storage =
      policy_.offload_parameters ? weight_memory(p, p.elements)->storage : kept_.front()->storage;
}

/// Copies of the parts on the device, which a gather reads; null without offload.
Tensor Zero3::parts_from_host(const std::vector<std::size_t>& parameters) {
  if (!policy_.offload_parameters) return {};
  const Tensor copies =
      buffer(part_of(parameters), s_.weights, Purpose::kCommunication, "part of the weights from the host");
  t_.storage(copies).stream = Stream::kGather;
  return copies;
}

/// The flat buffer stays until all of its parameters have been waited for.
void Zero3::wait(std::size_t parameter) {
  // The first wait completes the gather of all its parameters; the others find nothing to wait for.
  const std::shared_ptr<Gather> handle = std::move(parameters_[parameter].gather);
  if (!handle || std::exchange(handle->complete, true)) return;
  for (const std::size_t i : handle->parameters) {
    Parameter& p = parameters_[i];
    if (handle->flat) p.tensor->storage = weight_memory(p, p.elements)->storage;
    p.state = State::kPresent;
  }
}

void Zero3::free_weight(Parameter& p) {
  // __release_param(): not while another module uses it (shared embeddings), nor while its gather is in
  // flight.
  if (p.state != State::kPresent || !p.users.empty()) return;
  Ref<StorageBody> absent(new StorageBody(t_, p.tensor->storage->index));  // with the names of what was there
  absent->present = false;
  p.tensor->storage = absent;
  p.state = State::kAbsent;
  gathered_elements_ -= static_cast<std::int64_t>(p.elements);
}

void Zero3::release_in_flight() {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].gather) {
      wait(i);
      free_weight(parameters_[i]);
    }
}

void Zero3::begin_forward() {
  if (script_) return script_->note(ZeroCall::kBeginMicroBatch);
  release_in_flight();
  if (order_ != Order::kKnown) order_ = order_ == Order::kUnknown ? Order::kRecorded : Order::kKnown;
  // The queue of the prefetch: each use of a parameter, in the recorded order.
  uses_.clear();
  if (order_ == Order::kKnown)
    for (std::size_t c = 0; c < calls_.size(); ++c)
      for (const std::size_t p : modules_[calls_[c]]) uses_.push_back({p, static_cast<std::int64_t>(c)});
  for (Parameter& p : parameters_) p.fetched_for = -1;
  call_ = gathered_elements_ = 0;
}

/// trace_prologue(): where another module runs than the recorded order says, the order is forgotten.
void Zero3::require_expected(std::size_t m) {
  const auto now = static_cast<std::size_t>(call_);
  if (order_ != Order::kKnown || (now < calls_.size() && calls_[now] == m)) return;
  order_ = Order::kUnknown;
  calls_.clear();
  uses_.clear();
  for (Parameter& p : parameters_) p.fetched_for = -1;
  release_in_flight();
}

void Zero3::fetch(std::size_t m, bool forward) {
  if (script_) {
    note(forward ? ZeroCall::kFetch : ZeroCall::kBeforeBackwardOf, m);
    view(m);
    return;
  }
  require_expected(m);
  // fetch_sub_module(): gathers what the module needs, waits for it, then gathers ahead.
  if (order_ == Order::kRecorded) calls_.push_back(m);
  gather(modules_[m]);
  for (const std::size_t i : modules_[m]) {
    add(parameters_[i].users, m);
    // A forward pass while a backward pass runs is a recomputation.
    if (forward && !in_backward_.empty() && !parameters_[i].tensor->requires_grad) {
      add(recomputed_[in_backward_.back()], i);
      add(parameters_[i].users, in_backward_.back());
    }
    wait(i);
  }
  if (order_ == Order::kKnown) prefetch(m);
  ++call_;
}

void Zero3::prefetch(std::size_t m) {
  // Uses up to those of this module leave the queue. Parameters that an earlier prefetch has taken from it
  // are not searched for again (`fetched_for` is this call or a later one).
  Indices passed;
  const auto own =
      static_cast<std::size_t>(std::count_if(modules_[m].begin(), modules_[m].end(), [&](std::size_t i) {
        return parameters_[i].fetched_for < call_;
      }));
  while (!uses_.empty() && passed.size() < own) {
    parameters_[uses_.front().parameter].fetched_for = uses_.front().call;
    add(passed, uses_.front().parameter);
    uses_.pop_front();
  }
  // Both limits count elements before padding; max_live counts everything that is gathered.
  const std::int64_t limit = std::min(static_cast<std::int64_t>(policy_.max_live) - gathered_elements_,
                                      static_cast<std::int64_t>(policy_.prefetch));
  Indices next;
  std::int64_t elements = 0;
  while (!uses_.empty() && elements < limit) {
    const Use use = uses_.front();
    uses_.pop_front();
    // A parameter that is present is passed over. The mark makes released_by() keep it until this use.
    Parameter& p = parameters_[use.parameter];
    p.fetched_for = std::max(p.fetched_for, use.call);
    if (p.state != State::kAbsent || has(next, use.parameter)) continue;
    add(next, use.parameter);
    elements += static_cast<std::int64_t>(p.elements);
  }
  if (!next.empty()) gather(next);
}

/// __params_to_release(): not what persists, not what the prefetch has passed over, and not what a module
/// within the reuse distance needs. An lru_cache there too: decided at the first call with this number, and
/// kept for all later micro-batches.
const Zero3::Indices& Zero3::released_by(std::size_t m) {
  const auto now = static_cast<std::size_t>(call_);
  if (released_.size() <= now) released_.resize(std::max(now + 1, calls_.size() + 1));
  std::vector<Released>& decided = released_[now];
  if (const auto at = std::ranges::find(decided, m, &Released::module); at != decided.end())
    return at->parameters;
  decided.push_back({m, {}});
  Indices& out = decided.back().parameters;
  for (const std::size_t i : modules_[m])
    if (!parameters_[i].persists && parameters_[i].fetched_for <= call_) out.push_back(i);
  // iter_params(module, recurse=z3_leaf_module(submodule_to_release)): a leaf that is passed has no
  // parameters of its own, and where a leaf is released, modules count with everything inside.
  const bool leaf = is_leaf(m);
  static const Indices none;
  std::uint64_t passed = 0;
  for (std::size_t c = now; !out.empty() && c < calls_.size() && passed < policy_.reuse_distance; ++c) {
    const Indices inside = leaf ? parameters_inside(calls_[c]) : none;
    for (const std::size_t i : leaf ? inside : is_leaf(calls_[c]) ? none : modules_[calls_[c]]) {
      std::erase(out, i);
      passed += parameters_[i].elements;
    }
  }
  return out;
}

bool Zero3::is_leaf(std::size_t m) const {
  return !modules_[m].empty() && std::strcmp(names_[m].second, kLeaf) == 0;
}

/// By the names of modules: those inside of a module begin with its name and a point. The module of an
/// adapter, NAME.lora, holds NAME too.
Zero3::Indices Zero3::parameters_inside(std::size_t m) const {
  const auto [layer, name] = names_[m];
  std::string_view prefix = name;
  if (prefix.ends_with(".lora")) prefix.remove_suffix(5);
  const bool whole = prefix.empty() || (layer < 0 && (prefix == "peft" || prefix == "base_model"));
  Indices out;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    const std::string_view of = p.module;
    const bool named = of.starts_with(prefix) && (of.size() == prefix.size() || of[prefix.size()] == '.');
    const bool inside = layer < 0 ? whole || (prefix == "model" ? of != "lm_head" : p.layer < 0 && named)
                                  : p.layer == layer && (whole || named);
    if (inside || has(modules_[m], i)) out.push_back(i);
  }
  return out;
}

void Zero3::release(std::size_t m, bool forward) {
  if (script_) {
    end_views(m);
    note(forward ? ZeroCall::kRelease : ZeroCall::kAfterBackwardOf, m);
    return;
  }
  const Indices& out = order_ == Order::kKnown ? released_by(m) : modules_[m];
  for (const std::size_t i : modules_[m]) {
    std::erase(parameters_[i].users, m);
    if (has(out, i)) free_weight(parameters_[i]);
  }
  if (!forward) release_recomputed(m);
}

void Zero3::release_recomputed(std::size_t m) {
  for (const std::size_t i : std::exchange(recomputed_[m], {})) {
    std::erase(parameters_[i].users, m);
    if (!parameters_[i].persists) free_weight(parameters_[i]);
  }
}

/// ds_grads_remaining: each call of a module counts anew the gradients after which its backward pass has
/// ended. A call without gradients, of the reference of a training by preferences, makes it none, so that the
/// weights stay to the end of the backward pass, unless a recomputation counts again.
void Zero3::count_gradients(std::size_t m, bool takes_gradient) {
  if (expected_.size() < modules_.size()) expected_.resize(modules_.size());
  Expected& e = expected_[m];
  if (!t_.recomputes()) {
    // A script has no calls without gradients.
    if (script_ && !t_.grad_enabled) script_->fail();
    if (t_.grad_enabled) e.with_gradients = takes_gradient;
  }
  e.now = t_.grad_enabled ? e.with_gradients : 0;
}

Tensor Zero3::call(const char* name, const Tensor& input, const std::function<Tensor(const Tensor&)>& body,
                   bool of_input) {
  // The hooks of a module: before and after its forward pass, and two autograd functions around it whose
  // backward passes are those before and after its backward pass.
  const std::size_t m = module(name);
  fetch(m, true);
  Tensor x = input;
  const bool takes_gradient = of_input && input && input->needs_grad();
  count_gradients(m, takes_gradient);
  if (takes_gradient)
    x = t_.apply_view({"input",
                       std::span(&input, 1),
                       {},
                       false,
                       [this, m](BackwardCall& c) {
                         if (--expected_[m].now == 0) after_backward_of(m);
                         c.results[0] = c.take();
                       }},
                      input, input->shape);
  const Tensor y = body(x);
  release(m, true);
  if (!y || !y->needs_grad()) return y;
  return t_.apply_view({"output",
                        std::span(&y, 1),
                        {},
                        false,
                        [this, m](BackwardCall& c) {
                          before_backward(m);
                          c.results[0] = c.take();
                        }},
                       y, y->shape);
}

void Zero3::before_backward(std::size_t m) {
  // Listed once, also where the hook runs twice.
  if (std::find(in_backward_.begin(), in_backward_.end(), m) == in_backward_.end()) in_backward_.push_back(m);
  fetch(m, false);
}

void Zero3::after_backward_of(std::size_t m) {
  release(m, false);
  std::erase(in_backward_, m);
}

void Zero3::before_backward(bool boundary) {
  if (script_) script_->note(boundary ? ZeroCall::kBeforeLastBackward : ZeroCall::kBeforeBackward);
  boundary_ = boundary;
}

void Zero3::after_gradient(const Tensor& parameter) {
  const std::size_t i = index_of_.at(parameter.get());
  if (script_) {
    // The free of the memory says which gradient it is; it has then no other handle.
    Tensor gradient = std::exchange(parameter->grad, {});
    if (gradient->references != 1 || gradient->storage->references != 1 || parameters_[i].layer != t_.layer)
      script_->fail();
    gradient.reset();
    script_->note(ZeroCall::kGradient, parameters_[i].module, parameters_[i].ordinal);
    return;
  }
  const std::uint64_t elements = parameters_[i].elements;
  // reduce_independent_p_g_buckets_and_remove_grads(): copied into the bucket, or reduced at once if too
  // large.
  if (bucket_elements_ > 0 && bucket_elements_ + elements > policy_.bucket) reduce_bucket();
  // A gradient that is larger than the bucket is reduced from where it is.
  if (bucket_elements_ + elements <= policy_.bucket) parameter->grad.reset();
  in_bucket_.push_back(i);
  bucket_elements_ += elements;
  // The last gradient of the micro-batch flushes the bucket, as the epilogue of the backward pass does.
  if (++gradients_ == trained_) {
    reduce_bucket();
    gradients_ = 0;
  }
}

/// reduce_scatter_coalesced(): gradients are cut into the parts of the ranks, padded, in one flat tensor. A
/// single one that needs no padding is reduced where it is. The parts of this rank are added to
/// gradients_of_parts_, so the gradients of micro-batches need no further memory.
void Zero3::reduce_bucket() {
  std::uint64_t elements = 0, padding = 0;
  for (const std::size_t i : in_bucket_) {
    const std::uint64_t padded = parameters_[i].part * policy_.ranks;
    elements += padded;
    padding += padded - parameters_[i].elements;
  }
  Tensor flat, pads;
  if (in_bucket_.size() > 1 || padding) {
    if (padding) pads = buffer(padding, s_.weights, Purpose::kCommunication, "padding of the gradients");
    flat = buffer(elements, s_.weights, Purpose::kCommunication, "gradients to reduce");
    t_.storage(flat).stream = Stream::kReduce;
    pads.reset();
  }
  for (const std::size_t i : in_bucket_) {
    if (policy_.offload_optimizer) copy_to_host(parameters_[i]);
    parameters_[i].tensor->grad.reset();
  }
  in_bucket_.clear();
  bucket_elements_ = 0;
}

/// partition_grads() with offload: the reduced part is copied to the host, or added to what is there. For
/// either the device has a copy of its own, which the last micro-batch casts to f32.
void Zero3::copy_to_host(const Parameter& p) {
  const std::uint64_t rank = policy_.rank == kFullestRank ? 0 : policy_.rank, begin = p.part * rank;
  if (begin >= p.elements) return;
  const std::uint64_t elements = std::min(p.part, p.elements - begin);
  const auto temporary = [&](std::uint64_t n, Element type, const char* name) {
    const Tensor t = buffer(n, type, Purpose::kCommunication, name);
    t_.storage(t).stream = Stream::kReduce;
    return t;
  };
  const Tensor sum = temporary(elements, s_.weights, "sum of a gradient");
  if (!boundary_) return;
  // The norm is computed in f64, in pieces.
  constexpr std::uint64_t kPiece = 250'000'000;
  Tensor in_f64 = temporary(2 * std::min(elements, kPiece), Element::kF32, "gradient in f64");
  norms_.push_back(temporary(2, Element::kF32, "norm of a gradient"));
  in_f64.reset();
  if (s_.weights != Element::kF32) temporary(elements, Element::kF32, "gradient in f32");
}

/// release_backward_leftovers(): modules whose input needed no gradient, or was passed by name, have no hook
/// after their backward pass.
void Zero3::after_backward() {
  if (script_) {
    end_all_views();
    return script_->note(ZeroCall::kAfterBackward);
  }
  while (!in_backward_.empty()) {
    const std::size_t m = in_backward_.back();
    in_backward_.pop_back();
    for (const std::size_t i : modules_[m]) {
      std::erase(parameters_[i].users, m);
      if (!parameters_[i].persists) free_weight(parameters_[i]);
    }
    release_recomputed(m);
  }
}

void Zero3::step() {
  if (script_) {
    end_all_views();
    return script_->note(ZeroCall::kStep);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    wait(i);
    parameters_[i].users.clear();
    free_weight(parameters_[i]);
  }
  if (policy_.offload_optimizer) {
    norms_.clear();
    gather_persistent();
    return;
  }
  // The norm is computed in f64, part by part.
  for (const Group& g : groups_)
    for (const std::size_t i : g.parameters)
      buffer(2 * parameters_[i].part, Element::kF32, Purpose::kUpdate, "gradient in f64");
  for (Group& g : groups_) {
    // _prepare_sub_group(): the gradients of the group flat, then in f32. A single part is used where it is.
    const std::uint64_t elements = part_of(g.parameters);
    Tensor gradient = g.parameters.size() > 1
                          ? buffer(elements, s_.weights, Purpose::kUpdate, "gradients of the group, flat")
                          : t_.alias(gradients_of_parts_, {static_cast<std::int64_t>(elements)});
    if (s_.weights != Element::kF32)
      gradient = buffer(elements, Element::kF32, Purpose::kUpdate, "f32 gradients");
    g.master.front()->grad = std::move(gradient);
    g.optimizer->run();
    // A copy to the host in another type is cast on the device.
    if (policy_.offload_parameters && t_.options.kernel_temporaries && s_.weights != Element::kF32)
      buffer(elements, s_.weights, Purpose::kUpdate, "updated weights to copy");
  }
  gather_persistent();
}

/// Persistent parameters are gathered again from the updated parts, for the next step.
void Zero3::gather_persistent() {
  std::vector<std::size_t> persistent;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].persists) persistent.push_back(i);
  if (policy_.ranks == 1) {
    for (const std::size_t i : persistent)
      use_own_part(parameters_[i]), parameters_[i].state = State::kPresent;
    return;
  }
  // Several have all parts on the device at the same time; a single one is copied where it is gathered.
  Tensor copies;
  if (persistent.size() > 1) copies = parts_from_host(persistent);
  for (const std::size_t i : persistent) {
    Parameter& p = parameters_[i];
    p.tensor->storage = weight_memory(p, p.part * policy_.ranks)->storage;
    if (persistent.size() == 1) copies = parts_from_host(persistent);
    p.state = State::kPresent;
  }
}

}  // namespace trainhost::frameworks
