// See run_table.hpp.
#include "core/report/run_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "core/base/text.hpp"
#include "core/report/text_table.hpp"
#include "core/training/throughput.hpp"

namespace trainhost::report {
namespace {

struct Numbers {
  std::optional<double> loss, lowest_loss, validation, best_validation, tokens_per_s;
  std::uint64_t best_step = 0, measured_bytes = 0, predicted_bytes = 0, process_bytes = 0;
};

Numbers numbers_of(const RunRecord& r) {
  Numbers n;
  const RunCurves::Part& loss = r.curves().whole(Metric::kLoss);
  if (loss.count) {
    n.lowest_loss = loss.least;
    n.loss = r.curves().last()[static_cast<std::size_t>(Metric::kLoss)];
    if (!std::isfinite(*n.loss)) n.loss.reset();
  }
  if (!r.evaluations().empty()) {
    n.validation = r.evaluations().back().second;
    const auto best = std::min_element(r.evaluations().begin(), r.evaluations().end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    n.best_validation = best->second, n.best_step = best->first;
  }
  if (r.seconds() > 0) n.tokens_per_s = static_cast<double>(r.tokens()) / r.seconds();
  if (const JsonValue* const memory = r.done().find("memory")) {
    n.measured_bytes = integer_of(*memory, "measured_bytes");
    n.predicted_bytes = integer_of(*memory, "predicted_bytes");
    n.process_bytes = integer_of(*memory, "process_peak_bytes");
  }
  return n;
}

std::string loss_text(const std::optional<double>& v) { return v ? fmt::format("{:.4f}", *v) : ""; }

/// A number in one spelling, so that 4e-3 and 0.004 are the same setting; other values as they are.
std::string one_spelling(const std::string& value) {
  double number = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  return error == std::errc{} && stop == end && value.find_first_of(".eE") != value.npos
             ? fmt::format("{}", number)
             : value;
}

/// "train.steps" -> "40" of a resolved run file: one key per line, tables in brackets; keys with their
/// default are comments. A comment after a value says where it comes from.
std::map<std::string, std::string> settings_of(const std::string& run_file) {
  std::map<std::string, std::string> out;
  std::string table;
  for (std::size_t begin = 0; begin < run_file.size();) {
    const std::size_t end = std::min(run_file.find('\n', begin), run_file.size());
    std::string line = run_file.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with('[')) {
      table = line.substr(1, line.find(']') - 1);
      continue;
    }
    if (line.starts_with("# ")) line.erase(0, 2);
    if (const std::size_t comment = line.find("  # "); comment != line.npos) line.resize(comment);
    while (line.ends_with(' ')) line.pop_back();
    const std::size_t equals = line.find(" = ");
    if (equals == line.npos || line.find(' ') != equals) continue;
    out[table + "." + line.substr(0, equals)] = one_spelling(line.substr(equals + 3));
  }
  return out;
}

}  // namespace

std::vector<std::vector<std::string>> run_rows(const RunRecords& runs) {
  std::vector<std::vector<std::string>> rows = {
      {"run", "state", "steps", "loss", "validation", "best", "at step", "tokens/s", "time", "memory"}};
  for (const auto& r : runs) {
    const Numbers n = numbers_of(*r);
    rows.push_back({escaped(r->name(), 80), r->state(),
                    r->steps() ? fmt::format("{}/{}", r->step(), r->steps()) : std::to_string(r->step()),
                    loss_text(n.loss), loss_text(n.validation), loss_text(n.best_validation),
                    n.best_validation ? std::to_string(n.best_step) : "",
                    n.tokens_per_s ? training::format_rate(*n.tokens_per_s) : "",
                    r->seconds() > 0 ? training::format_duration(r->seconds()) : "",
                    n.measured_bytes ? format_bytes(n.measured_bytes) : ""});
  }
  return rows;
}

std::vector<std::vector<std::string>> differing_settings(const RunRecords& runs) {
  std::map<std::string, std::vector<std::string>> all;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const auto& [key, value] : settings_of(runs[i]->run_file())) {
      all[key].resize(runs.size());
      all[key][i] = value;
    }
  std::vector<std::vector<std::string>> out;
  for (const auto& [key, values] : all)
    if (key != "output.dir" && std::any_of(values.begin(), values.end(),
                                           [&first = values[0]](const auto& v) { return v != first; })) {
      out.push_back({escaped(key, 80)});
      for (const std::string& v : values) out.back().push_back(escaped(v, 200));
    }
  return out;
}

std::string compare_table(const RunRecords& runs, const Terminal& t) {
  Table table("nlrrrrrrrr");
  const auto rows = run_rows(runs);
  for (const auto& row : rows) table.row(row);
  Fit fit{line_width(t), {6, 8, 9, 7, 3}, rows.front()};
  std::string out = table.str(fit);
  const auto different = differing_settings(runs);
  if (different.empty()) return out;
  Table settings("n" + std::string(runs.size(), 'l'));
  std::vector<std::string> headings = {"setting"};
  for (const auto& r : runs) headings.push_back(escaped(r->name(), 80));
  settings.row(headings);
  for (const auto& row : different) settings.row(row);
  Fit fit_settings{line_width(t), {}, headings};
  return out + "\n" + settings.str(fit_settings);
}

std::string compare_json(const RunRecords& runs) {
  JsonValue all = JsonValue::array();
  const auto number = [](const std::optional<double>& v) { return v ? JsonValue(*v) : JsonValue(); };
  for (const auto& r : runs) {
    const Numbers n = numbers_of(*r);
    JsonValue validation = JsonValue::array();
    for (const auto& [step, loss] : r->evaluations()) validation.push_back({{"step", step}, {"loss", loss}});
    JsonValue j = {{"name", escaped(r->name(), 400)},
                   {"folder", escaped(r->folder().string(), 4096)},
                   {"state", r->state()},
                   {"step", r->step()},
                   {"steps", r->steps()},
                   {"tokens", r->tokens()},
                   {"seconds", r->seconds()},
                   {"loss", number(n.loss)},
                   {"lowest_loss", number(n.lowest_loss)},
                   {"validation_loss", number(n.validation)},
                   {"best_validation_loss", number(n.best_validation)},
                   {"best_step", n.best_step},
                   {"tokens_per_s", number(n.tokens_per_s)}};
    if (n.measured_bytes)
      j["memory"] = {{"predicted_bytes", n.predicted_bytes},
                     {"measured_bytes", n.measured_bytes},
                     {"process_peak_bytes", n.process_bytes}};
    j["curves"] = r->curves().json();
    j["validation"] = std::move(validation);
    all.push_back(std::move(j));
  }
  JsonValue different = JsonValue::array();
  for (const auto& row : differing_settings(runs))
    different.push_back({{"key", row[0]}, {"values", std::vector<std::string>(row.begin() + 1, row.end())}});
  JsonValue out = {{"schema", "trainhost.compare/1"}};
  out["runs"] = std::move(all);
  out["differences"] = std::move(different);
  return out.dump(2);
}

}  // namespace trainhost::report
