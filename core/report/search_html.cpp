// The page of a search: the fastest layout in one sentence, memory against time with the Pareto front, where
// the time of the best goes, and the rows as runs to copy.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/text.hpp"
#include "core/report/html_axis.hpp"
#include "core/report/html_chart.hpp"
#include "core/report/html_page.hpp"
#include "core/report/search_report.hpp"

namespace trainhost::report {
namespace {

using html::HtmlTable;

constexpr std::size_t kDots = 400, kFront = 80, kBars = 10;

/// "tensor 8, pipeline 4, data 2, ZeRO 1, recompute full": what differs from one device.
std::string layout_words(const planning::RankedLayout& r) {
  std::string out;
  const auto add = [&](std::string_view what, std::uint32_t n) {
    if (n > 1) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", what, n);
  };
  add("data", r.data), add("tensor", r.tensor), add("pipeline", r.pipeline), add("interleave", r.interleave);
  add("context", r.context), add("expert", r.expert);
  if (out.empty()) out = "one device";
  if (r.sequence) out += ", sequence parallel";
  if (r.zero) out += fmt::format(", ZeRO {}", r.zero);
  return out + fmt::format(", micro-batch {} × {}", r.micro_batch, r.accumulate) +
         (r.recompute.empty() || r.recompute == "none"
              ? std::string()
              : ", recompute " + r.recompute +
                    (r.recompute_every > 1 ? fmt::format(" every {}", r.recompute_every) : "")) +
         (r.offload.empty() ? "" : ", " + r.offload);
}

/// "d2 t8 p4": a name short enough for a chart.
std::string short_words(const planning::RankedLayout& r) {
  std::string out = fmt::format("d{} t{} p{}", r.data, r.tensor, r.pipeline);
  if (r.context > 1) out += fmt::format(" c{}", r.context);
  if (r.expert > 1) out += fmt::format(" e{}", r.expert);
  if (r.zero) out += fmt::format(" z{}", r.zero);
  return out;
}

html::Dot dot(const planning::RankedLayout& r, std::string css) {
  return {
      static_cast<double>(r.device_bytes), r.step_seconds, std::move(css),
      fmt::format("{}\n{} a device, {} a step\n{:.1f} % of peak", layout_words(r),
                  format_bytes(r.device_bytes), html::format_seconds(r.step_seconds), 100 * r.utilization)};
}

void answer(const planning::SearchResult& v, html::Page& page) {
  if (v.best.empty()) {
    page.tone = html::Tone::kBad;
    page.answer = fmt::format("No layout of {} fits {} × {}", v.model, format_count(v.devices), v.device);
  } else {
    const planning::RankedLayout& r = v.best.front();
    page.tone = html::Tone::kGood;
    page.answer =
        fmt::format("Fastest: {}: {} a step, {}", layout_words(r), html::format_seconds(r.step_seconds),
                    html::part_of(r.device_bytes, v.budget_bytes));
    page.detail = fmt::format("{} tokens a second, {:.1f} % of peak. ",
                              format_count(static_cast<std::uint64_t>(std::max(0.0, r.tokens_per_second))),
                              100 * r.utilization);
  }
  page.detail +=
      fmt::format("{} layouts in the space, {} fit; {} looked at in {}.", format_count(v.layouts),
                  format_count(v.fitting), format_count(v.evaluated), html::format_seconds(v.seconds));
}

std::string scatter(const planning::SearchResult& v) {
  html::ScatterChart c;
  c.title = "Memory against time";
  c.x_name = "memory of the fullest device";
  c.y_name = "time of a step";
  c.limit = {static_cast<double>(v.budget_bytes), "budget " + format_bytes(v.budget_bytes)};
  for (std::size_t i = 0; i < v.best.size() && i < kDots; ++i)
    c.dots.push_back(dot(v.best[i], html::colour(10)));
  for (std::size_t i = 0; i < v.pareto.size() && i < kFront; ++i) {
    c.front.push_back(dot(v.pareto[i], html::colour(3)));
    c.front_label.push_back(short_words(v.pareto[i]));
  }
  c.description = fmt::format("{} layouts by memory and time; the line joins the {} that none beats in both.",
                              c.dots.size(), c.front.size());
  std::string caption =
      "Left and down is better. d data, t tensor, p pipeline, c context, e expert parallel, z ZeRO stage.";
  if (v.best.size() > kDots)
    caption += fmt::format(" The fastest {} of {} rows are drawn.", kDots, format_count(v.best.size()));
  return html::figure(html::draw(c),
                      html::legend({{html::colour(3), "Pareto front"}, {html::colour(10), "ranked by time"}}),
                      caption);
}

/// Where the time of the fastest goes: a bar each, exposed seconds by kind.
std::string times(const planning::SearchResult& v) {
  html::BarChart c;
  c.title = "Where the time goes";
  c.description = "The fastest layouts, exposed time by kind.";
  c.unit = html::Unit::kSeconds;
  std::map<std::string, std::size_t> kinds;  // in order of appearance
  std::vector<std::pair<std::string, std::string>> names;
  for (std::size_t i = 0; i < v.best.size() && i < kBars; ++i) {
    const planning::RankedLayout& r = v.best[i];
    html::Bar b{
        fmt::format("{}  {}", i + 1, short_words(r)), {}, html::format_seconds(r.step_seconds), i == 0};
    for (const auto& [kind, seconds] : r.seconds) {
      if (!(seconds > 0)) continue;
      const auto at = kinds.emplace(kind, kinds.size());
      const std::string css = html::colour(at.first->second * 7 % 12);
      if (at.second) names.emplace_back(css, kind);
      b.parts.push_back({css, kind, seconds,
                         fmt::format("{}: {}, {:.1f} %", kind, html::format_seconds(seconds),
                                     r.step_seconds > 0 ? 100 * seconds / r.step_seconds : 0.0)});
    }
    if (!b.parts.empty()) c.bars.push_back(std::move(b));
  }
  return c.bars.empty() ? "" : html::figure(html::draw(c), html::legend(names));
}

std::string rows(const std::vector<planning::RankedLayout>& all, std::string_view of, std::size_t most,
                 std::size_t max_bytes) {
  HtmlTable t("rlrrrrrl", {"#", "layout", "a step", "tokens/s", "% of peak", "device", "host", "as a run"});
  t.mark("of", of).mark("sort", "");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const planning::RankedLayout& r = all[i];
    std::string settings;  // each one unbroken
    for (const std::string& s : r.settings)
      settings +=
          (settings.empty() ? "<code>" : " ") + ("<span class=\"nb\">" + html::text(s, 80) + "</span>");
    if (!settings.empty()) settings += "</code>";
    t.row({fmt::format("<data value=\"{0}\">{0}</data>", i + 1), html::text(layout_words(r)),
           fmt::format("<data value=\"{}\">{}</data>", r.step_seconds, html::format_seconds(r.step_seconds)),
           html::count(static_cast<std::uint64_t>(std::max(0.0, r.tokens_per_second))),
           fmt::format("<data value=\"{}\">{:.1f}</data>", r.utilization, 100 * r.utilization),
           html::bytes(r.device_bytes), r.host_bytes ? html::bytes(r.host_bytes) : "", settings});
  }
  return all.empty() ? "" : t.str(most, max_bytes);
}

}  // namespace

std::string search_html(const planning::SearchResult& v) {
  html::Page page;
  page.kind = "search";
  page.title = fmt::format("{} on {} × {}", v.model, format_count(v.devices), v.device);
  page.subtitle = v.run_line;
  if (v.global_batch)
    page.subtitle += fmt::format("{}{} sequences of {} tokens a step", page.subtitle.empty() ? "" : ", ",
                                 format_count(v.global_batch), format_count(v.seq_len));
  page.command = v.command;
  answer(v, page);
  page.section("Memory against time", scatter(v));
  page.section("Where the time goes", times(v));
  page.section("The Pareto front", rows(v.pareto, "pareto", 60, 50'000));
  page.section("The fastest", rows(v.best, "best", 60, 50'000));
  page.section("What the times assume", html::list(v.assumptions));
  page.section("Notes", html::list(v.notes));
  return page.str();
}

}  // namespace trainhost::report
