// From the replay of a step (replay.hpp) to a report: what the caching allocator reserves on the device of
// the run, tensors by purpose, gaps, context, upper bounds and notes. Which settings: settings.cpp. Causes of
// the upper bounds: docs/memory-model.md ("Upper bounds").
#include "plugins/estimators/pytorch/report.hpp"

#include <algorithm>
#include <utility>

#include "core/base/text.hpp"
#include "core/frameworks/trace/evaluate.hpp"
#include "core/parallel/rank_memory.hpp"
#include "plugins/estimators/pytorch/largest_replay.hpp"
#include "plugins/estimators/pytorch/replay.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::Purpose;

struct Line {
  Purpose purpose;
  Component component;
  std::uint32_t phases;
};
constexpr std::uint32_t kPasses = kForward | kBackward;
// Every purpose is in one line, so the entries sum to the peak. Phases: when the memory may be in use.
constexpr Line kLines[] = {
    {Purpose::kWeights, Component::kWeights, kAlways},
    {Purpose::kMasterWeights, Component::kMasterWeights, kAlways},
    {Purpose::kGradients, Component::kGradients, kPasses | kUpdate},
    {Purpose::kOptimizerState, Component::kOptimizerState, kAlways},
    {Purpose::kActivations, Component::kActivations, kPasses},
    {Purpose::kLogits, Component::kLogits, kPasses},
    {Purpose::kBackward, Component::kWorkspace, kBackward},
    {Purpose::kUpdate, Component::kWorkspace, kUpdate},
    {Purpose::kKernel, Component::kWorkspace, kAlways},
    {Purpose::kCommunication, Component::kCommunication, kAlways},
    {Purpose::kBuffers, Component::kWorkspace, kAlways},
};

static_assert(std::size(kLines) == frameworks::kPurposes);

class Builder {
 public:
  void add(Component c, std::uint32_t phases, std::uint64_t bytes, std::uint64_t at_peak, std::string name,
           std::string formula = {}, Tier tier = Tier::kDevice) {
    if (bytes == 0) return;
    MemoryEntry e;
    e.id = static_cast<std::uint32_t>(report.entries.size() + 1);
    e.tier = tier;
    e.component = c;
    e.claim = Claim::kApproximation;
    e.phases = phases;
    e.bytes = e.lo = e.hi = bytes;
    e.bytes_at_peak = at_peak;
    e.has_at_peak = true;
    e.name = std::move(name);
    e.formula = std::move(formula);
    if (tier == Tier::kDevice) total += at_peak;
    report.entries.push_back(std::move(e));
  }
  /// The last entry may be larger by this much.
  void widen(std::uint64_t bytes) {
    if (!report.entries.empty()) report.entries.back().hi += bytes;
  }
  MemoryReport report;
  std::uint64_t total = 0;
};

std::string runtime_source(const Options& o) {
  return o.runtime_given ? "plan.runtime" : "assumed; plan.runtime replaces it";
}

/// Tensors of one name and size, such as the chunks of a loss, are one item: "NAME 8 x 250 MiB".
std::string largest_tensors(const frameworks::Trace& trace, const frameworks::Peak& peak) {
  std::string text = "Largest tensors at the peak: ";
  for (std::size_t i = 0, next; i < peak.largest.size(); i = next) {
    const frameworks::TraceStorage& s = trace.storages[peak.largest[i]];
    const auto is_equal = [&](const frameworks::TraceStorage& o) {
      return o.bytes == s.bytes && trace.name_of(o) == trace.name_of(s);
    };
    for (next = i + 1; next < peak.largest.size() && is_equal(trace.storages[peak.largest[next]]);) ++next;
    text += (i ? "; " : "") + trace.name_of(s) + " " +
            (next - i > 1 ? std::to_string(next - i) + " x " : "") + format_bytes(s.bytes);
  }
  return text + ".";
}

/// What the caching allocator reserves on a device with the run's budget. A run that reserves more than the
/// device has fits if it does so after the allocator has returned its cached segments.
std::uint64_t reserved_on_device(const Replay& r, const Options& options, const RunSpec& run,
                                 std::vector<std::string>& notes) {
  // The allocator cannot use what the CUDA context takes.
  const std::uint64_t capacity =
      run.device_budget > options.runtime ? run.device_budget - options.runtime : 0;
  const bool fits_exactly = capacity >= r.peak_bytes;
  const bool collects = r.allocator.garbage_collection_threshold > 0;
  if (options.only_if_it_fits && run.device_budget && !fits_exactly)
    return std::max(r.peak_bytes, capacity + 1);
  // An allocator that never reaches its limit is like one without.
  if (r.knows_reserved() && r.reserved() <= capacity && !collects) return r.reserved();
  if (!options.only_if_it_fits && (!fits_exactly || (r.reserved() <= capacity && !collects)))
    return r.reserved();
  const frameworks::AllocatorResult limited = r.limited(fits_exactly ? capacity : 0);
  if (limited.out_of_memory) return options.only_if_it_fits ? capacity + 1 : r.reserved();
  if (limited.retries && !options.only_if_it_fits)
    notes.push_back(
        "It fits because the allocator returns its cached memory to the driver when the device is full, " +
        std::to_string(limited.retries) + (limited.retries == 1 ? " time" : " times") +
        " in two steps, which takes time; with more memory it would reserve " + format_bytes(r.reserved()) +
        ".");
  return limited.reserved;
}

/// Gaps of a twentieth of the reserved memory are worth a note, unless it fits or nothing would make it fit.
void suggest_expandable_segments(const Replay& r, const Options& options, const RunSpec& run,
                                 std::vector<std::string>& notes) {
  if (r.allocator.expandable_segments || r.reserved() - r.peak_bytes < r.reserved() / 20) return;
  const std::uint64_t budget = run.device_budget;
  if (budget && (r.peak_bytes + options.runtime > budget || r.reserved() + options.runtime <= budget)) return;
  frameworks::AllocatorConfig expandable = r.allocator;
  expandable.expandable_segments = true;
  const std::uint64_t other = r.replayed(expandable, 0).reserved;
  if (other < r.reserved())
    notes.push_back("With plan.allocator = \"expandable_segments:True\" it reserves " + format_bytes(other) +
                    ".");
}

/// Throws usage_error for what is no model, and for sizes beyond 2^56 bytes: the replay multiplies without
/// checks, and its temporary tensors are a few times larger than what the closed form counts.
void require_sizes(const model::Architecture& a, const RunSpec& run) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 56;
  constexpr std::size_t kMostLayers = 4096;  // as in a run file
  const bool layers = std::ranges::all_of(a.layers, [](const model::LayerRun& l) {
    const model::Attention& t = l.layer.attention;
    return l.count > 0 && t.heads > 0 && t.kv_heads > 0 && (t.latent ? t.v_head_dim : t.head_dim) > 0;
  });
  if (a.layers.empty() || !layers || a.hidden == 0 || a.vocab == 0 || a.layer_count() > kMostLayers)
    throw usage_error(
        "this is no model: layers (at most 4,096), hidden size, vocabulary, heads and head dimension must "
        "be at least 1");
  parallel::validate(a, run);
  if (parallel::report(a, run).total_bytes() > kMostBytes)
    throw usage_error("the run needs more than 2^56 bytes, which the estimator 'pytorch' does not replay");
}

/// What the compiled 8-bit step of torchao allocates with torch 2.5 (core/frameworks/optimizer_step.cpp)
/// beyond later versions: 12 bytes per element of the largest parameter, whose moment has one byte, and a
/// buffer.
std::uint64_t more_of_the_8bit_step(const Replay& r) {
  if (r.settings.optimizer != Optimizer::kAdamW8bit || r.settings.paged_optimizer ||
      r.settings.tunes_with_clones || r.settings.modules != frameworks::ModelSource::kTorchtune)
    return 0;
  constexpr std::uint64_t kBytesPerElement = 12, kBuffer = 256'000'000;
  std::uint64_t largest = 0;
  for (const frameworks::TraceStorage& s : r.trace().storages)
    if (s.purpose == Purpose::kOptimizerState) largest = std::max(largest, s.bytes);
  return kBytesPerElement * largest + kBuffer;
}

/// The start script of torchtitan for one host sets expandable_segments, the one for several hosts does not:
/// bytes that the first reserves beyond the second.
std::uint64_t gaps_of_other_launch(const Replay& r, const Options& options, std::uint64_t reserved) {
  if (options.framework != Framework::kTorchtitan || options.allocator_given) return 0;
  frameworks::AllocatorConfig expandable = r.allocator;
  expandable.expandable_segments = true;
  return std::max(reserved, r.replayed(expandable, 0).reserved) - reserved;
}

/// Tensors that one layer's backward pass allocates, with recomputation. How many of them a compiled layer
/// with collectives keeps at the same time is not known, nor which memory the streams of an all-to-all share.
std::uint64_t tensors_of_one_layer(const frameworks::Trace& trace) {
  std::uint64_t bytes = 0, phase = 0;
  for (std::uint64_t i = 0; i < trace.events.size(); ++i) {
    while (phase + 1 < trace.phases.size() && trace.phases[phase + 1].event <= i) ++phase;
    const frameworks::TracePhase& p = trace.phases[phase];
    const frameworks::TraceStorage& s = trace.storages[trace.events[i].storage];
    if (p.step == 1 && p.phase == kBackward && p.micro_batch == 1 && trace.events[i].allocation &&
        s.layer == 0 && (s.purpose == Purpose::kActivations || s.purpose == Purpose::kBackward))
      bytes += s.bytes;
  }
  return bytes;
}

/// With only_if_it_fits the host needs the sum, not what exists at the peak.
void add_entries(Builder& b, const Replay& r, std::uint64_t reserved, const Options& options) {
  if (options.only_if_it_fits) {
    b.add(Component::kFragmentation, kAlways, reserved, reserved, "reserved");
  } else {
    for (const Line& l : kLines) {
      const auto i = static_cast<std::size_t>(l.purpose);
      b.add(l.component, l.phases, r.peak().largest_by_purpose[i], r.peak().by_purpose[i],
            std::string(frameworks::name(l.purpose)));
    }
    const std::uint64_t gaps = reserved - std::min(reserved, r.peak_bytes);
    b.add(Component::kFragmentation, kAlways, gaps, gaps, "gaps of the allocator",
          "reserved " + format_bytes(reserved) + " - allocated " + format_bytes(r.peak_bytes));
  }
  // Upper bounds: other versions and kernels allocate other temporary tensors; the context, if it is assumed,
  // and what NCCL allocates for its channels (up to 1 GiB).
  constexpr std::uint64_t kPartOfReserved = 50, kNccl = std::uint64_t{1} << 30;
  const bool exchanges = (r.settings.compiles_layers && r.settings.tensor > 1) ||
                         (options.framework == Framework::kMegatron && r.settings.context > 1);
  if (options.upper_bounds)
    b.widen(reserved / kPartOfReserved + gaps_of_other_launch(r, options, reserved) +
            more_of_the_8bit_step(r) + (exchanges ? tensors_of_one_layer(r.trace()) : 0));
  b.add(Component::kRuntime, kAlways, options.runtime, options.runtime, "CUDA context and libraries",
        runtime_source(options));
  b.widen((options.runtime_given ? 0 : options.runtime) +
          (r.settings.ddp.on || r.settings.fsdp.ranks || r.settings.zero.ranks > 1 ||
                   std::max({r.settings.megatron.optimizer_ranks, r.settings.tensor, r.settings.context,
                             r.settings.stage.stages}) > 1
               ? kNccl
               : 0));
  b.report.tiers.push_back(
      {Tier::kDevice, b.total, options.only_if_it_fits ? kUpdate : r.peak().phase.phase});
}

/// What offload keeps in host memory, during the whole run.
void add_host_entries(Builder& b, const Replay& r) {
  for (const bool pinned : {true, false}) {
    const Tier tier = pinned ? Tier::kPinned : Tier::kHost;
    std::uint64_t bytes = 0;
    for (const frameworks::HostBuffers& h : r.host()) {
      if (h.pinned != pinned) continue;
      const Line* line = std::ranges::find(kLines, h.purpose, &Line::purpose);
      b.add(line->component, kAlways, h.allocated, h.allocated, std::string(h.name),
            h.allocated > h.bytes ? format_bytes(h.bytes) + " in blocks of a power of two" : "", tier);
      bytes += h.allocated;
    }
    if (bytes) b.report.tiers.push_back({tier, bytes, kUpdate});
  }
}

/// "an eager step (transformers 5.23, peft 0.21, torch 2.15, no fused or compiled kernels)"
std::string described_software(const Replay& r, const Options& options) {
  // Both train models of transformers; what they change was read in these versions.
  const std::string trainer = options.name == "axolotl"         ? "axolotl 0.19, "
                              : options.name == "llama-factory" ? "LLaMA-Factory 0.9.5, "
                                                                : "";
  if (options.release != frameworks::TransformersRelease::k5)
    return "an eager step (" + trainer + "transformers " + options.release_name +
           ", torch 2.15, no fused or compiled kernels)";
  const char* software = "transformers 5.23, peft 0.21, torch 2.15";
  const bool bitsandbytes = r.settings.nf4 || r.settings.int8 || r.settings.paged_optimizer ||
                            r.settings.optimizer == Optimizer::kAdamW8bit;
  if (options.framework == Framework::kPlain && bitsandbytes)
    software = "transformers 5.24, peft 0.21, bitsandbytes 0.50, torch 2.15";
  if (r.settings.unsloth.on)
    return "a step (Unsloth 2026.10 with its kernels, transformers 5.24, peft 0.21, bitsandbytes 0.50, torch "
           "2.15)";
  if (options.framework == Framework::kTorchtitan) {
    constexpr const char* kVersions[] = {"torchtitan 0.0, torch of December 2024",
                                         "torchtitan 0.1, torch 2.8", "torchtitan 0.2, torch 2.15",
                                         "torchtitan 0.2.0, torch 2.15"};
    static_assert(std::size(kVersions) == static_cast<std::size_t>(TorchtitanVersion::k020) + 1);
    software = kVersions[static_cast<std::size_t>(options.version)];
  }
  if (options.framework == Framework::kTorchtune)
    software = options.moved_logits    ? "torchtune 0.2, torch 2.15"
               : options.torch_of_2024 ? "torchtune of April 2026, optimizer step of torch 2.5"
                                       : "torchtune of April 2026, torch 2.15";
  if (options.framework == Framework::kLitgpt) {
    constexpr const char* kReleases[] = {"lit-gpt of October 2023, torch 2.15", "litgpt 0.4, torch 2.15",
                                         "litgpt 0.5, torch 2.15", "litgpt of June 2026, torch 2.15"};
    software = kReleases[static_cast<std::size_t>(options.litgpt_release)];
  }
  if (options.framework == Framework::kMegatron)
    return "a step (Megatron Core 0.14, Transformer Engine 2.11, torch 2.10)";
  if (options.framework == Framework::kDeepSpeed) software = "transformers 5.23, DeepSpeed 0.19, torch 2.15";
  if (r.settings.compiles_layers) return std::string("a step (") + software + ", compiled layers)";
  const frameworks::LigerKernels& l = r.settings.liger;
  const bool liger = l.loss || l.norms || l.rotary || l.swiglu;
  const bool cut = r.settings.cut_loss;
  const char* kernels = liger && cut ? " but those of Liger and Cut Cross Entropy"
                        : liger      ? " but those of Liger"
                        : cut        ? " but those of Cut Cross Entropy"
                                     : "";
  return "an eager step (" + trainer + software + ", no fused or compiled kernels" + kernels + ")";
}

void add_notes(std::vector<std::string>& notes, const Replay& r, std::uint64_t reserved,
               const Options& options, const RunSpec& run) {
  const auto most = [&](Purpose p) {
    return format_bytes(r.peak().largest_by_purpose[static_cast<std::size_t>(p)]);
  };
  notes.push_back("Allocated " + format_bytes(r.peak_bytes) + ", reserved " + format_bytes(reserved) +
                  ". Peak: " + frameworks::time_of(r.trace(), r.peak()) + ".");
  suggest_expandable_segments(r, options, run, notes);
  notes.push_back("Maxima during the step: activations " + most(Purpose::kActivations) + ", logits " +
                  most(Purpose::kLogits) + ".");
  notes.push_back(largest_tensors(r.trace(), r.peak()));
  if (r.settings.paged_optimizer)
    notes.push_back(
        "Paged moments of 100,000 elements or more are not counted: the driver moves them to host memory "
        "when the device is full, which takes time.");
  notes.push_back("Counted: every tensor of " + described_software(r, options) +
                  ", workspaces of cuBLAS, the caching allocator, and " + format_bytes(options.runtime) +
                  " for CUDA context and libraries (" + runtime_source(options) +
                  "). Not counted: NCCL, data loading, evaluation, padding of batches.");
  for (const std::string& n : r.architecture.notes) notes.push_back(n);
}

}  // namespace

MemoryReport report(const model::Architecture& given, const RunSpec& run, const Options& options) {
  Builder b;
  std::vector<std::string>& notes = b.report.notes;
  // parallel.vocab_multiple: every tensor over the vocabulary has the padded size.
  model::Architecture a = given;
  // Megatron-LM divides the padded vocabulary over the tensor-parallel ranks.
  const std::uint64_t parts =
      options.framework == Framework::kMegatron ? std::max(1u, run.parallel.tensor) : 1;
  const std::uint64_t multiple = parts * std::max(1u, run.memory.vocab_multiple);
  a.vocab = (a.vocab + multiple - 1) / multiple * multiple;
  if (options.name == "unsloth") use_copy_of_unsloth(a, notes);
  const frameworks::StepSettings settings = step_settings(a, run, options, notes);
  require_sizes(a, run);
  const ReplayPointer r = largest_replay(a, settings, options, run, notes);
  const std::uint64_t reserved = reserved_on_device(*r, options, run, notes);
  if (options.only_if_it_fits && run.device_budget && reserved + options.runtime > run.device_budget) {
    // The verdict is all that the host needs: that the sum exceeds the budget.
    b.add(Component::kFragmentation, kAlways, reserved, reserved, "reserved");
    b.add(Component::kRuntime, kAlways, options.runtime, options.runtime, "CUDA context and libraries");
    b.report.tiers.push_back({Tier::kDevice, b.total, kUpdate});
    b.report.claim = Claim::kApproximation;
    return std::move(b.report);
  }
  add_entries(b, *r, reserved, options);
  add_host_entries(b, *r);
  if (!options.only_if_it_fits) add_notes(notes, *r, reserved, options, run);
  b.report.claim = Claim::kApproximation;
  return std::move(b.report);
}

}  // namespace trainhost::pytorch
