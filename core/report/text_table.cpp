// See text_table.hpp.
#include "core/report/text_table.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

namespace trainhost::report {

namespace {

struct Range {
  char32_t first, last;
};
// Unicode 15: combining marks, joiners and variation selectors of scripts that occur in names of files.
constexpr Range kNoWidth[] = {{0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},   {0x610, 0x61A},
                              {0x64B, 0x65F},   {0x93A, 0x93A},   {0x93C, 0x93C},   {0x941, 0x948},
                              {0x94D, 0x94D},   {0xE31, 0xE31},   {0xE34, 0xE3A},   {0xE47, 0xE4E},
                              {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F}, {0x20D0, 0x20FF},
                              {0x302A, 0x302D}, {0x3099, 0x309A}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
// East Asian width W and F, and emoji.
constexpr Range kWide[] = {{0x1100, 0x115F},  {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xA960, 0xA97F},
                           {0xAC00, 0xD7A3},  {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                           {0xFFE0, 0xFFE6},  {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF},
                           {0x20000, 0x3FFFD}};

std::size_t width_of(char32_t point) {
  if (point < 0x300) return 1;
  const auto in = [point](const Range& r) { return r.first <= point && point <= r.last; };
  if (std::any_of(std::begin(kNoWidth), std::end(kNoWidth), in)) return 0;
  return std::any_of(std::begin(kWide), std::end(kWide), in) ? 2 : 1;
}

bool continues(char c) { return (c & 0xC0) == 0x80; }  // a byte 10xxxxxx is not the first of its character

/// The character at `at`, which is a valid sequence in all our texts: those from outside passed escaped().
char32_t point_at(const std::string& text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  char32_t point = first < 0x80   ? first
                   : first < 0xE0 ? first & 0x1F
                   : first < 0xF0 ? first & 0x0F
                                  : first & 7;
  for (std::size_t i = at + 1; i < text.size() && continues(text[i]); ++i)
    point = point << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  return point;
}

}  // namespace

std::size_t display_width(const std::string& text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b')  // of styled(): ends with m
      i = std::min(text.find('m', i), text.size());
    else if (!continues(text[i]))
      width += width_of(point_at(text, i));
  }
  return width;
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

constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrow = 10;    // text is not narrower before columns are dropped
constexpr std::size_t kNarrowest = 8;  // nor than this after it
constexpr std::size_t kLongWord = 20;

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

std::size_t longest_word(const std::string& text) {
  std::size_t longest = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    longest = std::max(longest, display_width(text.substr(at, end - at)));
    at = end + 1;
  }
  return longest;
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
      cells.push_back(widths[c] && alignment_[c] != 'r' ? cell_lines(r[c], widths[c])
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

/// The width to which a column may be narrowed, before and after the droppable columns are dropped
/// (`divide_words`). Words that are as long as a path are divided in both cases.
std::vector<std::size_t> Table::least_widths(bool divide_words) const {
  std::vector<std::size_t> widths = natural_widths();
  for (std::size_t c = 0; c < widths.size(); ++c) {
    if (alignment_[c] == 'r' || (alignment_[c] == 'n' && !divide_words)) continue;
    std::size_t least = divide_words ? kNarrowest : kNarrow;
    if (!divide_words)
      for (const auto& r : rows_)
        if (c < r.size()) least = std::max(least, std::min(longest_word(r[c]), kLongWord));
    widths[c] = std::min(widths[c], least);
  }
  return widths;
}

/// Text columns get what the numbers leave: always the narrowest of them that has too little, so that
/// sentences, which need most, are wrapped rather than names.
std::string Table::str(const Fit& fit) const {
  const std::vector<std::size_t> wanted = natural_widths();
  if (fit.width == 0 || total_of(wanted) + fit.indent.size() <= fit.width) return lines(wanted, fit.indent);
  const std::size_t available = fit.width > fit.indent.size() ? fit.width - fit.indent.size() : 0;
  std::vector<std::size_t> widths = least_widths(false);
  std::vector<std::string> dropped;
  const auto drop = [&](std::size_t c) {
    const std::vector<std::string>& headings =
        fit.headings.empty() && !rows_.empty() ? rows_.front() : fit.headings;
    if (widths[c] && c < headings.size()) dropped.push_back(headings[c]);
    widths[c] = 0;
  };
  for (std::size_t c : fit.drop)
    if (total_of(widths) > available) drop(c);
  if (total_of(widths) > available) {
    const std::vector<std::size_t> least = least_widths(true);
    for (std::size_t c = 0; c < widths.size(); ++c) widths[c] = std::min(widths[c], least[c]);
  }
  for (std::size_t c = widths.size(); c-- > 1;)
    if (total_of(widths) > available) drop(c);
  while (total_of(widths) < available) {
    std::size_t narrowest = widths.size();
    for (std::size_t c = 0; c < widths.size(); ++c)
      if (widths[c] && widths[c] < wanted[c] && (narrowest == widths.size() || widths[c] < widths[narrowest]))
        narrowest = c;
    if (narrowest == widths.size()) break;
    ++widths[narrowest];
  }
  const std::string text = lines(widths, fit.indent);
  if (!fit.dropped) return text + dropped_columns_note(dropped, fit.see, fit.width);
  // A heading that several tables dropped is named once.
  for (const std::string& d : dropped)
    if (std::find(fit.dropped->begin(), fit.dropped->end(), d) == fit.dropped->end())
      fit.dropped->push_back(d);
  return text;
}

std::string dropped_columns_note(const std::vector<std::string>& dropped, const std::string& see,
                                 std::size_t width) {
  std::string list;
  for (const std::string& d : dropped)
    if (!d.empty()) list += (list.empty() ? "" : ", ") + d;
  if (list.empty()) return "";
  return wrapped("  not shown, terminal too narrow: " + list + "; see " + see, width, "    ") + "\n";
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

namespace {

/// The bytes of `word` that fit in `width` columns, at least one character. Ends behind a separator if there
/// is one in the second half.
std::size_t dividing_point(const std::string& word, std::size_t width) {
  std::size_t end = 0, columns = 0, separator = 0;
  for (std::size_t at = 0; at < word.size();) {
    std::size_t next = at + 1;
    while (next < word.size() && continues(word[next])) ++next;
    columns += width_of(point_at(word, at));
    if (at && columns > width) break;
    end = next;
    if (std::string("/,;=*+-_").find(word[at]) != std::string::npos && 2 * columns > width) separator = next;
    at = next;
  }
  return end < word.size() && separator ? separator : end;
}

}  // namespace

/// Keeps the spaces between words as they are, also the leading ones: indented lines remain indented.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent) {
  if (width == 0 || display_width(text) <= width) return text;
  std::string out, line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = std::min(text.find_first_not_of(' ', at), text.size()),
                      end = std::min(text.find(' ', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    // A word that is longer than the width begins a line of its own; otherwise empty lines would be emitted.
    const bool fits =
        line.empty() || line == indent || display_width(line) + begin - at + display_width(word) <= width;
    if (!fits)
      out += line + "\n", line = indent;
    else
      line += text.substr(at, begin - at);
    while (display_width(line) + display_width(word) > width) {
      const std::size_t used = display_width(line);
      const std::size_t part = dividing_point(word, width > used ? width - used : 1);
      if (part == word.size()) break;
      out += line + word.substr(0, part) + "\n", line = indent;
      word.erase(0, part);
    }
    line += word;
    at = end;
  }
  return out + line;
}

}  // namespace trainhost::report
