// Text tables: columns as wide as their widest cell, numbers right-aligned. Does not depend on a terminal.
#pragma once
#include <string>
#include <vector>

namespace trainhost::report {

class Table {
 public:
  /// One letter per column: 'l' left, 'r' right.
  explicit Table(std::string alignment) : alignment_(std::move(alignment)) {}
  void row(std::vector<std::string> cells);
  void rule();  // a line across
  std::string str(const std::string& indent = "  ") const;

  /// The same in at most `width` characters where possible (0: no limit). Text columns are narrowed first and
  /// their cells wrapped; then the columns in `drop` are removed in that order until the table fits, and
  /// `dropped` receives their headings (cells of the first row). Remaining space goes to the text columns.
  /// Numbers are never wrapped.
  std::string fitted(std::size_t width, const std::vector<std::size_t>& drop,
                     std::vector<std::string>* dropped = nullptr, const std::string& indent = "  ") const;

 private:
  std::string lines(const std::vector<std::size_t>& widths,
                    const std::string& indent) const;  // a width of 0: the column is dropped
  std::vector<std::size_t> natural_widths() const;
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a horizontal line
};

/// "  not shown, terminal too narrow: host, MFU; see --csv\n"; "" where nothing was dropped.
std::string dropped_columns_note(const std::vector<std::string>& dropped, const std::string& where,
                                 std::size_t width = 0);

inline constexpr unsigned kBarWidth = 20;  // cells

/// `share` of `width` cells in eighths of a block: "██████▌".
std::string bar(double share, unsigned width);

/// `text` in lines of at most `width` columns, broken at spaces; every line but the first begins with
/// `indent`. A longer word gets a line of its own. 0: unchanged.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent);

/// Width of a UTF-8 text in columns, one per code point. Not for styled text.
std::size_t display_width(const std::string& text);

}  // namespace trainhost::report
