// The table of names that are no preset's own; see model_names.hpp. A row needs a model whose tensors have
// the sizes of the preset, as published in its config.json; one with more words in the vocabulary has none.
#include "core/model/model_names.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"

namespace trainhost {
namespace {

/// Words of a name that say how a model was trained or stored, and not how large it is.
constexpr std::string_view kLeftOut[] = {
    "meta",     "hf",      "base",  "instruct", "chat",    "it",  "bnb",    "4bit",      "bf16",
    "thinking", "unsloth", "v0.1",  "v1.0",     "deduped", "fp8", "nvidia", "pt",        "sft",
    "dpo",      "rlvr",    "think", "nf4",      "gptq",    "awq", "int4",   "linearized"};

struct Name {
  std::string_view letters, preset;
};

/// Series with the sizes of another one.
constexpr Name kSeries[] = {{"qwen25coder", "qwen25"},
                            {"qwen25math", "qwen25"},
                            {"qwen2math", "qwen25"},
                            {"qwen3coder30b", "qwen330b"},
                            {"deepseekr1distillqwen7", "qwen257"},
                            {"deepseekr1distillqwen14", "qwen2514"},
                            {"deepseekr1distillqwen32", "qwen2532"}};

constexpr Name kNames[] = {{"c4aicommandr7b122024", "command-r7b"},
                           {"c4aicommandrv01", "command-r-35b"},
                           {"codegemma2b", "gemma-2b"},
                           {"codegemma7b", "gemma-7b"},
                           {"codellama34bpython", "codellama-34b"},
                           {"codestral22b", "mistral-small-22b"},
                           {"cogitov1previewllama3b", "llama-3.2-3b"},
                           {"cogitov1previewllama70b", "llama-3.3-70b"},
                           {"cogitov1previewllama8b", "llama-3.1-8b"},
                           {"cogitov1previewqwen14b", "qwen2.5-14b"},
                           {"cogitov1previewqwen32b", "qwen2.5-32b"},
                           {"deepcoder14bpreview", "qwen2.5-14b"},
                           {"deepseekcoder7bv15", "deepseek-llm-7b"},
                           {"deepseekcoderv2", "deepseek-v2"},
                           {"deepseekcoderv2lite", "deepseek-v2-lite"},
                           {"deepseekmath7b", "deepseek-llm-7b"},
                           {"deepseekr1", "deepseek-v3"},
                           {"deepseekr10528", "deepseek-v3"},
                           {"deepseekr10528qwen38b", "qwen3-8b"},
                           {"deepseekr1distillllama70b", "llama-3.3-70b"},
                           {"deepseekr1distillllama8b", "llama-3.1-8b"},
                           {"deepseekv25", "deepseek-v2"},
                           {"deepseekv30324", "deepseek-v3"},
                           {"deepseekv31", "deepseek-v3"},
                           {"deepseekv316b", "deepseek-v2-lite"},
                           {"deepseekv3236b", "deepseek-v2"},
                           {"deepseekv3671b", "deepseek-v3"},
                           {"devstralsmall2505", "mistral-small-24b"},
                           {"devstralsmall2507", "mistral-small-24b"},
                           {"gemma112b", "gemma-2b"},
                           {"gemma117b", "gemma-7b"},
                           {"glm46", "glm-4.5"},
                           {"glm47", "glm-4.5"},
                           {"glmz132b0414", "glm-4-32b-0414"},
                           {"glmz19b0414", "glm-4-9b-0414"},
                           {"gptoss120bdequantized", "gpt-oss-120b"},
                           {"gptosssafeguard120b", "gpt-oss-120b"},
                           {"gptosssafeguard20b", "gpt-oss-20b"},
                           {"granite302b", "granite-3.1-2b"},
                           {"granite308b", "granite-3.1-8b"},
                           {"granite322b", "granite-3.1-2b"},
                           {"granite328b", "granite-3.1-8b"},
                           {"hermes3llama318b", "llama-3.1-8b"},
                           {"internlm2520b", "internlm2-20b"},
                           {"internlm257b", "internlm2-7b"},
                           {"kimik20905", "kimi-k2"},
                           {"llama31nemotron70b", "llama-3.1-70b"},
                           {"llama3405b", "llama-3.1-405b"},
                           {"llama370bfp16", "llama-3-70b"},
                           {"llama417bx128e", "llama-4-maverick"},
                           {"llama417bx16e", "llama-4-scout"},
                           {"llama4maverick17b128e", "llama-4-maverick"},
                           {"llama4scout17b16e", "llama-4-scout"},
                           {"llamaguard38b", "llama-3.1-8b"},
                           {"llemma7b", "codellama-7b"},
                           {"longchat7bv1532k", "llama-2-7b"},
                           {"magistralsmall2506", "mistral-small-24b"},
                           {"magistralsmall2507", "mistral-small-24b"},
                           {"magistralsmall2509", "mistral-small-24b"},
                           {"mathstral7b", "mistral-7b-v0.3"},
                           {"microllama", "micro-llama-300m"},
                           {"ministral314b2512", "ministral-3-14b"},
                           {"ministral314breasoning2512", "ministral-3-14b"},
                           {"ministral33b2512", "ministral-3-3b"},
                           {"ministral33breasoning2512", "ministral-3-3b"},
                           {"ministral38b2512", "ministral-3-8b"},
                           {"ministral38breasoning2512", "ministral-3-8b"},
                           {"mistral7bbeta", "mistral-7b-v0.1"},
                           {"mistral7bconstitutionalai", "mistral-7b-v0.1"},
                           {"mistrallarge2407", "mistral-large-123b"},
                           {"mistrallarge2411", "mistral-large-123b"},
                           {"mistralnemo2407", "mistral-nemo-12b"},
                           {"mistralsmall2409", "mistral-small-22b"},
                           {"mistralsmall24b2501", "mistral-small-24b"},
                           {"mistralsmall3124b2503", "mistral-small-24b"},
                           {"mistralsmall3224b2506", "mistral-small-24b"},
                           {"mistralsmall4119b2603", "mistral-small-4-119b"},
                           {"nemotronmini4b", "minitron-4b"},
                           {"olmo171b", "olmo-1b"},
                           {"olmo177b", "olmo-7b"},
                           {"olmo1b0724", "olmo-1b"},
                           {"olmo2032532b", "olmo-2-32b"},
                           {"olmo204251b", "olmo-2-1b"},
                           {"olmo2112413b", "olmo-2-13b"},
                           {"olmo211247b", "olmo-2-7b"},
                           {"olmo310257b", "olmo-3-7b"},
                           {"olmo3112532b", "olmo-3-32b"},
                           {"olmo7b0724", "olmo-7b"},
                           {"openllama13b", "llama-13b"},
                           {"openllama3b", "open-llama-3b-v2"},
                           {"openllama7b", "llama-7b"},
                           {"openllama7bv2", "llama-7b"},
                           {"phi1", "phi-1.5"},
                           {"phi35mini", "phi-3.5-mini"},
                           {"phi3medium", "phi-3-medium"},
                           {"phi3medium128k", "phi-3-medium"},
                           {"phi3medium4k", "phi-3-medium"},
                           {"phi3mini", "phi-3-mini-4k"},
                           {"phi3mini128k", "phi-3.5-mini"},
                           {"phi414b", "phi-4"},
                           {"phi4mini", "phi-4-mini"},
                           {"phi4minireasoning", "phi-4-mini"},
                           {"phi4reasoning", "phi-4"},
                           {"phi4reasoningplus", "phi-4"},
                           {"qwen14b", "qwen1.5-14b"},
                           {"qwen18b", "qwen1.5-1.8b"},
                           {"qwen205b", "qwen2.5-0.5b"},
                           {"qwen215b", "qwen2.5-1.5b"},
                           {"qwen2514b1m", "qwen2.5-14b"},
                           {"qwen257b1m", "qwen2.5-7b"},
                           {"qwen25math7brope300k", "qwen2.5-7b"},
                           {"qwen272b", "qwen2.5-72b"},
                           {"qwen27b", "qwen2.5-7b"},
                           {"qwen3235ba22b2507", "qwen3-235b-a22b"},
                           {"qwen330ba3b2507", "qwen3-30b-a3b"},
                           {"qwen34b2507", "qwen3-4b"},
                           {"qwen72b", "qwen1.5-72b"},
                           {"qwen7b", "qwen1.5-7b"},
                           {"qwq32b", "qwen2.5-32b"},
                           {"qwq32bpreview", "qwen2.5-32b"},
                           {"r1distillqwenmath7b", "qwen2.5-7b"},
                           {"r1distillqwenmath7bmerges", "qwen2.5-7b"},
                           {"redpajamaincite3bv1", "redpajama-incite-3b"},
                           {"redpajamaincite7b", "redpajama-incite-7b"},
                           {"redpajamaincitechat3bv1", "redpajama-incite-3b"},
                           {"smollm33bcheckpoints", "smollm3-3b"},
                           {"solar107bv10", "solar-10.7b"},
                           {"sparsellama318b2of4", "llama-3.1-8b"},
                           {"stablelm2zephyr16b", "stablelm-2-1.6b"},
                           {"tinyllama11bintermediatestep1431k3t", "tinyllama-1.1b"},
                           {"tinyllama", "tinyllama-1.1b"},
                           {"tinyllamav11", "tinyllama-1.1b"},
                           {"vicuna13bv13", "llama-13b"},
                           {"vicuna13bv15", "llama-2-13b"},
                           {"vicuna13bv1516k", "llama-2-13b"},
                           {"vicuna33bv13", "llama-30b"},
                           {"vicuna7bv13", "llama-7b"},
                           {"vicuna7bv15", "llama-2-7b"},
                           {"vicuna7bv1516k", "llama-2-7b"},
                           {"yi1534b", "yi-34b"},
                           {"yi34b200k", "yi-34b"},
                           {"yi6b", "yi-1.5-6b"},
                           {"yi6b200k", "yi-1.5-6b"},
                           {"yi9b", "yi-1.5-9b"},
                           {"yicoder9b", "yi-1.5-9b"},
                           {"zephyr", "mistral-7b-v0.1"},
                           {"zephyr7bbeta", "mistral-7b-v0.1"},
                           {"zephyr7bfull", "mistral-7b-v0.1"},
                           {"zephyr7bqlora", "mistral-7b-v0.1"}};

/// True if `name` ends with the name of a preset, in letters of any case: "facebook/OPT-1.3b".
bool as_written(std::string_view preset, std::string_view name) {
  if (name.size() < preset.size()) return false;
  return std::ranges::equal(name.substr(name.size() - preset.size()), preset, {}, [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
}

/// Letters and name of every preset. Computed once: a plan that does not fit loads its model a hundred times.
const std::vector<std::pair<std::string, std::string>>& letters_of_presets() {
  static const std::vector<std::pair<std::string, std::string>> all = [] {
    std::vector<std::pair<std::string, std::string>> out;
    const auto add = [&](const std::string& name) { out.emplace_back(model_letters(name), name); };
    std::ranges::for_each(model_presets(), add, &ModelSpec::name);
    std::ranges::for_each(model::planned_preset_names(), add);
    return out;
  }();
  return all;
}

}  // namespace

std::string model_letters(std::string_view name) {
  if (const std::size_t slash = name.find_last_of('/'); slash != name.npos) name.remove_prefix(slash + 1);
  std::string out, word;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    const char c = i < name.size() ? name[i] : '-';
    if (c == '-' || c == '_' || c == ' ') {
      if (std::ranges::find(kLeftOut, word) == std::end(kLeftOut))
        std::ranges::copy_if(word, std::back_inserter(out), [](char x) { return x != '.'; });
      word.clear();
    } else {
      word += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
  }
  return out;
}

namespace {

bool ends_with(std::string_view name, std::string_view end) {
  return name.size() >= end.size() &&
         std::ranges::equal(name.substr(name.size() - end.size()), end, {}, [](char c) {
           return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
         });
}

}  // namespace

bool is_stored_in_nf4(std::string_view name) {
  constexpr std::string_view kEnds[] = {"-bnb-4bit", "-bnb-nf4-bf16", "-bnb-nf4"};
  return is_stored_in_other_4_bits(name) ||
         std::ranges::any_of(kEnds, [&](std::string_view end) { return ends_with(name, end); });
}

bool is_stored_in_parts_of_nf4(std::string_view name) { return ends_with(name, "-unsloth-bnb-4bit"); }

bool is_stored_in_other_4_bits(std::string_view name) {
  constexpr std::string_view kEnds[] = {"-gptq", "-awq", "-gptq-int4", "-awq-int4", "-int4"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return ends_with(name, end); });
}

std::string_view note_on_stored_type(std::string_view name) {
  if (is_stored_in_other_4_bits(name))
    return "its weights are stored in 4 bits by GPTQ or AWQ; planned as NF4, which has the same size within "
           "1 %";
  if (is_stored_in_parts_of_nf4(name))
    return "Unsloth stores some of its matrices in 16 bits; planned with all in 4 bits";
  return "";
}

std::string text_model_of(std::string_view name) {
  constexpr Name kText[] = {
      {"internvl358bhf", "qwen3-8b"}, {"llava157b", "llama-2-7b"},    {"llavav157b", "llama-2-7b"},
      {"llava1513b", "llama-2-13b"},  {"llavav1513b", "llama-2-13b"}, {"qwen3vl2b", "qwen3-1.7b"},
      {"internvl358b", "qwen3-8b"},   {"llavav167b", "llama-2-7b"},   {"llavav16vicuna7b", "llama-2-7b"}};
  std::string letters = model_letters(name);
  for (const Name& n : kText)
    if (letters == n.letters) return std::string(n.preset);
  // Qwen2-VL-7B has the text model Qwen2-7B.
  for (const std::string_view series : {"qwen2vl", "qwen25vl", "qwen3vl"}) {
    if (!letters.starts_with(series)) continue;
    letters.erase(series.size() - 2, 2);
    return preset_of(letters);
  }
  return "";
}

std::string preset_in(std::string_view name) {
  const std::string letters = model_letters(name);
  std::string found;
  std::size_t longest = 4;  // shorter ones are parts of any word
  for (const auto& [of_preset, preset] : letters_of_presets())
    if (of_preset.size() > longest && letters.find(of_preset) != letters.npos)
      longest = of_preset.size(), found = preset;
  return found;
}

std::string preset_of(std::string_view name) {
  std::string letters = model_letters(name);
  if (letters.empty()) return "";
  for (const Name& n : kNames)
    if (letters == n.letters) return std::string(n.preset);
  for (const Name& n : kSeries)
    if (letters.starts_with(n.letters)) letters.replace(0, n.letters.size(), n.preset);
  // opt-1.3b and opt-13b have the same letters: the name as it is wins.
  std::string found;
  for (const auto& [of_preset, preset] : letters_of_presets())
    if (of_preset == letters && (found.empty() || as_written(preset, name))) found = preset;
  return found;
}

}  // namespace trainhost
