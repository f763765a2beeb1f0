// Two steps as a trace (calculate_step.hpp), with shortcuts that make long runs cheap and are checked where
// they are taken: the second step copies the events of the first (copy_step), and equal layers copy those of
// one (repeat_layers.hpp). Tests compare both with the full calculation.
#include "core/frameworks/training_step.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/base/checked.hpp"
#include "core/frameworks/calculate_step.hpp"
#include "core/frameworks/kernels/unsloth.hpp"
#include "core/frameworks/sharding/zero_script.hpp"
#include "core/frameworks/trace/evaluate.hpp"
#include "core/frameworks/trace/repeat_layers.hpp"

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
constexpr std::string_view kTorchtitanFamilies[] = {"deepseek_v2", "deepseek_v3", "llama",    "llama4",
                                                    "llama4_text", "qwen3",       "qwen3_moe"};
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

/// Whether every layer has the adapters of the first.
bool has_equal_adapters(const StepSettings& s) {
  return std::ranges::all_of(s.lora_ranks, [&](const auto& ranks) { return ranks == s.lora_ranks.front(); });
}

/// nullptr where the step is no script.
std::shared_ptr<const RecordedScript> make_script(model::Architecture architecture, StepSettings s,
                                                  const LayerUnits& units) {
  keep_few_layers(architecture, s, units);
  auto script = std::make_shared<RecordedScript>();
  TrainingStep of_few;
  std::vector<std::int32_t> executed;
  std::optional<CopiedStep> copied;
  bool is_script = false;
  run_steps(architecture, s, {of_few, &copied, UINT64_MAX, &executed, &units, &script->declared, &is_script});
  const auto repetition =
      is_script ? LayerRepetition::find(of_few.trace, executed, units) : std::unique_ptr<LayerRepetition>();
  if (!repetition || !repeat_saved_bytes(of_few.saved_bytes, units)) return nullptr;
  script->trace = repetition->write();
  script->begin = begin_of_step(script->trace, 1);
  std::optional<std::vector<bool>> kept = kept_by_step(script->trace, script->begin);
  if (!kept) return nullptr;
  script->kept = std::move(*kept);
  script->saved_bytes = std::move(of_few.saved_bytes);
  return script;
}

/// Keeps the last ones: planners ask for one step with other ranks, optimizers and offload, of which modules
/// know nothing.
std::shared_ptr<const RecordedScript> script_of(const model::Architecture& architecture,
                                                const StepSettings& s, const LayerUnits& units) {
  StepSettings of_modules = s;
  of_modules.zero = {};
  of_modules.zero.stage = s.zero.stage;
  // Stage 1 hands gradients over at once, or when the micro-batches of the step have been summed.
  of_modules.zero.overlap = s.zero.stage == 1 && s.zero.overlap;
  of_modules.optimizer = Optimizer::kAdamW;
  of_modules.loop = OptimizerLoop::kForeach;
  of_modules.weight_decay = of_modules.f32_embedding_moments = of_modules.paged_optimizer = false;
  of_modules.steps = 1;
  struct Kept {
    model::Architecture architecture;
    StepSettings settings;
    std::shared_ptr<const RecordedScript> script;
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
  const std::shared_ptr<const RecordedScript> made = make_script(architecture, of_modules, units);
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
  if (modules == ModelSource::kTorchtitan)
    return std::ranges::find(kTorchtitanFamilies, family) != std::end(kTorchtitanFamilies);
  if (modules == ModelSource::kTorchtune)
    return std::ranges::find(kTorchtuneFamilies, family) != std::end(kTorchtuneFamilies);
  return std::find(std::begin(kFamilies), std::end(kFamilies), family) != std::end(kFamilies);
}

std::int64_t StepSettings::outlier_columns(std::int64_t inputs) const {
  if (outliers) return *outliers;
  return static_cast<std::int64_t>(std::ceil(outlier_share * static_cast<double>(inputs)));
}

CalculatedStep::CalculatedStep(const model::Architecture& architecture, const StepSettings& s,
                               std::uint64_t limit) {
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
  const auto finish = [&] {
    if (s.unsloth.offloads)
      step_.host = host_memory_of_unsloth(architecture.layer_count(),
                                          std::uint64_t{2} * s.batch * s.sequence * architecture.hidden);
  };
  // Megatron-LM: megatron_passes.hpp.
  if (s.modules != ModelSource::kMegatron && has_equal_adapters(s))
    if (const std::optional<LayerUnits> units = repeated_units(architecture, s))
      if (s.zero.stage ? calculate_by_script(architecture, s, *units, limit)
                       : repeat_layers(architecture, s, *units)) {
        finish();
        return;
      }
  repetition_.reset(), copied_.reset();
  step_ = {};
  try {
    run_steps(architecture, s, {step_, &copied_, limit});
    finish();
  } catch (const PeakAboveLimit& e) {
    end_above_limit(e.bytes);
  }
}

void CalculatedStep::end_above_limit(std::uint64_t bytes) {
  above_limit_ = bytes;
  step_ = {}, copied_.reset();  // of the incomplete step
}

/// The peak of a model with equal layers is known from few of them. False where they differ.
bool CalculatedStep::repeat_layers(const model::Architecture& architecture, const StepSettings& s,
                                   const LayerUnits& units) {
  model::Architecture small = architecture;
  StepSettings computed = s;
  keep_few_layers(small, computed, units);
  const bool copies = second_step_is_like_first(s);
  if (copies) computed.steps = 1;
  run_steps(small, computed, {step_, &copied_, UINT64_MAX, &executed_, &units});
  if (copies) {
    const TraceMark from = begin_of_step(step_.trace, 1);
    if (auto kept = kept_by_step(step_.trace, from)) {
      copied_ = {from, std::move(*kept)};
    } else {  // as pipeline stages keep their outputs until the second step
      step_ = {};
      computed.steps = 2;
      run_steps(small, computed, {step_, &copied_, UINT64_MAX, &executed_, &units});
    }
  }
  repetition_ = LayerRepetition::find(step_.trace, executed_, units);
  return repetition_ && repeat_saved_bytes(step_.saved_bytes, units);
}

/// The same under ZeRO, whose events are those of all layers. False where the step is no script.
bool CalculatedStep::calculate_by_script(const model::Architecture& architecture, const StepSettings& s,
                                         const LayerUnits& units, std::uint64_t limit) {
  const std::shared_ptr<const RecordedScript> script = script_of(architecture, s, units);
  if (!script) return false;
  step_.saved_bytes = script->saved_bytes;
  step_.repeated = true;
  try {
    play_zero(*script, s, limit, step_, copied_);
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

/// Replaces the events of few layers by those of all.
void CalculatedStep::write_layers() {
  assert(complete());
  if (!repetition_) return;
  Trace trace = repetition_->write();
  if (copied_) {
    const TraceMark begin = begin_of_step(trace, 1);
    // What the small model keeps, all layers keep.
    copied_ = {begin, kept_by_step(trace, begin).value()};
  }
  repetition_.reset();
  step_.trace = std::move(trace);
  step_.repeated = true;
}

AllocatorResult CalculatedStep::replay(const AllocatorConfig& config, std::uint64_t capacity) {
  write_layers();
  return replay_allocator(step_.trace, config, capacity, copied_ ? &*copied_ : nullptr);
}

const Trace& CalculatedStep::trace() {
  write_layers();
  return step_.trace;
}

Peak CalculatedStep::peak() { return find_peak(trace(), {}, copied_ ? &*copied_ : nullptr); }

TrainingStep CalculatedStep::take() && {
  write_layers();
  if (copied_) copy_step(step_.trace, copied_->from, copied_->kept);
  return std::move(step_);
}

TrainingStep training_step(const model::Architecture& architecture, const StepSettings& s) {
  return CalculatedStep(architecture, s).take();
}

}  // namespace trainhost::frameworks
