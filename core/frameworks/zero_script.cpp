// See zero_script.hpp: what is noted, and how it is played.
#include "core/frameworks/zero_script.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/frameworks/evaluate.hpp"
#include "core/frameworks/training_step.hpp"
#include "core/frameworks/zero.hpp"
#include "core/frameworks/zero3.hpp"

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

void ZeroScript::note(ZeroCall call, const char* module, std::uint64_t argument) {
  t_.new_storage({static_cast<std::int64_t>(argument)}, Element::kByte, Purpose::kCommunication, module,
                 kCallNames[static_cast<std::size_t>(call)]);
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
                            kCallNames[static_cast<std::size_t>(ZeroCall::kView)]);
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

/// Carries out the calls of a script, and copies the other events.
class ZeroPlayer {
 public:
  ZeroPlayer(const Trace& script, const std::vector<ZeroScript::Declared>& declared,
             const StepSettings& settings, std::uint64_t limit, Trace& out)
      : script_(script),
        declared_(declared),
        settings_(settings),
        tape_(out, settings.machine),
        calls_(script.names.size(), ZeroCall::kNone),
        copies_(script.storages.size()),
        views_(script.storages.size()) {
    if (limit != UINT64_MAX) tape_.stop_above(limit, EvaluateOptions().block);
    if (settings.zero.stage == 3) zero3_.emplace(tape_, settings);
    out.names = script.names;
    out.storages.reserve(2 * script.storages.size());
    out.events.reserve(2 * script.events.size());
    for (std::size_t i = 0; i < calls_.size(); ++i)
      for (std::size_t call = 1; call < kZeroCalls; ++call)
        if (script.names[i] == kCallNames[call]) calls_[i] = ZeroCall(call);
  }

  /// The events from one mark to another as those of `step`. skipped: for each storage from `from` on,
  /// whether it exists already; may be empty.
  void play(const TraceMark& from, const TraceMark& to, std::uint32_t step,
            const std::vector<bool>& skipped) {
    std::size_t phase = from.phases;
    for (std::size_t i = from.events; i < to.events; ++i) {
      for (; phase < to.phases && script_.phases[phase].event == i; ++phase)
        begin(script_.phases[phase], step);
      const TraceEvent e = script_.events[i];
      if (!skipped.empty() && skipped[e.storage - from.storages]) continue;
      const TraceStorage& s = script_.storages[e.storage];
      const ZeroCall call = calls_[s.tensor];
      if (call == ZeroCall::kNone)
        copy(e, s);
      else if (call == ZeroCall::kView)
        e.allocation ? void(views_[e.storage] = parameter(s).tensor->storage) : views_[e.storage].reset();
      else if (e.allocation)
        carry_out(call, s);
    }
    for (; phase < to.phases; ++phase) begin(script_.phases[phase], step);
  }

  const HostMemory& host() const { return zero3_ ? zero3_->host() : zero_->host(); }

 private:
  void begin(const TracePhase& p, std::uint32_t step) {
    tape_.begin(p.phase, p.step ? step : 0, p.micro_batch);
  }

  void copy(TraceEvent e, const TraceStorage& s) {
    if (e.allocation) {
      copies_[e.storage] = tape_.copy_storage(s);
    } else if (s.purpose == Purpose::kGradients) {
      // The gradient of the parameter that the next call names.
      gradient_ = Tensor(new TensorBody);
      gradient_->storage = Ref(new StorageBody(tape_, copies_[e.storage]));
    } else {
      tape_.writer().free(copies_[e.storage]);
    }
  }

  std::size_t index(const TraceStorage& s) const {
    return parameters_[static_cast<std::size_t>(s.layer + 1)][s.bytes];
  }

  Zero3::Parameter& parameter(const TraceStorage& s) { return zero3_->parameters_[index(s)]; }

  /// Modules are numbered by Zero3; looked up by name once.
  std::size_t module(const TraceStorage& s) {
    const auto layer = static_cast<std::size_t>(s.layer + 1);
    if (modules_.size() <= layer) modules_.resize(layer + 1);
    std::vector<std::size_t>& of_layer = modules_[layer];
    if (of_layer.size() <= s.module) of_layer.resize(script_.names.size(), kUnknown);
    std::size_t& m = of_layer[s.module];
    if (m == kUnknown) m = zero3_->module(name(s));
    return m;
  }

  const char* name(const TraceStorage& s) const { return script_.names[s.module].c_str(); }

  void declare(const TraceStorage& s) {
    const auto layer = static_cast<std::size_t>(s.layer + 1);
    if (parameters_.size() <= layer) parameters_.resize(layer + 1);
    parameters_[layer].push_back(zero3_ ? zero3_->parameters_.size() : trained_.size());
    const ZeroScript::Declared& d = declared_[s.bytes];
    if (zero3_) {
      zero3_->parameter(d.shape, d.type, name(s), d.trained);
      return;
    }
    trained_.emplace_back(new TensorBody);
    trained_.back()->shape = d.shape;
    trained_.back()->type = d.type;
  }

  void carry_out(ZeroCall call, const TraceStorage& s) {
    tape_.layer = s.layer;
    zero3_ ? call_zero3(call, s) : call_zero(call, s);
  }

  /// Stages 1 and 2.
  void call_zero(ZeroCall call, const TraceStorage& s) {
    switch (call) {
      case ZeroCall::kParameter:
        return declare(s);
      case ZeroCall::kStart:
        zero_.emplace(tape_, settings_, trained_);
        return;
      case ZeroCall::kBeforeBackward:
      case ZeroCall::kBeforeLastBackward:
        return zero_->before_backward(call == ZeroCall::kBeforeLastBackward);
      case ZeroCall::kGradient: {
        const Tensor& p = trained_[index(s)];
        if (gradient_) p->grad = std::exchange(gradient_, {});
        return zero_->after_gradient(p);
      }
      case ZeroCall::kAfterBackward:
        return zero_->after_backward();
      case ZeroCall::kStep:
        return zero_->step();
      default:
        assert(false);
    }
  }

  void call_zero3(ZeroCall call, const TraceStorage& s) {
    switch (call) {
      case ZeroCall::kParameter:
        return declare(s);
      case ZeroCall::kShare:
        return zero3_->share(parameter(s).tensor, name(s));
      case ZeroCall::kStart:
        return zero3_->start();
      case ZeroCall::kBeginMicroBatch:
        return zero3_->begin_micro_batch();
      case ZeroCall::kFetch:
        return zero3_->fetch(module(s), true);
      case ZeroCall::kRelease:
        return zero3_->release(module(s), true);
      case ZeroCall::kRead:
        return zero3_->read(parameter(s).tensor, name(s));
      case ZeroCall::kBeforeBackwardOf:
        return zero3_->before_backward(module(s));
      case ZeroCall::kAfterBackwardOf:
        return zero3_->after_backward_of(module(s));
      case ZeroCall::kGradient: {
        const Tensor& p = parameter(s).tensor;
        p->grad = std::exchange(gradient_, {});
        return zero3_->after_gradient(p);
      }
      case ZeroCall::kBeforeBackward:
      case ZeroCall::kBeforeLastBackward:
        return zero3_->before_backward(call == ZeroCall::kBeforeLastBackward);
      case ZeroCall::kAfterBackward:
        return zero3_->after_backward();
      case ZeroCall::kStep:
        return zero3_->step();
      case ZeroCall::kNone:
      case ZeroCall::kView:
        break;
    }
    assert(false);
  }

  static constexpr std::size_t kUnknown = SIZE_MAX;
  const Trace& script_;
  const std::vector<ZeroScript::Declared>& declared_;
  const StepSettings& settings_;
  Tape tape_;
  std::vector<Tensor> trained_;  // of stages 1 and 2
  std::optional<Zero> zero_;     // or:
  std::optional<Zero3> zero3_;
  std::vector<ZeroCall> calls_;                       // by name
  std::vector<std::uint32_t> copies_;                 // of the storages of the script
  std::vector<Ref<StorageBody>> views_;               // by storage of the script
  std::vector<std::vector<std::size_t>> parameters_;  // of each layer; [0]: outside
  std::vector<std::vector<std::size_t>> modules_;     // the same, by name
  Tensor gradient_;
};

void play_zero(const Trace& script, const std::vector<ZeroScript::Declared>& declared, const TraceMark& step,
               const std::vector<bool>& kept, const StepSettings& settings, std::uint64_t limit,
               TrainingStep& result, std::optional<CopiedStep>& copied) {
  std::size_t events = 0;
  {
    ZeroPlayer player(script, declared, settings, limit, result.trace);
    player.play({}, step, 0, {});
    const TraceMark begin = end_of(result.trace);
    player.play(step, end_of(script), 1, {});
    copied = copied_step(settings, result.trace, begin);
    if (!copied) player.play(step, end_of(script), 2, kept);
    events = result.trace.events.size();
    result.host = player.host();
  }
  result.trace.events.resize(events);  // without what is left
}

}  // namespace trainhost::frameworks
