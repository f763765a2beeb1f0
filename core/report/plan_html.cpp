// The HTML page of a plan: result in one sentence, memory by component and tier compared with the budget,
// timeline of a step, suggested changes, limits, and every entry with its formula.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/report/file_keys.hpp"
#include "core/report/html_chart.hpp"
#include "core/report/html_page.hpp"
#include "core/report/html_timeline.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/unjudged_text.hpp"

namespace trainhost::report {
namespace {

using html::HtmlTable;

constexpr std::size_t kEstimates = 12;  // estimates with a table; all others are in --json

std::string subtitle(const planning::PlanResult& v) {
  const ModelSpec& m = v.model;
  std::string out = m.family;
  if (v.parameters_known) out += fmt::format(", {} parameters", format_count(v.parameters.total));
  if (v.active_parameters && v.active_parameters != v.parameters.total)
    out += fmt::format(", {} active", format_count(v.active_parameters));
  if (v.trained_parameters.value_or(0))
    out += fmt::format(", {} trained", format_count(*v.trained_parameters));
  out += fmt::format(" (L {}, H {}, A {}, K {}, D {}, I {}, V {})", m.layers, m.hidden, m.heads, m.kv_heads,
                     m.head_dim, m.intermediate, m.vocab);
  if (!v.run_line.empty()) out += ". " + v.run_line;
  if (!v.mode.empty()) out += ", " + v.backend + " " + v.mode;
  if (!v.assumed.empty()) out += fmt::format(". Assumed: {}", fmt::join(v.assumed, ", "));
  return out;
}

/// The compute tier only: it is the tier that the answer compares with the budget.
std::string peak_phase(const planning::PlanResult& v, const planning::Estimate& e) {
  for (const TierPeak& p : e.report.tiers)
    if (p.tier == v.compute_tier) return fmt::format(", peak in {}", name(p.peak_at));
  return {};
}

/// The first sentence of the page. The first estimate decides whether the run fits; it can fail in the
/// compute tier or in host memory; if both fail, the compute tier is named.
void answer(const planning::PlanResult& v, html::Page& page) {
  if (v.estimates.empty()) {
    page.answer = "No estimator plans this model";
    return;
  }
  const planning::Estimate& e = v.estimates.front();
  const bool over_budget = v.budget_known && e.compute_bytes > v.budget_bytes;
  const std::string unjudged = unjudged_text(v.unjudged_host(e), e.disk_bytes);
  page.tone = !e.fits                                    ? html::Tone::kBad
              : v.verdict(e) == planning::Verdict::kFits ? html::Tone::kGood
                                                         : html::Tone::kNeutral;
  if (over_budget)
    page.answer =
        fmt::format("Does not fit: {} over the budget", format_bytes(e.compute_bytes - v.budget_bytes));
  else if (!e.fits)
    // The compute tier fits, so the host budget is exceeded. min() keeps the subtraction from wrapping.
    page.answer = fmt::format("Does not fit: host memory is {} short",
                              format_bytes(e.host_bytes - std::min(e.host_bytes, v.host_budget_bytes)));
  else if (v.budget_known)
    page.answer = "Fits" + std::string(unjudged.empty() ? "" : " the device") + ": " +
                  html::part_of(e.compute_bytes, v.budget_bytes);
  else
    page.answer = "Needs " + format_bytes(e.compute_bytes);
  if (e.fits && v.budget_known && !unjudged.empty()) page.answer += "; " + unjudged;
  if (const std::string more = needs_more_text(v.file_keys); !more.empty()) page.answer += "; " + more;
  // Changes are sorted by cost, so the first one is the cheapest.
  if (!e.fits && !v.changes.empty()) page.answer += "; cheapest change: " + v.changes.front().settings;
  page.detail =
      !v.budget_known
          ? "Budget " + v.budget_source + "; set --device=NAME or --budget=SIZE to see whether it fits"
      : over_budget
          ? fmt::format("{} needed, {} available ({})", format_bytes(e.compute_bytes),
                        format_bytes(v.budget_bytes), v.budget_source)
          : fmt::format("{} unused ({})", format_bytes(v.budget_bytes - e.compute_bytes), v.budget_source);
  page.detail += peak_phase(v, e);
  if (v.host_budget_known())
    page.detail += fmt::format(". Host memory: {} ({})", html::part_of(e.host_bytes, v.host_budget_bytes),
                               v.host_budget_source);
  if (!v.budget_known && !unjudged.empty()) page.detail += "; " + unjudged;
  if (v.unjudged_host(e)) page.detail += std::string("; ") + kHostBudgetHint;
  if (v.rank > 0)
    page.detail += fmt::format(". Sizes are those of rank {} of {}{}", v.rank - 1, v.ranks,
                               v.rank == 1 ? ", which needs most" : "");
  else if (v.ranks > 1)
    page.detail +=
        fmt::format(". Sizes are for the one of {} devices that needs most memory", format_count(v.ranks));
  // An answer without the kind of its estimate would look exact.
  page.detail += fmt::format(". Estimator {}: {}.", e.report.source,
                             e.report.claim == Claim::kUpperBound ? "an upper bound"
                             : e.report.claim == Claim::kExact    ? "exact"
                                                                  : "an approximation");
}

/// One stacked bar: the components of one tier at the peak of that tier. The parts add up to the total.
html::Bar bar_of(const MemoryReport& r, Tier tier, const std::string& label) {
  const std::uint64_t total = r.tier_bytes(tier);
  html::Bar b{label, {}, format_bytes(total), false};
  for (const auto& [c, p] : component_bytes_of(r, tier))
    b.parts.push_back(
        {html::colour(c), display_name(c), static_cast<double>(p.bytes),
         fmt::format("{}: {}\n{} bytes, {:.1f} %", display_name(c), format_bytes(p.bytes),
                     format_count(p.bytes),
                     total ? 100.0 * static_cast<double>(p.bytes) / static_cast<double>(total) : 0.0)});
  return b;
}

/// Legend of the components of the first `estimates` estimates: those that occur, in the order of the
/// colours.
std::string legend_of(const planning::PlanResult& v, std::size_t estimates) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (unsigned c = 1; c <= html_component_count(); ++c)
    for (std::size_t i = 0; i < estimates; ++i)
      if (v.estimates[i].report.component_bytes(static_cast<Component>(c)) > 0) {
        entries.emplace_back(html::colour(static_cast<Component>(c)),
                             display_name(static_cast<Component>(c)));
        break;
      }
  return html::legend(entries);
}

html::Limit limit_of(const planning::PlanResult& v) {
  if (!v.budget_known) return {};
  return {static_cast<double>(v.budget_bytes), "budget " + format_bytes(v.budget_bytes)};
}

/// One bar per tier of the first estimate. The budget applies to the compute tier.
std::string tier_bars(const planning::PlanResult& v) {
  html::BarChart c;
  c.title = "Memory by tier";
  c.description = "One bar per memory tier, by component.";
  const MemoryReport& r = v.estimates.front().report;
  for (Tier t : kAllTiers)
    if (r.tier_bytes(t) > 0) {
      c.bars.push_back(bar_of(r, t, std::string(name(t))));
      c.bars.back().strong = t == v.compute_tier;
      // Bars are drawn from the top, and the budget line ends after the bar of the compute tier: bars below
      // it have other limits.
      if (t == v.compute_tier) c.limit = limit_of(v), c.limited = c.bars.size();
    }
  return c.bars.empty() ? "" : html::figure(html::draw_both(c), legend_of(v, 1));
}

/// One bar per estimator: its compute tier compared with the budget, and its first note. An estimator that
/// knows no tiers but one (a published rule) is comparable only in this form.
std::string compare_estimators(const planning::PlanResult& v) {
  if (v.estimates.size() < 2) return {};
  html::BarChart c;
  c.title = "Memory by estimator";
  c.description = "One bar per estimator, by component; the first one decides.";
  c.limit = limit_of(v);
  HtmlTable t("llrrl", {"estimator", "kind", "needs", "relative to the first", "first note"});
  t.mark("of", "estimators");
  const std::uint64_t first = v.estimates.front().compute_bytes;
  for (std::size_t i = 0; i < v.estimates.size() && i < kEstimates; ++i) {
    const planning::Estimate& e = v.estimates[i];
    // An estimator may not use the compute tier; then show all of its tiers.
    const bool uses_compute_tier = e.report.tier_bytes(v.compute_tier) > 0;
    for (Tier tier : kAllTiers)
      if (e.report.tier_bytes(tier) > 0 && (!uses_compute_tier || tier == v.compute_tier))
        c.bars.push_back(bar_of(e.report, tier, e.report.source)), c.bars.back().strong = i == 0;
    t.row({html::text(e.report.source), display_name(e.report.claim), html::bytes(e.compute_bytes),
           first ? fmt::format("{:.0f} %",
                               100.0 * static_cast<double>(e.compute_bytes) / static_cast<double>(first))
                 : "",
           e.report.notes.empty() ? "" : html::text(e.report.notes.front(), 300)},
          fmt::format("data-estimator=\"{}\"", html::text(e.report.source)));
  }
  return html::figure(html::draw_both(c), legend_of(v, v.estimates.size()), "The first estimator decides.") +
         t.str();
}

/// The data- attributes are an interface: programs that read the page select rows by them, so they hold the
/// names of the JSON output, not the displayed ones.
std::string tier_table(const planning::Estimate& e, Tier tier) {
  const std::uint64_t total = e.report.tier_bytes(tier);
  HtmlTable t("lrrrl", {"component", "size", "bytes", "share", "kind"});
  t.caption(fmt::format("{}, estimator {}", display_name(tier), e.report.source))
      .mark("estimator", e.report.source)
      .mark("tier", name(tier));
  for (const auto& [c, p] : component_bytes_of(e.report, tier))
    if (p.bytes)
      t.row({fmt::format("<i class=\"{}\"></i>{}", html::colour(c), display_name(c)), html::bytes(p.bytes),
             html::count(p.bytes),
             fmt::format("{:.1f} %", 100.0 * static_cast<double>(p.bytes) /
                                         static_cast<double>(std::max<std::uint64_t>(total, 1))),
             display_name(p.claim)},
            fmt::format("data-component=\"{}\"", name(c)));
  std::string peak;
  for (const TierPeak& p : e.report.tiers)
    if (p.tier == tier) peak = fmt::format("peak in {}", name(p.peak_at));
  t.row({total_label(tier), html::bytes(total), html::count(total), "", peak},
        "class=\"sum\" data-component=\"total\"");
  return t.str();
}

std::string estimate_tables(const planning::Estimate& e) {
  std::string out;
  for (Tier t : kAllTiers)
    if (e.report.tier_bytes(t) > 0) out += tier_table(e, t);
  return out + html::list(e.report.notes, 12);
}

std::string memory(const planning::PlanResult& v) {
  return v.estimates.empty() ? "" : tier_bars(v) + estimate_tables(v.estimates.front());
}

std::string other_estimates(const planning::PlanResult& v) {
  std::string out = compare_estimators(v);
  for (std::size_t i = 1; i < v.estimates.size() && i < kEstimates; ++i) {
    const planning::Estimate& e = v.estimates[i];
    out += html::details(fmt::format("{} ({}): {} in total", e.report.source, display_name(e.report.claim),
                                     format_bytes(e.total_bytes)),
                         estimate_tables(e));
  }
  return out;
}

/// The first estimate and the same run in a framework.
std::string framework_answers(const planning::PlanResult& v) {
  if (!v.no_framework_answer.empty()) return "<p>" + html::text(v.no_framework_answer) + "</p>";
  if (v.framework_answers.empty() || v.estimates.empty()) return {};
  HtmlTable t("llrl", {"planned as", "kind", "needs", "verdict"});
  t.mark("of", "frameworks");
  const auto row = [&](const std::string& what, const planning::Estimate& e, planning::Verdict verdict,
                       std::uint64_t budget) {
    t.row({html::text(what), display_name(e.report.claim), html::bytes(e.compute_bytes),
           verdict_text(verdict, e.compute_bytes, budget)});
  };
  const planning::Estimate& own = v.estimates.front();
  row(own.report.claim == Claim::kExact ? "trainhost" : "estimator " + own.report.source, own, v.verdict(own),
      v.budget_bytes);
  for (const planning::FrameworkAnswer& a : v.framework_answers)
    row(a.text, a.estimate, a.verdict(), a.budget_bytes);
  return t.str();
}

/// Columns as in the JSON output. changes_note explains why fewer changes than usual are listed.
std::string changes(const planning::PlanResult& v) {
  if (v.changes.empty()) return {};
  const std::string why_few = v.changes_note.empty() ? "" : "<p>" + html::text(v.changes_note) + "</p>";
  HtmlTable t("llllr", {"change", "effect", "kind of cost", "cost", "memory after it"});
  t.caption("Changes that make the run fit, cheapest first. Each one was verified by planning it.")
      .mark("of", "changes");
  for (const planning::Change& c : v.changes)
    t.row({"<code>" + html::text(c.settings) + "</code>", html::text(c.sentence), std::string(name(c.price)),
           html::text(c.cost_text),
           html::bytes(c.compute_bytes) +
               (v.host_budget_known() ? "" : html::text(and_unjudged(c.host_bytes)))});
  return why_few + t.str(40, 20'000);
}

/// 0 as value means that not even the smallest value fits.
std::string limits(const planning::PlanResult& v) {
  if (v.limits.empty()) return {};
  HtmlTable t("lrl", {"limit", "value", "component that exceeds memory one step beyond"});
  t.mark("of", "limits");
  for (const planning::Limit& l : v.limits)
    t.row({html::text(l.what), l.value ? html::count(l.value) : "none fits", html::text(l.binds)});
  return t.str(40, 20'000);
}

/// The derivation of every byte. Estimates after the first get a smaller limit, because the page holds up to
/// kEstimates of them.
std::string entries(const planning::PlanResult& v) {
  std::string out;
  for (std::size_t i = 0; i < v.estimates.size() && i < kEstimates; ++i) {
    const MemoryReport& r = v.estimates[i].report;
    if (r.entries.empty()) continue;
    // The key "leaves" is read by programs and stays, although the term is now entry.
    HtmlTable t("lllrrl", {"entry", "component", "tier", "at the peak", "maximum", "formula"});
    t.mark("leaves", r.source).mark("sort", "");
    for (const MemoryEntry* n : largest_first(r))
      t.row({html::text(n->name, 120),
             fmt::format("<i class=\"{}\"></i>{}", html::colour(n->component), display_name(n->component)),
             std::string(name(n->tier)), html::bytes(n->at_peak()), html::bytes(n->bytes),
             "<code>" + html::text(n->formula, 200) + "</code>"});
    out += html::details(
        fmt::format("All entries of {}, with formulas ({} entries)", r.source, r.entries.size()),
        t.str(i ? 25 : 100, i ? 9'000 : 22'000));
  }
  return out;
}

}  // namespace

html::Page plan_page(const planning::PlanResult& v) {
  html::Page page;
  page.kind = "plan";
  page.title = v.model.name.empty() ? v.model.family : v.model.name;
  page.subtitle = subtitle(v);
  page.command = v.command;
  answer(v, page);
  // Sections in the order of questions: what needs the memory, what to change, which values are possible,
  // when the peak occurs. Sections without content are omitted.
  page.section("Memory by component", memory(v));
  page.section("The same run in PyTorch", framework_answers(v));
  page.section("Changes that make it fit", changes(v));
  page.section("Largest values that fit", limits(v));
  page.section("Memory during one step", html_timeline(v));
  page.section("Comparison of estimators", other_estimates(v));
  page.section("Derivation", entries(v));
  page.section("Notes", html::list(v.notes));
  page.section("Keys of the files", html::list(file_keys_sentences(v.file_keys), 400));
  return page;
}

std::string plan_html(const planning::PlanResult& v) { return plan_page(v).str(); }

}  // namespace trainhost::report
