// See comparison.hpp.
#include "core/report/comparison.hpp"

#include <fmt/format.h>

#include <cctype>

#include "core/base/text.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"

namespace trainhost::report {
namespace {

/// "+17.2 GiB, +12.5 %"; "the same".
std::string difference(std::uint64_t bytes, std::uint64_t first) {
  if (bytes == first) return "the same";
  const bool more = bytes > first;
  const std::string size = format_bytes(more ? bytes - first : first - bytes);
  const char sign = more ? '+' : '-';
  // No share of nothing.
  if (first == 0) return fmt::format("{}{}", sign, size);
  const double share = (static_cast<double>(bytes) - static_cast<double>(first)) / static_cast<double>(first);
  return fmt::format("{}{}, {:+.1f} %", sign, size, 100 * share);
}

/// A sentence as a table cell: without a full stop, and with a small first letter unless it begins with a
/// symbol ("K = 10").
std::string as_cell(std::string s) {
  if (!s.empty() && s.back() == '.') s.pop_back();
  // A word in capitals or a symbol keeps its first letter.
  const bool starts_with_word =
      s.size() > 1 && (std::islower(static_cast<unsigned char>(s[1])) || s.rfind("A ", 0) == 0);
  if (starts_with_word) s[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(s[0])));
  return s;
}

}  // namespace

std::string first_note_clause(const planning::Estimate& e) {
  if (e.report.notes.empty()) return {};
  const std::string& note = e.report.notes.front();
  // The first clause says what the estimator is; the rest is in the notes.
  return as_cell(note.substr(0, note.find(';')));
}

std::string comparison_table(const planning::PlanResult& v, const Terminal& t) {
  Table table("nnrrl");
  table.row({"estimator", "kind", "total", "difference", "reason"});
  table.rule();
  // Differences are to the first estimate, which decides whether the run fits.
  const std::uint64_t first = v.estimates.front().total_bytes;
  for (const planning::Estimate& e : v.estimates) {
    const bool is_first = &e == &v.estimates.front();
    table.row({e.report.source, display_name(e.report.claim), format_bytes(e.total_bytes),
               is_first ? "" : difference(e.total_bytes, first),
               is_first ? "the others are compared with this one" : first_note_clause(e)});
  }
  return table.str({.width = line_width(t), .drop = {1, 4, 3}});
}

}  // namespace trainhost::report
