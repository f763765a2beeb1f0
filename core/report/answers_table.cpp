// See answers_table.hpp.
#include "core/report/answers_table.hpp"

#include <fmt/format.h>

#include <map>

#include "core/base/text.hpp"
#include "core/report/table.hpp"
#include "core/report/terminal.hpp"

namespace trainhost::report {

std::string_view name(Price p) {
  switch (p) {
    case Price::kFree: return "free";
    case Price::kTime: return "time";
    case Price::kHardware: return "hardware";
    case Price::kResult: return "result";
  }
  return "";
}

namespace {

/// "key = value" as one word for wrapped(): no-break spaces.
std::string bound(std::string settings) {
  for (std::size_t at = 0; (at = settings.find(" = ", at)) != std::string::npos;) settings.replace(at, 3, "\u00a0=\u00a0");
  return settings;
}

std::string plain(std::string text) {
  for (std::size_t at = 0; (at = text.find("\u00a0", at)) != std::string::npos;) text.replace(at, 2, " ");
  return text;
}

}  // namespace

std::string changes_table(const PlanView& v, const Terminal& t) {
  constexpr std::size_t kOfAPrice = 2;
  if (v.estimates.empty() || v.estimates.front().fits) return {};
  if (v.changes.empty()) return "  Nothing tried makes it fit: neither recomputation, sharing, offload nor any device listed by trainhost devices.\n";
  constexpr unsigned kWidth = 120;  // where the terminal's is not known
  const unsigned width = line_width(t) ? line_width(t) : kWidth;
  std::string list;
  std::map<Price, std::size_t> shown;
  std::size_t left = 0;
  for (const Change& c : v.changes) {
    if (++shown[c.price] > kOfAPrice) {
      ++left;
      continue;
    }
    const std::string indent(16, ' ');
    list += wrapped(fmt::format("    {:>10}  {}; {}", format_bytes(c.compute_bytes), c.sentence, c.cost_words), width, indent) + "\n";
    list += plain(wrapped(indent + bound(c.settings), width, indent)) + "\n";
  }
  std::string out = "  " + styled(t, Style::kBold, "To make it fit, one of:") + "\n" + list;
  if (left) out += fmt::format("    and {} more; --json lists them\n", left);
  return out;
}

std::string limits_table(const PlanView& v) {
  if (v.limits.empty()) return {};
  Table table("lrl");
  for (const Limit& l : v.limits) table.row({l.what, l.value ? format_count(l.value) : "none fits", l.binds});
  return "  How far it goes:\n" + table.str("    ");
}

}  // namespace trainhost::report
