// Every entry of a plan with its formula: a table (plan --explain) and CSV (plan --csv).
#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/report/csv.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"

namespace trainhost::report {

// Stable: entries of equal size stay in the order of the model.
std::string explain_table(const planning::PlanResult& v, const Terminal& t) {
  std::string out;
  for (const planning::Estimate& e : v.estimates) {
    out += styled(t, Style::kAccent,
                  wrapped(fmt::format("entries of {} ({}), largest at the peak first", e.report.source,
                                      display_name(e.report.claim)),
                          line_width(t), "  ")) +
           "\n";
    Table table("rrlnnll");
    table.row({"at the peak", "maximum", "bytes", "tier", "component", "entry", "formula"});
    // The claim is only written where it is not exact.
    for (const MemoryEntry* n : largest_first(e.report))
      table.row({format_bytes(n->at_peak()), format_bytes(n->bytes), format_count(n->bytes),
                 std::string(name(n->tier)), display_name(n->component), escaped(n->name),
                 escaped(n->formula, 400) +
                     (n->claim == Claim::kExact ? "" : fmt::format("  ({})", display_name(n->claim)))});
    out += table.str({.width = line_width(t), .drop = {1, 2, 3, 4}, .see = "--csv"});
  }
  return out;
}

// CSV has every entry in full, in the order of the model.
std::string plan_csv(const planning::PlanResult& v) {
  std::string out =
      csv_line({"estimator", "tier", "component", "name", "kind", "bytes", "bytes_at_peak", "formula"});
  for (const planning::Estimate& e : v.estimates)
    for (const MemoryEntry& n : e.report.entries)
      out += csv_line({e.report.source, name(n.tier), name(n.component), n.name, name(n.claim),
                       std::to_string(n.bytes), std::to_string(n.at_peak()), n.formula});
  return out;
}

}  // namespace trainhost::report
