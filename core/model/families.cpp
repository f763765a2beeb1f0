// The table of known families: model_type and the function that reads its config.json. A new family is a row
// here, a reader in one of the read_*.cpp files, and a published total in tests/core/model/totals_test.cpp.
#include <algorithm>

#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

constexpr Family kFamilies[] = {
    {"baichuan", read_baichuan},
    {"cohere", read_cohere},
    {"cohere2", read_cohere2},
    {"deepseek", read_deepseek},
    {"deepseek_v2", read_deepseek_v2},
    {"deepseek_v3", read_deepseek_v3},
    {"falcon", read_falcon},
    {"gemma", read_gemma},
    {"gemma2", read_gemma2},
    {"gemma3", read_gemma3},
    {"gemma3_text", read_gemma3_text},
    {"glm", read_glm},
    {"glm4", read_glm4},
    {"glm4_moe", read_glm4_moe},
    {"gpt2", read_gpt2},
    {"gpt_neox", read_gpt_neox},
    {"gpt_oss", read_gpt_oss},
    {"granite", read_granite},
    {"internlm2", read_internlm2},
    {"llama", read_llama},
    {"mistral", read_mistral},
    {"mixtral", read_mixtral},
    {"mpt", read_mpt},
    {"olmo", read_olmo},
    {"olmo2", read_olmo2},
    {"olmo3", read_olmo3},
    {"opt", read_opt},
    {"phi", read_phi},
    {"phi3", read_phi3},
    {"qwen2", read_qwen2},
    {"qwen2_moe", read_qwen2_moe},
    {"qwen3", read_qwen3},
    {"qwen3_moe", read_qwen3_moe},
    {"seed_oss", read_seed_oss},
    {"smollm3", read_smollm3},
    {"stablelm", read_stablelm},
    {"starcoder2", read_starcoder2},
};
static_assert(std::ranges::is_sorted(kFamilies, {}, &Family::name));

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace trainhost::model
