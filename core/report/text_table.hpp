// Text tables: columns as wide as their widest cell, numbers right-aligned. Does not depend on a terminal.
#pragma once
#include <string>
#include <vector>

namespace trainhost::report {

/// How a table is fitted into a terminal.
struct Fit {
  std::size_t width = 0;                        // columns of the terminal; 0: no limit
  std::vector<std::size_t> drop = {};           // columns that may be dropped, the least important one first
  std::vector<std::string> headings = {};       // of a table whose first row has none, for the note
  std::string see = "--json";                   // what prints the dropped columns
  std::string indent = "  ";                    // before every line
  std::vector<std::string>* dropped = nullptr;  // gets the headings, in place of the note
};

class Table {
 public:
  /// One letter per column: 'l' text, which may be wrapped; 'n' names, which are wrapped only if no more
  /// columns can be dropped; 'r' numbers, which never are.
  explicit Table(std::string alignment) : alignment_(std::move(alignment)) {}
  void row(std::vector<std::string> cells);
  void rule();  // a line across
  /// The table, in lines of at most `fit.width` columns: text columns are narrowed and their cells wrapped,
  /// then the columns in `fit.drop` are dropped in that order, then words are divided, and at last columns
  /// are dropped from the right, except the first. A last line names the columns that are not shown.
  std::string str(const Fit& fit = {}) const;

 private:
  std::string lines(const std::vector<std::size_t>& widths,
                    const std::string& indent) const;  // a width of 0: the column is dropped
  std::vector<std::size_t> natural_widths() const;
  std::vector<std::size_t> least_widths(bool divide_words) const;
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a horizontal line
};

/// "  not shown, terminal too narrow: host, MFU; see --csv\n"; "" where nothing with a heading was dropped.
std::string dropped_columns_note(const std::vector<std::string>& dropped, const std::string& see,
                                 std::size_t width = 0);

inline constexpr unsigned kBarWidth = 20;  // cells

/// `share` of `width` cells in eighths of a block: "██████▌".
std::string bar(double share, unsigned width);

/// `text` in lines of at most `width` columns, broken at spaces; every line but the first begins with
/// `indent`. A longer word is divided, behind a character such as / or , where it has one. 0: unchanged.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent);

/// Width of a UTF-8 text in columns of a terminal: 2 for East Asian wide characters and emoji, 0 for
/// combining marks and for the sequences of styled().
std::size_t display_width(const std::string& text);

}  // namespace trainhost::report
