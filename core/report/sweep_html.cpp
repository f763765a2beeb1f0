// The HTML page of a sweep: totals of every estimator over the key, stacked components of each estimator with
// its crossovers, and tables.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <map>

#include "core/base/text.hpp"
#include "core/report/file_keys.hpp"
#include "core/report/html_chart.hpp"
#include "core/report/html_page.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/unjudged_text.hpp"

namespace trainhost::report {
namespace {

using html::HtmlTable;

constexpr std::size_t kLineColours[] = {0, 4, 3, 2, 5, 7, 9, 6, 10, 1};  // no red: it marks the budget
// Limits of the page: points of a curve that are drawn, and estimators.
constexpr std::size_t kPoints = 120, kCurves = 10;
using Points = std::vector<const planning::SweepPoint*>;

/// Valid points by rising x; of more than kPoints, every n-th and the last. A value at which the run is
/// invalid is left out: it has no bytes. Points that do not rise are left out, since a line cannot return.
Points valid_points(const planning::SweepCurve& c) {
  Points all, out;
  for (const planning::SweepPoint& p : c.points)
    if (p.error.empty() && std::isfinite(p.x) && (all.empty() || p.x > all.back()->x)) all.push_back(&p);
  // Rounded up, so at most kPoints + 1 points remain.
  const std::size_t every = (all.size() + kPoints - 1) / kPoints;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (every <= 1 || i % every == 0 || i + 1 == all.size()) out.push_back(all[i]);
  return out;
}

/// True for values over a wide range, such as doubling ones: use a logarithmic axis.
bool needs_log_axis(const std::vector<double>& x) {
  return x.size() > 2 && x.front() > 0 && x.back() >= 8 * x.front();
}

html::Limit limit_of(const planning::SweepResult& v) {
  if (!v.budget_known) return {};
  return {static_cast<double>(v.budget_bytes), "budget " + format_bytes(v.budget_bytes)};
}

std::string axis_name(const planning::SweepResult& v) {
  return v.unit.empty() ? v.key : v.key + ", " + v.unit;
}

/// "Fits up to data.seq_len = 8192": from the first curve, which belongs to the estimator that decides.
void answer(const planning::SweepResult& v, html::Page& page) {
  page.answer = "Memory over " + v.key;
  if (v.curves.empty()) return;
  const planning::SweepCurve& c = v.curves.front();
  // last_fit: the last value that fits before the first one that does not.
  const planning::SweepPoint *last_fit = nullptr, *first_not = nullptr;
  std::size_t fit = 0, valid = 0;
  std::uint64_t unjudged = 0;  // host memory of the value that needs most; its limit is not known
  for (const planning::SweepPoint& p : c.points) {
    if (!p.error.empty()) continue;
    ++valid;
    fit += p.fits;
    if (p.verdict == planning::Verdict::kFitsDevice) unjudged = std::max(unjudged, p.host_bytes);
    if (p.fits && !first_not) last_fit = &p;
    if (!p.fits && !first_not) first_not = &p;
  }
  page.tone = !v.budget_known || !valid ? html::Tone::kNeutral
              : fit == 0                ? html::Tone::kBad
              : unjudged                ? html::Tone::kNeutral
                                        : html::Tone::kGood;
  if (!valid)
    page.answer = "No value of " + v.key + " is a valid run";
  else if (!v.budget_known)
    page.answer =
        fmt::format("{}: {} at {} to {} at {}", v.key, format_bytes(c.points.front().total),
                    c.points.front().label, format_bytes(c.points.back().total), c.points.back().label);
  else if (fit == valid)
    page.answer = fmt::format("Every value of {} fits", v.key);
  else if (fit == 0)
    page.answer = fmt::format("No value of {} fits", v.key);
  // "Fits up to" is only true if no value fits beyond the first that does not. Automatic choices can make a
  // larger value fit again (a streamed mode, more recomputation), so the number of fitting values is compared
  // with those up to last_fit.
  else if (last_fit && first_not &&
           fit == static_cast<std::size_t>(std::count_if(
                      c.points.begin(), c.points.end(),
                      [&](const planning::SweepPoint& p) { return p.error.empty() && &p <= last_fit; })))
    page.answer = fmt::format("Fits up to {} = {}", v.key, last_fit->label);
  else
    page.answer = fmt::format("{} of {} values of {} fit", fit, valid, v.key);
  if (fit && unjudged)
    page.answer +=
        fmt::format(" (the device; up to {} of host memory, limit not known)", format_bytes(unjudged));
  page.detail = v.budget_known ? fmt::format("Compared with {} ({}), estimator {}.",
                                             format_bytes(v.budget_bytes), v.budget_source, c.estimator)
                               : std::string();
}

/// Totals of every estimator over all values that any of them has.
std::string totals_chart(const planning::SweepResult& v) {
  // Estimators may reject different values. The x axis is the union of all their values; where an estimator
  // has no value, its line has a gap.
  std::map<double, std::string> at;  // x to its label
  for (std::size_t k = 0; k < v.curves.size() && k < kCurves; ++k)
    for (const planning::SweepPoint* p : valid_points(v.curves[k])) at.emplace(p->x, p->label);
  html::AreaChart c;
  c.title = "Total memory over " + v.key;
  c.description = "One line per estimator.";
  c.x_name = axis_name(v);
  c.limit = limit_of(v);
  for (const auto& [x, label] : at)
    c.x.push_back(x), c.x_label.push_back(label), c.tips.push_back(v.key + " = " + label);
  c.log_x = needs_log_axis(c.x);
  std::vector<std::pair<std::string, std::string>> names;
  for (std::size_t k = 0; k < v.curves.size() && k < kCurves; ++k) {
    html::Series s{html::colour(kLineColours[k]), v.curves[k].estimator,
                   std::vector<double>(c.x.size(), std::numeric_limits<double>::quiet_NaN())};
    for (const planning::SweepPoint* p : valid_points(v.curves[k])) {
      // valid_points() is deterministic, so every x is present.
      const auto i = static_cast<std::size_t>(std::lower_bound(c.x.begin(), c.x.end(), p->x) - c.x.begin());
      assert(i < c.x.size() && c.x[i] == p->x);
      s.y[i] = static_cast<double>(p->compute);
      c.tips[i] += fmt::format("\n{}: {}{}", v.curves[k].estimator, format_bytes(p->compute),
                               v.budget_known && !p->fits ? ", does not fit" : "");
    }
    names.emplace_back(s.css, fmt::format("{} ({})", s.name, display_name(v.curves[k].claim)));
    c.lines.push_back(std::move(s));
  }
  return html::figure(html::draw_both(c), html::legend(names), "Memory of the compute tier, per rank.");
}

std::string curve_tip(const planning::SweepResult& v, const planning::SweepPoint& p) {
  std::string out = fmt::format("{} = {}\n{} in total", v.key, p.label, format_bytes(p.total));
  for (const auto& [c, bytes] : p.components)
    if (bytes) out += fmt::format("\n{} {}", display_name(c), format_bytes(bytes));
  return out;
}

/// Stacked components of one estimator; vertical lines mark the crossovers, numbered as in the list below.
std::string curve_chart(const planning::SweepResult& v, const planning::SweepCurve& curve) {
  const Points points = valid_points(curve);
  html::AreaChart c;
  c.title = fmt::format("Memory by component over {}, estimator {}", v.key, curve.estimator);
  c.x_name = axis_name(v);
  // Keyed by component, so that bands are stacked in the same order and colour on every page.
  std::map<Component, html::Series> bands;
  for (std::size_t i = 0; i < points.size(); ++i) {
    c.x.push_back(points[i]->x), c.x_label.push_back(points[i]->label),
        c.tips.push_back(curve_tip(v, *points[i]));
    for (const auto& [component, bytes] : points[i]->components) {
      html::Series& s = bands[component];
      // A component that is absent at some values has 0 bytes there.
      s.y.resize(points.size(), 0);
      s.y[i] += static_cast<double>(bytes);
    }
  }
  c.log_x = needs_log_axis(c.x);
  std::vector<std::pair<std::string, std::string>> names;
  for (auto& [component, s] : bands) {
    s.css = html::colour(component), s.name = display_name(component);
    names.emplace_back(s.css, s.name);
    c.bands.push_back(std::move(s));
  }
  std::string list;
  for (const planning::Crossover& x : v.crossovers) {
    // At most 12 marks; numbers are those of the list below the chart.
    if (x.estimator != curve.estimator || c.marks.size() >= 12) continue;
    c.marks.push_back({x.x, std::to_string(c.marks.size() + 1), x.sentence});
    list += fmt::format("<li><data value=\"{}\">{}</data></li>\n", x.x, html::text(x.sentence));
  }
  // Marks are drawn from left to right, which their badges rely on.
  std::sort(c.marks.begin(), c.marks.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
  // The budget applies to the compute tier only: omit it where the stack includes other tiers.
  const bool one_tier = std::all_of(points.begin(), points.end(),
                                    [](const planning::SweepPoint* p) { return p->total == p->compute; });
  if (one_tier) c.limit = limit_of(v);
  c.description =
      fmt::format("Stacked components at {} values, with {} crossovers.", points.size(), c.marks.size());
  if (!list.empty()) list = "<h3>Crossovers</h3>\n<ol data-of=\"crossovers\">\n" + list + "</ol>\n";
  return "<h3>" + html::text(fmt::format("{} ({})", curve.estimator, display_name(curve.claim))) + "</h3>\n" +
         html::figure(
             html::draw_both(c), html::legend(names),
             one_tier
                 ? ""
                 : "All memory tiers together; the chart above compares the compute tier with the budget.") +
         list;
}

/// One row per value: components, totals, and whether it fits or why the value is not valid.
std::string curve_table(const planning::SweepResult& v, const planning::SweepCurve& curve) {
  std::map<Component, bool> seen;  // columns: every component that occurs at any value
  for (const planning::SweepPoint& p : curve.points)
    for (const auto& part : p.components) seen[part.first] = true;
  std::vector<std::string> headings = {v.key};
  for (const auto& part : seen) headings.push_back(display_name(part.first));
  headings.insert(headings.end(), {"compute tier", "all tiers"});
  const bool how = how_differs(v);
  if (how) headings.push_back("settings");
  headings.push_back("");
  HtmlTable t("l" + std::string(seen.size() + 2, 'r') + (how ? "ll" : "l"), headings);
  t.mark("estimator", curve.estimator);
  for (const planning::SweepPoint& p : curve.points) {
    std::vector<std::string> cells = {html::text(p.label, 60)};
    for (const auto& part : seen) {
      std::uint64_t sum = 0;
      for (const auto& [c, bytes] : p.components) sum += c == part.first ? bytes : 0;
      // Several entries of a point may belong to one component.
      cells.push_back(p.error.empty() && sum ? html::bytes(sum) : "");
    }
    cells.push_back(p.error.empty() ? html::bytes(p.compute) : "");
    cells.push_back(p.error.empty() ? html::bytes(p.total) : "");
    if (how) cells.push_back(html::text(p.how, 160));
    cells.push_back(!p.error.empty()  ? html::text(p.error, 160)
                    : !v.budget_known ? ""
                    : p.verdict == planning::Verdict::kFitsDevice
                        ? "fits the device" + html::text(and_unjudged(p.host_bytes))
                    : p.fits ? "<span class=\"good\">fits</span>"
                             : "<span class=\"bad\">does not fit</span>");
    t.row(cells,
          fmt::format("data-x=\"{}\"{}", html::text(p.label, 60), p.error.empty() ? "" : " class=\"off\""));
  }
  return t.str(60, 14'000);
}

}  // namespace

html::Page sweep_page(const planning::SweepResult& v) {
  html::Page page;
  page.kind = "sweep";
  page.title = v.model + " over " + v.key;
  page.subtitle = v.run_line;
  page.command = v.command;
  answer(v, page);
  page.section("Memory against " + v.key, v.curves.empty() ? "" : totals_chart(v));
  std::string curves, tables;
  // Charts of the first four estimators; tables of all, collapsed.
  for (std::size_t k = 0; k < v.curves.size() && k < kCurves; ++k) {
    const std::string chart = curve_chart(v, v.curves[k]);
    if (k < 4) curves += chart;
    tables += html::details(fmt::format("{}: {} values", v.curves[k].estimator, v.curves[k].points.size()),
                            curve_table(v, v.curves[k]));
  }
  page.section("By component", curves);
  page.section("Values as tables", tables);
  page.section("Notes", html::list(v.notes));
  page.section("Keys of the files", html::list(file_keys_sentences(v.file_keys), 400));
  return page;
}

std::string sweep_html(const planning::SweepResult& v) { return sweep_page(v).str(); }

}  // namespace trainhost::report
