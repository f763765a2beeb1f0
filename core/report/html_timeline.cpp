// See html_timeline.hpp. A step of a large model has thousands of phases, more than a chart has pixels:
// neighbours are drawn as one column, and the column is the largest of them, so the peak is never lost.
#include "core/report/html_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/planning/step_timeline.hpp"
#include "core/report/html_chart.hpp"
#include "core/report/html_page.hpp"

namespace trainhost::report {
namespace {

constexpr std::size_t kColumns = 160, kTableRows = 120;

using Phases = std::vector<planning::StepPhase>;

std::uint64_t bytes_of(const planning::StepPhase& m, Component c) {
  std::uint64_t sum = 0;
  for (const auto& [component, bytes] : m.components)
    if (component == c) sum += bytes;
  return sum;
}

bool same(const planning::StepPhase& a, const planning::StepPhase& b) {
  return a.bytes == b.bytes && a.name == b.name;
}

std::string tip(const planning::StepPhase& m) {
  std::string out = fmt::format("{}\n{}", escaped(m.name, 80), format_bytes(m.bytes));
  for (const auto& [c, bytes] : m.components)
    if (bytes) out += fmt::format("\n{} {}", display_name(c), format_bytes(bytes));
  return out;
}

html::AreaChart chart(const planning::PlanResult& v, const Phases& phases, const planning::StepPhase& peak) {
  html::AreaChart c;
  c.title = "Memory over one step";
  c.description = fmt::format("Live bytes in the compute tier in each of {} phases; the peak is {} in {}.",
                              v.timeline.size(), format_bytes(peak.bytes), peak.name);
  c.steps = true;
  if (v.budget_known)
    c.limit = {static_cast<double>(v.budget_bytes), "budget " + format_bytes(v.budget_bytes)};
  for (std::size_t i = 0; i < phases.size(); ++i) {
    c.x.push_back(static_cast<double>(i));
    c.x_label.push_back(phases[i].name);
    c.tips.push_back(tip(phases[i]));
    if (same(phases[i], peak)) c.peak = i;
  }
  c.peak_label = fmt::format("peak: {} in {}", format_bytes(peak.bytes), peak.name);
  // Components in the order of the enumeration, which is that of all charts; colours follow it.
  for (unsigned n = 1; n <= html_component_count(); ++n) {
    const auto component = static_cast<Component>(n);
    html::Series s{html::colour(component), display_name(component), {}};
    for (const planning::StepPhase& m : phases) s.y.push_back(static_cast<double>(bytes_of(m, component)));
    // Bands that are 0 everywhere are left out, also in the legend.
    if (std::any_of(s.y.begin(), s.y.end(), [](double y) { return y > 0; })) c.bands.push_back(std::move(s));
  }
  return c;
}

std::string table(const Phases& phases, const planning::StepPhase& peak) {
  html::HtmlTable t("lrrl", {"phase", "live", "bytes", ""});
  t.mark("of", "timeline");
  for (const planning::StepPhase& m : phases)
    t.row({html::text(m.name, 80), html::bytes(m.bytes), html::count(m.bytes), same(m, peak) ? "peak" : ""},
          same(m, peak) ? "class=\"sum\"" : "");
  return t.str(kTableRows, 30'000);
}

}  // namespace

std::string html_timeline(const planning::PlanResult& v) {
  if (v.timeline.empty()) return {};
  const Phases columns = planning::largest_phases(v.timeline, kColumns);
  // The maximum over columns is the maximum over all phases.
  const planning::StepPhase& peak = *std::max_element(
      columns.begin(), columns.end(),
      [](const planning::StepPhase& a, const planning::StepPhase& b) { return a.bytes < b.bytes; });
  const html::AreaChart c = chart(v, columns, peak);
  std::vector<std::pair<std::string, std::string>> names;
  for (const html::Series& s : c.bands) names.emplace_back(s.css, s.name);
  std::string caption;
  if (columns.size() < v.timeline.size())
    caption = fmt::format("{} phases are drawn as {} columns; each column is the largest phase of its group.",
                          v.timeline.size(), columns.size());
  // The table below the chart has fewer rows, for readers without the chart.
  return html::figure(html::draw_both(c), html::legend(names), caption) +
         html::details("All phases as a table",
                       table(planning::largest_phases(v.timeline, kTableRows), peak));
}

}  // namespace trainhost::report
