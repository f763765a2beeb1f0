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
    {"ernie4_5", read_ernie4_5},
    {"ernie4_5_moe", read_ernie4_5_moe},
    {"falcon", read_falcon},
    {"gemma", read_gemma},
    {"gemma2", read_gemma2},
    {"gemma3", read_gemma3},
    {"gemma3_text", read_gemma3_text},
    {"gemma4", read_gemma4},
    {"gemma4_text", read_gemma4_text},
    {"glm", read_glm},
    {"glm4", read_glm4},
    {"glm4_moe", read_glm4_moe},
    {"glm4_moe_lite", read_glm4_moe_lite},
    {"gpt2", read_gpt2},
    {"gpt_neox", read_gpt_neox},
    {"gpt_oss", read_gpt_oss},
    {"granite", read_granite},
    {"granitemoe", read_granitemoe},
    {"granitemoehybrid", read_granitemoehybrid},
    {"granitemoeshared", read_granitemoeshared},
    {"hunyuan_v1_dense", read_hunyuan_v1_dense},
    {"hunyuan_v1_moe", read_hunyuan_v1_moe},
    {"internlm2", read_internlm2},
    {"kimi_k2", read_deepseek_v3},
    {"kimi_k25", read_kimi_k25},
    {"kimi_linear", read_kimi_linear},
    {"lfm2", read_lfm2},
    {"lfm2_moe", read_lfm2_moe},
    {"lfm2_vl", read_lfm2_vl},
    {"llama", read_llama},
    {"llama4", read_llama4},
    {"llama4_text", read_llama4_text},
    {"minimax_m2", read_minimax_m2},
    {"ministral", read_ministral},
    {"ministral3", read_ministral3},
    {"mistral", read_mistral},
    {"mistral3", read_mistral3},
    {"mistral4", read_mistral4},
    {"mixtral", read_mixtral},
    {"mpt", read_mpt},
    {"nemotron", read_nemotron},
    {"nemotron_h", read_nemotron_h},
    {"olmo", read_olmo},
    {"olmo2", read_olmo2},
    {"olmo3", read_olmo3},
    {"opt", read_opt},
    {"phi", read_phi},
    {"phi3", read_phi3},
    {"phimoe", read_phimoe},
    {"qwen2", read_qwen2},
    {"qwen2_5_vl", read_qwen2_vl},
    {"qwen2_5_vl_text", read_qwen2_vl_text},
    {"qwen2_moe", read_qwen2_moe},
    {"qwen2_vl", read_qwen2_vl},
    {"qwen2_vl_text", read_qwen2_vl_text},
    {"qwen3", read_qwen3},
    {"qwen3_5", read_qwen3_5},
    {"qwen3_5_moe", read_qwen3_5_moe},
    {"qwen3_5_moe_text", read_qwen3_5_moe_text},
    {"qwen3_5_text", read_qwen3_5_text},
    {"qwen3_moe", read_qwen3_moe},
    {"qwen3_next", read_qwen3_next},
    {"qwen3_vl", read_qwen3_vl},
    {"qwen3_vl_moe", read_qwen3_vl_moe},
    {"qwen3_vl_moe_text", read_qwen3_moe},
    {"qwen3_vl_text", read_qwen3_vl_text},
    {"seed_oss", read_seed_oss},
    {"smollm3", read_smollm3},
    {"stablelm", read_stablelm},
    {"starcoder2", read_starcoder2},
};
static_assert(std::ranges::is_sorted(kFamilies, {}, &Family::name));

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace trainhost::model
