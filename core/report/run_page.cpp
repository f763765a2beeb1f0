// See run_page.hpp. The page is made of parts, each the content of an element with an id; a live page
// replaces those that change.
#include "core/report/run_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/report/html_page.hpp"
#include "core/report/html_timeline.hpp"
#include "core/training/throughput.hpp"

namespace trainhost::report {
namespace {

using html::HtmlTable;
using html::LineChart;

constexpr std::size_t kRunColours[] = {0, 4, 3, 2, 5, 7, 9, 6, 10, 1};  // no red: it marks limits
constexpr std::size_t kStaticPoints = 80, kSettingsBytes = 20'000, kLogBytes = 12'000;
constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

std::string run_colour(std::size_t i) { return html::colour(kRunColours[i % std::size(kRunColours)]); }

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

/// The tier that computes, with its predicted bytes: the device if the plan has one.
std::optional<std::pair<std::string, std::uint64_t>> compute_tier(const RunRecord& r) {
  const JsonValue* const estimates = r.plan().find("estimates");
  if (!estimates || estimates->elements.empty()) return std::nullopt;
  const JsonValue* const tiers = estimates->elements[0].find("tiers");
  if (!tiers || tiers->elements.empty()) return std::nullopt;
  for (const std::string_view wanted : {name(Tier::kDevice), name(Tier::kHost)})
    for (const JsonValue& t : tiers->elements)
      if (const JsonValue* const n = t.find("total_bytes");
          n && n->integer > 0 && t.text_of("tier") == wanted)
        return std::pair(std::string(wanted), static_cast<std::uint64_t>(n->integer));
  return std::nullopt;
}

// Parts of the page.

std::string numbers_part(const RunRecords& runs) {
  const auto rows = run_rows(runs);
  HtmlTable t("llrrrrrrrr", rows.front());
  t.mark("of", "runs");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::string> cells;
    for (const std::string& c : rows[i + 1]) cells.push_back(html::text(c));
    if (runs.size() > 1) cells[0] = fmt::format("<i class=\"{}\"></i>{}", run_colour(i), cells[0]);
    if (!runs[i]->reason().empty()) cells[1] += "<br>" + html::text(runs[i]->reason(), 300);
    t.row(cells, fmt::format("data-run=\"{}\"", html::text(runs[i]->name(), 80)));
  }
  return t.str();
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

/// Predicted components of every tier, and what was measured.
std::string memory_part(const RunRecord& r) {
  const JsonValue* const estimates = r.plan().find("estimates");
  if (!estimates || estimates->elements.empty()) return {};
  const JsonValue* const tiers = estimates->elements[0].find("tiers");
  const JsonValue* const memory = r.done().find("memory");
  if (!tiers) return {};
  html::BarChart c;
  c.title = "Memory by tier";
  c.description = "Predicted bytes of each memory tier by component, and measured bytes.";
  HtmlTable parts("llrr", {"component", "tier", "predicted", "bytes"});
  HtmlTable totals("lrrrr", {"tier", "predicted", "measured", "difference", "bytes"});
  totals.mark("of", "memory"), parts.mark("of", "components");
  std::vector<std::pair<std::string, std::string>> legend;
  for (unsigned n = 1; n <= html_component_count(); ++n)
    for (const JsonValue& t : tiers->elements)
      if (const JsonValue* const all = t.find("components"))
        for (const JsonValue& part : all->elements)
          if (const auto component = static_cast<Component>(n);
              part.text_of("name") == name(component) && integer_of(part, "bytes")) {
            if (legend.empty() || legend.back().first != html::colour(component))
              legend.emplace_back(html::colour(component), display_name(component));
            parts.row(
                {fmt::format("<i class=\"{}\"></i>{}", html::colour(component), display_name(component)),
                 html::text(t.text_of("tier")), html::bytes(integer_of(part, "bytes")),
                 html::count(integer_of(part, "bytes"))});
          }
  const auto measured_of = [&](std::string_view tier) -> std::optional<std::uint64_t> {
    if (memory)
      if (const JsonValue* const all = memory->find("tiers"))
        for (const JsonValue& t : all->elements)
          if (t.text_of("tier") == tier) return integer_of(t, "measured_bytes");
    // While the run goes on, the ledger's bytes of the tier that computes.
    const auto compute = compute_tier(r);
    const double last = r.curves().last()[static_cast<std::size_t>(Metric::kMemory)];
    if (!memory && compute && compute->first == tier && std::isfinite(last) && last > 0)
      return static_cast<std::uint64_t>(last);
    return std::nullopt;
  };
  for (const JsonValue& t : tiers->elements) {
    const std::string tier = escaped(t.text_of("tier"), 40);
    const std::uint64_t predicted = integer_of(t, "total_bytes");
    html::Bar bar{tier + ", predicted", {}, format_bytes(predicted), true};
    if (const JsonValue* const all = t.find("components"))
      for (const JsonValue& part : all->elements)
        for (unsigned n = 1; n <= html_component_count(); ++n)
          if (const auto component = static_cast<Component>(n); part.text_of("name") == name(component))
            bar.parts.push_back({html::colour(component), display_name(component),
                                 static_cast<double>(integer_of(part, "bytes")),
                                 fmt::format("{}: {}\n{} bytes", display_name(component),
                                             format_bytes(integer_of(part, "bytes")),
                                             format_count(integer_of(part, "bytes")))});
    c.bars.push_back(std::move(bar));
    std::string measured = "", difference = "", exact = html::count(predicted);
    if (const std::optional<std::uint64_t> m = measured_of(t.text_of("tier"))) {
      measured = html::bytes(*m);
      difference = *m == predicted
                       ? "<span class=\"good\">0</span>"
                       : fmt::format("{}{}", *m > predicted ? "+" : "-",
                                     html::bytes(*m > predicted ? *m - predicted : predicted - *m));
      c.bars.push_back({tier + ", measured",
                        {{html::colour(10), "measured", static_cast<double>(*m),
                          fmt::format("measured: {}\n{} bytes", format_bytes(*m), format_count(*m))}},
                        format_bytes(*m),
                        false});
    }
    totals.row({html::text(tier), html::bytes(predicted), measured, difference, exact});
  }
  if (memory && integer_of(*memory, "process_peak_bytes"))
    totals.row({"process, peak resident", "", html::bytes(integer_of(*memory, "process_peak_bytes")), "",
                html::count(integer_of(*memory, "process_peak_bytes"))});
  return html::figure(html::draw_both(c), html::legend(legend)) + totals.str() +
         html::details("Components as a table", parts.str());
}

std::string memory_parts(const RunRecords& runs) {
  if (runs.size() == 1) return memory_part(*runs[0]);
  std::string out;
  for (const auto& r : runs)
    if (runs.size() <= 4)
      if (const std::string part = memory_part(*r); !part.empty())
        out += "<h3>" + html::text(r->name(), 80) + "</h3>\n" + part;
  return out;
}

std::string timeline_part(const RunRecords& runs) {
  if (runs.size() != 1) return {};
  const JsonValue* const phases = runs[0]->plan().find("timeline");
  if (!phases) return {};
  planning::PlanResult v;
  for (const JsonValue& p : phases->elements) {
    planning::StepPhase phase{escaped(p.text_of("moment"), 80), integer_of(p, "bytes"), {}};
    if (const JsonValue* const all = p.find("components"))
      for (const JsonMember& m : all->members)
        for (unsigned n = 1; n <= html_component_count(); ++n)
          if (m.key == name(static_cast<Component>(n)) && m.value.integer > 0)
            phase.components.emplace_back(static_cast<Component>(n),
                                          static_cast<std::uint64_t>(m.value.integer));
    v.timeline.push_back(std::move(phase));
  }
  return html_timeline(v);
}

std::string settings_part(const RunRecords& runs) {
  if (runs.size() == 1)
    return runs[0]->run_file().empty()
               ? ""
               : html::details("run.toml with every key",
                               "<pre>" + html::text(runs[0]->run_file(), kSettingsBytes) + "</pre>");
  const auto different = differing_settings(runs);
  if (different.empty()) return "<p>All runs have the same settings.</p>\n";
  std::vector<std::string> headings = {"setting"};
  for (const auto& r : runs) headings.push_back(escaped(r->name(), 80));
  HtmlTable t(std::string(headings.size(), 'l'), headings);
  t.mark("of", "settings");
  for (const auto& row : different) {
    std::vector<std::string> cells;
    for (const std::string& c : row) cells.push_back("<code>" + html::text(c) + "</code>");
    t.row(cells);
  }
  return t.str(200, 30'000);
}

/// Escapes each line, so that ends of lines stay.
std::string lines_part(const std::vector<std::string>& lines, std::size_t most_bytes) {
  std::string out;
  for (auto l = lines.rbegin(); l != lines.rend() && out.size() < most_bytes; ++l)
    out = html::text(*l, 400) + "\n" + out;
  return out;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::string heading_of(const RunRecords& runs, const RunRecord& r) {
  return runs.size() > 1 ? "<h3>" + html::text(r.name(), 80) + "</h3>\n" : "";
}

std::string samples_part(const RunRecords& runs) {
  std::string out;
  for (const auto& r : runs) {
    std::string of_run;
    const std::size_t most = runs.size() > 1 ? 1 : 5;
    for (std::size_t i = 0; i < r->samples().size() && i < most; ++i) {
      const auto& [step, text] = r->samples()[r->samples().size() - 1 - i];
      of_run += fmt::format("<p class=\"sub\">after step {}</p>\n<pre>{}</pre>\n", step,
                            lines_part(split_lines(text), 4000));
    }
    if (!of_run.empty()) out += heading_of(runs, *r) + of_run;
  }
  return out;
}

std::string events_part(const RunRecords& runs) {
  std::string out;
  for (const auto& r : runs)
    if (!r->events().empty()) {
      const std::size_t most = runs.size() > 1 ? 8 : 30;
      const std::vector<std::string> last(
          r->events().end() - static_cast<std::ptrdiff_t>(std::min(most, r->events().size())),
          r->events().end());
      out += heading_of(runs, *r) + html::list(last);
    }
  return out;
}

std::string log_part(const RunRecords& runs) {
  std::string out;
  for (const auto& r : runs)
    if (!r->log().empty() && runs.size() <= 8)
      out +=
          heading_of(runs, *r) +
          fmt::format("<pre class=\"log\" tabindex=\"0\" role=\"group\" aria-label=\"log of {}\">{}</pre>\n",
                      html::text(r->name(), 80),
                      lines_part(r->log(), kLogBytes / std::max<std::size_t>(runs.size(), 1)));
  return out;
}

std::string environment_part(const RunRecords& runs) {
  if (runs.size() != 1 || !runs[0]->environment().is_object()) return {};
  HtmlTable t("ll", {"fact", "value"});
  t.mark("of", "environment");
  const auto add = [&](const std::string& key, const JsonValue& v) {
    if (v.is_string()) t.row({html::text(key, 80), html::text(v.string, 1000)});
  };
  for (const JsonMember& m : runs[0]->environment().members) {
    add(m.key, m.value);
    for (const JsonMember& v : m.value.members) add(v.key, v.value);
  }
  return t.rows() ? t.str(60, 12'000) : "";
}

struct Part {
  const char *id, *heading;
  std::string html;
};

std::vector<Part> parts_of(const RunRecords& runs) {
  return {{"numbers", "Numbers", numbers_part(runs)},
          {"memory", "Memory: plan against measurement", memory_parts(runs)},
          {"timeline", "Memory during one step, as planned", timeline_part(runs)},
          {"samples", "Generated text", samples_part(runs)},
          {"events", "Events", events_part(runs)},
          {"log", "Log", log_part(runs)},
          {"settings", "Settings", settings_part(runs)},
          {"environment", "Environment", environment_part(runs)}};
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
  for (const Part& p : parts_of(runs)) {
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
  for (const Part& p : parts_of(runs)) parts[p.id] = p.html;
  JsonValue out = {{"title", "trainhost: " + page.title + ": " + page.answer}};
  out["ended"] =
      !runs.empty() && std::all_of(runs.begin(), runs.end(), [](const auto& r) { return r->ended(); });
  out["charts"] = charts_json(runs, more);
  out["parts"] = std::move(parts);
  return out.dump();
}

}  // namespace trainhost::report
