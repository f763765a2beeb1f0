// Puts a model, data parallelism and an optimizer together: two steps, as a trace. Two shortcuts make long
// runs cheap and are checked where they are taken: the second step copies the events of the first
// (copy_step), and equal layers copy those of one (repeat_layers.hpp). Tests compare both with the full
// calculation.
#include "core/frameworks/training_step.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/base/checked.hpp"
#include "core/frameworks/decoder.hpp"
#include "core/frameworks/decoder_litgpt.hpp"
#include "core/frameworks/decoder_megatron.hpp"
#include "core/frameworks/decoder_torchtitan.hpp"
#include "core/frameworks/decoder_torchtune.hpp"
#include "core/frameworks/evaluate.hpp"
#include "core/frameworks/megatron_passes.hpp"
#include "core/frameworks/operators.hpp"
#include "core/frameworks/optimizer_step.hpp"
#include "core/frameworks/repeat_layers.hpp"
#include "core/frameworks/zero.hpp"
#include "core/frameworks/zero3_script.hpp"

namespace trainhost::frameworks {
namespace {

constexpr std::string_view kFamilies[] = {"gemma",   "gemma2",    "gemma3",   "gemma3_text", "glm4",
                                          "gpt2",    "gpt_oss",   "granite",  "llama",       "mistral",
                                          "mixtral", "olmo2",     "olmo3",    "phi3",        "qwen2",
                                          "qwen3",   "qwen3_moe", "seed_oss", "smollm3"};
// Whose modules the kernels of Liger and axolotl replace in another way.
constexpr std::string_view kWithoutKernels[] = {"gemma",   "glm4",  "seed_oss", "gpt_oss",
                                                "granite", "olmo2", "olmo3",    "qwen3_moe"};
constexpr std::string_view kMegatronFamilies[] = {"deepseek_v2", "deepseek_v3", "llama", "mistral",
                                                  "mixtral",     "qwen2",       "qwen3", "qwen3_moe"};
constexpr std::string_view kTorchtuneFamilies[] = {"gemma", "gemma2", "llama", "mistral",
                                                   "phi3",  "qwen2",  "qwen3"};
constexpr std::string_view kLitgptFamilies[] = {"gpt_neox", "llama", "mistral", "phi",
                                                "phi3",     "qwen2", "qwen3"};

/// Appends step 1, whose events are those from `first` on, again as step 2, without what step 1 allocated for
/// the whole run: `kept`, as kept_by_step() returns it.
void copy_step(Trace& t, const TraceMark& first, const std::vector<bool>& kept) {
  const TraceMark last = end_of(t);
  t.storages.reserve(2 * last.storages);
  t.events.reserve(2 * last.events);
  std::vector<std::uint32_t> copy_of(kept.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    copy_of[i] = static_cast<std::uint32_t>(t.storages.size());
    if (!kept[i]) t.storages.push_back(t.storages[first.storages + i]);
  }
  std::size_t phase = first.phases;
  for (std::size_t i = first.events; i <= last.events; ++i) {
    for (; phase < last.phases && t.phases[phase].event == i; ++phase) {
      TracePhase p = t.phases[phase];
      p.event = t.events.size();
      p.step = 2;
      t.phases.push_back(p);
    }
    if (i == last.events) break;
    const TraceEvent e = t.events[i];
    if (!kept[e.storage - first.storages])
      t.events.push_back({copy_of[e.storage - first.storages], e.allocation});
  }
}

/// Whether the second step may copy the first. The first micro-batch of stage 3 only records the order of the
/// modules. That of FSDP1 does so too, and allocates its flat tensors once. litgpt frees the logits of step 1
/// in step 2. A compiled step is tuned once.
bool second_step_is_like_first(const StepSettings& s) {
  return s.zero.stage != 3 && !s.fsdp.flat && s.modules != ModelSource::kLitgpt && !s.tunes_with_clones;
}

/// Throws usage_error where sums of the trace could exceed 63 bits: the largest tensor in f32, as often as a
/// layer has storages in two steps.
void require_countable(const model::Architecture& a, const StepSettings& s) {
  // 4,096 storages per layer and two steps is far above what any model here allocates; the sum of a trace
  // then fits into 63 bits without a check per event.
  constexpr std::uint64_t kBytes = 4, kStoragesPerLayer = 4096;
  // Of this rank: ranks of context parallelism share the tokens, those of tensor parallelism the heads.
  const std::uint64_t tokens = checked_mul(s.batch, s.sequence) / s.context;
  std::uint64_t widest = std::max<std::uint64_t>(a.vocab, a.hidden), heads = 1;
  for (const model::LayerRun& r : a.layers) {
    const model::Layer& l = r.layer;
    const std::uint64_t experts = checked_mul(l.experts.active, l.experts.each.width, 2);
    const std::uint64_t attention = checked_mul(l.attention.heads, l.attention.head_dim);
    widest = std::max({widest, checked_mul(l.mlp.width, 2), experts, attention});
    widest = std::max(widest, checked_mul(l.experts.count, l.experts.each.width, 2));
    heads = std::max<std::uint64_t>(heads, l.attention.heads);
  }
  const std::uint64_t scores = checked_mul(tokens, heads, s.sequence) / s.tensor;
  const std::uint64_t largest =
      std::max({checked_mul(tokens, widest), checked_mul(widest, a.hidden), scores});
  checked_mul(largest, kBytes, kStoragesPerLayer, a.layer_count() + 1);
}

/// pipeline: filled where the model is one stage of several.
std::unique_ptr<StepModel> make_model(Tape& tape, const model::Architecture& a, const StepSettings& s,
                                      std::optional<Pipeline>& pipeline) {
  if (s.modules == ModelSource::kTorchtitan) {
    auto model = std::make_unique<TorchtitanDecoder>(tape, a, s);
    if (s.stage.stages > 1) pipeline.emplace(tape, *model, s.stage, s.accumulate);
    return model;
  }
  if (s.modules == ModelSource::kLitgpt) return std::make_unique<LitgptDecoder>(tape, a, s);
  if (s.modules == ModelSource::kTorchtune) return std::make_unique<TorchtuneDecoder>(tape, a, s);
  return std::make_unique<Decoder>(tape, a, s);
}

/// What calculate() fills, and what it may leave out.
struct Calculation {
  TrainingStep& result;
  std::vector<std::int32_t>* layers = nullptr;  // filled with the layer that each event is of
  std::optional<CopiedStep>* copied = nullptr;  // filled where the second step is a copy, which is left out
  std::uint64_t limit = UINT64_MAX;             // ends the calculation where more bytes exist
  std::vector<ZeroScript::Declared>* declared = nullptr;  // filled where the result is a script of ZeRO 3,
  bool* is_script = nullptr;                              // unless it cannot be one
};

/// Whether the second step is a copy of the first, which ends here and began at `before`.
bool is_copied(const StepSettings& s, const TraceMark& before, const Calculation& c) {
  if (s.steps != 2 || !s.copies_step || !second_step_is_like_first(s)) return false;
  std::optional<std::vector<bool>> kept = kept_by_step(c.result.trace, before);
  if (!kept) return false;
  *c.copied = {before, std::move(*kept)};
  return true;
}

/// The steps of Megatron-LM, which has its own schedules and optimizer. Returns the number of events before
/// the frees of everything that is left.
std::size_t calculate_megatron(Tape& tape, const model::Architecture& a, const StepSettings& s,
                               const Calculation& c) {
  static KeptPasses kept;
  MegatronDecoder model(tape, a, s);
  const TraceMark before = end_of(c.result.trace);
  // Copies of weights in 8 bits are made in the passes, and written by the update.
  const bool shares =
      s.megatron.optimizer_ranks > 1 && s.megatron.products.recipe == ProductRecipe::kNone && s.copies_step;
  const std::shared_ptr<const MegatronPasses> known = shares ? kept.find(a, s) : nullptr;
  std::shared_ptr<const MegatronPasses> made;
  if (known) {
    add_passes(tape, *known);
  } else {
    model.run_passes(1);
    if (shares) made = passes_since(before, tape, c.result.trace, a, s);
  }
  model.run_update(1);
  const bool copied = is_copied(s, before, c);
  assert(copied || !known);
  if (copied && made) kept.add(std::move(made));
  for (std::uint32_t step = 2; step <= s.steps && !copied; ++step) {
    model.run_passes(step);
    model.run_update(step);
  }
  return c.result.trace.events.size();
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
  const auto finish = [&](std::size_t events) {
    result.host = zero3 ? zero3->host() : zero ? zero->host() : HostMemory();
    result.saved_bytes = tape.saved_bytes;
    result.saved_bytes.resize(architecture.layer_count() + 1);
    if (c.layers) *c.layers = tape.writer().noted_layers();
    if (script) *c.declared = script->declared(), *c.is_script = script->is_complete();
    return events;
  };
  if (s.modules == ModelSource::kMegatron) return finish(calculate_megatron(tape, architecture, s, c));
  std::optional<Pipeline> pipeline;
  const std::unique_ptr<StepModel> model = make_model(tape, architecture, s, pipeline);
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
    ddp.emplace(tape, s.ddp, model->trained());
    tape.after_gradient = [&](const Tensor& p) { ddp->after_gradient(p); };
  }
  // The forward pass and the engine's device thread have a handle of cuBLAS each, with a workspace that the
  // first product allocates.
  const auto add_workspace = [&] {
    if (const auto bytes = static_cast<std::int64_t>(s.machine.cublas_workspace))
      kept.push_back(tape.new_storage({bytes}, Element::kByte, Purpose::kKernel, "", "workspace of cuBLAS"));
  };
  const auto run_micro_batches = [&](std::uint32_t step) {
    for (std::uint32_t i = 1; i <= s.accumulate; ++i) {
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
    }
  };
  const auto run_step = [&](std::uint32_t step) {
    if (pipeline)
      pipeline->run(step);
    else
      run_micro_batches(step);
    tape.begin(kUpdate, step, 0);
    zero3 ? zero3->step() : zero ? zero->step() : optimizer.run();
  };
  if (pipeline)
    for (int thread = 0; thread < 2; ++thread) add_workspace();
  const TraceMark before = end_of(result.trace);
  run_step(1);
  const bool copied = is_copied(s, before, c);
  for (std::uint32_t step = 2; step <= s.steps && !copied; ++step) run_step(step);
  return finish(result.trace.events.size());
}

void run_steps(const model::Architecture& architecture, const StepSettings& s, const Calculation& c) {
  const std::size_t events = calculate(architecture, s, c);
  c.result.trace.events.resize(events);
}

/// Whether a model with few layers has the events of all: layers are equal, and no step depends on their
/// number, as buckets of gradients, pipeline stages and the buffers of Megatron-LM do. Units of FSDP are
/// layers, which refer to their neighbours only.
bool may_be_repeated(const model::Architecture& a, const StepSettings& s) {
  return a.layers.size() == 1 && a.layer_count() > kRepeatedFrom + 1 && s.steps == 2 && s.copies_step &&
         s.repeats_layers && !s.tunes_with_clones && !s.ddp.on && (!s.zero.stage || s.zero.stage == 3) &&
         s.stage.stages == 1 && s.modules != ModelSource::kMegatron;
}

/// Whether every layer has the adapters of the first.
bool has_equal_adapters(const StepSettings& s) {
  return std::ranges::all_of(s.lora_ranks, [&](const auto& ranks) { return ranks == s.lora_ranks.front(); });
}

/// Begin of step 1.
TraceMark begin_of_steps(const Trace& t) {
  const auto phase = std::ranges::find(t.phases, 1u, &TracePhase::step);
  const auto end_of_load = t.events.begin() + static_cast<std::ptrdiff_t>(phase->event);
  // The step begins behind the weights and buffers; storages are numbered in the order of allocation.
  const auto storages = static_cast<std::size_t>(
      std::count_if(t.events.begin(), end_of_load, [](const TraceEvent& e) { return e.allocation; }));
  return {storages, phase->event, static_cast<std::size_t>(phase - t.phases.begin())};
}

/// The first step of all layers under ZeRO 3 (zero3_script.hpp).
struct Script {
  Trace trace;
  std::vector<ZeroScript::Declared> declared;
  TraceMark begin;  // of the step
  std::vector<bool> kept;
  std::vector<std::uint64_t> saved_bytes;
};

/// nullptr where the step is no script.
std::shared_ptr<const Script> make_script(model::Architecture architecture, const StepSettings& s) {
  const std::uint32_t layers = architecture.layer_count();
  architecture.layers.front().count = kRepeatedFrom;
  auto script = std::make_shared<Script>();
  TrainingStep of_few;
  std::vector<std::int32_t> executed;
  std::optional<CopiedStep> copied;
  bool is_script = false;
  run_steps(architecture, s, {of_few, &executed, &copied, UINT64_MAX, &script->declared, &is_script});
  const auto repetition =
      is_script ? LayerRepetition::find(of_few.trace, executed, layers) : std::unique_ptr<LayerRepetition>();
  if (!repetition || of_few.saved_bytes[2] != of_few.saved_bytes[3]) return nullptr;
  script->trace = repetition->write();
  script->begin = begin_of_steps(script->trace);
  std::optional<std::vector<bool>> kept = kept_by_step(script->trace, script->begin);
  if (!kept) return nullptr;
  script->kept = std::move(*kept);
  script->saved_bytes = std::move(of_few.saved_bytes);
  script->saved_bytes.insert(script->saved_bytes.begin() + 2, layers - kRepeatedFrom, script->saved_bytes[2]);
  return script;
}

/// Keeps the last ones: planners ask for one step with other ranks, optimizers and offload, of which modules
/// know nothing.
std::shared_ptr<const Script> script_of(const model::Architecture& architecture, const StepSettings& s) {
  StepSettings of_modules = s;
  of_modules.zero = {};
  of_modules.zero.stage = 3;
  of_modules.optimizer = Optimizer::kAdamW;
  of_modules.loop = OptimizerLoop::kForeach;
  of_modules.weight_decay = of_modules.f32_embedding_moments = of_modules.paged_optimizer = false;
  of_modules.steps = 1;
  struct Kept {
    model::Architecture architecture;
    StepSettings settings;
    std::shared_ptr<const Script> script;
  };
  constexpr std::size_t kMost = 4;
  static std::mutex lock;
  static std::vector<Kept> kept;
  {
    const std::lock_guard guard(lock);
    const auto found = std::ranges::find_if(
        kept, [&](const Kept& k) { return k.settings == of_modules && k.architecture == architecture; });
    if (found != kept.end()) return found->script;
  }
  // Without the lock, as other threads may make other ones.
  const std::shared_ptr<const Script> made = make_script(architecture, of_modules);
  const std::lock_guard guard(lock);
  if (kept.size() == kMost) kept.erase(kept.begin());
  kept.push_back({architecture, of_modules, made});
  return made;
}

}  // namespace

bool has_builder(std::string_view family, ModelSource modules) {
  if (modules == ModelSource::kLitgpt)
    return std::ranges::find(kLitgptFamilies, family) != std::end(kLitgptFamilies);
  if (modules == ModelSource::kMegatron)
    return std::ranges::find(kMegatronFamilies, family) != std::end(kMegatronFamilies);
  if (modules == ModelSource::kTorchtitan) return family == "llama";
  if (modules == ModelSource::kTorchtune)
    return std::ranges::find(kTorchtuneFamilies, family) != std::end(kTorchtuneFamilies);
  return std::find(std::begin(kFamilies), std::end(kFamilies), family) != std::end(kFamilies);
}

std::int64_t StepSettings::outlier_columns(std::int64_t inputs) const {
  if (outliers) return *outliers;
  return static_cast<std::int64_t>(std::ceil(outlier_share * static_cast<double>(inputs)));
}

CalculatedStep::CalculatedStep(const model::Architecture& architecture, const StepSettings& s,
                               std::uint64_t limit)
    : layers_(architecture.layer_count()) {
  if (!has_builder(architecture.family, s.modules))
    throw usage_error(
        "the training step of the family '" + architecture.family + "' is not described",
        "families: gemma, gemma2, gemma3, glm4, gpt2, gpt_oss, granite, llama, mistral, mixtral, "
        "olmo2, olmo3, phi3, "
        "qwen2, qwen3, qwen3_moe, seed_oss, smollm3");
  const auto& [qkv, output, mlp] = s.adapter_kernels;
  if (std::ranges::find(kWithoutKernels, architecture.family) != std::end(kWithoutKernels) &&
      (s.liger.loss || s.liger.norms || s.liger.rotary || s.liger.swiglu || qkv || output || mlp))
    throw usage_error(
        "kernels of Liger and axolotl are not described for the family '" + architecture.family + "'",
        "use none of them");
  require_countable(architecture, s);
  if (may_be_repeated(architecture, s) && has_equal_adapters(s)) {
    if (s.zero.stage == 3 ? calculate_by_script(architecture, s, limit) : repeat_layers(architecture, s))
      return;
  }
  repetition_.reset(), copied_.reset();
  step_ = {};
  try {
    run_steps(architecture, s, {step_, nullptr, &copied_, limit});
  } catch (const PeakAboveLimit& e) {
    end_above_limit(e.bytes);
  }
}

void CalculatedStep::end_above_limit(std::uint64_t bytes) {
  above_limit_ = bytes;
  step_ = {}, copied_.reset();  // of the incomplete step
}

/// The peak of a model with equal layers is known from few of them. False where they differ.
bool CalculatedStep::repeat_layers(const model::Architecture& architecture, const StepSettings& s) {
  model::Architecture small = architecture;
  small.layers.front().count = kRepeatedFrom;
  StepSettings computed = s;
  const bool copies = second_step_is_like_first(s);
  if (copies) computed.steps = 1;
  run_steps(small, computed, {step_, &executed_, &copied_});
  repetition_ = LayerRepetition::find(step_.trace, executed_, layers_);
  if (copies) {
    const TraceMark from = begin_of_steps(step_.trace);
    if (auto kept = kept_by_step(step_.trace, from))
      copied_ = {from, std::move(*kept)};
    else
      repetition_.reset();
  }
  return repetition_ && step_.saved_bytes[2] == step_.saved_bytes[3];
}

/// The same under ZeRO 3, whose events are those of all layers. False where the step is no script.
bool CalculatedStep::calculate_by_script(const model::Architecture& architecture, const StepSettings& s,
                                         std::uint64_t limit) {
  const std::shared_ptr<const Script> script = script_of(architecture, s);
  if (!script) return false;
  step_.saved_bytes = script->saved_bytes;
  step_.repeated = true;
  try {
    play_zero3(script->trace, script->declared, script->begin, script->kept, s, limit, step_);
  } catch (const PeakAboveLimit& e) {
    end_above_limit(e.bytes);
  }
  return true;
}

/// Like find_peak(): a step that is copied begins with what the first has left.
static std::uint64_t peak_with_copy(const Trace& t, const std::optional<CopiedStep>& copied,
                                    std::uint64_t block) {
  std::uint64_t now = 0, peak = 0;
  const auto add = [&](TraceEvent e) {
    const std::uint64_t bytes = rounded_up(t.storages[e.storage].bytes, block);
    now = e.allocation ? now + bytes : now - bytes;
    peak = std::max(peak, now);
  };
  for (const TraceEvent e : t.events) add(e);
  if (copied)
    for (std::size_t i = copied->from.events; i < t.events.size(); ++i)
      if (!copied->kept[t.events[i].storage - copied->from.storages]) add(t.events[i]);
  return peak;
}

std::uint64_t CalculatedStep::peak_bytes() const {
  if (above_limit_) return *above_limit_;
  const std::uint64_t block = EvaluateOptions().block;
  if (!repetition_) return peak_with_copy(step_.trace, copied_, block);
  static const std::vector<bool> none;
  return repetition_->peak_bytes(block, copied_ ? std::optional(copied_->from) : std::nullopt,
                                 copied_ ? copied_->kept : none);
}

TrainingStep CalculatedStep::take() && {
  assert(complete());
  if (!repetition_) {
    if (copied_) copy_step(step_.trace, copied_->from, copied_->kept);
    return std::move(step_);
  }
  Trace trace = repetition_->write();
  if (copied_) {
    const TraceMark begin = begin_of_steps(trace);
    // What the small model keeps, all layers keep.
    copy_step(trace, begin, kept_by_step(trace, begin).value());
  }
  repetition_.reset();
  step_.trace = std::move(trace);
  step_.repeated = true;
  // [0]: outside, [1]: layer 0, [2]: layer 1, which is repeated for all layers up to the last.
  step_.saved_bytes.insert(step_.saved_bytes.begin() + 2, layers_ - kRepeatedFrom, step_.saved_bytes[2]);
  return std::move(step_);
}

TrainingStep training_step(const model::Architecture& architecture, const StepSettings& s) {
  return CalculatedStep(architecture, s).take();
}

}  // namespace trainhost::frameworks
