// Renders a search for a terminal (fastest layouts, Pareto front, assumptions) and as CSV.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/report/file_keys.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "core/report/unjudged_text.hpp"

namespace trainhost::report {
namespace {

constexpr const char* kNoBreak = "\u00a0";  // a space at which a cell is not wrapped; printed as a usual one
constexpr std::size_t kFrontRows = 10;      // the terminal shows a sample; --csv and --json have all

std::string seconds_text(double s) {
  if (s >= 100) return fmt::format("{:.0f} s", s);
  if (s >= 1) return fmt::format("{:.2f} s", s);
  return s >= 1e-3 ? fmt::format("{:.1f} ms", 1e3 * s) : fmt::format("{:.3f} ms", 1e3 * s);
}

std::string recompute_text(const planning::RankedLayout& r) {
  return r.recompute_every > 1 ? fmt::format("{} by {}", r.recompute, r.recompute_every) : r.recompute;
}

/// The two largest parts of the step time other than arithmetic. Parts under half a per cent are omitted. The
/// spaces within a part are kNoBreak.
std::string largest_overheads(const planning::RankedLayout& r) {
  const std::pair<std::string, double>*first = nullptr, *second = nullptr;
  for (const auto& part : r.seconds) {
    if (part.first == "compute" || part.second <= 0) continue;
    if (!first || part.second > first->second)
      second = first, first = &part;
    else if (!second || part.second > second->second)
      second = &part;
  }
  std::string out;
  for (const auto* part : {first, second})
    // seconds are not overlapped and add up to step_seconds, so the shares are comparable.
    if (part && part->second >= 0.005 * r.step_seconds)
      out += fmt::format("{}{}{}{:.0f}{}%", out.empty() ? "" : ", ", part->first, kNoBreak,
                         100 * part->second / r.step_seconds, kNoBreak);
  return out;
}

/// At most `most` rows: the first, the last, and evenly spaced ones between them.
std::vector<planning::RankedLayout> sample_evenly(const std::vector<planning::RankedLayout>& rows,
                                                  std::size_t most) {
  if (rows.size() <= most || most < 2) return rows;
  std::vector<planning::RankedLayout> out;
  // The integer division gives indices 0 and rows.size() - 1 at both ends: least memory and least time.
  for (std::size_t i = 0; i < most; ++i) out.push_back(rows[i * (rows.size() - 1) / (most - 1)]);
  return out;
}

/// Ranked layouts as a table. A narrow terminal drops columns: first those with one default value in every
/// row, which the note below the table states, then the least important ones. Ranks, memory and time of a row
/// are never dropped.
std::string rows_table(const std::vector<planning::RankedLayout>& rows, const Terminal& terminal) {
  std::vector<std::string> headings = {"TP",
                                       "SP",
                                       "PP",
                                       "VPP",
                                       "DP",
                                       "CP",
                                       "EP",
                                       "ZeRO",
                                       "batch x accum",
                                       "recompute",
                                       "offload",
                                       "device",
                                       "host",
                                       "step",
                                       "MFU",
                                       "largest overheads"};
  Table t("rrrrrrrrrllrrrrl");
  t.row(headings);
  t.rule();
  std::vector<std::vector<std::string>> cells;
  for (const planning::RankedLayout& r : rows)
    cells.push_back({std::to_string(r.tensor), r.sequence ? "yes" : "-", std::to_string(r.pipeline),
                     std::to_string(r.interleave), std::to_string(r.data), std::to_string(r.context),
                     std::to_string(r.expert), std::to_string(r.zero),
                     fmt::format("{} x {}", r.micro_batch, r.accumulate), recompute_text(r),
                     r.offload.empty() ? "-" : r.offload, format_bytes(r.device_bytes),
                     r.host_bytes ? format_bytes(r.host_bytes) : "-",
                     (r.simulated ? "* " : "") + seconds_text(r.step_seconds),
                     fmt::format("{:.1f} %", 100 * r.utilization), largest_overheads(r)});
  for (const auto& row : cells) t.row(row);
  std::vector<std::size_t> drop;
  for (std::size_t c : {6, 5, 3, 1, 7, 12, 10, 9, 4, 2, 0}) {
    const std::string& value = cells.front()[c];
    if (value != "1" && value != "-" && value != "0" && value != "none") continue;
    if (std::any_of(cells.begin(), cells.end(), [&](const auto& r) { return r[c] != value; })) continue;
    drop.push_back(c);
    headings[c] += value == "-" ? " none" : " " + value;
  }
  for (std::size_t c : {15, 12, 14, 3, 1, 6, 5, 10, 9, 8, 7})
    if (std::find(drop.begin(), drop.end(), c) == drop.end()) drop.push_back(c);
  std::string out =
      t.str({.width = line_width(terminal), .drop = drop, .headings = headings, .see = "--csv"});
  for (std::size_t at; (at = out.find(kNoBreak)) != out.npos;) out.replace(at, std::strlen(kNoBreak), " ");
  return out;
}

/// The settings as command-line arguments; on a terminal in lines that end in a backslash, so that they can
/// be pasted. In a file they stay on one line.
std::string command_arguments(const std::vector<std::string>& settings, unsigned width) {
  constexpr const char* kIndent = "    ";
  std::string out = wrapped("  settings of the fastest layout, for trainhost plan:", width, "  "), line;
  for (const std::string& s : settings) {
    // 3 characters for the space before and " \" after.
    if (width && (line.empty() || line.size() + s.size() + 3 > width)) {
      out += line.empty() ? "\n" : line + " \\\n";
      line = kIndent + s;
    } else {
      line += " " + s;
    }
  }
  return out + line + "\n";
}

/// The most host memory that a listed layout needs, if its limit is not known. Bytes per device.
std::uint64_t unjudged_host(const planning::SearchResult& v) {
  std::uint64_t most = 0;
  if (v.host_budget_bytes) return most;
  for (const auto* rows : {&v.best, &v.pareto})
    for (const planning::RankedLayout& r : *rows) most = std::max(most, r.host_bytes);
  return most;
}

/// A CSV field. These texts are written by this program and contain no quotes, so csv.hpp is not needed.
std::string quoted(const std::string& text) { return text.find(',') == text.npos ? text : '"' + text + '"'; }

std::string csv_line(const char* list, std::size_t rank, const planning::RankedLayout& r) {
  std::string line =
      fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", list, rank, r.tensor,
                  r.sequence ? "true" : "false", r.pipeline, r.interleave, r.data, r.context, r.expert,
                  r.zero, r.micro_batch, r.accumulate, r.recompute, r.recompute_every, quoted(r.offload),
                  r.device_bytes, r.host_bytes, r.step_seconds, r.tokens_per_second, r.utilization);
  // One column per cause. All layouts of a search have the same causes in the same order; search_csv() takes
  // the headings from the first.
  for (const auto& [name, s] : r.seconds) line += fmt::format(",{}", s);
  return line + fmt::format(",{},{}\n", r.simulated ? "simulation" : "closed form", r.closed_form_seconds);
}

}  // namespace

std::string search_table(const planning::SearchResult& v, const Terminal& t) {
  std::string out =
      styled(t, Style::kBold, escaped(fmt::format("{}  on {} x {}", v.model, v.devices, v.device), 400)) +
      "\n";
  const auto line = [&](const std::string& text) { return wrapped(text, line_width(t), "    ") + "\n"; };
  out += line(fmt::format(
      "  {}, {} of {} tokens per step, {} per device{}", v.run_line, plural(v.global_batch, "sequence"),
      format_count(v.seq_len), format_bytes(v.budget_bytes),
      v.host_budget_bytes ? " and " + format_bytes(*v.host_budget_bytes) + " of host memory" : ""));
  const std::uint64_t unjudged = unjudged_host(v);
  out += line(fmt::format("  {} layouts, {} evaluated, {} of them fit{}; {}", format_count(v.layouts),
                          format_count(v.evaluated), format_count(v.fitting), unjudged ? " the devices" : "",
                          seconds_text(v.seconds)));
  if (unjudged)
    out +=
        line(fmt::format("  the listed layouts need up to {} of host memory per device (limit not known); {}",
                         format_bytes(unjudged), kHostBudgetHint));
  if (!v.best.empty()) {
    out += styled(t, Style::kAccent, "fastest layouts that fit") + "\n" + rows_table(v.best, t);
    const std::vector<planning::RankedLayout> front = sample_evenly(v.pareto, kFrontRows);
    const std::string shown =
        front.size() < v.pareto.size()
            ? fmt::format(" ({} of {} layouts; --csv and --json have all)", front.size(), v.pareto.size())
            : "";
    out +=
        wrapped(styled(t, Style::kAccent, "Pareto front of memory and time") + shown, line_width(t), "  ") +
        "\n" + rows_table(front, t);
    out += command_arguments(v.best.front().settings, line_width(t));
  } else {
    out += "  " + styled(t, Style::kBad, "no layout fits") + "\n";
  }
  for (const std::string& a : v.assumptions) out += line("  assumed: " + a);
  for (const std::string& n : v.notes) out += line("  note: " + n);
  return out + file_keys_text(v.file_keys, t);
}

std::string search_csv(const planning::SearchResult& v) {
  std::string out =
      "list,rank,tensor,sequence,pipeline,interleave,data,context,expert,zero,micro_batch,accumulate,"
      "recompute,recompute_every,offload,"
      "device_bytes,host_bytes,step_seconds,tokens_per_second,utilization";
  // Without a result there are no causes, and only the fixed columns are written.
  if (!v.best.empty())
    for (const auto& [name, s] : v.best.front().seconds) out += "," + name + "_seconds";
  if (!v.best.empty()) out += ",time_from,closed_form_seconds";
  out += "\n";
  for (std::size_t i = 0; i < v.best.size(); ++i) out += csv_line("best", i + 1, v.best[i]);
  for (std::size_t i = 0; i < v.pareto.size(); ++i) out += csv_line("pareto", i + 1, v.pareto[i]);
  return out;
}

}  // namespace trainhost::report
