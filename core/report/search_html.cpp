// The HTML page of a search: fastest layout in one sentence, memory against time with the Pareto front, step
// time by cause, and the layouts with settings to copy.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/text.hpp"
#include "core/report/file_keys.hpp"
#include "core/report/html_axis.hpp"
#include "core/report/html_chart.hpp"
#include "core/report/html_page.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/unjudged_text.hpp"

namespace trainhost::report {
namespace {

using html::HtmlTable;

// Bounds on the size of the page: points drawn from the ranking, points of the Pareto front, bars.
constexpr std::size_t kDots = 400, kFront = 80, kBars = 10;

/// "data 2, tensor 8, pipeline 4, ZeRO 1, micro-batch 1 × 8, recompute full"; sizes of 1 are left out.
std::string describe_layout(const planning::RankedLayout& r) {
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

/// "d2 t8 p4": a label for charts. Sizes of 1 of these three kinds are kept, so that labels are comparable.
std::string short_label(const planning::RankedLayout& r) {
  std::string out = fmt::format("d{} t{} p{}", r.data, r.tensor, r.pipeline);
  if (r.context > 1) out += fmt::format(" c{}", r.context);
  if (r.expert > 1) out += fmt::format(" e{}", r.expert);
  if (r.zero) out += fmt::format(" z{}", r.zero);
  return out;
}

/// Position: bytes of the device that needs most and seconds per step. The tooltip holds what the label
/// cannot.
html::Dot dot(const planning::RankedLayout& r, std::string css) {
  return {static_cast<double>(r.device_bytes), r.step_seconds, std::move(css),
          fmt::format("{}\n{} per device, {} per step{}\n{:.1f} % of peak", describe_layout(r),
                      format_bytes(r.device_bytes), html::format_seconds(r.step_seconds),
                      r.simulated ? " (simulated)" : "", 100 * r.utilization)};
}

/// `best` is sorted by step time, so its first element is the answer. The second part states how many layouts
/// were evaluated; pruning skipped the others.
void answer(const planning::SearchResult& v, html::Page& page) {
  if (v.best.empty()) {
    page.tone = html::Tone::kBad;
    page.answer = fmt::format("No layout of {} fits {} × {}", v.model, format_count(v.devices), v.device);
  } else {
    const planning::RankedLayout& r = v.best.front();
    const std::uint64_t unjudged = v.host_budget_bytes ? 0 : r.host_bytes;
    page.tone = unjudged ? html::Tone::kNeutral : html::Tone::kGood;
    page.answer =
        fmt::format("Fastest: {}: {} per step, {}", describe_layout(r), html::format_seconds(r.step_seconds),
                    html::part_of(r.device_bytes, v.budget_bytes)) +
        and_unjudged(unjudged);
    page.detail = fmt::format("{} tokens per second, {:.1f} % of peak. ",
                              format_count(static_cast<std::uint64_t>(std::max(0.0, r.tokens_per_second))),
                              100 * r.utilization);
  }
  page.detail += fmt::format("{} layouts in the search space, {} evaluated in {}, {} of them fit.",
                             format_count(v.layouts), format_count(v.evaluated),
                             html::format_seconds(v.seconds), format_count(v.fitting));
}

/// Two series: the ranked layouts and, connected, the Pareto front. A layout may be in both; the dot of the
/// front is drawn above.
std::string scatter(const planning::SearchResult& v) {
  html::ScatterChart c;
  c.title = "Memory against time";
  c.x_name = "memory of the device that needs most";
  c.y_name = "time per step";
  c.limit = {static_cast<double>(v.budget_bytes), "budget " + format_bytes(v.budget_bytes)};
  for (std::size_t i = 0; i < v.best.size() && i < kDots; ++i)
    c.dots.push_back(dot(v.best[i], html::colour(10)));
  for (std::size_t i = 0; i < v.pareto.size() && i < kFront; ++i) {
    c.front.push_back(dot(v.pareto[i], html::colour(3)));
    c.front_label.push_back(short_label(v.pareto[i]));
  }
  c.description = fmt::format("{} layouts by memory and time; the line connects the {} on the Pareto front.",
                              c.dots.size(), c.front.size());
  std::string caption =
      "Lower and further left is better. d data, t tensor, p pipeline, c context, e expert parallel, z ZeRO "
      "stage.";
  if (v.best.size() > kDots)
    caption += fmt::format(" The fastest {} of {} rows are drawn.", kDots, format_count(v.best.size()));
  return html::figure(html::draw_both(c),
                      html::legend({{html::colour(3), "Pareto front"}, {html::colour(10), "ranked by time"}}),
                      caption);
}

/// One bar per fast layout: seconds that are not overlapped, by cause.
std::string times(const planning::SearchResult& v) {
  html::BarChart c;
  c.title = "Step time by cause";
  c.description = "The fastest layouts; time that is not overlapped, by cause.";
  c.unit = html::Unit::kSeconds;
  // The colour of a cause is fixed at its first appearance. 7 and 12 have no common factor, so the first
  // twelve causes get twelve different colours, with neighbours far apart.
  std::map<std::string, std::size_t> kinds;  // in order of appearance
  std::vector<std::pair<std::string, std::string>> names;
  // Bars of all layouts share one scale, which makes a cause comparable between layouts.
  for (std::size_t i = 0; i < v.best.size() && i < kBars; ++i) {
    const planning::RankedLayout& r = v.best[i];
    html::Bar b{
        fmt::format("{}  {}", i + 1, short_label(r)), {}, html::format_seconds(r.step_seconds), i == 0};
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
  return c.bars.empty() ? "" : html::figure(html::draw_both(c), html::legend(names));
}

/// Each setting is an argument of --set that the reader copies, so it stays on one line; line breaks are
/// allowed between settings.
std::string rows(const std::vector<planning::RankedLayout>& all, std::string_view of, std::size_t most,
                 std::size_t max_bytes) {
  HtmlTable t("rlrrrrrl",
              {"#", "layout", "time per step", "tokens/s", "% of peak", "device", "host", "settings"});
  t.mark("of", of).mark("sort", "");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const planning::RankedLayout& r = all[i];
    std::string settings;  // each on one line
    for (const std::string& s : r.settings)
      settings +=
          (settings.empty() ? "<code>" : " ") + ("<span class=\"nb\">" + html::text(s, 80) + "</span>");
    if (!settings.empty()) settings += "</code>";
    // Sorting by a click reads the value attribute, so every number carries its unrounded value.
    t.row({fmt::format("<data value=\"{0}\">{0}</data>", i + 1), html::text(describe_layout(r)),
           fmt::format("<data value=\"{}\">{}{}</data>", r.step_seconds, r.simulated ? "* " : "",
                       html::format_seconds(r.step_seconds)),
           html::count(static_cast<std::uint64_t>(std::max(0.0, r.tokens_per_second))),
           fmt::format("<data value=\"{}\">{:.1f}</data>", r.utilization, 100 * r.utilization),
           html::bytes(r.device_bytes), r.host_bytes ? html::bytes(r.host_bytes) : "", settings});
  }
  return all.empty() ? "" : t.str(most, max_bytes);
}

}  // namespace

html::Page search_page(const planning::SearchResult& v) {
  html::Page page;
  page.kind = "search";
  page.title = fmt::format("{} on {} × {}", v.model, format_count(v.devices), v.device);
  page.subtitle = v.run_line;
  if (v.global_batch)
    page.subtitle += fmt::format("{}{} sequences of {} tokens per step", page.subtitle.empty() ? "" : ", ",
                                 format_count(v.global_batch), format_count(v.seq_len));
  page.command = v.command;
  answer(v, page);
  page.section("Memory against time", scatter(v));
  page.section("Step time by cause", times(v));
  page.section("Pareto front of memory and time", rows(v.pareto, "pareto", 60, 50'000));
  page.section("Fastest layouts", rows(v.best, "best", 60, 50'000));
  page.section("Assumptions of the time model", html::list(v.assumptions));
  page.section("Notes", html::list(v.notes));
  page.section("Keys of the files", html::list(file_keys_sentences(v.file_keys), 400));
  return page;
}

std::string search_html(const planning::SearchResult& v) { return search_page(v).str(); }

}  // namespace trainhost::report
