// See eval_settings.hpp.
#include "tools/trainhost/eval_settings.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "core/base/text.hpp"
#include "core/planning/resolve_run.hpp"
#include "core/runfile/adapter_config.hpp"
#include "core/runfile/run_config.hpp"
#include "tools/trainhost/record_keys.hpp"

namespace trainhost::cli {
namespace {

namespace fs = std::filesystem;

/// run.toml of the run that `dir` belongs to: its output.dir, or model/ or adapter/ in it. "" if none.
fs::path run_file_of(const fs::path& dir) {
  const fs::path folder = dir.has_filename() ? dir : dir.parent_path();  // "runs/a/" as "runs/a"
  std::vector<fs::path> candidates = {folder / "run.toml"};
  if (folder.filename() == "model" || folder.filename() == "adapter")
    candidates.push_back(folder.parent_path() / "run.toml");
  for (const fs::path& file : candidates)
    if (!dir.empty() && fs::exists(file)) return file;
  return "";
}

void apply_run_file(const EvalArguments& a, EvalSettings& s) {
  for (const std::string& dir : {a.directory, a.adapter, a.compare}) {
    const fs::path file = run_file_of(dir);
    if (file.empty()) continue;
    const std::string name = escaped(file.string(), 4096);
    try {
      const runfile::RunConfig c = runfile::load_run(file);
      s.options.records = planning::open_options(c).records;
      s.default_window = c.run.seq_len + 1;
      s.note =
          fmt::format("as in {}: chat template {}, loss on {}, windows of up to {} tokens", name,
                      c.data.chat_template, c.data.loss_on_all ? "all" : "completions", s.default_window);
    } catch (const Error& e) {
      s.note = fmt::format("{} is not used: {}", name, e.full());
    }
    return;
  }
}

}  // namespace

EvalSettings eval_settings(const EvalArguments& a) {
  EvalSettings s;
  apply_run_file(a, s);
  evaluation::EvaluationOptions& o = s.options;
  if (!a.chat_template.empty()) o.records.chat_template = a.chat_template;
  if (!a.loss_on.empty())
    o.records.loss_on = a.loss_on == "all" ? records::LossOn::kAll : records::LossOn::kCompletions;
  o.records.on_error = a.on_error == "skip" ? records::OnError::kSkip : records::OnError::kStop;
  NamedKeys keys = named_keys(o.records.keys);
  keys.insert(keys.end(), {{"question", &o.choice_keys.question},
                           {"choices", &o.choice_keys.choices},
                           {"answer", &o.choice_keys.answer}});
  set_keys(a.keys, keys);
  o.window = a.window, o.stride = a.stride;
  o.delimiter = a.delimiter;
  o.shots = a.shots, o.shots_from = a.shots_from;
  if (!a.shots && !a.shots_from.empty())
    throw usage_error("--shots-from has no effect without --shots", "--shots 5 takes the first five");
  o.question_format = a.question_format;
  for (std::size_t at; (at = o.question_format.find("\\n")) != std::string::npos;)
    o.question_format.replace(at, 2, "\n");
  const std::size_t place = o.question_format.find("{}");
  if (place == std::string::npos || o.question_format.find("{}", place + 2) != std::string::npos)
    throw usage_error(
        fmt::format("--question-format '{}': expected exactly one {{}}, which the question replaces",
                    escaped(a.question_format)),
        "for example --question-format 'Question: {}\\nAnswer:'");
  return s;
}

training::InferenceRequest first_request(const EvalArguments& a) {
  training::InferenceRequest r;
  r.dir = a.directory, r.adapter = a.adapter;
  return r;
}

training::InferenceRequest second_request(const EvalArguments& a) {
  training::InferenceRequest r;
  r.dir = a.compare;
  const auto adapter = runfile::adapter_folder(a.compare);
  const bool is_model = fs::exists(r.dir / "config.json") || fs::exists(r.dir / "model" / "config.json");
  if (adapter && !is_model &&
      !fs::is_directory(runfile::read_adapter_config(*adapter / "adapter_config.json").base))
    r.dir = a.directory, r.adapter = a.compare;
  return r;
}

}  // namespace trainhost::cli
