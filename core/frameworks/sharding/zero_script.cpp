// See zero_script.hpp: what is noted. How it is played: zero_player.cpp.
#include "core/frameworks/sharding/zero_script.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/frameworks/sharding/zero.hpp"
#include "core/frameworks/sharding/zero3.hpp"
#include "core/frameworks/step_settings.hpp"

namespace trainhost::frameworks {
namespace {

/// Names of the storages that note calls, by ZeroCall. No tensor has such a name.
constexpr std::array<const char*, kZeroCalls> kCallNames = {"",
                                                            "call: parameter",
                                                            "call: share",
                                                            "call: start",
                                                            "call: begin micro-batch",
                                                            "call: fetch",
                                                            "call: release",
                                                            "call: read",
                                                            "call: before backward of",
                                                            "call: after backward of",
                                                            "call: gradient",
                                                            "call: before backward",
                                                            "call: before last backward",
                                                            "call: after backward",
                                                            "call: step",
                                                            "call: view"};

}  // namespace

const char* call_name(ZeroCall call) { return kCallNames[static_cast<std::size_t>(call)]; }

void ZeroScript::note(ZeroCall call, const char* module, std::uint64_t argument) {
  t_.new_storage({static_cast<std::int64_t>(argument)}, Element::kByte, Purpose::kCommunication, module,
                 call_name(call));
}

void ZeroScript::declare(const Shape& shape, Element type, const char* module, bool trained) {
  const auto found = std::ranges::find_if(declared_, [&](const Declared& d) {
    return d.shape.dims == shape.dims && d.shape.same_sizes(shape) && d.type == type && d.trained == trained;
  });
  const auto index = static_cast<std::uint64_t>(found - declared_.begin());
  if (found == declared_.end()) declared_.push_back({shape, type, trained});
  note(ZeroCall::kParameter, module, index);
}

Tensor ZeroScript::view(std::int32_t layer, const char* module, std::uint64_t ordinal) {
  const std::int32_t before = std::exchange(t_.layer, layer);
  Tensor t = t_.new_storage({static_cast<std::int64_t>(ordinal)}, Element::kByte, Purpose::kWeights, module,
                            call_name(ZeroCall::kView));
  t_.layer = before;
  return t;
}

void Zero::declare() {
  const std::int32_t before = t_.layer;
  std::unordered_map<std::int32_t, std::uint32_t> of_layer;
  for (const Tensor& p : trained_) {
    t_.layer = t_.storage(p).layer;
    ordinals_[p.get()] = of_layer[t_.layer]++;
    script_->declare(p->shape, p->type, "", true);
  }
  t_.layer = before;
  script_->note(ZeroCall::kStart);
}

/// handed_over: its memory is freed here, which says which gradient it is; it has then no other handle.
void Zero::note_gradient(const Tensor& parameter, bool handed_over) {
  if (t_.storage(parameter).layer != t_.layer) script_->fail();
  if (handed_over) {
    const Tensor gradient = std::exchange(parameter->grad, {});
    if (gradient->references != 1 || gradient->storage->references != 1) script_->fail();
  }
  script_->note(ZeroCall::kGradient, "", ordinals_.at(parameter.get()));
}

/// What stage 1 has summed until then is handed over for the reduction.
void Zero::note_after_backward() {
  const std::int32_t before = t_.layer;
  if (policy_.stage == 1 && !policy_.overlap && boundary_)
    for (const Tensor& p : trained_) {
      t_.layer = t_.storage(p).layer;
      if (p->grad) note_gradient(p, true);
    }
  t_.layer = before;
  script_->note(ZeroCall::kAfterBackward);
}

void Zero3::note(ZeroCall call, std::size_t m) {
  const auto [layer, name] = names_[m];
  if (layer != t_.layer) script_->fail();
  script_->note(call, name);
}

/// A view ends with the last handle of it: in the module, or kept by the graph.
void Zero3::view_parameter(Parameter& p) {
  if (p.tensor->storage->present) return;
  p.tensor->storage = script_->view(p.layer, p.module, p.ordinal)->storage;
}

void Zero3::view(std::size_t m) {
  for (const std::size_t i : modules_[m]) view_parameter(parameters_[i]);
}

void Zero3::end_view(Tape& tape, Parameter& p) {
  if (!p.tensor->storage->present) return;
  const std::int32_t before = std::exchange(tape.layer, p.layer);
  Ref<StorageBody> absent(new StorageBody(tape, p.tensor->storage->index));
  absent->present = false;
  p.tensor->storage = absent;
  tape.layer = before;
}

void Zero3::end_views(std::size_t m) {
  for (const std::size_t i : modules_[m]) end_view(t_, parameters_[i]);
}

void Zero3::end_all_views() {
  in_backward_.clear();
  for (Parameter& p : parameters_) end_view(t_, p);
}

}  // namespace trainhost::frameworks
