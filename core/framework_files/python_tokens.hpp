// Words of a script in Python, and the script or notebook itself as one text with positions. Nothing is
// executed. python_program.hpp parses the words.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::framework_files::python {

/// A script, or the code of a notebook's cells one after the other.
struct Source {
  struct Cell {
    std::string name;     // of the file in messages; with the cell of a notebook: "tune.ipynb:cell 3"
    std::uint32_t first;  // line of `text`, from 0
  };
  std::string text;
  std::vector<Cell> cells;
  bool notebook = false;  // lines that start with % or ! are commands of IPython
  /// line: of `text`, from 0. column: from 1.
  Where where(std::uint32_t line, std::uint32_t column) const;
};

/// Reads a script, or the JSON of a notebook; cells are numbered from 1 as Jupyter numbers those of code.
/// Cells of other languages (%%bash) are left out. Throws usage_error for a notebook that is no JSON or has
/// no code.
Source read_source(std::string text, const std::string& name);

/// Whether the text is that of a notebook: JSON with a list of cells.
bool is_notebook(const std::string& text);

struct Token {
  enum class Kind { kName, kNumber, kString, kOperator };
  Kind kind = Kind::kOperator;
  std::string text;                // kString: its characters
  bool constant = true;            // false: an f-string with values in it
  std::size_t begin = 0, end = 0;  // bytes of the source
  std::uint32_t line = 0, column = 1;
};

/// A logical line: brackets and backslashes continue it, a semicolon ends it.
struct Line {
  std::uint32_t indent = 0;  // columns; a tab reaches to the next multiple of 8
  std::vector<Token> tokens;
};

/// The most brackets around a word. Python's own parser allows 200.
inline constexpr std::size_t kMaxBrackets = 100;

/// Throws usage_error with the position for a string or a bracket that is not closed, brackets that do not
/// match, and nesting that no script has. Other characters that Python does not know are left out.
std::vector<Line> tokenize(const Source& source);

}  // namespace trainhost::framework_files::python
