// Renders a sweep for a terminal: one row per value, one column per component or estimator, then crossovers.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/base/text.hpp"
#include "core/report/file_keys.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "core/report/unjudged_text.hpp"

namespace trainhost::report {
namespace {

/// "!" marks values over the budget, "?" those that need memory whose limit is not known; the lines below the
/// table explain them. Colour would be lost in a file.
std::string judged_cell(const planning::SweepResult& v, const planning::SweepPoint& p) {
  if (!p.error.empty()) return "-";
  return format_bytes(p.compute) + (v.budget_known && !p.fits                     ? " !"
                                    : p.verdict == planning::Verdict::kFitsDevice ? " ?"
                                                                                  : "");
}

/// Whether a run needs memory beside that of the tier that computes, to which the budget does not apply.
bool needs_other_tiers(const planning::SweepCurve& c) {
  return std::any_of(c.points.begin(), c.points.end(), [](const auto& p) { return p.compute != p.total; });
}

/// One estimator: a column per component. Components are collected over all points, since a component may be
/// 0 bytes and absent at some values (a streamed mode appears only above some size).
std::string components_table(const planning::SweepResult& v, const planning::SweepCurve& c,
                             const Terminal& t) {
  std::vector<Component> parts;
  std::uint64_t most = 1;  // not 0: the bars divide by it, and all points may be invalid
  for (const planning::SweepPoint& p : c.points) {
    most = std::max(most, p.compute);
    for (const auto& part : p.components)
      if (std::find(parts.begin(), parts.end(), part.first) == parts.end()) parts.push_back(part.first);
  }
  std::sort(parts.begin(), parts.end());
  const bool differs = how_differs(v), tiers = needs_other_tiers(c);
  Table table("r" + std::string(parts.size() + (tiers ? 2 : 1), 'r') + (differs ? "ll" : "l"));
  std::vector<std::string> head = {v.key};
  for (Component part : parts) head.emplace_back(display_name(part));
  if (tiers) head.push_back("all tiers");
  head.push_back(tiers ? "on device" : "total");
  if (differs) head.push_back("settings");
  head.push_back("");
  table.row(head);
  table.rule();
  for (const planning::SweepPoint& p : c.points) {
    std::vector<std::string> cells = {p.label};
    for (Component part : parts) {
      const auto found = std::find_if(p.components.begin(), p.components.end(),
                                      [&](const auto& x) { return x.first == part; });
      cells.push_back(found == p.components.end() ? "-" : format_bytes(found->second));
    }
    if (tiers) cells.push_back(p.error.empty() ? format_bytes(p.total) : "-");
    cells.push_back(judged_cell(v, p));
    if (differs) cells.push_back(p.how);
    cells.push_back(p.error.empty() ? bar(double(p.compute) / double(most), kBarWidth)
                                    : escaped(p.error, 120));
    table.row(std::move(cells));
  }
  const bool errors = std::any_of(c.points.begin(), c.points.end(),
                                  [](const planning::SweepPoint& p) { return !p.error.empty(); });
  // Columns by index: 0 the key, 1 to parts.size() the components, then one or two totals, perhaps the
  // settings, and last the bar or the error text. Error texts are never dropped.
  std::vector<std::size_t> drop;
  if (!errors) drop.push_back(head.size() - 1);  // the bar
  for (std::size_t i = parts.size(); i-- > 0;)
    drop.push_back(i + 1);  // then components; totals are never dropped
  return table.str({.width = line_width(t), .drop = drop, .see = "--csv"});
}

/// Several estimators: a column per estimator, with the memory of the tier that computes. All curves have the
/// same values in the same order, so row i is point i of each.
std::string totals_table(const planning::SweepResult& v, const Terminal& t) {
  Table table("r" + std::string(v.curves.size(), 'r') + "l");
  std::vector<std::string> head = {v.key};
  for (const planning::SweepCurve& c : v.curves) head.push_back(c.estimator);
  table.row(head);
  table.rule();
  for (std::size_t i = 0; i < v.curves.front().points.size(); ++i) {
    std::vector<std::string> cells = {v.curves.front().points[i].label};
    // The reasons of several estimators are usually the same; one is enough.
    std::string error;
    for (const planning::SweepCurve& c : v.curves) {
      assert(c.points.size() == v.curves.front().points.size());
      cells.push_back(judged_cell(v, c.points[i]));
      if (error.empty()) error = c.points[i].error;
    }
    cells.push_back(escaped(error, 120));
    table.row(std::move(cells));
  }
  return table.str({.width = line_width(t), .see = "--csv"});
}

}  // namespace

/// The settings column would repeat one text in every row if the automatic choices never change.
bool how_differs(const planning::SweepResult& v) {
  const std::string* first = nullptr;
  for (const planning::SweepCurve& c : v.curves)
    for (const planning::SweepPoint& p : c.points) {
      if (!p.error.empty()) continue;
      if (!first) first = &p.how;
      if (p.how != *first) return true;
    }
  return false;
}

std::string sweep_table(const planning::SweepResult& v, const Terminal& t) {
  const auto line = [&](const std::string& text) { return wrapped(text, line_width(t), "    ") + "\n"; };
  std::string out = line(styled(t, Style::kBold, escaped(v.model) + ": memory against " + v.key));
  const bool one = v.curves.size() == 1;
  out += line(fmt::format(
      "  {}{}",
      one ? v.curves.front().estimator + " (" + display_name(v.curves.front().claim) + "), first point: "
          : "first point: ",
      v.run_line));
  if (!v.curves.empty()) out += one ? components_table(v, v.curves.front(), t) : totals_table(v, t);
  if (!one && std::any_of(v.curves.begin(), v.curves.end(), needs_other_tiers))
    out += line("  memory on the device; --csv has that of all tiers");
  for (const std::string& r : v.remarks) out += line("  note: " + r);
  const auto exceeds_budget = [](const planning::SweepCurve& c) {
    return std::any_of(c.points.begin(), c.points.end(),
                       [](const planning::SweepPoint& p) { return p.error.empty() && !p.fits; });
  };
  if (v.budget_known && std::any_of(v.curves.begin(), v.curves.end(), exceeds_budget))
    out += line(fmt::format("  ! does not fit in {} ({})", format_bytes(v.budget_bytes), v.budget_source));
  std::uint64_t unjudged = 0;  // of the value that needs most
  for (const planning::SweepCurve& c : v.curves)
    for (const planning::SweepPoint& p : c.points)
      if (p.verdict == planning::Verdict::kFitsDevice) unjudged = std::max(unjudged, p.host_bytes);
  if (unjudged)
    out += line(fmt::format("  ? fits the device; needs up to {} of host memory (limit not known); {}",
                            format_bytes(unjudged), kHostBudgetHint));
  for (const planning::Crossover& c : v.crossovers)
    out += line("  " + styled(t, Style::kAccent, escaped(c.estimator) + ": " + escaped(c.sentence)));
  return out + file_keys_text(v.file_keys, t);
}

}  // namespace trainhost::report
