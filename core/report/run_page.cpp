// See run_page.hpp. The page is made of curves and of the parts of run_page_parts.hpp; a live page replaces
// those that change.
#include "core/report/run_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/report/html_page.hpp"
#include "core/report/run_page_parts.hpp"
#include "core/training/throughput.hpp"

namespace trainhost::report {
namespace {

using html::LineChart;

constexpr std::size_t kStaticPoints = 80;
constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

html::Line line_of(const RunRecord& r, Metric m, std::string css, std::string name) {
  html::Line l{std::move(css), std::move(name), {}, {}, {}, {}};
  bool range = false;
  for (const RunCurves::Group& g : r.curves().groups()) {
    const RunCurves::Part& p = g.parts[static_cast<std::size_t>(m)];
    l.x.push_back(static_cast<double>(g.last_step));
    l.y.push_back(p.count ? p.mean() : kNoValue);
    l.low.push_back(p.count ? p.least : kNoValue), l.high.push_back(p.count ? p.most : kNoValue);
    range = range || p.count > 1;
  }
  if (!range || !is_noisy(m)) l.low.clear(), l.high.clear();
  return l;
}

html::Line validation_of(const RunRecord& r, std::string css, std::string name) {
  html::Line l{std::move(css), std::move(name), {}, {}, {}, {}};
  const auto& all = r.evaluations();
  const std::size_t every = (all.size() + 199) / 200;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (every <= 1 || i % every == 0 || i + 1 == all.size())
      l.x.push_back(static_cast<double>(all[i].first)), l.y.push_back(all[i].second);
  return l;
}

/// Charts as the script finds them without running: smaller, and without ranges.
std::string charts_part(const std::vector<LineChart>& charts) {
  std::string out =
      "<div class=\"controls\"><label>Smoothing <input type=\"range\" id=\"smooth\" min=\"0\" max=\"98\" "
      "value=\"0\"></label><label><input type=\"checkbox\" id=\"logscale\"> Logarithmic loss</label></div>\n"
      "<div id=\"charts\" class=\"charts\">\n";
  for (LineChart c : charts) {
    const std::string id = c.id;
    std::vector<std::pair<std::string, std::string>> names;
    for (html::Line& l : c.lines) {
      names.emplace_back(l.css, l.name);
      html::Line thin{l.css, l.name, {}, {}, {}, {}};
      const std::size_t every = (l.x.size() + kStaticPoints - 1) / kStaticPoints;
      for (std::size_t i = 0; i < l.x.size(); ++i)
        if (every <= 1 || i % every == every - 1 || i + 1 == l.x.size())
          thin.x.push_back(l.x[i]), thin.y.push_back(l.y[i]);
      l = std::move(thin);
    }
    out += fmt::format(
        "<figure data-chart=\"{}\"><figcaption>{}</figcaption>{}<div class=\"plot\">{}</div></figure>\n", id,
        html::text(c.title), names.size() > 1 ? html::legend(names) : "", draw(c));
  }
  return out + "</div>\n";
}

std::string model_of(const RunRecord& r) {
  const JsonValue* const model = r.plan().find("model");
  std::string out;
  if (model) {
    out = escaped(model->text_of("name"), 80);
    if (out.empty()) out = escaped(model->text_of("family"), 80);
    if (const JsonValue* const p = model->find("parameters"))
      if (const std::uint64_t n = integer_of(*p, "total"))
        out += fmt::format(", {} parameters", format_count(n));
  }
  if (const JsonValue* const s = r.start().find("source")) out += ", on " + escaped(s->text_of("name"), 200);
  if (const std::string_view backend = r.start().text_of("backend"); !backend.empty())
    out += ", trainer " + escaped(backend, 40);
  if (const JsonValue* const d = r.start().find("device")) out += " on " + escaped(d->text_of("name"), 80);
  return out;
}

html::Tone tone_of(const RunRecord& r) {
  return r.state() == "finished"                          ? html::Tone::kGood
         : r.state() == "failed" || r.state() == "killed" ? html::Tone::kBad
                                                          : html::Tone::kNeutral;
}

void describe(const RunRecords& runs, html::Page& page) {
  if (runs.empty()) {
    page.title = "run";
    page.answer = "Starting: no step yet";
    return;
  }
  if (runs.size() > 1) {
    const RunRecord* best = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& r : runs)
      for (const auto& [step, loss] : r->evaluations())
        if (loss < least) least = loss, best = r.get();
    page.title = fmt::format("{} runs", runs.size());
    page.answer = best ? fmt::format("Lowest validation loss: {:.4f} in {}", least, escaped(best->name(), 80))
                       : plural(runs.size(), "run") + " compared";
    return;
  }
  const RunRecord& r = *runs[0];
  page.title = escaped(r.name(), 80);
  page.subtitle = model_of(r);
  page.tone = tone_of(r);
  const RunCurves::Part& loss = r.curves().whole(Metric::kLoss);
  std::string state = r.state().empty() ? "not started" : r.state();
  state[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(state[0])));
  page.answer = fmt::format("{}: {}", state,
                            r.step() == 0   ? "no step yet"
                            : r.steps() > 0 ? fmt::format("step {} of {}", r.step(), r.steps())
                                            : fmt::format("step {}", r.step()));
  if (loss.count) {
    const auto& groups = r.curves().groups();
    page.answer += fmt::format(", loss {:.4f}",
                               groups.back().parts[0].count ? groups.back().parts[0].mean() : loss.mean());
  }
  if (!r.evaluations().empty())
    page.answer += fmt::format(", validation {:.4f}", r.evaluations().back().second);
  if (r.eta_s() > 0) page.answer += fmt::format(", {} left", training::format_duration(r.eta_s()));
  page.detail = r.reason();
}

}  // namespace

std::size_t points_of_page(std::size_t runs) {
  return std::clamp<std::size_t>(800 / std::max<std::size_t>(runs, 1), 30, 400);
}

std::vector<LineChart> run_charts(const RunRecords& runs) {
  const bool one = runs.size() == 1;
  std::vector<LineChart> all = {{"loss", "Loss", "step", "", false, true, true, {}, {}},
                                {"validation", "Validation loss", "step", "", false, true, false, {}, {}},
                                {"lr", "Learning rate", "step", "", true, false, false, {}, {}},
                                {"grad_norm", "Gradient norm", "step", "", true, false, true, {}, {}},
                                {"tokens_per_s", "Tokens per second", "step", "", true, false, true, {}, {}},
                                {"memory", "Memory in use", "step", "bytes", true, false, false, {}, {}}};
  constexpr std::pair<std::size_t, Metric> kCharts[] = {{0, Metric::kLoss},
                                                        {2, Metric::kLr},
                                                        {3, Metric::kGradNorm},
                                                        {4, Metric::kTokensPerS},
                                                        {5, Metric::kMemory}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunRecord& r = *runs[i];
    for (const auto& [chart, metric] : kCharts)
      if (r.curves().whole(metric).count)
        all[chart].lines.push_back(line_of(r, metric, run_colour(i),
                                           !one                      ? r.name()
                                           : metric == Metric::kLoss ? "training"
                                                                     : all[chart].title));
    if (!r.evaluations().empty())
      all[one ? 0 : 1].lines.push_back(
          validation_of(r, one ? run_colour(2) : run_colour(i), one ? "validation" : r.name()));
  }
  if (const auto tier = one ? compute_tier(*runs[0]) : std::nullopt)
    all[5].limit = {static_cast<double>(tier->second), "predicted " + format_bytes(tier->second)};
  std::erase_if(all, [](const LineChart& c) { return c.lines.empty(); });
  return all;
}

namespace {

JsonValue charts_json(const RunRecords& runs, const std::vector<LineChart>& more) {
  JsonValue charts = JsonValue::array();
  for (const LineChart& c : run_charts(runs)) charts.push_back(json_of(c));
  for (const LineChart& c : more) charts.push_back(json_of(c));
  return charts;
}

}  // namespace

html::Page run_page(const RunRecords& runs, const std::string& command, bool live,
                    const std::vector<LineChart>& more) {
  html::Page page;
  page.kind = runs.size() > 1 ? "compare" : "run";
  page.live = live;
  page.command = command;
  describe(runs, page);
  std::vector<LineChart> charts = run_charts(runs);
  charts.insert(charts.end(), more.begin(), more.end());
  bool first = true;
  for (const RunPagePart& p : run_page_parts(runs)) {
    if (live || !p.html.empty()) page.section(p.heading, p.html, p.id);
    if (std::exchange(first, false)) page.section("Curves", charts_part(charts));
  }
  JsonValue data = {{"schema", "trainhost.run_page/1"}};
  data["charts"] = charts_json(runs, more);
  page.data = data.dump();
  return page;
}

std::string run_html(const RunRecords& runs, const std::string& command, bool live,
                     const std::vector<LineChart>& more) {
  return run_page(runs, command, live, more).str();
}

std::string run_update(const RunRecords& runs, const std::vector<LineChart>& more) {
  html::Page page;
  describe(runs, page);
  JsonValue parts = JsonValue::object();
  parts["answer"] = page.answer_html();
  for (const RunPagePart& p : run_page_parts(runs)) parts[p.id] = p.html;
  JsonValue out = {{"title", "trainhost: " + page.title + ": " + page.answer}};
  out["ended"] =
      !runs.empty() && std::all_of(runs.begin(), runs.end(), [](const auto& r) { return r->ended(); });
  out["charts"] = charts_json(runs, more);
  out["parts"] = std::move(parts);
  return out.dump();
}

}  // namespace trainhost::report
