// The sweep as a table for people: a row a value, a column an estimator, the crossovers below.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/report/sweep_view.hpp"
#include "core/report/table.hpp"
#include "core/report/terminal.hpp"

namespace trainhost::report {
namespace {

constexpr unsigned kBarWidth = 20;

std::string figure(const SweepView& v, const SweepPoint& p) {
  if (!p.error.empty()) return "-";
  return format_bytes(p.total) + (v.budget_known && !p.fits ? " !" : "");
}

/// One estimator: its components, widest of all points first.
std::string single(const SweepView& v, const SweepCurve& c) {
  std::vector<Component> parts;
  std::uint64_t most = 1;
  for (const SweepPoint& p : c.points) {
    most = std::max(most, p.total);
    for (const auto& part : p.components)
      if (std::find(parts.begin(), parts.end(), part.first) == parts.end()) parts.push_back(part.first);
  }
  std::sort(parts.begin(), parts.end());
  Table table("r" + std::string(parts.size() + 1, 'r') + "l");
  std::vector<std::string> head = {v.key};
  for (Component part : parts) head.emplace_back(name(part));
  head.insert(head.end(), {"total", ""});
  table.row(head);
  table.rule();
  for (const SweepPoint& p : c.points) {
    std::vector<std::string> cells = {p.label};
    for (Component part : parts) {
      const auto found = std::find_if(p.components.begin(), p.components.end(), [&](const auto& x) { return x.first == part; });
      cells.push_back(found == p.components.end() ? "-" : format_bytes(found->second));
    }
    cells.push_back(figure(v, p));
    cells.push_back(p.error.empty() ? bar(double(p.total) / double(most), kBarWidth) : escaped(p.error, 120));
    table.row(std::move(cells));
  }
  return table.str();
}

/// Several: totals side by side.
std::string several(const SweepView& v) {
  Table table("r" + std::string(v.curves.size(), 'r') + "l");
  std::vector<std::string> head = {v.key};
  for (const SweepCurve& c : v.curves) head.push_back(c.estimator);
  table.row(head);
  table.rule();
  for (std::size_t i = 0; i < v.curves.front().points.size(); ++i) {
    std::vector<std::string> cells = {v.curves.front().points[i].label};
    std::string error;
    for (const SweepCurve& c : v.curves) {
      cells.push_back(figure(v, c.points[i]));
      if (error.empty()) error = c.points[i].error;
    }
    cells.push_back(escaped(error, 120));
    table.row(std::move(cells));
  }
  return table.str();
}

}  // namespace

std::string sweep_table(const SweepView& v, const Terminal& t) {
  std::string out = styled(t, Style::kBold, escaped(v.model) + ", memory against " + v.key) + "\n";
  const bool one = v.curves.size() == 1;
  out += fmt::format("  {}{}\n", one ? v.curves.front().estimator + " (" + v.curves.front().kind + "), at first: " : "at first: ", v.run_line);
  if (!v.curves.empty()) out += one ? single(v, v.curves.front()) : several(v);
  const auto over = [](const SweepCurve& c) { return std::any_of(c.points.begin(), c.points.end(), [](const SweepPoint& p) { return p.error.empty() && !p.fits; }); };
  if (v.budget_known && std::any_of(v.curves.begin(), v.curves.end(), over))
    out += fmt::format("  ! does not fit in {} ({})\n", format_bytes(v.budget_bytes), v.budget_source);
  for (const Crossover& c : v.crossovers) out += "  " + styled(t, Style::kAccent, escaped(c.estimator) + ": " + escaped(c.sentence)) + "\n";
  return out;
}

}  // namespace trainhost::report
