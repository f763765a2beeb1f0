// See compared_families.hpp. One row per family; the settings_*.cpp files ask by kind of run.
#include "plugins/estimators/pytorch/compared_families.hpp"

#include <algorithm>

namespace trainhost::pytorch {
namespace {

constexpr unsigned bits(auto... kinds) { return (0u | ... | static_cast<unsigned>(kinds)); }

struct Family {
  std::string_view name;
  unsigned kinds;
};

using enum Comparison;
constexpr Family kFamilies[] = {
    {"gemma", bits(kByAccelerate)},
    {"gemma2", bits(kLiger, kAdapterKernels, kByAccelerate, kDeepSpeed)},
    {"gemma3", bits(kLiger, kAdapterKernels)},
    {"gemma3_text", bits(kLiger, kAdapterKernels, kByAccelerate, kDeepSpeed)},
    {"glm4", bits(kByAccelerate, kPackedByAccelerate, kDeepSpeedBf16)},
    {"gpt2", bits(kSharded, kDeepSpeedBf16)},
    {"gpt_oss", bits(kSharded, kDeepSpeedBf16)},
    {"granite", bits(kByAccelerate, kPackedByAccelerate, kDeepSpeedBf16, kTransformers445, kTransformers446,
                     kTransformers454)},
    {"llama", bits(kLiger, kAdapterKernels, kSharded, kDeepSpeed, kUnsloth, kTransformers445,
                   kTransformers446, kTransformers454)},
    {"mistral", bits(kLiger, kAdapterKernels, kSharded, kDeepSpeed, kUnsloth, kTransformers445,
                     kTransformers446, kTransformers454)},
    {"mixtral", bits(kLiger, kSharded, kDeepSpeed, kTransformers446, kTransformers454)},
    {"olmo2", bits(kByAccelerate, kPackedByAccelerate, kDeepSpeedBf16, kTransformers454)},
    {"olmo3", bits(kByAccelerate, kPackedByAccelerate, kDeepSpeedBf16)},
    {"phi3", bits(kLiger, kSharded, kDeepSpeed, kTransformers446, kTransformers454)},
    {"qwen2", bits(kLiger, kAdapterKernels, kSharded, kDeepSpeed, kUnsloth, kTransformers445,
                   kTransformers446, kTransformers454)},
    {"qwen3", bits(kLiger, kAdapterKernels, kSharded, kDeepSpeed, kUnsloth, kTransformers454)},
    {"qwen3_moe", bits(kSharded, kDeepSpeedBf16, kTransformers454)},
    {"seed_oss", bits(kByAccelerate, kPackedByAccelerate, kDeepSpeedBf16)},
    {"smollm3", bits(kByAccelerate, kPackedByAccelerate, kDeepSpeedBf16, kTransformers454)},
};

}  // namespace

bool was_compared(std::string_view family, Comparison kind) {
  const Family* row = std::ranges::find(kFamilies, family, &Family::name);
  return row != std::end(kFamilies) && (row->kinds & static_cast<unsigned>(kind));
}

}  // namespace trainhost::pytorch
