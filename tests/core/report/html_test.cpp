// HTML pages: hostile text is escaped, pages stay small, and they show what the results contain.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "core/report/csv.hpp"
#include "core/report/html_axis.hpp"
#include "core/report/html_chart.hpp"
#include "core/report/html_page.hpp"
#include "core/report/html_style.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"
#include "tests/support/sample_results.hpp"
#include "tests/support/text_patterns.hpp"

using namespace trainhost;

namespace {

constexpr std::size_t kMaxPage = 300'000;
const std::string kAttack =
    "</title></text><script>alert(1)</script><img src=x onerror=alert(1)>\" onload='x' &amp; \x1b[31m \xff";

bool page_has(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}

std::size_t count_of(const std::string& page, const std::string& text) {
  std::size_t n = 0;
  for (std::size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) ++n;
  return n;
}

/// "" where every element that must be closed is closed in order; otherwise the first mistake.
std::string unbalanced(const std::string& page) {
  const std::string tag = R"re(<(/?)([a-zA-Z][a-zA-Z0-9]*)((?:[^<>"']|"[^"]*"|'[^']*')*)>)re";
  static const std::string kVoid = " meta img br hr ";
  std::vector<std::string> open;
  const std::size_t script = page.find("<script>");
  const std::string markup = page.substr(0, script) + page.substr(page.find("</script>", script));
  for (const test::Match& m : test::find_patterns(markup, tag)) {
    const std::string &name = m[2], &rest = m[3];
    if (kVoid.find(" " + name + " ") != std::string::npos || rest.ends_with("/") ||
        (name == "script" && m[1] == "/"))
      continue;
    if (m[1] != "/")
      open.push_back(name);
    else if (open.empty() || open.back() != name)
      return "</" + name + "> closes " + (open.empty() ? "nothing" : open.back());
    else
      open.pop_back();
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

/// Relative luminance of "#rrggbb" by WCAG 2.
double luminance(const std::string& hex) {
  double out = 0;
  const double weight[] = {0.2126, 0.7152, 0.0722};
  for (int i = 0; i < 3; ++i) {
    const double c = std::stoi(hex.substr(1 + 2 * static_cast<std::size_t>(i), 2), nullptr, 16) / 255.0;
    out += weight[i] * (c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
  }
  return out;
}
double contrast(const std::string& a, const std::string& b) {
  const double x = luminance(a), y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

std::vector<std::string> pages_of(const planning::PlanResult& p, const planning::SweepResult& s,
                                  const planning::SearchResult& q) {
  return {report::plan_html(p), report::sweep_html(s), report::search_html(q)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(html_suite)

BOOST_AUTO_TEST_CASE(text_from_outside_is_escaped) {
  const std::string safe = report::html::text(kAttack);
  BOOST_TEST(safe.find_first_of("<>\"'\x1b\xff") == std::string::npos, safe);
  BOOST_TEST(page_has(safe, "&lt;script&gt;"));
  BOOST_TEST(page_has(safe, "&amp;amp;"));
}

BOOST_AUTO_TEST_CASE(no_string_of_a_result_becomes_markup) {
  planning::PlanResult p = test::sample_plan(4, 16 * test::kGiB);
  p.model.name = p.model.family = p.run_line = p.mode = p.backend = p.budget_source = p.host_budget_source =
      p.command = kAttack;
  p.notes = {kAttack};
  for (planning::Estimate& e : p.estimates) {
    e.report.source = kAttack, e.report.notes = {kAttack};
    for (MemoryEntry& n : e.report.entries) n.name = n.formula = kAttack;
  }
  for (planning::Change& c : p.changes) c.settings = c.sentence = c.cost_text = kAttack;
  for (planning::Limit& l : p.limits) l.what = l.binds = kAttack;
  for (planning::StepPhase& m : p.timeline) m.name = kAttack;
  planning::SweepResult s = test::sample_sweep();
  s.model = s.run_line = s.key = s.unit = s.budget_source = s.command = kAttack;
  for (planning::SweepCurve& c : s.curves) {
    c.estimator = kAttack;
    for (planning::SweepPoint& x : c.points) x.label = kAttack;
    c.points.back().error = kAttack;
  }
  for (planning::Crossover& x : s.crossovers) x.estimator = x.sentence = kAttack;
  planning::SearchResult q = test::sample_search(4);
  q.model = q.device = q.run_line = q.command = kAttack;
  q.assumptions = q.notes = {kAttack};
  for (auto* rows : {&q.best, &q.pareto})
    for (planning::RankedLayout& r : *rows) {
      r.recompute = r.offload = kAttack, r.settings = {kAttack};
      for (auto& part : r.seconds) part.first = kAttack;
    }
  for (const std::string& page : pages_of(p, s, q)) {
    BOOST_TEST(count_of(page, "<script") == 1u);
    BOOST_TEST(!page_has(page, "<img"));
    BOOST_TEST(!page_has(page, "\x1b"));
    BOOST_TEST(!page_has(page, "\xff"));
    const std::string bare = test::replace_patterns(page, "\"[^\"]*\"", "\"\"");  // no attribute's value
    BOOST_TEST(test::find_pattern(bare, "<[a-z]+ [^<>]*\\bon[a-z]+=").empty());
    BOOST_TEST(unbalanced(page) == "");
  }
}

BOOST_AUTO_TEST_CASE(a_page_loads_nothing_from_outside) {
  for (const std::string& page : pages_of(test::sample_plan(), test::sample_sweep(), test::sample_search())) {
    for (const char* word : {"http:", "https:", "src=", "href=", "url(", "@import", "//www"})
      BOOST_TEST(!page_has(page, word), word);
    BOOST_TEST(page_has(page, "default-src 'none'"));
    BOOST_TEST(unbalanced(page) == "");
  }
}

BOOST_AUTO_TEST_CASE(large_pages_stay_under_300_kb_and_count_omitted_rows) {
  planning::PlanResult p = test::sample_plan(126, 600 * test::kGiB);
  for (int i = 0; i < 60; ++i) p.notes.push_back(std::string(5000, '&'));
  for (planning::Estimate& e : p.estimates)
    for (MemoryEntry& n : e.report.entries) n.formula = std::string(400, '<');
  const std::string plan = report::plan_html(p), sweep = report::sweep_html(test::sample_sweep(3000)),
                    search = report::search_html(test::sample_search(2000));
  BOOST_TEST(plan.size() < kMaxPage);
  BOOST_TEST(sweep.size() < kMaxPage);
  BOOST_TEST(search.size() < kMaxPage);
  BOOST_TEST(page_has(search, " more rows are omitted"));
  BOOST_TEST(page_has(sweep, " more rows are omitted"));
  BOOST_TEST(page_has(plan, " more rows are omitted"));
  const std::string best = search.substr(search.find("data-of=\"best\"")), note = "data-left-out=\"";
  const std::string table = best.substr(0, best.find("</table>"));
  BOOST_TEST(count_of(table, "<tr>") - 1 + std::stoul(best.substr(best.find(note) + note.size())) == 2000u);
}

BOOST_AUTO_TEST_CASE(the_result_is_one_sentence_at_the_top) {
  using report::plan_html;
  BOOST_TEST(page_has(plan_html(test::sample_plan()),
                      "<p class=\"answer neutral\">Fits the device: 68.5 of 80.0 GiB; needs 60.0 GiB of host "
                      "memory (limit not known)</p>"));
  BOOST_TEST(page_has(
      plan_html(test::sample_plan(32, 64 * test::kGiB)),
      "<p class=\"answer bad\">Does not fit: 4.46 GiB over the budget; cheapest change: train.recompute "
      "= &quot;full&quot;</p>"));
  planning::PlanResult p = test::sample_plan();
  p.budget_known = false, p.budget_source = "unknown: no device";
  BOOST_TEST(page_has(plan_html(p), "<p class=\"answer neutral\">Needs 68.5 GiB</p>"));
  p = test::sample_plan();
  p.estimates[0].fits = false, p.host_budget_source = "free memory",
  p.host_budget_bytes = p.estimates[0].host_bytes - test::kGiB;
  BOOST_TEST(page_has(plan_html(p), "Does not fit: host memory is 1.00 GiB short"));
  BOOST_TEST(page_has(report::sweep_html(test::sample_sweep()), "Fits up to data.seq_len = 4646"));
  BOOST_TEST(page_has(report::search_html(planning::SearchResult{}), "answer bad"));
}

BOOST_AUTO_TEST_CASE(tooltips_keep_their_lines) {
  const std::string page = report::search_html(test::sample_search());
  BOOST_TEST(page_has(page, "78.5 GiB per device, 12.9 s per step\n62.0 % of peak</title>"));
  BOOST_TEST(!page_has(page, "\\x0a"));
}

BOOST_AUTO_TEST_CASE(empty_results_make_pages_without_empty_sections) {
  for (const std::string& page : pages_of({}, {}, {})) {
    BOOST_TEST(unbalanced(page) == "");
    BOOST_TEST(!page_has(page.substr(0, page.find("<script>")), "<svg"));
  }
  planning::PlanResult p = test::sample_plan();
  p.timeline.clear();
  BOOST_TEST(!page_has(report::plan_html(p), "Memory during one step"));
}

BOOST_AUTO_TEST_CASE(the_page_explains_why_few_single_changes_fit) {
  planning::PlanResult v = test::sample_plan(4, 16 * test::kGiB);
  v.changes_note = "No single change makes it fit: <weights> alone are 9 TiB.";
  BOOST_TEST(
      report::plan_html(v).find("<p>No single change makes it fit: &lt;weights&gt; alone are 9 TiB.</p>") !=
      std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_shortened_timeline_keeps_its_peak) {
  planning::PlanResult p = test::sample_plan(4);
  p.timeline.clear();
  for (unsigned i = 0; i < 5000; ++i)
    p.timeline.push_back({"forward, op " + std::to_string(i),
                          i == 3217 ? 999'999'999u : 1000u,
                          {{Component::kActivations, i == 3217 ? 999'999'999u : 1000u}}});
  const std::string page = report::plan_html(p);
  BOOST_TEST(page_has(page, "peak: 954 MiB in forward, op 3217"));
  BOOST_TEST(page_has(page, "5000 phases are drawn as 160 columns"));
  BOOST_TEST(page.size() < kMaxPage);
}

BOOST_AUTO_TEST_CASE(the_smallest_and_largest_sizes_are_drawn) {
  planning::PlanResult p = test::sample_plan(1);
  for (std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{INT64_MAX}}) {
    planning::Estimate e;
    e.report.source = "llama";
    e.report.entries = {test::sample_entry(1, Tier::kDevice, Component::kWeights, bytes, "w", "1")};
    e.compute_bytes = e.total_bytes = bytes;
    p.estimates = {e, e};
    p.timeline = {{"forward", bytes, {{Component::kWeights, bytes}}}};
    const std::string page = report::plan_html(p);
    BOOST_TEST(!page_has(page, "nan"));
    BOOST_TEST(!page_has(page, "=\"inf"));
    BOOST_TEST(unbalanced(page) == "");
  }
}

BOOST_AUTO_TEST_CASE(labels_on_every_colour_are_readable_in_both_schemes) {
  const std::string css = report::html::style();
  std::vector<std::string> blocks;
  for (std::size_t at = css.find("--bg:"); at != std::string::npos; at = css.find("--bg:", at + 1))
    blocks.push_back(css.substr(at, css.find('}', at) - at));
  BOOST_TEST(blocks.size() == 3u);  // light, dark, print
  const auto value = [](const std::string& block, const std::string& name) {
    return block.substr(block.find("--" + name + ":") + name.size() + 3, 7);
  };
  for (const std::string& b : blocks) {
    const std::string background = value(b, "bg");
    for (const std::string name : {"ink", "dim", "good", "bad", "mark"})
      BOOST_TEST(contrast(value(b, name), background) >= 4.5, name << " in " << b);
    for (std::size_t k = 0; k < report::html::kColours; ++k)
      BOOST_TEST(contrast(value(b, "k" + std::to_string(k)), background) >= 4.5, "k" << k << " in " << b);
    for (const std::string name : {"good", "bad", "dim"})
      BOOST_TEST(contrast(value(b, name), value(b, "soft")) >= 4.5, name << " on soft in " << b);
  }
}

BOOST_AUTO_TEST_CASE(ticks_are_round_and_cover_the_range) {
  const auto t = report::html::byte_ticks(68.5 * static_cast<double>(test::kGiB), 8);
  BOOST_TEST(t.label.at(1) == "16 GiB");
  for (double max : {1.0, 3.0, 1000.0, 1e6, 5e9, 9.2e18}) {
    const auto b = report::html::byte_ticks(max);
    BOOST_TEST(b.at.back() >= max);
    BOOST_TEST(b.at.size() <= 8u);
    const auto s = report::html::second_ticks(max * 1e-6);
    BOOST_TEST(s.at.back() >= max * 1e-6 * (1 - 1e-6));
    BOOST_TEST(s.at.size() <= 8u);
  }
  // No memory has so many bytes, but a file can say so.
  for (double max : {1e300, 1.797e308, static_cast<double>(INFINITY)})
    BOOST_TEST(report::html::byte_ticks(max).at.size() <= 8u);
  for (auto [low, high] : {std::pair{0.784, 45.7}, {1.0, 1.0}, {0.003, 2.0}, {7.0, 5000.0}}) {
    const auto l = report::html::second_ticks_log(low, high);
    BOOST_TEST(l.at.front() <= low);
    BOOST_TEST(l.at.back() >= high);
    BOOST_TEST((l.at.size() < 2 || l.at[1] > low));
  }
  BOOST_TEST(report::html::format_seconds(0.83) == "830 ms");
  BOOST_TEST(report::html::format_seconds(14.0) == "14.0 s");
  BOOST_TEST(report::html::format_seconds(22680) == "6.30 h");
}

/// The axis of a run of 22.0 MiB once ended in "24 Mi".
BOOST_AUTO_TEST_CASE(no_label_of_a_bar_chart_is_cut) {
  const char* centred = "<text x=\"([0-9.]+)\" y=\"[0-9.]+\" text-anchor=\"middle\"[^>]*>([^<]*)</text>";
  for (double mib = 1; mib < 4000; mib *= 1.03) {
    const double bytes = mib * 0x1p20;
    const std::string svg = report::html::draw(
        report::html::BarChart{"memory",
                               "",
                               report::html::Unit::kBytes,
                               {{"host", {{"c0", "weights", bytes, ""}}, format_bytes(bytes)}},
                               {}});
    for (const test::Match& m : test::find_patterns(svg, centred))
      BOOST_TEST(std::stod(m[1]) + report::html::text_width(m[2]) / 2 <= 960.0, m[0]);
  }
}

BOOST_AUTO_TEST_CASE(csv_has_every_entry) {
  planning::PlanResult p = test::sample_plan(2);
  p.estimates.resize(1);
  p.estimates[0].report.entries[0].formula = "P*2, \"bf16\"";
  const std::string csv = report::plan_csv(p);
  BOOST_TEST(count_of(csv, "\n") == p.estimates[0].report.entries.size() + 1);
  BOOST_TEST(
      page_has(csv, "llama,device,weights,model.*,exact,16061050937,16061050937,\"P*2, \"\"bf16\"\"\"\n"));
  BOOST_TEST(report::csv_field("a\nb") == "\"a\nb\"");
}

BOOST_AUTO_TEST_CASE(explain_lists_entries_with_formulas_largest_first) {
  const std::string text = report::explain_table(test::sample_plan(2), {});
  BOOST_TEST(page_has(text, "P*2 = 8,030,261,248*2"));
  BOOST_TEST(text.find("m, v") < text.find("master.*"));
  BOOST_TEST(text.find("master.*") < text.find("matrix workspace"));
  BOOST_TEST(page_has(text, "(approximation)"));
}

BOOST_AUTO_TEST_SUITE_END()
