// See run_page_parts.hpp. What is long is cut, so that a report stays below 300 KB.
#include "core/report/run_page_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/text.hpp"
#include "core/report/html_page.hpp"
#include "core/report/html_timeline.hpp"

namespace trainhost::report {
namespace {

using html::HtmlTable;

constexpr std::size_t kRunColours[] = {0, 4, 3, 2, 5, 7, 9, 6, 10, 1};  // no red: it marks limits
constexpr std::size_t kSettingsBytes = 20'000, kLogBytes = 12'000;

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

}  // namespace

std::string run_colour(std::size_t i) { return html::colour(kRunColours[i % std::size(kRunColours)]); }

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

std::vector<RunPagePart> run_page_parts(const RunRecords& runs) {
  return {{"numbers", "Numbers", numbers_part(runs)},
          {"memory", "Memory: plan against measurement", memory_parts(runs)},
          {"timeline", "Memory during one step, as planned", timeline_part(runs)},
          {"samples", "Generated text", samples_part(runs)},
          {"events", "Events", events_part(runs)},
          {"log", "Log", log_part(runs)},
          {"settings", "Settings", settings_part(runs)},
          {"environment", "Environment", environment_part(runs)}};
}

}  // namespace trainhost::report
