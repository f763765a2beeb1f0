// See zero_script.hpp: how a script is played.
#include <algorithm>
#include <array>
#include <cassert>
#include <optional>
#include <utility>

#include "core/frameworks/autograd/trace_section.hpp"
#include "core/frameworks/calculate_step.hpp"
#include "core/frameworks/sharding/zero.hpp"
#include "core/frameworks/sharding/zero3.hpp"
#include "core/frameworks/sharding/zero_script.hpp"
#include "core/frameworks/trace/evaluate.hpp"
#include "core/frameworks/training_step.hpp"

namespace trainhost::frameworks {

/// The passes of two steps under ZeRO 3.
struct ZeroPasses {
  struct Step {
    TraceSection section;
    /// Storages of the script, and parameters, whose memory outlives the passes: with that in the section.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> copies, gathered;
  };
  ZeroPolicy policy;  // without ranks
  std::array<Step, 2> steps;
};

/// What the passes depend on; nullopt where they also depend on the number of ranks.
static std::optional<ZeroPolicy> policy_of_passes(const RecordedScript& script, ZeroPolicy p) {
  const bool divides = std::ranges::all_of(
      script.declared, [&](const ZeroScript::Declared& d) { return d.shape.count() % p.ranks == 0; });
  if (p.stage != 3 || p.ranks == 1 || p.offload_optimizer || p.offload_parameters || !divides)
    return std::nullopt;
  p.ranks = 1, p.rank = kFullestRank, p.sub_group = ZeroPolicy().sub_group;
  return p;
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
        if (script.names[i] == call_name(ZeroCall(call))) calls_[i] = ZeroCall(call);
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

  /// The passes of a step of another run in place of those that play() would carry out.
  void copy_passes(const ZeroPasses::Step& passes) {
    const std::uint32_t first = append_section(tape_, passes.section);
    for (const auto& [storage, copy] : passes.copies) copies_[storage] = first + copy;
    for (const auto& [parameter, memory] : passes.gathered) {
      Zero3::Parameter& p = zero3_->parameters_[parameter];
      p.tensor->storage = Ref(new StorageBody(tape_, first + memory));
      p.state = Zero3::State::kPresent;
    }
  }

  /// What play() has added since `begin`; from, to and skipped: its arguments. nullopt where the update needs
  /// to know more of it.
  std::optional<ZeroPasses::Step> played_passes(const TraceMark& begin, const TraceMark& from,
                                                const TraceMark& to, const std::vector<bool>& skipped) {
    std::optional<TraceSection> section = section_since(begin, tape_.writer().trace());
    if (!section || gradient_ || !zero3_->in_bucket_.empty() || !zero3_->in_backward_.empty())
      return std::nullopt;
    ZeroPasses::Step passes{*std::move(section), {}, {}};
    std::vector<bool> exists(script_.storages.size());
    for (std::size_t i = from.events; i < to.events; ++i) {
      const TraceEvent e = script_.events[i];
      if (skipped.empty() || !skipped[e.storage - from.storages]) exists[e.storage] = e.allocation;
    }
    const auto first = static_cast<std::uint32_t>(begin.storages);
    for (std::uint32_t i = 0; i < exists.size(); ++i) {
      const ZeroCall call = calls_[script_.storages[i].tensor];
      if (!exists[i]) continue;
      if (call == ZeroCall::kView) return std::nullopt;
      if (call == ZeroCall::kNone) passes.copies.emplace_back(i, copies_[i] - first);
    }
    for (std::uint32_t i = 0; i < zero3_->parameters_.size(); ++i) {
      const Zero3::Parameter& p = zero3_->parameters_[i];
      if (p.state == Zero3::State::kInFlight) return std::nullopt;
      if (p.state == Zero3::State::kPresent && p.tensor->storage->index >= first)
        passes.gathered.emplace_back(i, p.tensor->storage->index - first);
    }
    return passes;
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
        return zero3_->begin_forward();
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

/// Where the update of the only step of a script begins.
static TraceMark begin_of_update(const RecordedScript& s) {
  const auto phase = std::ranges::find(s.trace.phases, kUpdate, &TracePhase::phase);
  assert(phase != s.trace.phases.end());
  // Storages are numbered from the start of the step, as in RecordedScript::kept.
  return {s.begin.storages, phase->event, static_cast<std::size_t>(phase - s.trace.phases.begin())};
}

void play_zero(const RecordedScript& script, const StepSettings& settings, std::uint64_t limit,
               TrainingStep& result, std::optional<CopiedStep>& copied) {
  const TraceMark update = begin_of_update(script), end = end_of(script.trace);
  const std::optional<ZeroPolicy> shared = policy_of_passes(script, settings.zero);
  std::shared_ptr<const ZeroPasses> known;
  if (shared) {
    const std::lock_guard guard(script.lock);
    if (script.passes && script.passes->policy == *shared) known = script.passes;
  }
  std::optional<ZeroPasses::Step> played[2];
  std::size_t events = 0;
  {
    ZeroPlayer player(script.trace, script.declared, settings, limit, result.trace);
    const auto play_step = [&](std::uint32_t step, const std::vector<bool>& skipped) {
      const TraceMark begin = end_of(result.trace);
      if (known) {
        player.copy_passes(known->steps[step - 1]);
      } else {
        player.play(script.begin, update, step, skipped);
        if (shared) played[step - 1] = player.played_passes(begin, script.begin, update, skipped);
      }
      player.play(update, end, step, skipped);
    };
    player.play({}, script.begin, 0, {});
    const TraceMark begin = end_of(result.trace);
    play_step(1, {});
    copied = copied_step(settings, result.trace, begin);
    if (!copied) play_step(2, script.kept);
    events = result.trace.events.size();
    result.host = player.host();
  }
  result.trace.events.resize(events);  // without what is left
  if (known || !played[0] || !played[1]) return;
  auto made =
      std::make_shared<const ZeroPasses>(ZeroPasses{*shared, {*std::move(played[0]), *std::move(played[1])}});
  const std::lock_guard guard(script.lock);
  script.passes = std::move(made);
}

}  // namespace trainhost::frameworks
