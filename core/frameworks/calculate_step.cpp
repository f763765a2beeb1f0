// See calculate_step.hpp. Puts a model, data parallelism and an optimizer together.
#include "core/frameworks/calculate_step.hpp"

#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

#include "core/frameworks/autograd/operators.hpp"
#include "core/frameworks/megatron/decoder_megatron.hpp"
#include "core/frameworks/megatron/megatron_passes.hpp"
#include "core/frameworks/models/decoder.hpp"
#include "core/frameworks/models/decoder_litgpt.hpp"
#include "core/frameworks/models/decoder_torchtitan.hpp"
#include "core/frameworks/models/decoder_torchtune.hpp"
#include "core/frameworks/optimizer_step.hpp"
#include "core/frameworks/sharding/zero.hpp"
#include "core/frameworks/trace/evaluate.hpp"

namespace trainhost::frameworks {
namespace {

/// Several pipeline stages of one rank, which Pipeline runs. Each has FSDP units of its own.
class StagesOfRank : public StepModel {
 public:
  StagesOfRank(Tape& tape, const model::Architecture& a, const StepSettings& given) {
    for (std::uint32_t n = 0; n < given.stage.per_rank; ++n) {
      settings_.push_back(std::make_unique<StepSettings>(given));
      settings_.back()->stage = given.stage.of_rank(n);
      stages_.push_back(std::make_unique<TorchtitanDecoder>(tape, a, *settings_.back()));
      const std::vector<Tensor>& trained = stages_.back()->trained();
      trained_.insert(trained_.end(), trained.begin(), trained.end());
    }
  }
  Tensor loss() override { return {}; }
  std::vector<StageModel*> stages() const {
    std::vector<StageModel*> out;
    for (const auto& s : stages_) out.push_back(s.get());
    return out;
  }

 private:
  std::vector<std::unique_ptr<StepSettings>> settings_;  // the stages refer to them
  std::vector<std::unique_ptr<TorchtitanDecoder>> stages_;
};

/// pipeline: filled where the model is one stage of several.
std::unique_ptr<StepModel> make_model(Tape& tape, const model::Architecture& a, const StepSettings& s,
                                      std::optional<Pipeline>& pipeline) {
  if (s.modules == ModelSource::kTorchtitan) {
    if (s.stage.per_rank > 1) {
      auto stages = std::make_unique<StagesOfRank>(tape, a, s);
      pipeline.emplace(tape, stages->stages(), s.stage, s.accumulate);
      return stages;
    }
    auto model = std::make_unique<TorchtitanDecoder>(tape, a, s);
    if (s.stage.stages > 1)
      pipeline.emplace(tape, std::vector<StageModel*>{model.get()}, s.stage, s.accumulate);
    return model;
  }
  if (s.modules == ModelSource::kLitgpt) return std::make_unique<LitgptDecoder>(tape, a, s);
  if (s.modules == ModelSource::kTorchtune) return std::make_unique<TorchtuneDecoder>(tape, a, s);
  return std::make_unique<Decoder>(tape, a, s);
}

/// The steps of Megatron-LM, which has its own schedules and optimizer. Returns the number of events before
/// the frees of everything that is left.
std::size_t calculate_megatron(Tape& tape, const model::Architecture& a, const StepSettings& s,
                               const Calculation& c) {
  static KeptPasses kept;
  MegatronDecoder model(tape, a, s);
  const TraceMark before = end_of(c.result.trace);
  // Copies of weights in 8 bits are made in the passes, and written by the update.
  const bool shares = s.megatron.products.recipe == ProductRecipe::kNone && s.copies_step;
  std::shared_ptr<const MegatronPasses> known, made;
  if (shares) known = kept.find(a, s);
  if (shares && !known) known = made = repeated_passes(a, s);
  std::uint32_t first_storage = 0;
  if (known) {
    first_storage = append_section(tape, known->section);
    tape.saved_bytes = known->saved_bytes;
  } else {
    model.run_passes(1);
    if (shares) made = passes_since(before, c.result.trace, tape.saved_bytes, a, s);
  }
  model.run_update(1);
  *c.copied = copied_step(s, c.result.trace, before);
  const bool knows_second = known && known->second;
  assert(*c.copied || !known || knows_second);
  if ((*c.copied || knows_second) && made) kept.add(std::move(made));
  for (std::uint32_t step = 2; step <= s.steps && !*c.copied; ++step) {
    if (knows_second)
      append_section(tape, *known->second, first_storage);
    else
      model.run_passes(step);
    model.run_update(step);
  }
  return c.result.trace.events.size();
}

/// The parameters of all layers that the model stands for. Those of unit 1 stand for the units that it lacks;
/// they follow each other. units: none for the layers of the model.
std::vector<Tensor> of_all_layers(Tape& tape, std::vector<Tensor> parameters, const LayerUnits* units) {
  if (!units) return parameters;
  const auto is_of_unit_1 = [&](const Tensor& p) {
    const std::int32_t layer = tape.storage(p).layer;
    return layer >= 0 && units->unit_of(static_cast<std::uint32_t>(layer)) == 1;
  };
  const auto begin = std::ranges::find_if(parameters, is_of_unit_1);
  const std::vector<Tensor> each(begin, std::find_if_not(begin, parameters.end(), is_of_unit_1));
  const auto at = begin - parameters.begin();
  for (std::uint32_t i = kRepeatedFrom; i < units->count(); ++i)
    parameters.insert(parameters.begin() + at, each.begin(), each.end());
  return parameters;
}

/// The least number of layers after which their kinds repeat, from the first layer on or behind some others
/// (as the dense ones of DeepSeek). period 0: they do not.
LayerUnits kinds_of(const model::Architecture& a, std::uint32_t layers) {
  constexpr std::uint32_t kMost = 8, kMostLeading = 4;
  std::vector<std::size_t> kinds;  // of each layer: the first run of layers that are equal to it
  for (const model::LayerRun& run : a.layers) {
    const auto same = std::ranges::find(a.layers, run.layer, &model::LayerRun::layer);
    kinds.insert(kinds.end(), run.count, static_cast<std::size_t>(same - a.layers.begin()));
  }
  for (std::uint32_t leading = 0; leading <= kMostLeading; ++leading)
    for (std::uint32_t period = 1; period <= kMost && leading + period < kinds.size(); ++period)
      if (std::equal(kinds.begin() + leading + period, kinds.end(), kinds.begin() + leading))
        return {period, layers, leading};
  return {0, layers, 0};
}

/// Of CPUOffloadPolicy: pinned shards, and their gradients, which arrive in pinned tensors too; the moments
/// of an optimizer on the CPU are not pinned. units: none for the layers of the model.
HostMemory offloaded_by_fsdp(const std::vector<ShardedUnits::OffloadedShard>& shards, const StepSettings& s,
                             const LayerUnits* units) {
  HostMemory host;
  const int moments = s.optimizer == Optimizer::kAdamW ? 2 : s.optimizer == Optimizer::kSgdMomentum ? 1 : 0;
  for (const ShardedUnits::OffloadedShard& shard : shards) {
    const bool stands_for_many =
        units && shard.layer >= 0 && units->unit_of(static_cast<std::uint32_t>(shard.layer)) == 1;
    const std::uint32_t times = stands_for_many ? units->count() - kRepeatedFrom + 1 : 1;
    const std::uint64_t bytes = shard.elements * bytes_of(shard.type);
    for (std::uint32_t i = 0; i < times; ++i) {
      host.add(bytes, Purpose::kWeights, "shards of weights", true);
      if (!shard.trained) continue;
      host.add(bytes, Purpose::kGradients, "sharded gradients", true);
      for (int m = 0; m < moments; ++m) host.add(bytes, Purpose::kOptimizerState, "moments", false);
    }
  }
  return host;
}

/// Calculates the steps event by event, and after them the frees of everything that is left. Returns the
/// number of events before those.
std::size_t calculate(const model::Architecture& architecture, const StepSettings& s, const Calculation& c) {
  TrainingStep& result = c.result;
  Tape tape(result.trace, s.machine);
  if (c.layers) tape.writer().note_layers(&tape.layer);
  if (c.limit != UINT64_MAX) tape.stop_above(c.limit, EvaluateOptions().block);
  tape.autocast_type = s.autocast_type;
  std::optional<ZeroScript> script;
  if (c.declared) tape.zero_script = &script.emplace(tape);
  tape.begin(kLoad, 0, 0);
  std::unique_ptr<Zero> zero;
  Zero3* zero3 = nullptr;
  HostMemory offloaded;
  const auto finish = [&](std::size_t events) {
    result.host = zero3 ? zero3->host() : zero ? zero->host() : offloaded;
    result.saved_bytes = tape.saved_bytes;
    result.saved_bytes.resize(layers_of(architecture, s) + 1);
    if (c.layers) *c.layers = tape.writer().noted_layers();
    if (script) *c.declared = script->declared(), *c.is_script = script->is_complete();
    return events;
  };
  if (s.modules == ModelSource::kMegatron) return finish(calculate_megatron(tape, architecture, s, c));
  std::optional<Pipeline> pipeline;
  const std::unique_ptr<StepModel> model = make_model(tape, architecture, s, pipeline);
  if (s.fsdp.offloads) offloaded = offloaded_by_fsdp(model->fsdp()->offloaded(), s, c.units);
  OptimizerStep optimizer(tape, s, model->trained());
  if (s.update_in_backward) tape.after_gradient = [&](const Tensor& p) { optimizer.run(p); };
  // One of these handles a complete gradient: the optimizer inside the backward pass, ZeRO, or DDP.
  std::vector<Tensor> kept;
  zero3 = model->zero3();
  if (zero3) {
    tape.after_gradient = [&](const Tensor& p) { zero3->after_gradient(p); };
  } else if (s.zero.stage) {
    zero = std::make_unique<Zero>(tape, s, model->trained());
    tape.after_gradient = [&](const Tensor& p) { zero->after_gradient(p); };
  }
  std::optional<Ddp> ddp;
  if (s.ddp.on) {
    ddp.emplace(tape, s.ddp, of_all_layers(tape, model->trained(), c.units));
    tape.after_gradient = [&](const Tensor& p) { ddp->after_gradient(p); };
  }
  // The forward pass and the engine's device thread have a handle of cuBLAS each, with a workspace that the
  // first product allocates.
  const auto add_workspace = [&] {
    if (const auto bytes = static_cast<std::int64_t>(s.machine.cublas_workspace))
      kept.push_back(tape.new_storage({bytes}, Element::kByte, Purpose::kKernel, "", "workspace of cuBLAS"));
  };
  const auto run_micro_batches = [&](std::uint32_t step) {
    const std::uint32_t micro_batches = s.longest_is_first ? 1 : s.accumulate;
    for (std::uint32_t i = 1; i <= micro_batches; ++i) {
      tape.begin(kForward, step, i);
      if (tape.recording = step == 1 && i == 1; tape.recording) add_workspace();
      Tensor loss = model->loss();
      const bool first = std::exchange(tape.recording, false);
      // The Trainer divides the loss by the micro-batches; torchtune divides the gradients before the step.
      if (s.accumulate > 1 && s.modules != ModelSource::kTorchtune && !s.trainer_loss)
        loss = div_number(tape, loss);
      tape.begin(kBackward, step, i);
      if (first) add_workspace();
      if (model->fsdp()) model->fsdp()->before_backward(s.fsdp.reduce_every_micro_batch || i == s.accumulate);
      if (zero) zero->before_backward(i == s.accumulate);
      if (zero3) zero3->before_backward(i == s.accumulate);
      if (ddp) ddp->before_backward(i == s.accumulate);
      tape.run_backward(loss, [&] {
        if (zero) zero->after_backward();
        if (zero3) zero3->after_backward();
        if (model->fsdp()) model->fsdp()->after_backward();
      });
      loss.reset();
      model->after_backward();
    }
  };
  const auto run_step = [&](std::uint32_t step) {
    if (pipeline)
      pipeline->run(step);
    else
      run_micro_batches(step);
    if (s.longest_is_first && s.accumulate > 1) return;
    tape.begin(kUpdate, step, 0);
    zero3 ? zero3->step() : zero ? zero->step() : optimizer.run();
  };
  if (pipeline)
    for (int thread = 0; thread < 2; ++thread) add_workspace();
  const TraceMark before = end_of(result.trace);
  run_step(1);
  *c.copied = copied_step(s, result.trace, before);
  for (std::uint32_t step = 2; step <= s.steps && !*c.copied; ++step) run_step(step);
  return finish(result.trace.events.size());
}

}  // namespace

void run_steps(const model::Architecture& architecture, const StepSettings& s, const Calculation& c) {
  const std::size_t events = calculate(architecture, s, c);
  c.result.trace.events.resize(events);
}

std::uint32_t layers_of(const model::Architecture& a, const StepSettings& s) {
  std::uint32_t most = 0;
  for (std::uint32_t n = 0; n < s.stage.per_rank; ++n) {
    const auto [begin, end] = layers_of_stage(a.layer_count(), s.stage.of_rank(n));
    most = std::max(most, end - begin);
  }
  return most;
}

std::optional<LayerUnits> repeated_units(const model::Architecture& a, const StepSettings& s) {
  if (s.steps != 2 || !s.copies_step || !s.repeats_layers || s.tunes_with_clones || s.stage.per_rank > 1)
    return std::nullopt;
  // A reference model under FSDP2 may be one unit, whose size depends on the number of layers.
  if (s.preferences.trainer == PreferenceTrainer::kTrl && s.fsdp.ranks && !s.fsdp.flat) return std::nullopt;
  LayerUnits units = kinds_of(a, layers_of(a, s));
  // A pipeline stage may begin in the middle of a unit.
  if (units.period == 0 || ((units.period > 1 || units.leading > 0) && s.stage.stages > 1))
    return std::nullopt;
  // Weights that are gathered early with those of experts are allocated while the layer before runs, and
  // freed by the one behind. Units refer to their neighbours only.
  if (s.expert > 1 && units.period == 1) units.period = 2;
  return units.count() > kRepeatedFrom + 1 ? std::optional(units) : std::nullopt;
}

void keep_few_layers(model::Architecture& a, StepSettings& s, const LayerUnits& units) {
  std::uint32_t left = units.few();
  for (model::LayerRun& run : a.layers) {
    run.count = std::min(run.count, left);
    left -= run.count;
  }
  std::erase_if(a.layers, [](const model::LayerRun& run) { return run.count == 0; });
  s.stage.alone = true;
}

TraceMark begin_of_step(const Trace& t, std::uint32_t step) {
  const auto phase = std::ranges::find(t.phases, step, &TracePhase::step);
  assert(phase != t.phases.end());
  const auto begin = t.events.begin() + static_cast<std::ptrdiff_t>(phase->event);
  const auto storages = static_cast<std::size_t>(
      std::count_if(t.events.begin(), begin, [](const TraceEvent& e) { return e.allocation; }));
  return {storages, phase->event, static_cast<std::size_t>(phase - t.phases.begin())};
}

bool second_step_is_like_first(const StepSettings& s) {
  return s.zero.stage != 3 && !s.fsdp.flat && s.modules != ModelSource::kLitgpt &&
         s.loss != LossKind::kMovedLogits && !s.tunes_with_clones;
}

std::optional<CopiedStep> copied_step(const StepSettings& s, const Trace& t, const TraceMark& from) {
  if (s.steps != 2 || !s.copies_step || !second_step_is_like_first(s)) return std::nullopt;
  std::optional<std::vector<bool>> kept = kept_by_step(t, from);
  if (!kept) return std::nullopt;
  return CopiedStep{from, std::move(*kept)};
}

}  // namespace trainhost::frameworks
