// One line of fields that fits a given number of columns: less important fields are left out, the others are
// shortened where necessary, and charts get the columns that remain. For lines that are rewritten in place.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/report/terminal.hpp"

namespace trainhost::report {

/// Fields are shown in the order in which they were added, two columns apart, one on a narrow
/// terminal.
class FittedLine {
 public:
  /// `importance`: the field with the smallest is left out first; one below 0 is shown only where all others
  /// have their full texts and usual widths. `brief`: shown where `full` does not fit.
  void add(int importance, std::string full, std::string brief = {}, Style style = Style::kPlain);
  struct Widths {
    unsigned least, usual, most;
  };
  /// `draw` returns a chart of at most so many columns.
  void add_chart(int importance, Widths widths, std::function<std::string(unsigned)> draw, Style style);

  struct Text {
    std::string text;      // with the codes of styles
    unsigned columns = 0;  // without them
  };
  /// Widths of the fields in the lines before. A field whose text becomes shorter keeps its width, so that
  /// the fields after it do not move.
  struct Padding {
    unsigned columns = 0;  // for which they are; another width starts again
    std::vector<unsigned> full, brief;
  };
  /// At most `columns` wide.
  Text fit(const Terminal& t, unsigned columns, Padding& padding) const;

 private:
  struct Field {
    int importance;
    std::string full, brief;
    std::function<std::string(unsigned)> draw;  // of a chart
    Widths widths;
    Style style;
  };
  std::vector<Field> fields_;
};

}  // namespace trainhost::report
