// Names of models as the Hugging Face Hub and configuration files write them, as presets.
#pragma once
#include <string>
#include <string_view>

namespace trainhost {

/// A name without what says nothing about its tensors: "meta-llama/Meta-Llama-3.1-8B-Instruct" and
/// "llama3_1_8b" are "llama318b". "" if nothing is left.
std::string model_letters(std::string_view name);

/// The preset with the tensors of a model: "llama-3-8b" for "meta-llama/Meta-Llama-3-8B-Instruct",
/// "qwen2.5-7b" for "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B". "" if there is none.
std::string preset_of(std::string_view name);

/// Whether the Hub stores the model in NF4 of bitsandbytes, with doubly quantized scales, as its name says:
/// "unsloth/Meta-Llama-3.1-8B-bnb-4bit".
bool is_stored_in_nf4(std::string_view name);

/// Whether some of its matrices are in 16 bits all the same (Unsloth's dynamic quantization):
/// "unsloth/Qwen3-14B-unsloth-bnb-4bit".
bool is_stored_in_parts_of_nf4(std::string_view name);

}  // namespace trainhost
