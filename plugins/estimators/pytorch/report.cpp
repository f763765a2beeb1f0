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
  void add(Component c, std::uint32_t phases, std::uint64_t bytes, std::string name,
           std::string formula = {}) {
    if (bytes == 0) return;
    MemoryEntry e;
    e.id = static_cast<std::uint32_t>(report.entries.size() + 1);
    e.tier = Tier::kDevice;
    e.component = c;
    e.claim = Claim::kApproximation;
    e.phases = phases;
    e.bytes = e.lo = e.hi = e.bytes_at_peak = bytes;
    e.has_at_peak = true;
    e.name = std::move(name);
    e.formula = std::move(formula);
    total += bytes;
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

}  // namespace

MemoryReport report(const model::Architecture& given, const RunSpec& run, const Options& options) {
  Builder b;
  const frameworks::StepSettings settings = step_settings(run, options, b.report.notes);
  model::Architecture a = given;
  const std::uint64_t multiple = std::max(1u, run.memory.vocab_multiple);
  a.vocab = (a.vocab + multiple - 1) / multiple * multiple;

  const frameworks::TrainingStep step = frameworks::training_step(a, settings);
  const frameworks::Peak peak = frameworks::find_peak(step.trace);
  const frameworks::AllocatorResult allocator = frameworks::replay_allocator(step.trace, options.allocator);

  for (const Line& l : kLines)
    b.add(l.component, l.phases, peak.by_purpose[static_cast<std::size_t>(l.purpose)],
          std::string(frameworks::name(l.purpose)));
  b.add(Component::kFragmentation, kAlways, allocator.reserved - peak.bytes, "gaps of the allocator",
        "reserved " + format_bytes(allocator.reserved) + " - allocated " + format_bytes(peak.bytes));
  b.add(Component::kRuntime, kAlways, options.runtime, "CUDA context and libraries");
  b.report.claim = Claim::kApproximation;
  b.report.tiers.push_back({Tier::kDevice, b.total, peak.phase.phase});

  std::vector<std::string>& notes = b.report.notes;
  notes.push_back("Allocated " + format_bytes(peak.bytes) + ", reserved " + format_bytes(allocator.reserved) +
                  ". Peak: " + frameworks::time_of(step.trace, peak) + ".");
  notes.push_back(largest_tensors(step.trace, peak));
  notes.push_back(
      "A replay of eager execution with transformers 5.23, peft 0.21 and torch 2.15. Not included: memory of "
      "NCCL, "
      "of the data loader and of evaluation.");
  for (const std::string& n : a.notes) notes.push_back(n);
  return std::move(b.report);
}

}  // namespace trainhost::pytorch
