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

std::string changes_table(const PlanView& v, const Terminal& t) {
  constexpr std::size_t kOfAPrice = 2;
  if (v.estimates.empty() || v.estimates.front().fits) return {};
  if (v.changes.empty()) return "  Nothing tried makes it fit: neither recomputation, sharing, offload nor any device listed by trainhost devices.\n";
  Table table("lrl");
  std::map<Price, std::size_t> shown;
  std::size_t left = 0;
  for (const Change& c : v.changes) {
    if (++shown[c.price] > kOfAPrice) {
      ++left;
      continue;
    }
    table.row({c.sentence, format_bytes(c.compute_bytes), c.cost_words});
    table.row({"  " + c.settings});
  }
  std::string out = "  " + styled(t, Style::kBold, "To make it fit, one of:") + "\n" + table.str("    ");
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
