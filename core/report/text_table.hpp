// Text tables: columns as wide as their widest cell, numbers to the right, no dependency on a terminal.
#pragma once
#include <string>
#include <vector>

namespace trainhost::report {

class Table {
 public:
  /// One letter a column: 'l' left, 'r' right.
  explicit Table(std::string alignment) : alignment_(std::move(alignment)) {}
  void row(std::vector<std::string> cells);
  void rule();  // a line across
  std::string str(const std::string& indent = "  ") const;

  /// The same in at most `width` columns where that can be (0: as wide as it is). First the text columns
  /// become narrow and their cells run on below, then the columns of `drop` go, in that order, until it fits;
  /// `dropped` gets their headings (the first row's cells). What is left then has the room that there is. A
  /// number is never cut or broken.
  std::string fitted(std::size_t width, const std::vector<std::size_t>& drop,
                     std::vector<std::string>* dropped = nullptr, const std::string& indent = "  ") const;

 private:
  std::string lines(const std::vector<std::size_t>& widths,
                    const std::string& indent) const;  // a width of 0: no such column
  std::vector<std::size_t> natural() const;
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

/// "  left out for the width: host, MFU; --csv has them\n"; "" where nothing was.
std::string left_out(const std::vector<std::string>& dropped, const std::string& where,
                     std::size_t width = 0);

/// `share` of `width` cells in eighths of a block: "██████▌".
std::string bar(double share, unsigned width);

/// `text` in lines of at most `width` columns, broken at spaces, every line but the first behind `indent`; a
/// longer word stands alone. 0: as it is.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent);

/// Columns that a UTF-8 text takes, one a code point (styled text must not be measured).
std::size_t display_width(const std::string& text);

}  // namespace trainhost::report
