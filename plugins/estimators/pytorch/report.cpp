#include "plugins/estimators/pytorch/report.hpp"

#include <utility>

#include "core/base/text.hpp"
#include "core/frameworks/evaluate.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::Purpose;

struct Line {
  Purpose purpose;
  Component component;
  std::uint32_t phases;
};
constexpr std::uint32_t kPasses = kForward | kBackward;
constexpr Line kLines[] = {
    {Purpose::kWeights, Component::kWeights, kAlways},
    {Purpose::kGradients, Component::kGradients, kPasses | kUpdate},
    {Purpose::kOptimizerState, Component::kOptimizerState, kAlways},
    {Purpose::kActivations, Component::kActivations, kPasses},
    {Purpose::kLogits, Component::kLogits, kPasses},
    {Purpose::kBackward, Component::kWorkspace, kBackward},
    {Purpose::kUpdate, Component::kWorkspace, kUpdate},
    {Purpose::kKernel, Component::kWorkspace, kAlways},
    {Purpose::kCommunication, Component::kCommunication, kAlways},
    {Purpose::kBuffers, Component::kActivations, kAlways},
};

class Builder {
 public:
  void add(Component c, std::uint32_t phases, std::uint64_t bytes, std::uint64_t at_peak, std::string name,
           std::string formula = {}) {
    if (bytes == 0) return;
    MemoryEntry e;
    e.id = static_cast<std::uint32_t>(report.entries.size() + 1);
    e.tier = Tier::kDevice;
    e.component = c;
    e.claim = Claim::kApproximation;
    e.phases = phases;
    e.bytes = e.lo = e.hi = bytes;
    e.bytes_at_peak = at_peak;
    e.has_at_peak = true;
    e.name = std::move(name);
    e.formula = std::move(formula);
    total += at_peak;
    report.entries.push_back(std::move(e));
  }
  MemoryReport report;
  std::uint64_t total = 0;
};

std::string largest_tensors(const frameworks::Trace& trace, const frameworks::Peak& peak) {
  std::string text = "Largest tensors at the peak: ";
  for (std::size_t i = 0; i < peak.largest.size(); ++i) {
    const frameworks::TraceStorage& s = trace.storages[peak.largest[i]];
    text += (i ? "; " : "") + trace.name_of(s) + " " + format_bytes(s.bytes);
  }
  return text + ".";
}

/// What the caching allocator reserves on a device with the run's budget. A run that reserves more than the
/// device has fits if it does so after the allocator has returned its cached segments.
frameworks::AllocatorResult reserved_on_device(const frameworks::Trace& trace, const Options& options,
                                               const RunSpec& run, std::vector<std::string>& notes) {
  const frameworks::AllocatorResult free = frameworks::replay_allocator(trace, options.allocator);
  const std::uint64_t capacity =
      run.device_budget > options.runtime ? run.device_budget - options.runtime : 0;
  const bool collects = options.allocator.garbage_collection_threshold > 0;
  if (capacity == 0 || (free.reserved <= capacity && !collects)) return free;
  const frameworks::AllocatorResult limited =
      frameworks::replay_allocator(trace, options.allocator, capacity);
  if (limited.out_of_memory) return free;
  if (limited.retries)
    notes.push_back(
        "It fits because the allocator returns its cached memory to the driver when the device is "
        "full, " +
        std::to_string(limited.retries) +
        " times in two steps, which takes time; with more "
        "memory it would reserve " +
        format_bytes(free.reserved) + ".");
  return limited;
}

/// Worth a note: gaps of a twentieth of the reserved memory.
void suggest_expandable_segments(const frameworks::Trace& trace, const Options& options,
                                 std::uint64_t allocated, std::uint64_t reserved,
                                 std::vector<std::string>& notes) {
  if (options.allocator.expandable_segments || reserved - allocated < reserved / 20) return;
  frameworks::AllocatorConfig expandable = options.allocator;
  expandable.expandable_segments = true;
  const std::uint64_t other = frameworks::replay_allocator(trace, expandable).reserved;
  if (other >= reserved) return;
  notes.push_back("With plan.allocator = \"expandable_segments:True\" it reserves " + format_bytes(other) +
                  ".");
}

}  // namespace

MemoryReport report(const model::Architecture& given, const RunSpec& run, const Options& options) {
  Builder b;
  std::vector<std::string>& notes = b.report.notes;
  model::Architecture a = given;
  const std::uint64_t multiple = std::max(1u, run.memory.vocab_multiple);
  a.vocab = (a.vocab + multiple - 1) / multiple * multiple;
  const frameworks::StepSettings settings = step_settings(a, run, options, notes);

  const frameworks::TrainingStep step = frameworks::training_step(a, settings);
  const frameworks::Peak peak = frameworks::find_peak(step.trace);
  const std::uint64_t reserved = reserved_on_device(step.trace, options, run, notes).reserved;
  const std::uint64_t gaps = reserved - std::min(reserved, peak.bytes);

  for (const Line& l : kLines) {
    const auto i = static_cast<std::size_t>(l.purpose);
    b.add(l.component, l.phases, peak.largest_by_purpose[i], peak.by_purpose[i],
          std::string(frameworks::name(l.purpose)));
  }
  b.add(Component::kFragmentation, kAlways, gaps, gaps, "gaps of the allocator",
        "reserved " + format_bytes(reserved) + " - allocated " + format_bytes(peak.bytes));
  b.add(Component::kRuntime, kAlways, options.runtime, options.runtime, "CUDA context and libraries");
  b.report.claim = Claim::kApproximation;
  b.report.tiers.push_back({Tier::kDevice, b.total, peak.phase.phase});

  const auto most = [&](Purpose p) {
    return format_bytes(peak.largest_by_purpose[static_cast<std::size_t>(p)]);
  };
  notes.push_back("Allocated " + format_bytes(peak.bytes) + ", reserved " + format_bytes(reserved) +
                  ". Peak: " + frameworks::time_of(step.trace, peak) + ".");
  suggest_expandable_segments(step.trace, options, peak.bytes, reserved, notes);
  notes.push_back("Maxima during the step: activations " + most(Purpose::kActivations) + ", logits " +
                  most(Purpose::kLogits) + ".");
  notes.push_back(largest_tensors(step.trace, peak));
  notes.push_back(
      "Counted: every tensor of an eager step (transformers 5.23, peft 0.21, torch 2.15, no fused or "
      "compiled "
      "kernels), workspaces of cuBLAS, the caching allocator, and " +
      format_bytes(options.runtime) +
      " for CUDA context and libraries, an assumption (plan.runtime). Not counted: NCCL, data loading, "
      "evaluation, padding of batches.");
  for (const std::string& n : a.notes) notes.push_back(n);
  return std::move(b.report);
}

}  // namespace trainhost::pytorch
