// What the device decides: workspaces of its products, and the kernels of attention that it has. The kernels
// themselves: core/frameworks/autograd/attention.cpp.
#include <algorithm>

#include "core/base/text.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::AttentionKernel;
using frameworks::Element;

constexpr std::uint32_t kAmpere = 80, kHopper = 90, kAfterBlackwell = 130;

/// parseChosenWorkspaceSize() of torch 2.15: 32 MiB on compute capability 9.0 to 12.x, 8.125 MiB on others.
/// On AMD Instinct products are those of hipBLASLt, with a workspace of its own
/// (parseCUDABlasLtWorkspaceSize()).
std::uint64_t workspace_of_products(std::uint32_t capability) {
  if (capability == kAmdDevice) return 76u << 20;
  return capability >= kHopper && capability < kAfterBlackwell ? 32u << 20 : 8320u << 10;
}

bool is_half(Element e) { return e == Element::kBF16 || e == Element::kF16; }

/// "7.5"
std::string version_of(std::uint32_t capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

std::string materialised_in_bf16(const std::string& capability) {
  return "Compute capability " + capability +
         " has no kernel of SDPA for bf16: the scores of all heads are materialised in f32. Products in bf16 "
         "are "
         "emulated there.";
}

}  // namespace

void set_device(const Options& o, frameworks::StepSettings& s, std::vector<std::string>& notes) {
  const std::uint32_t capability = o.products.capability;
  s.machine.cublas_workspace = workspace_of_products(capability);
  s.machine.ampere = capability >= kAmpere || capability == kAmdDevice;
  if (capability == kAmdDevice)
    notes.push_back(
        "An AMD device: workspaces are those of hipBLASLt, 76 MiB for each of two threads. Its other kernels "
        "are assumed to keep what those of CUDA keep.");
}

void set_attention_kernels(const model::Architecture& a, const RunSpec& r, const Options& o,
                           frameworks::StepSettings& s, std::vector<std::string>& notes) {
  // gpt-oss, whose softmax has a sink, has eager attention.
  if (s.attention == AttentionKernel::kEager) return;
  const Element type = r.compute == DType::kF16    ? Element::kF16
                       : r.compute == DType::kBF16 ? Element::kBF16
                                                   : s.weights;
  const std::string capability = version_of(o.products.capability);
  if (o.flash_attention_2 && !s.machine.ampere)
    reject("plan.attention = \"flash_attention_2\" on compute capability " + capability,
           "the package flash-attn needs 8.0 or higher", "leave it out for SDPA");
  if (o.flash_attention_2) {
    constexpr std::uint32_t kWidest = 256;
    const bool wide = std::ranges::any_of(
        a.layers, [](const model::LayerRun& run) { return run.layer.attention.head_dim > kWidest; });
    if (!wide && is_half(type)) {
      s.attention = AttentionKernel::kFlash2;
      return;
    }
    notes.push_back("Attention is planned with SDPA: flash-attn (plan.attention) has no kernels for " +
                    std::string(wide ? "heads of more than 256 elements." : "f32."));
  }
  if (s.machine.ampere || !is_half(type)) return;
  if (type == Element::kBF16)
    notes.push_back(materialised_in_bf16(capability) +
                    (o.framework == Framework::kTorchtitan
                         ? std::string(" torchtitan has no f16.")
                         : " In f16 (train.precision = \"fp16\") they are not."));
  else
    notes.push_back("Compute capability " + capability +
                    ": SDPA takes the memory-efficient kernel, because flash attention needs 8.0 or higher.");
}

void note_emulated_bf16(const Options& o, const frameworks::StepSettings& s,
                        std::vector<std::string>& notes) {
  const Element type = s.autocast ? s.autocast_type : s.weights;
  if (!s.machine.ampere && type == Element::kBF16)
    notes.push_back(materialised_in_bf16(version_of(o.products.capability)) + " " + o.name + " has no f16.");
}

void note_unfused_attention(const model::Architecture& a, const Options& o, const frameworks::StepSettings& s,
                            std::vector<std::string>& notes) {
  if (s.machine.ampere) return;
  constexpr std::uint64_t kBytes = 2;  // bf16 or f16, the type of the products
  std::uint64_t heads = 0;             // of all layers of a rank
  for (const model::LayerRun& run : a.layers)
    heads += std::uint64_t{run.count} * run.layer.attention.heads / s.tensor / s.stage.stages;
  const std::uint64_t tokens = s.sequence / s.context;
  const bool recomputed = s.checkpoint || s.selective;
  notes.push_back("Transformer Engine has no fused attention on compute capability " +
                  version_of(o.products.capability) +
                  ", before 8.0: its own operators materialise the scores, which are not counted" +
                  (recomputed ? ". They exist for one layer at a time."
                              : ": " + format_bytes(kBytes * s.batch * heads * tokens * s.sequence) +
                                    " of probabilities are kept by a rank for each micro-batch in flight."));
}

}  // namespace trainhost::pytorch
