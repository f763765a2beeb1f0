// See script_programs.hpp.
#include "core/framework_files/script_programs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace fs = std::filesystem;

namespace trainhost::framework_files {
namespace {

/// Programs with options of their own that --from does not know, by the words that start them.
constexpr struct {
  const char *words, *name;
} kOtherPrograms[] = {{"openrlhf", "OpenRLHF"},
                      {"verl.trainer", "verl"},
                      {"xtuner ", "XTuner"},
                      {"colossalai run", "Colossal-AI"}};

/// Commands that train nothing. Those of ms-swift are left out of a script that trains too
/// (arguments_read.cpp).
constexpr const char* kTrainNothing[] = {"swift infer",
                                         "swift export",
                                         "swift deploy",
                                         "swift app",
                                         "swift eval",
                                         "swift rollout",
                                         "swift sample",
                                         "megatron export",
                                         "llamafactory-cli export",
                                         "llamafactory-cli chat",
                                         "llamafactory-cli api",
                                         "llamafactory-cli webchat",
                                         "vllm serve",
                                         "litgpt generate",
                                         "litgpt chat"};

/// Names of configuration files in a script: "accelerate launch --config_file a.yaml PROGRAM b.yaml".
std::vector<std::string> named_configurations(const std::string& text) {
  constexpr std::string_view kEnds = " \t\r\n\"'=;\\";
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = text.find_first_not_of(kEnds, at)) != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kEnds, at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end;
    const std::string extension = fs::path(word).extension().string();
    if (extension != ".yaml" && extension != ".yml" && extension != ".toml") continue;
    if (std::ranges::find(out, word) == out.end() && out.size() < 3) out.push_back(word);
  }
  return out;
}

}  // namespace

bool names_program(const std::string& text, std::string_view words) {
  for (std::size_t at = 0; (at = text.find(words, at)) != text.npos; ++at) {
    const std::size_t line = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
    const bool comment = text.find_first_not_of(" \t", line) == text.find('#', line);
    const bool begins =
        at == line || std::string_view(" \t\"'(;&|=`").find(text[at - 1]) != std::string_view::npos;
    if (begins && !comment) return true;
  }
  return false;
}

void check_program(const std::string& path, const std::string& text) {
  for (const auto& [words, name] : kOtherPrograms)
    if (names_program(text, words))
      throw usage_error(fmt::format("this script starts {}, whose options --from does not know", name),
                        "plan the same job with --model=MODEL --for=transformers and --set KEY=VALUE",
                        {path, 1, 1});
}

void reject_script(const std::string& path, const std::string& text) {
  const Where where{path, 1, 1};
  check_program(path, text);
  if (const auto files = named_configurations(text); !files.empty())
    throw usage_error("this script has no options of a training run, but names files that may have them",
                      escaped(fmt::format("give those: --from {}", fmt::join(files, " ")), 300), where);
  for (const char* words : kTrainNothing)
    if (names_program(text, words))
      throw usage_error(fmt::format("this script starts `{}`, which trains nothing", words), kPlanInference,
                        where);
  throw usage_error(
      "no option of this script is one of a training run that --from knows",
      "expected those of Megatron-LM (--num-layers, --micro-batch-size), of TrainingArguments "
      "(--model_name_or_path, --per_device_train_batch_size) or of LLaMA-Factory (--finetuning_type)",
      where);
}

}  // namespace trainhost::framework_files
