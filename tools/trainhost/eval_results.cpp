// See eval_results.hpp.
#include "tools/trainhost/eval_results.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"

namespace trainhost::cli {
namespace {

using namespace evaluation;

/// One row: a value per model, and the difference of two.
struct MetricRow {
  const char *label, *key;
  std::vector<Metric> values;
  std::optional<Difference> difference;
};

std::vector<MetricRow> loss_rows(const std::vector<const FileScores*>& of_model) {
  std::vector<MetricRow> rows = {{"loss, nats per token", "loss", {}, {}},
                                 {"perplexity", "perplexity", {}, {}},
                                 {"bits per byte", "bits_per_byte", {}, {}}};
  for (const FileScores* f : of_model) {
    const LossMetrics m = loss_metrics(f->data, f->scores);
    rows[0].values.push_back(m.loss);
    rows[1].values.push_back(m.perplexity);
    rows[2].values.push_back(m.bits_per_byte);
  }
  if (of_model.size() < 2) return rows;
  const LossDifferences d =
      loss_differences(of_model[0]->data, of_model[0]->scores, of_model[1]->data, of_model[1]->scores);
  rows[0].difference = d.loss, rows[1].difference = d.perplexity, rows[2].difference = d.bits_per_byte;
  return rows;
}

constexpr std::pair<Normalisation, const char*> kNormalisations[] = {
    {Normalisation::kNone, "accuracy"},
    {Normalisation::kCharacters, "accuracy_norm"},
    {Normalisation::kBytes, "accuracy_bytes"}};

std::vector<MetricRow> accuracy_rows(const std::vector<const FileScores*>& of_model) {
  std::vector<MetricRow> rows;
  for (const auto& [normalisation, key] : kNormalisations) {
    MetricRow row;
    row.label = normalisation == Normalisation::kNone         ? "accuracy"
                : normalisation == Normalisation::kCharacters ? "accuracy, per character"
                                                              : "accuracy, per byte";
    row.key = key;
    for (const FileScores* f : of_model) row.values.push_back(accuracy(f->data, f->scores, normalisation));
    if (of_model.size() == 2)
      row.difference = accuracy_difference(of_model[0]->data, of_model[0]->scores, of_model[1]->data,
                                           of_model[1]->scores, normalisation);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<MetricRow> rows_of(const std::vector<const FileScores*>& of_model) {
  return of_model.front()->data.kind == FileKind::kQuestions ? accuracy_rows(of_model) : loss_rows(of_model);
}

std::string number(double x, bool sign) {
  if (std::abs(x) >= 1000) return sign ? fmt::format("{:+.6g}", x) : fmt::format("{:.6g}", x);
  return sign ? fmt::format("{:+.4f}", x) : fmt::format("{:.4f}", x);
}

std::string with_error(const Metric& m, bool sign) {
  return number(m.value, sign) + (m.error ? " ± " + number(*m.error, false) : "");
}

const char* kind_name(FileKind k) {
  return k == FileKind::kText ? "text" : k == FileKind::kRecords ? "records" : "questions";
}

/// Counts of what was scored, divided, truncated and left out.
std::string summary(const EvaluationData& d) {
  std::string text;
  if (d.kind == FileKind::kQuestions)
    text = fmt::format("{}, {}", plural(d.questions.size(), "question"), plural(d.ids, "token"));
  else
    text = fmt::format("{}, {} of {} scored",
                       plural(d.documents.size(), d.kind == FileKind::kText ? "window" : "document"),
                       format_count(scored_tokens(d)), plural(d.ids, "token"));
  if (d.kind == FileKind::kRecords && d.divided)
    text += fmt::format("; {} longer than the window", format_count(d.divided));
  if (d.truncated)
    text +=
        fmt::format("; {} longer than the window, truncated at their beginning", format_count(d.truncated));
  if (d.left_out) text += fmt::format("; {} left out, no token to score", format_count(d.left_out));
  if (!d.missing_tokens.empty())
    text += "; not in the vocabulary: " + escaped(fmt::format("{}", fmt::join(d.missing_tokens, " ")));
  return text;
}

JsonValue metric_json(const Metric& m) {
  return {{"value", m.value}, {"error", m.error ? JsonValue(*m.error) : JsonValue()}};
}

bool same_ids(const std::vector<const FileScores*>& of_model) {
  return of_model.size() < 2 || of_model[0]->data.ids_hash == of_model[1]->data.ids_hash;
}

}  // namespace

std::string eval_table(const std::vector<const FileScores*>& of_model) {
  const EvaluationData& d = of_model.front()->data;
  const auto line = [](const std::string& text) {
    return report::wrapped(text, report::output_width(), "    ") + "\n";
  };
  std::string text = line(escaped(d.file.string(), 4096)) + line("  " + summary(d));
  if (!same_ids(of_model))
    text += line("  second: " + summary(of_model[1]->data)) +
            (d.kind == FileKind::kQuestions
                 ? ""
                 : line("  the tokens differ: compare bits per byte, not loss and perplexity"));
  const bool two = of_model.size() == 2;
  report::Table t(two ? "lrrrrr" : "lr");
  if (two) t.row({"", "first", "second", "difference", "better", "worse"});
  for (const MetricRow& row : rows_of(of_model)) {
    std::vector<std::string> cells = {row.label};
    for (const Metric& m : row.values) cells.push_back(with_error(m, false));
    if (row.difference) {
      cells.push_back(with_error(row.difference->change, true));
      for (const std::uint64_t n : {row.difference->better, row.difference->worse})
        cells.push_back(row.difference->paired ? format_count(n) : "");
    }
    t.row(std::move(cells));
  }
  text += t.str({.width = report::output_width(), .drop = {5, 4, 2}});
  if (d.counts.broken) text += line("  left out: " + d.counts.message());
  return text;
}

JsonValue eval_json(const std::vector<const FileScores*>& of_model) {
  const EvaluationData& first = of_model.front()->data;
  JsonValue results = JsonValue::array();
  const std::vector<MetricRow> rows = rows_of(of_model);
  for (std::size_t i = 0; i < of_model.size(); ++i) {
    const EvaluationData& d = of_model[i]->data;
    JsonValue r = {{"tokens", d.ids}, {"broken", d.counts.broken}, {"broken_records", d.counts.first_broken}};
    if (d.kind == FileKind::kQuestions) {
      r["questions"] = std::uint64_t{d.questions.size()};
      r["truncated"] = d.truncated;
    } else {
      r[d.kind == FileKind::kText ? "windows" : "documents"] = std::uint64_t{d.documents.size()};
      r["scored_tokens"] = scored_tokens(d);
      r["longer_than_window"] = d.divided;
      r["left_out"] = d.left_out;
    }
    for (const MetricRow& row : rows) r[row.key] = metric_json(row.values[i]);
    results.push_back(std::move(r));
  }
  JsonValue file = {{"file", first.file.string()}, {"kind", kind_name(first.kind)}, {"results", results}};
  if (of_model.size() < 2) return file;
  JsonValue differences = JsonValue::object();
  for (const MetricRow& row : rows) {
    JsonValue d = metric_json(row.difference->change);
    if (row.difference->paired) d["better"] = row.difference->better, d["worse"] = row.difference->worse;
    differences[row.key] = std::move(d);
  }
  file["same_tokens"] = same_ids(of_model);
  file["difference"] = std::move(differences);
  return file;
}

std::string eval_details(const FileScores& f, const std::string& model) {
  const EvaluationData& d = f.data;
  std::string all;
  const auto add = [&](std::uint64_t record, std::uint32_t line, JsonValue fields, std::size_t entry,
                       const char* key) {
    JsonValue object = {{"model", model}, {"file", d.file.string()}, {"record", record}};
    if (line) object["line"] = std::uint64_t{line};
    for (JsonMember& m : fields.members) object[m.key] = std::move(m.value);
    JsonValue values = JsonValue::array();
    for (const double v : f.scores.log_probabilities[entry]) values.push_back(v);
    object[key] = std::move(values);
    all += object.dump() + "\n";
  };
  for (std::size_t i = 0; i < d.documents.size(); ++i)
    add(d.documents[i].record, d.documents[i].line,
        {{"tokens", d.documents[i].tokens}, {"nats", f.scores.nats[i]}}, i, "log_probabilities");
  for (std::size_t i = 0; i < d.questions.size(); ++i) {
    const Question& q = d.questions[i];
    const auto choice = [&](Normalisation n) {
      return std::uint64_t{chosen(q, f.scores.log_probabilities[i], n)};
    };
    add(q.record, q.line,
        {{"answer", std::uint64_t{q.answer}},
         {"chosen", choice(Normalisation::kNone)},
         {"chosen_norm", choice(Normalisation::kCharacters)},
         {"chosen_bytes", choice(Normalisation::kBytes)}},
        i, "log_likelihoods");
  }
  return all;
}

}  // namespace trainhost::cli
