// See changes_table.hpp. The list is cut to a length that people read; JSON has all of it.
#include "core/report/changes_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/text.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "core/report/unjudged_text.hpp"

namespace trainhost::report {

namespace {

/// Replaces the spaces in "key = value" by no-break spaces, so that wrapped() keeps them on one line.
std::string with_no_break_spaces(std::string settings) {
  for (std::size_t at = 0; (at = settings.find(" = ", at)) != std::string::npos;)
    settings.replace(at, 3, "\u00a0=\u00a0");
  return settings;
}

std::string with_plain_spaces(std::string text) {
  for (std::size_t at = 0; (at = text.find("\u00a0", at)) != std::string::npos;) text.replace(at, 2, " ");
  return text;
}

/// Changes to list per kind of cost: two; three where there is one kind only.
std::size_t changes_per_price(const planning::PlanResult& v) {
  const bool one = std::all_of(v.changes.begin(), v.changes.end(),
                               [&](const planning::Change& c) { return c.price == v.changes.front().price; });
  return one ? 3 : 2;
}

std::string change_lines(const planning::PlanResult& v, const planning::Change& c, unsigned width) {
  // Wrapped with no-break spaces, printed with plain ones, so that the settings can be copied.
  const std::string indent(width < 60 ? 6 : 16, ' ');
  return wrapped(fmt::format("    {:>10}  {}; {}{}", format_bytes(c.compute_bytes), c.sentence, c.cost_text,
                             v.host_budget_known() ? "" : and_unjudged(c.host_bytes)),
                 width, indent) +
         "\n" + with_plain_spaces(wrapped(indent + with_no_break_spaces(c.settings), width, indent)) + "\n";
}

}  // namespace

std::string changes_table(const planning::PlanResult& v, const Terminal& t) {
  // Only if the first estimator says that the run does not fit: it decides.
  if (v.estimates.empty() || v.estimates.front().fits) return {};
  constexpr unsigned kWidth = 120;  // where the terminal width is not known
  const unsigned width = line_width(t) ? line_width(t) : kWidth;
  if (!v.looked_for_changes)
    return v.budget_known
               ? wrapped("  trainhost plan, with the same arguments, lists changes that make it fit.", width,
                         "  ") +
                     "\n"
               : "";
  if (v.changes.empty() && !v.framework.empty())
    return wrapped("  No change of a run of " + escaped(v.framework, 80) + " that the estimator " +
                       escaped(v.estimates.front().report.source, 80) +
                       " describes makes it fit, on one device or with data parallelism.",
                   width, "  ") +
           "\n";
  if (v.changes.empty())
    return wrapped(
               "  No change makes it fit. Tried: recomputation, offload, parallelism, smaller types, smaller "
               "batch or sequence, adapters, and every device that trainhost devices lists.",
               width, "  ") +
           "\n";
  std::string list;
  std::map<planning::Price, std::size_t> shown;
  std::size_t not_shown = 0;
  // Changes come sorted by cost within each kind.
  for (const planning::Change& c : v.changes) {
    if (++shown[c.price] > changes_per_price(v))
      ++not_shown;
    else
      list += change_lines(v, c, width);
  }
  std::string out;
  if (!v.changes_note.empty()) out += wrapped("  " + v.changes_note, width, "  ") + "\n";
  out += "  " +
         styled(t, Style::kBold,
                v.changes.size() == 1    ? "This change makes it fit:"
                : v.changes_note.empty() ? "Any one of these changes makes it fit:"
                                         : "Any one of these makes it fit:") +  // combinations too
         "\n" +
         list;
  if (not_shown) out += fmt::format("    and {} more; --json lists them\n", not_shown);
  return out;
}

std::string limits_table(const planning::PlanResult& v, const Terminal& t) {
  if (v.limits.empty()) return {};
  Table table("lrl");
  // 0 means that no value fits.
  for (const planning::Limit& l : v.limits)
    table.row({l.what, l.value ? format_count(l.value) : "none fits", l.binds});
  const bool device_only = !v.estimates.empty() && v.unjudged_host(v.estimates.front()) > 0;
  return wrapped(std::string("  Largest values that fit") +
                     (device_only ? " the device (host memory is not known)" : "") +
                     ", and the component that exceeds memory one step beyond:",
                 line_width(t), "  ") +
         "\n" + table.str({.width = line_width(t), .indent = "    "});
}

}  // namespace trainhost::report
