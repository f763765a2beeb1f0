// Names of optimizers as transformers, axolotl and LLaMA-Factory share them, as optimizers that a run file
// has.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "core/base/text.hpp"
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

/// implementation: "" leaves it to the default of the framework. not_modelled: what a plan with `name` does
/// not know.
struct Optimizer {
  const char *theirs, *name, *implementation, *not_modelled;
};

constexpr const char *kThirdMoment = "a third optimizer state per weight",
                     *kLowRank = "optimizer state of lower rank, planned as AdamW";

/// Names of transformers, and those that axolotl adds.
constexpr Optimizer kOptimizers[] = {
    {"adamw_torch", "adamw", "foreach", ""},
    {"adamw_torch_fused", "adamw", "fused", ""},
    {"adamw_torch_xla", "adamw", "", ""},
    {"adamw_torch_npu_fused", "adamw", "fused", ""},
    {"adamw_hf", "adamw", "for-loop", ""},
    {"adamw_apex_fused", "adamw", "fused", ""},
    {"adamw_anyprecision", "adamw", "for-loop", ""},
    // torchao and bitsandbytes, whose 8-bit moments have a scale per block of 256 elements.
    {"adamw_torch_4bit", "adamw-8bit", "", "moments of 4 bits, planned with 8"},
    {"adamw_torch_8bit", "adamw-8bit", "", ""},
    {"adamw_bnb_8bit", "adamw-8bit", "", ""},
    {"adamw_8bit", "adamw-8bit", "", ""},
    {"paged_adamw", "adamw", "", ""},
    {"paged_adamw_32bit", "adamw", "", ""},
    {"paged_adamw_8bit", "adamw-8bit", "", ""},
    // A third tensor per weight, which run files do not know.
    {"ademamix", "adamw", "", kThirdMoment},
    {"ademamix_8bit", "adamw-8bit", "", kThirdMoment},
    {"paged_ademamix_32bit", "adamw", "", kThirdMoment},
    {"paged_ademamix_8bit", "adamw-8bit", "", kThirdMoment},
    {"grokadamw", "adamw", "", kThirdMoment},
    {"lion_32bit", "lion", "", ""},
    {"paged_lion_32bit", "lion", "", "a moment that moves to host memory when device memory is short"},
    {"lion_8bit", "lion", "", "a moment of 8 bits, planned in fp32"},
    {"paged_lion_8bit", "lion", "", "a moment of 8 bits, planned in fp32"},
    {"adafactor", "adafactor", "", ""},
    {"sgd", "sgd", "foreach", ""},
    {"adagrad", "sgd-momentum", "", "planned as one fp32 state per weight"},
    {"rmsprop", "sgd-momentum", "", "planned as one fp32 state per weight"},
    {"rmsprop_bnb", "sgd-momentum", "", "planned as one fp32 state per weight"},
    {"rmsprop_bnb_32bit", "sgd-momentum", "", "planned as one fp32 state per weight"},
    {"rmsprop_bnb_8bit", "sgd-momentum", "", "a state of 8 bits, planned in fp32"},
    {"schedule_free_adamw", "adamw", "for-loop", ""},
    {"schedule_free_radam", "adamw", "for-loop", ""},
    {"schedule_free_sgd", "sgd-momentum", "for-loop", ""},
    {"stable_adamw", "adamw", "for-loop", ""},
    // Moments of projected gradients, which are smaller; planned in full size.
    {"galore_adamw", "adamw", "", kLowRank},
    {"galore_adamw_8bit", "adamw-8bit", "", kLowRank},
    {"galore_adafactor", "adafactor", "", "optimizer state of lower rank, planned as Adafactor"},
    {"galore_adamw_layerwise", "adamw", "", kLowRank},
    {"galore_adamw_8bit_layerwise", "adamw-8bit", "", kLowRank},
    {"galore_adafactor_layerwise", "adafactor", "", "optimizer state of lower rank, planned as Adafactor"},
    {"apollo_adamw", "adamw", "", kLowRank},
    {"apollo_adamw_layerwise", "adamw", "", kLowRank},
    // Updates inside the backward pass: planned gradients are an upper bound.
    {"lomo", "sgd", "", "gradients are freed during the backward pass"},
    {"adalomo", "adafactor", "", "gradients are freed during the backward pass"},
    {"muon", "muon", "", ""},
    {"optimi_adamw", "adamw", "", "a compensation term per narrow weight"},
    {"ao_adamw_4bit", "adamw-8bit", "", "moments of 4 bits, planned with 8"},
    {"ao_adamw_8bit", "adamw-8bit", "", ""},
    {"ao_adamw_fp8", "adamw-8bit", "", ""},
    {"adopt_adamw", "adamw", "", ""},
    {"adamc", "adamw", "", ""},
    {"came_pytorch", "adamw", "", "factored second moments, planned as AdamW"},
    {"dion", "muon", "", "a low-rank factor beside the moment"},
    {"flash_adamw", "adamw", "", "compressed states, planned as AdamW"},
    {"flash_adam", "adamw", "", "compressed states, planned as AdamW"},
    {"flash_lion", "lion", "", "compressed states, planned as Lion"},
    {"flash_sgd", "sgd-momentum", "", "compressed states, planned in fp32"},
    {"flash_sgdw", "sgd-momentum", "", "compressed states, planned in fp32"},
    {"q_galore_adamw8bit", "adamw-8bit", "", kLowRank}};

}  // namespace

void set_hugging_face_optimizer(Job& job, const Entry& from) {
  const std::string name = text_of(from);
  std::vector<std::string> known;
  for (const Optimizer& o : kOptimizers) {
    known.push_back(o.theirs);
    if (name != o.theirs) continue;
    job.set("optimizer.name", o.name, from);
    if (*o.implementation) job.set("plan.optimizer_implementation", o.implementation, from);
    // bitsandbytes keeps f32 moments for weights of any type.
    if (name.ends_with("_32bit") || name == "paged_adamw") job.set_default("plan.moments", "fp32", from);
    if (name.starts_with("paged_adamw")) job.set(kPaged, "true", from);
    job.not_modelled = o.not_modelled;
    return;
  }
  reject_optimizer(job, from, known);
}

}  // namespace trainhost::framework_files
