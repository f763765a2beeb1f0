// trainhost eval: perplexity and accuracy of one model, or of two and their differences. Scores are computed
// in core/evaluation, results formatted in eval_results.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/text.hpp"
#include "core/checkpoint/output_file.hpp"
#include "core/process/cpu_quota.hpp"
#include "core/report/terminal.hpp"
#include "core/training/inference_model.hpp"
#include "tools/trainhost/eval_results.hpp"
#include "tools/trainhost/eval_settings.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// One evaluated model and its scores on each file.
struct Evaluated {
  std::string name;
  std::vector<FileScores> files;
  JsonValue json;
  std::uint64_t memory_bytes = 0;
};

std::string name_of(const training::InferenceRequest& r) {
  return r.dir.string() + (r.adapter.empty() ? "" : " + " + r.adapter.string());
}

/// Prints the percentage of a file that is done, on a terminal only and at most five times per second.
class EvalProgress {
 public:
  EvalProgress(const EvalArguments& a, const evaluation::EvaluationData& d)
      : shown_(!a.common.quiet && report::terminal_of(2).is_tty), name_(d.file.filename().string()) {
    for (const evaluation::Job& job : d.jobs)
      for (const evaluation::ScoredText& t : job.texts) all_ += t.ids.size();
  }
  ~EvalProgress() {
    if (shown_) write_stderr("\r\033[K");
  }
  void show(std::uint64_t ids) {
    if (!shown_ || Clock::now() < next_) return;
    next_ = Clock::now() + std::chrono::milliseconds(200);
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    write_stderr(fmt::format("\r\033[K{}  {:.0f} %  {:.0f} tokens/s", escaped(name_, 60),
                             100.0 * static_cast<double>(ids) / static_cast<double>(all_),
                             static_cast<double>(ids) / std::max(seconds, 1e-3)));
  }

 private:
  bool shown_;
  std::string name_;
  std::uint64_t all_ = 0;
  Clock::time_point start_ = Clock::now(), next_ = start_;
};

/// Evaluates a model on all files. Sets window and stride if they are 0; so the first model determines them
/// for the second one too.
Evaluated evaluate(training::InferenceRequest request, const EvalArguments& a, EvalSettings& settings,
                   plugin::Registry& registry) {
  evaluation::EvaluationOptions& options = settings.options;
  if (!a.common.backend.empty()) request.backend = a.common.backend;
  request.purpose = training::InferencePurpose::kScore;
  request.context = options.window, request.default_context = settings.default_window;
  request.sequences = a.batch;
  training::InferenceModel model(request, registry);
  if (model.context() > model.spec().max_positions)
    throw usage_error(
        fmt::format("--window {} is longer than the {} positions of the model in {} "
                    "(max_position_embeddings)",
                    model.context(), model.spec().max_positions, escaped(model.dir().string(), 4096)),
        fmt::format("--window {}", model.spec().max_positions));
  options.window = model.context();
  if (options.window < 2)
    throw usage_error(
        fmt::format("the model in {} has one position (max_position_embeddings); at least 2 are needed",
                    escaped(model.dir().string(), 4096)));
  if (options.stride == 0) options.stride = std::max(1u, options.window / 2);
  if (options.stride >= options.window)
    throw usage_error(
        fmt::format("--stride {} is not less than the window of {}: the first token of a window "
                    "would have no context",
                    options.stride, options.window),
        fmt::format("--stride {}", options.window - 1));
  options.records.model_folders = {model.dir()};  // for the chat template
  Evaluated e;
  e.name = name_of(request);
  // All files are read before the weights are loaded, so that errors in them are found first.
  for (const std::string& file : a.data)
    e.files.push_back({evaluation::read_evaluation_data(file, model.tokenizer(), options), {}});
  if (!a.common.quiet) report::write_message(escaped(e.name, 4096) + ": " + model.memory_text());
  model.load();
  const std::uint32_t threads = a.threads ? a.threads : default_threads();
  evaluation::TokenScorer scorer({model.decoder(), model.spec().vocab, model.context(), model.rows(),
                                  model.sequences(), model.logits(), threads});
  const auto start = Clock::now();
  for (FileScores& f : e.files) {
    EvalProgress progress(a, f.data);
    f.scores =
        evaluation::score(f.data, scorer, !a.details.empty(), [&](std::uint64_t ids) { progress.show(ids); });
    f.data.jobs.clear();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double rate = static_cast<double>(scorer.computed_rows()) / std::max(seconds, 1e-9);
  if (!a.common.quiet)
    report::write_message(fmt::format("{} tokens computed in {:.1f} s, {} per second",
                                      format_count(scorer.computed_rows()), seconds,
                                      format_count(static_cast<std::uint64_t>(std::llround(rate)))));
  e.memory_bytes = model.memory().total();
  e.json = {{"dir", request.dir.string()},
            {"adapter", request.adapter.empty() ? JsonValue() : JsonValue(request.adapter.string())},
            {"backend", model.backend()},
            {"weights", model.weight_type() == DType::kBF16 ? "bf16" : "f32"},
            {"predicted_bytes", model.memory().total()},
            {"computed_tokens", scorer.computed_rows()},
            {"tokens_per_second", rate}};
  return e;
}

}  // namespace

Exit run(const EvalArguments& a) {
  constexpr const char* kDetails = "--details scores.jsonl";
  // Before the first model is evaluated, which may take hours.
  if (!a.compare.empty() && !runfile::adapter_folder(a.compare) &&
      !std::filesystem::exists(std::filesystem::path(a.compare) / "config.json") &&
      !std::filesystem::exists(std::filesystem::path(a.compare) / "model" / "config.json"))
    throw usage_error(
        "--compare: '" + escaped(a.compare, 4096) + "' contains no model and no adapter",
        "give the output.dir of a run, a model directory in Hugging Face layout, or an adapter of "
        "PEFT");
  EvalSettings settings = eval_settings(a);
  if (!a.details.empty()) checkpoint::require_writable("--details", a.details, kDetails);
  if (!a.common.quiet && !settings.note.empty()) report::write_message(settings.note);
  const auto registry = make_registry(a.common, nullptr, a.threads);
  std::vector<Evaluated> models;
  models.push_back(evaluate(first_request(a), a, settings, *registry));
  if (!a.compare.empty()) models.push_back(evaluate(second_request(a), a, settings, *registry));

  std::string text, details;
  JsonValue files = JsonValue::array(), of_models = JsonValue::array();
  if (models.size() == 2)
    text =
        fmt::format("first: {}\nsecond: {}\n", escaped(models[0].name, 4096), escaped(models[1].name, 4096));
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    std::vector<const FileScores*> of_model;
    if (models.size() == 2) {
      FileScores &x = models[0].files[i], &y = models[1].files[i];
      evaluation::keep_common(x.data, x.scores, y.data, y.scores);
    }
    for (const Evaluated& e : models) {
      of_model.push_back(&e.files[i]);
      if (!a.details.empty()) details += eval_details(e.files[i], e.name);
    }
    text += eval_table(of_model);
    files.push_back(eval_json(of_model));
  }
  std::uint64_t predicted = 0;
  for (const Evaluated& e : models) {
    of_models.push_back(e.json);
    predicted = std::max(predicted, e.memory_bytes);
  }
  if (!a.details.empty()) checkpoint::write_output("--details", a.details, details, kDetails);
  if (a.common.json)
    fmt::print(result_stream(), "{}\n",
               JsonValue{{"schema", "trainhost.eval/1"},
                         {"window", settings.options.window},
                         {"stride", settings.options.stride},
                         {"shots", std::uint64_t{a.shots}},
                         {"models", of_models},
                         {"files", files},
                         {"memory", JsonValue{{"predicted_bytes", predicted},
                                              {"measured_bytes", registry->ledger().peak_total()}}}}
                   .dump(2));
  else
    fmt::print("{}", text);
  return Exit::kDone;
}

}  // namespace trainhost::cli
