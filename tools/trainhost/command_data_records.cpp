// trainhost data stats | show: inspect records and how they are trained on. The work is
// core/data/record_tools.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/json_value.hpp"
#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/data/record_tools.hpp"
#include "core/report/text_table.hpp"
#include "core/runfile/paths.hpp"
#include "tools/trainhost/command_data_run.hpp"
#include "tools/trainhost/record_keys.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

data::RecordToolOptions options_of(const DataRecordsArguments& a, records::OnError on_error) {
  data::RecordToolOptions o;
  o.files.assign(a.files.begin(), a.files.end());
  if (!a.model.empty()) runfile::require_folder(a.model, "--model", {});
  if (!a.tokenizer.empty())
    o.tokenizer = a.tokenizer;
  else if (const auto file = runfile::readable_tokenizer_beside(a.model))
    o.tokenizer = file->string();
  o.records.on_error = on_error;
  o.records.chat_template = a.chat_template;
  if (a.loss_on == "all") o.records.loss_on = records::LossOn::kAll;
  set_keys(a.keys, named_keys(o.records.keys));
  if (!a.model.empty())
    o.records.model_folders.emplace_back(a.model);
  else if (o.tokenizer != "bytes")
    o.records.model_folders.push_back(std::filesystem::absolute(o.tokenizer).parent_path());
  return o;
}

std::string share(std::uint64_t part, std::uint64_t all) {
  return fmt::format("{} ({:.3g}%)", format_count(part),
                     all ? 100.0 * static_cast<double>(part) / static_cast<double>(all) : 0.0);
}

/// A table with one row per power of two, from that of the shortest document to that of the longest. The bar
/// of the largest row has 40 characters.
std::string histogram_of(const data::RecordStats& s) {
  const auto& h = s.histogram;
  const auto used = [](std::uint64_t n) { return n > 0; };
  const auto first = std::find_if(h.begin(), h.end(), used);
  const auto last = std::find_if(h.rbegin(), h.rend(), used).base();
  const std::uint64_t most = *std::max_element(h.begin(), h.end());
  report::Table t("rrl");
  t.row({"tokens", "documents", ""});
  for (auto it = first; it < last; ++it) {
    const auto bits = static_cast<unsigned>(it - h.begin());
    const std::uint64_t low = bits ? std::uint64_t{1} << (bits - 1) : 0,
                        high = (std::uint64_t{1} << bits) - 1;
    t.row({low == high ? format_count(low) : format_count(low) + "-" + format_count(high), format_count(*it),
           std::string(static_cast<std::size_t>((*it * 40 + most - 1) / most), '#')});
  }
  return t.str({.width = report::output_width(), .drop = {2}});
}

std::string stats_table(const data::RecordStats& s, const DataStatsArguments& a) {
  report::Table t("ll");
  t.row({"documents", format_count(s.documents)});
  t.row({"tokens", format_count(s.tokens)});
  t.row({"in the loss", share(s.counted, s.tokens)});
  t.row({"length", fmt::format("{} to {}, median {}, 90% up to {}, 99% up to {}", format_count(s.shortest),
                               format_count(s.longest), format_count(s.median), format_count(s.p90),
                               format_count(s.p99))});
  t.row({"duplicates", share(s.duplicates, s.documents)});
  if (a.seq_len) {
    t.row({fmt::format("truncated at {}", format_count(a.seq_len)),
           fmt::format("{}, {} cut off", share(s.truncated, s.documents),
                       plural(s.truncated_tokens, "token"))});
  }
  if (s.untrained) t.row({"left out", share(s.untrained, s.documents) + ", no token in the loss"});
  t.row({"chat template", s.chat_template.empty() ? "none" : s.chat_template});
  if (!s.missing_tokens.empty())
    t.row({"not in the vocabulary", escaped(fmt::format("{}", fmt::join(s.missing_tokens, " ")))});
  return t.str({.width = report::output_width()}) + "\n" + histogram_of(s) +
         (s.counts.broken ? "\n" + s.counts.message() + "\n" : "");
}

/// A row per file, and one of all.
std::string files_table(const data::RecordStatsOfFiles& s, const DataStatsArguments& a) {
  report::Table t(a.seq_len ? "lrrrrrrr" : "lrrrrrr");
  const auto row = [&](std::vector<std::string> cells, const std::string& truncated) {
    if (a.seq_len) cells.push_back(truncated);
    t.row(std::move(cells));
  };
  row({"file", "documents", "tokens", "in the loss", "median", "longest", "duplicates"}, "truncated");
  const auto row_of = [&](const std::string& name, const data::RecordStats& f) {
    row({name, format_count(f.documents), format_count(f.tokens), share(f.counted, f.tokens),
         format_count(f.median), format_count(f.longest), format_count(f.duplicates)},
        format_count(f.truncated));
  };
  for (std::size_t i = 0; i < s.files.size(); ++i) row_of(escaped(a.files[i], 4096), s.files[i]);
  t.rule();
  row_of("total", s.all);
  return t.str({.width = report::output_width(), .drop = {4, 6, 5, 3}});
}

/// Members that a file has too.
JsonValue counts_json(const data::RecordStats& s) {
  return {{"documents", s.documents},
          {"tokens", s.tokens},
          {"counted", s.counted},
          {"shortest", s.shortest},
          {"median", s.median},
          {"p90", s.p90},
          {"p99", s.p99},
          {"longest", s.longest},
          {"duplicates", s.duplicates},
          {"truncated", s.truncated},
          {"truncated_tokens", s.truncated_tokens},
          {"untrained", s.untrained},
          {"broken", s.counts.broken}};
}

JsonValue stats_json(const data::RecordStatsOfFiles& s, const DataStatsArguments& a) {
  JsonValue histogram = JsonValue::array(), files = JsonValue::array();
  for (std::size_t i = 0; i < s.all.histogram.size(); ++i)
    if (s.all.histogram[i])
      histogram.push_back({{"from", i ? std::uint64_t{1} << (i - 1) : 0}, {"documents", s.all.histogram[i]}});
  for (std::size_t i = 0; i < s.files.size(); ++i) {
    JsonValue file = counts_json(s.files[i]);
    file["file"] = a.files[i];
    files.push_back(std::move(file));
  }
  JsonValue all = counts_json(s.all);
  all["broken_records"] = JsonValue(s.all.counts.first_broken);
  all["chat_template"] = s.all.chat_template;
  all["missing_tokens"] = JsonValue(s.all.missing_tokens);
  all["histogram"] = histogram;
  all["files"] = files;
  return all;
}

/// Lines stay, other control characters are escaped: a record must not control the terminal.
std::string printable(std::string_view text) {
  std::string all;
  while (true) {
    const std::size_t end = text.find('\n');
    all += escaped(text.substr(0, end), text.size());
    if (end == text.npos) return all;
    all += '\n';
    text.remove_prefix(end + 1);
  }
}

JsonValue record_json(const data::ShownRecord& r) {
  return {{"file", r.where.file},
          {"line", std::uint64_t{r.where.line}},
          {"tokens", r.tokens},
          {"counted", r.counted},
          {"parts", parts_json(r.parts)}};
}

}  // namespace

std::string marked_text(std::span<const records::Part> parts, const report::Terminal& terminal) {
  std::string all;
  bool open = false;
  const auto mark = [&](bool trained) {
    if (!terminal.color && trained != open) all += trained ? "{+" : "+}";
    open = trained;
  };
  for (const records::Part& p : parts) {
    mark(p.trained);
    const report::Style style = p.trained   ? report::Style::kGood
                                : p.special ? report::Style::kDim
                                            : report::Style::kPlain;
    all += report::styled(terminal, style, printable(p.text));
  }
  mark(false);
  return all;
}

JsonValue parts_json(std::span<const records::Part> parts) {
  JsonValue all = JsonValue::array();
  for (const records::Part& p : parts)
    all.push_back({{"text", p.text}, {"special", p.special}, {"trained", p.trained}});
  return all;
}

/// Broken records are counted and listed, not an error: this command is how a user finds them.
Exit run(const DataStatsArguments& a) {
  if (names_run(a)) return stats_of_run(a);
  data::RecordToolOptions o = options_of(a, records::OnError::kSkip);
  o.seq_len = a.seq_len;
  const data::RecordStatsOfFiles s = data::record_stats(o);
  if (a.common.json)
    fmt::print(result_stream(), "{}\n", stats_json(s, a).dump(2));
  else
    fmt::print("{}{}", s.files.size() > 1 ? files_table(s, a) + "\n" : "", stats_table(s.all, a));
  return Exit::kDone;
}

Exit run(const DataShowArguments& a) {
  if (names_run(a)) return show_of_run(a);
  const data::ShownRecords shown =
      data::show_records(options_of(a, records::OnError::kSkip), a.first, a.count);
  if (shown.counts.broken && !a.common.quiet) write_stderr("left out: " + shown.counts.message() + "\n");
  if (a.common.json) {
    JsonValue all = JsonValue::array();
    for (const data::ShownRecord& r : shown.records) all.push_back(record_json(r));
    fmt::print(result_stream(), "{}\n", JsonValue{{"records", all}}.dump(2));
    return Exit::kDone;
  }
  const report::Terminal terminal = report::terminal_of(1);
  for (const data::ShownRecord& r : shown.records)
    fmt::print("{}\n{}\n\n",
               report::styled(terminal, report::Style::kBold,
                              fmt::format("{}:{}: {}, {} in the loss", escaped(r.where.file, 4096),
                                          r.where.line, plural(r.tokens, "token"), format_count(r.counted))),
               marked_text(r.parts, terminal));
  return Exit::kDone;
}

}  // namespace trainhost::cli
