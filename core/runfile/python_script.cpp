// See python_script.hpp. The text is searched for words, not parsed: they only make the command of the hint
// more specific.
#include "core/runfile/python_script.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/suggest.hpp"

namespace trainhost::runfile {
namespace {

/// Words of a script and the framework that they belong to; the first that occurs counts.
constexpr struct {
  const char *word, *framework;
} kWordsOfFrameworks[] = {
    {"unsloth", "unsloth"},
    {"deepspeed.initialize", "deepspeed"},
    {"torchtitan", "torchtitan"},
    {"torchtune", "torchtune"},
    {"litgpt", "litgpt"},
    {"megatron", "megatron"},
    {"fully_shard", "fsdp2"},
    {"FullyShardedDataParallel", "fsdp2"},
    {"TrainingArguments", "transformers"},
    {"SFTConfig", "transformers"},
    {"SFTTrainer", "transformers"},
    {"transformers", "transformers"},
};

std::string framework_in(std::string_view text) {
  for (const auto& [word, framework] : kWordsOfFrameworks)
    if (text.find(word) != text.npos) return framework;
  return "pytorch";
}

/// The first text in quotes that is the name of a model on the Hugging Face Hub with the tensors of a preset;
/// "" without one. In a notebook the quotes have backslashes.
std::string model_in(std::string_view text) {
  for (std::size_t slash = 0; (slash = text.find('/', slash + 1)) != text.npos;) {
    constexpr std::string_view kEnds = "\"'\\ \t\r\n()[]{},;";
    const std::size_t before = text.find_last_of(kEnds, slash), end = text.find_first_of(kEnds, slash);
    if (before == text.npos || end == text.npos || end - before > 100) continue;
    if (text[before] != '"' && text[before] != '\'') continue;
    const std::string name(text.substr(before + 1, end - before - 1));
    if (planned_model(name) != name) return name;
  }
  return "";
}

bool has_python_name(const std::string& path) { return path.ends_with(".py") || path.ends_with(".ipynb"); }

bool starts_python(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.starts_with("#!") && line.find("python") != line.npos;
}

Error python_error(const std::string& shown) {
  const bool notebook = shown.ends_with(".ipynb");
  return usage_error(
      fmt::format("a Python {} is no run file", notebook ? "notebook" : "script"),
      fmt::format(
          "plan the job of its calls: trainhost plan --from {}; or start from a run file: trainhost init",
          escaped(shown, 200)),
      {shown, 1});
}

}  // namespace

bool is_python(const std::string& path, std::string_view text) {
  return has_python_name(path) || starts_python(text);
}

std::string plan_of_script(std::string_view text) {
  const std::string model = model_in(text);
  return fmt::format(
      "plan the same job with options: trainhost plan --model={} --for={} --device=NAME --set "
      "data.seq_len=2048 --set train.micro_batch=1",
      escaped(model.empty() ? "MODEL" : model, 100), framework_in(text));
}

std::string read_configuration(const std::filesystem::path& path, const std::string& shown,
                               std::uint64_t max_bytes, const std::string& what, const Where& where) {
  std::error_code ec;  // notebooks with results may be larger
  const std::uint64_t bytes = std::filesystem::file_size(path, ec);
  if (!ec && bytes > max_bytes && has_python_name(shown)) throw python_error(shown);
  std::string text = read_text_file(path, max_bytes, what, where);
  if (is_python(shown, text)) throw python_error(shown);
  return text;
}

}  // namespace trainhost::runfile
