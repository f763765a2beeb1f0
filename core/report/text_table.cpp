// See text_table.hpp.
#include "core/report/text_table.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

namespace trainhost::report {

/// Counts the bytes that are not continuation bytes (10xxxxxx). Characters two columns wide do not occur in
/// our texts, and names from outside pass through escaped() first.
std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// Missing cells are empty, cells beyond the last column are dropped: every row that is not a rule has
/// exactly alignment_.size() cells. lines() relies on that.
void Table::row(std::vector<std::string> cells) {
  cells.resize(alignment_.size());
  rows_.push_back(std::move(cells));
}

/// An empty row stands for a rule, so columns and rules share one vector and one order.
void Table::rule() { rows_.emplace_back(); }

std::vector<std::size_t> Table::natural_widths() const {
  std::vector<std::size_t> width(alignment_.size(), 0);
  for (const auto& r : rows_)
    for (std::size_t c = 0; c < r.size(); ++c) width[c] = std::max(width[c], display_width(r[c]));
  return width;
}

namespace {

constexpr std::size_t kGap = 2, kNarrow = 16;

/// Width of a line without indent: visible columns and the gaps between them. A width of 0 means that the
/// column is dropped, so it has no gap either.
std::size_t total_of(const std::vector<std::size_t>& widths) {
  std::size_t total = 0;
  for (std::size_t w : widths)
    if (w) total += w + kGap;
  return total ? total - kGap : 0;
}

/// The lines of a wrapped cell, at least one.
std::vector<std::string> cell_lines(const std::string& cell, std::size_t width) {
  std::vector<std::string> out;
  const std::string text = wrapped(cell, width, "");
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find('\n', at);
    const std::size_t first = std::min(text.find_first_not_of(' ', at), end == text.npos ? text.size() : end);
    out.push_back(text.substr(first, end == text.npos ? end : end - first));
    if (end == text.npos) return out;
    at = end + 1;
  }
}

/// Minimum width of a text column: its longest word, at least kNarrow.
std::size_t minimum_width(const std::vector<std::vector<std::string>>& rows, std::size_t column) {
  std::size_t longest = 0;
  for (const auto& r : rows)
    if (column < r.size())
      // Wrapping to a width of 1 puts every word on a line of its own.
      for (const std::string& piece : cell_lines(r[column], 1))
        longest = std::max(longest, display_width(piece));
  return std::max(longest, kNarrow);
}

}  // namespace

/// A row is as many lines high as its tallest visible cell. Only text columns are wrapped; a number that is
/// split over lines would be read as two numbers.
std::string Table::lines(const std::vector<std::size_t>& widths, const std::string& indent) const {
  std::string out;
  assert(widths.size() == alignment_.size());
  for (const auto& r : rows_) {
    assert(r.empty() || r.size() == widths.size());
    if (r.empty()) {
      out += indent;
      for (std::size_t i = 0; i < total_of(widths); ++i) out += "─";
      out += "\n";
      continue;
    }
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (std::size_t c = 0; c < r.size(); ++c) {
      cells.push_back(widths[c] && alignment_[c] == 'l' ? cell_lines(r[c], widths[c])
                                                        : std::vector<std::string>{r[c]});
      if (widths[c]) height = std::max(height, cells.back().size());
    }
    for (std::size_t l = 0; l < height; ++l) {
      std::string line = indent;
      for (std::size_t c = 0; c < r.size(); ++c) {
        if (!widths[c]) continue;
        const std::string cell = l < cells[c].size() ? cells[c][l] : "";
        const std::string pad(widths[c] - std::min(widths[c], display_width(cell)), ' ');
        line += (alignment_[c] == 'r' ? pad + cell : cell + pad) + std::string(kGap, ' ');
      }
      // No spaces at the end of a line: they would wrap on a terminal exactly as wide as the table.
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
  }
  return out;
}

std::string Table::str(const std::string& indent) const { return lines(natural_widths(), indent); }

/// Three steps: narrow the text columns to their minimum, drop columns until the rest fits, and give unused
/// characters back to the text columns, the last one first because that is where sentences are. The result
/// may still be too wide: columns not listed in `drop` are never removed.
std::string Table::fitted(std::size_t width, const std::vector<std::size_t>& drop,
                          std::vector<std::string>* dropped, const std::string& indent) const {
  const std::vector<std::size_t> wanted = natural_widths();
  // The natural widths fit in most cases; then nothing is wrapped.
  if (width == 0 || total_of(wanted) + indent.size() <= width) return lines(wanted, indent);
  const std::size_t available = width > indent.size() ? width - indent.size() : 0;
  std::vector<std::size_t> widths = wanted;
  for (std::size_t c = 0; c < widths.size(); ++c)
    if (alignment_[c] == 'l' && widths[c]) widths[c] = std::min(widths[c], minimum_width(rows_, c));
  for (std::size_t c : drop) {
    if (total_of(widths) <= available) break;
    if (dropped && widths[c] && !rows_.empty()) dropped->push_back(rows_.front()[c]);
    widths[c] = 0;
  }
  for (std::size_t c = widths.size(); c-- > 0 && total_of(widths) < available;)
    if (widths[c] && widths[c] < wanted[c])
      widths[c] = std::min(wanted[c], widths[c] + available - total_of(widths));
  return lines(widths, indent);
}

std::string dropped_columns_note(const std::vector<std::string>& dropped, const std::string& where,
                                 std::size_t width) {
  std::string list;
  for (const std::string& d : dropped)
    if (!d.empty()) list += (list.empty() ? "" : ", ") + d;
  if (list.empty()) return "";
  return wrapped("  not shown, terminal too narrow: " + list + "; see " + where, width, "    ") + "\n";
}

std::string bar(double share, unsigned width) {
  static constexpr std::array<const char*, 8> kPart = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  // A part may exceed its whole, for example a step counter beyond the planned number of steps.
  double eighths = std::clamp(share, 0.0, 1.0) * width * 8;
  auto n = static_cast<unsigned>(std::lround(eighths));
  std::string out;
  for (unsigned i = 0; i < n / 8; ++i) out += "█";
  return out + kPart[n % 8];
}

/// Keeps the spaces between words as they are, also the leading ones: indented lines remain indented.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent) {
  if (width == 0 || display_width(text) <= width) return text;
  std::string out, line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t word = std::min(text.find_first_not_of(' ', at), text.size()),
                      end = std::min(text.find(' ', word), text.size());
    // A word that is longer than the width gets a line of its own; otherwise empty lines would be emitted.
    const bool fits = line.empty() || line == indent ||
                      display_width(line) + display_width(text.substr(at, end - at)) <= width;
    if (!fits) out += line + "\n", line = indent;
    line += text.substr(!fits ? word : at, end - (!fits ? word : at));
    at = end;
  }
  return out + line;
}

}  // namespace trainhost::report
