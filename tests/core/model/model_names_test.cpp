// core/model/model_names: names of the Hub and of configuration files as presets.
#include "core/model/model_names.hpp"

#include <boost/test/unit_test.hpp>
#include <map>

#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"

using namespace trainhost;

BOOST_AUTO_TEST_SUITE(model_names)

BOOST_AUTO_TEST_CASE(a_model_is_found_by_the_names_that_people_write) {
  for (const auto& [name, preset] : std::map<std::string, std::string>{
           {"meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"},
           {"meta-llama/Llama-2-7b-hf", "llama-2-7b"},
           {"unsloth/llama-3-8b-bnb-4bit", "llama-3-8b"},
           {"llama3_1_8b", "llama-3.1-8b"},
           {"llama3-405B", "llama-3.1-405b"},
           {"llama2_7b", "llama-2-7b"},
           {"qwen2_5_7b_base", "qwen2.5-7b"},
           {"Qwen/Qwen3-0.6B-Base", "qwen3-0.6b"},
           {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b-v0.1"},
           {"mistral_7b", "mistral-7b-v0.1"},
           {"google/gemma-2-9b-it", "gemma-2-9b"},
           {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"},
           {"openai-community/gpt2", "gpt2"},
           {"phi3_mini", "phi-3-mini-4k"},
           {"deepseek_v3-16B", "deepseek-v2-lite"},
           {"qwen3-235B-A22B", "qwen3-235b-a22b"},
           {"meta-llama/Llama-3.2-1B", "llama-3.2-1b"},
           {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"},
           {"mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b"},
           {"mistralai/Mistral-Small-24B-Base-2501", "mistral-small-24b"},
           {"microsoft/phi-4", "phi-4"},
           {"Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2.5-7b"},
           {"Qwen/Qwen2.5-Math-1.5B", "qwen2.5-1.5b"},
           {"Qwen/Qwen2-7B-Instruct", "qwen2.5-7b"},
           {"Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"},
           {"Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3-30b-a3b"},
           {"Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b"},
           {"unsloth/Qwen3-14B-unsloth-bnb-4bit", "qwen3-14b"},
           {"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen2.5-7b"},
           {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-r1-distill-qwen-1.5b"},
           {"codellama/CodeLlama-13b-Instruct-hf", "codellama-13b"},
           {"codellama/CodeLlama-7b-Python-hf", ""},  // 16 words less
           {"openlm-research/open_llama_3b_v2", "open-llama-3b-v2"},
           {"01-ai/Yi-34B-Chat", "yi-34b"},
           {"microsoft/Phi-3.5-mini-instruct", "phi-3.5-mini"},
           {"microsoft/phi-1_5", "phi-1.5"},
           {"google/gemma-3-4b-it", "gemma-3-4b"},
           {"facebook/OPT-1.3b", "opt-1.3b"},
           {"facebook/opt-13b", "opt-13b"},
           {"EleutherAI/pythia-1.4b-deduped", "pythia-1.4b"},
           {"Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3-next-80b-a3b"},
           {"Qwen/Qwen3.5-35B-A3B-Base", "qwen3.5-35b-a3b"},
           {"meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"},
           {"meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", "llama-4-maverick"},
           {"google/gemma-4-E4B-it", "gemma-4-e4b"},
           {"google/gemma-4-26B-A4B-it", "gemma-4-26b-a4b"},
           {"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"},
           {"nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", "nemotron-3-super-120b-a12b"},
           {"nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron-nano-9b-v2"},
           {"nvidia/Nemotron-Mini-4B-Instruct", "minitron-4b"},
           {"ibm-granite/granite-4.0-h-tiny", "granite-4.0-h-tiny"},
           {"microsoft/Phi-3.5-MoE-instruct", "phi-3.5-moe"},
           {"mistralai/Ministral-3-8B-Instruct-2512", "ministral-3-8b"},
           {"mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small-24b"},
           {"tencent/Hunyuan-A13B-Instruct", "hunyuan-a13b"},
           {"baidu/ERNIE-4.5-21B-A3B-PT", "ernie-4.5-21b-a3b"},
           {"MiniMaxAI/MiniMax-M2", "minimax-m2"},
           {"moonshotai/Kimi-K2-Instruct-0905", "kimi-k2"},
           {"Qwen/Qwen1.5-7B-Chat", "qwen1.5-7b"},
           {"Qwen/Qwen-1_8B-Chat", "qwen1.5-1.8b"},
           {"Qwen/Qwen-7B-Chat-Int4", "qwen1.5-7b"},
           {"Qwen/Qwen2-Math-7B", "qwen2.5-7b"},
           {"allenai/Llama-3.1-Tulu-3-8B-DPO", "llama-3.1-tulu-3-8b"},
           {"allenai/Olmo-3-7B-Think-DPO", "olmo-3-7b"},
           {"allenai/OLMo-2-1124-13B-SFT", "olmo-2-13b"},
           {"EleutherAI/pythia-70m-deduped", "pythia-70m"},
           {"hugging-quants/Meta-Llama-3.1-405B-BNB-NF4-BF16", "llama-3.1-405b"},
           {"TheBloke/Llama-2-7B-GPTQ", "llama-2-7b"},
           {"google/gemma-1.1-2b-it", "gemma-2b"},
           {"deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"},
           {"Qwen/Qwen2.5-VL-7B-Instruct", ""},  // its text model is no whole model
           {"meta-llama/Llama-3.2-11B", ""},
           {"my-model", ""},
           {"base", ""},
           {"", ""}})
    BOOST_TEST(preset_of(name) == preset, name);
}

// An alias that is misspelt would hide itself: the name would be unknown.
BOOST_AUTO_TEST_CASE(every_preset_is_found_by_its_own_name) {
  for (const ModelSpec& m : model_presets()) BOOST_TEST(preset_of(m.name) == m.name);
  for (const ModelSpec& m : model::planned_presets()) BOOST_TEST(preset_of(m.name) == m.name);
}

BOOST_AUTO_TEST_CASE(every_other_name_has_an_existing_preset) {
  for (const char* name : {"vicuna-7b-v1.5",
                           "vicuna-13b-v1.5",
                           "zephyr-7b-beta",
                           "QwQ-32B",
                           "DeepCoder-14B-Preview",
                           "Yi-6B",
                           "Yi-9B",
                           "Yi-1.5-34B-Chat",
                           "TinyLlama_v1.1",
                           "Mistral-Small-Instruct-2409",
                           "Mistral-Large-Instruct-2411",
                           "Codestral-22B-v0.1",
                           "Magistral-Small-2506",
                           "Devstral-Small-2507",
                           "Mathstral-7B-v0.1",
                           "Phi-3-medium-128k-instruct",
                           "Phi-3-mini-128k-instruct",
                           "phi-4-reasoning-plus",
                           "Phi-4-mini-instruct",
                           "OLMo-2-1124-13B-Instruct",
                           "OLMo-2-0425-1B",
                           "OLMo-2-0325-32B",
                           "Llama-Guard-3-8B",
                           "Hermes-3-Llama-3.1-8B",
                           "DeepSeek-R1-Distill-Llama-8B",
                           "DeepSeek-R1-Distill-Llama-70B",
                           "DeepSeek-R1-Distill-Qwen-32B",
                           "Qwen3-235B-A22B-Instruct-2507",
                           "Qwen2-0.5B",
                           "Qwen2-72B-Instruct",
                           "CodeLlama-34b-Python-hf",
                           "phi4_14b",
                           "SOLAR-10.7B-Instruct-v1.0",
                           "internlm2_5-20b-chat",
                           "GLM-4.6",
                           "GLM-Z1-9B-0414",
                           "granite-3.0-8b-instruct",
                           "stablelm-2-zephyr-1_6b",
                           "vicuna-33b-v1.3",
                           "open_llama_13b",
                           "OLMo-1.7-7B-hf",
                           "cogito-v1-preview-llama-3B",
                           "Ministral-3-14B-Reasoning-2512",
                           "DeepSeek-Coder-V2-Lite-Instruct",
                           "RedPajama-INCITE-Chat-3B-v1",
                           "Yi-34B-200K"}) {
    const std::string preset = preset_of(name);
    BOOST_TEST((find_model_preset(preset) || model::find_planned_preset(preset)),
               name << ": '" << preset << "'");
  }
}

BOOST_AUTO_TEST_CASE(a_model_with_images_has_the_text_model_of_its_name) {
  BOOST_TEST(text_model_of("Qwen/Qwen2.5-VL-7B-Instruct") == "qwen2.5-7b");
  BOOST_TEST(text_model_of("Qwen/Qwen3-VL-30B-A3B-Instruct") == "qwen3-30b-a3b");
  BOOST_TEST(text_model_of("llava-hf/llava-1.5-7b-hf") == "llama-2-7b");
  BOOST_TEST(text_model_of("Qwen/Qwen2.5-7B-Instruct") == "");
  BOOST_TEST(text_model_of("Qwen/Qwen9-VL-7B") == "");
}

BOOST_AUTO_TEST_CASE(a_name_says_how_weights_are_stored) {
  for (const char* name : {"unsloth/x-bnb-4bit", "x-BNB-NF4-BF16", "x-GPTQ", "x-Instruct-AWQ", "x-GPTQ-Int4"})
    BOOST_TEST(is_stored_in_nf4(name), name);
  for (const char* name : {"meta-llama/Llama-3.1-8B", "x-NVFP4", "gptq/x"})
    BOOST_TEST(!is_stored_in_nf4(name), name);
  BOOST_TEST(note_on_stored_type("x-bnb-4bit").empty());
  BOOST_TEST(note_on_stored_type("x-GPTQ").starts_with("its weights are stored in 4 bits by GPTQ"));
}

BOOST_AUTO_TEST_CASE(the_longest_preset_in_a_name_is_suggested) {
  BOOST_TEST(preset_in("Skywork/Skywork-Reward-V2-Qwen3-8B") == "qwen3-8b");
  BOOST_TEST(preset_in("PrimeIntellect/Qwen3-1.7B-Wordle-SFT") == "qwen3-1.7b");
  BOOST_TEST(preset_in("tiiuae/Falcon-H1-0.5B") == "");
}

BOOST_AUTO_TEST_SUITE_END()
