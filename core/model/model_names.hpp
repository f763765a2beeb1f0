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

/// Whether its weights are stored in 4 bits by GPTQ or AWQ: "Qwen/Qwen2.5-7B-Instruct-AWQ". They have as many
/// bytes as NF4 to 1 %, so is_stored_in_nf4() is true too.
bool is_stored_in_other_4_bits(std::string_view name);

/// What a plan in NF4 does not know of the stored weights; "" if it knows all.
std::string_view note_on_stored_type(std::string_view name);

/// The preset of the text model of a model that also reads images, whose name says it:
/// "qwen2.5-7b" for "Qwen/Qwen2.5-VL-7B-Instruct". "" for any other name.
std::string text_model_of(std::string_view name);

/// The preset whose name is a part of `name`, the longest of several, for suggestions: "qwen3-8b" for
/// "Skywork/Skywork-Reward-V2-Qwen3-8B". "" if there is none.
std::string preset_in(std::string_view name);

}  // namespace trainhost
