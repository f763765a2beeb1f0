// Releases of transformers (plan.framework_version): which of them a text names, their defaults, and what was
// compared of the older ones. What their modules allocate otherwise is in core/frameworks
// (TransformersRelease); docs/pytorch-memory.md, "Releases of transformers".
#include <algorithm>
#include <array>
#include <charconv>

#include "core/base/error.hpp"
#include "plugins/estimators/pytorch/compared_families.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {

using frameworks::TransformersRelease;

TransformersRelease transformers_release(const std::string& version) {
  // Two or three numbers with points, or the first alone.
  std::array<unsigned, 3> n{};
  const char *at = version.data(), *const end = at + version.size();
  std::size_t count = 0;
  for (bool more = true; more && count < n.size(); ++count) {
    const auto [next, status] = std::from_chars(at, end, n[count]);
    if (status != std::errc() || next == at) break;
    at = next;
    more = at != end && *at == '.' && at + 1 != end;
    if (more) ++at;
  }
  // SDPA is the default from 4.36 on.
  constexpr unsigned kFirstMinor = 36, kLastMinor = 57;
  const bool newest = n[0] == 5, older = n[0] == 4 && count > 1 && n[1] >= kFirstMinor && n[1] <= kLastMinor;
  if (count == 0 || at != end || (!newest && !older))
    throw usage_error("plan.framework_version = \"" + version +
                          "\": of transformers the releases from 4.36 to 4.57, and 5, are described",
                      "write it as \"4.57\" or \"5\"");
  if (newest) return TransformersRelease::k5;
  return n[1] >= 54   ? TransformersRelease::k454
         : n[1] >= 52 ? TransformersRelease::k452
         : n[1] >= 49 ? TransformersRelease::k449
         : n[1] >= 46 ? TransformersRelease::k446
                      : TransformersRelease::k445;
}

void set_release(const model::Architecture& a, const RunSpec& r, const Options& o,
                 frameworks::StepSettings& s, std::vector<std::string>& notes) {
  if (o.release == TransformersRelease::k5) return;
  const std::string name = "transformers " + o.release_name;
  constexpr std::uint32_t kMlp = frameworks::kLoraGate | frameworks::kLoraUp | frameworks::kLoraDown;
  if (a.has_experts() && s.lora_rank && (r.lora_targets & kMlp))
    reject("adapters of experts in " + name,
           "each expert is a module there, whose adapters were not compared",
           "leave gate_proj, up_proj and down_proj out of lora.targets");
  if (!was_compared(a.family, o.release == TransformersRelease::k445   ? Comparison::kTransformers445
                              : o.release == TransformersRelease::k454 ? Comparison::kTransformers454
                                                                       : Comparison::kTransformers446))
    reject("the family '" + a.family + "' in " + name, "its modules of that release were not compared");
  if (s.attention == frameworks::AttentionKernel::kEager)
    reject("plan.attention = \"materialised\" in " + name, "its masks were not compared");
  if (o.liger.loss || o.liger.norms || o.liger.rotary || o.liger.swiglu || o.cut_loss || o.prefers)
    reject("Liger, Cut Cross Entropy or DPO in " + name, "they were compared in transformers 5 only");
  s.release = o.release;
  if (a.has_experts())
    notes.push_back("Each expert is a module of " + name +
                    ", and they run one after the other. Each is assumed to get the same number of tokens.");
  if (r.parallel.zero > 0 && !o.flat_parameters)
    notes.push_back("Sharded runs of " + name +
                    " were compared with PyTorch under FSDP1 only (plan.fsdp_version).");
  if (r.parallel.zero > 0 && s.reentrant && s.lora_rank && o.release >= TransformersRelease::k449)
    notes.push_back(
        "FSDP1 keeps the input of each frozen layer and its gradient until the backward pass ends, because "
        "reentrant checkpoints of " +
        name + " hold the modules that it makes.");
  std::string text = name + " (plan.framework_version)";
  if (o.release >= TransformersRelease::k446)
    text += ": the loss copies the logits in f32 (4 bytes per token and word of the vocabulary)";
  if (o.release >= TransformersRelease::k452 && s.attention == frameworks::AttentionKernel::kSdpa)
    text += std::string(o.release >= TransformersRelease::k446 ? ", and" : ":") +
            " SDPA repeats keys and values for each query head, which plan.attention = "
            "\"flash_attention_2\" does not";
  if (o.release == TransformersRelease::k449 || o.release == TransformersRelease::k452)
    text += "; the releases from 4.49 to 4.53 follow the same rules and were not run";
  notes.push_back(text + ".");
}

}  // namespace trainhost::pytorch
