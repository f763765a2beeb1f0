// See python_tokens.hpp. The lexical rules are those of the reference of Python 3; what a parser would refuse
// is read as far as it goes, because only the values of a few calls matter.
#include "core/framework_files/python_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"

namespace trainhost::framework_files::python {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Appends a character of Unicode as UTF-8; one that does not exist as U+FFFD.
void append_character(std::string& out, std::uint32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) c = 0xfffd;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 63));
    out += static_cast<char>(0x80 | (c & 63));
  } else {
    out += static_cast<char>(0xf0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 63));
    out += static_cast<char>(0x80 | ((c >> 6) & 63));
    out += static_cast<char>(0x80 | (c & 63));
  }
}

class Tokenizer {
 public:
  explicit Tokenizer(const Source& source) : source_(source), text_(source.text) {}

  std::vector<Line> run() {
    while (i_ < text_.size()) {
      if (at_cell_start()) end_line();
      if (line_.tokens.empty() && open_.empty() && !begin_line()) continue;
      if (i_ < text_.size()) step();
    }
    if (!open_.empty()) fail_open();
    end_line();
    return std::move(lines_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint, std::uint32_t line,
                         std::uint32_t column) const {
    throw usage_error(what, hint, source_.where(line, column));
  }
  [[noreturn]] void fail_open() const {
    const Bracket& b = open_.back();
    fail(fmt::format("the bracket {} is not closed", b.character), "the file may be truncated", b.line,
         b.column);
  }

  std::uint32_t column() const { return static_cast<std::uint32_t>(i_ - line_start_ + 1); }
  char next(std::size_t n) const { return i_ + n < text_.size() ? text_[i_ + n] : '\0'; }

  /// Each cell is a program of its own: an open bracket does not reach into the next one.
  bool at_cell_start() {
    if (i_ != line_start_ || cell_ + 1 >= source_.cells.size() || row_ < source_.cells[cell_ + 1].first)
      return false;
    ++cell_;
    if (!open_.empty()) fail_open();
    return true;
  }

  void new_row() { ++row_, line_start_ = i_; }

  void skip_row() {
    while (i_ < text_.size() && text_[i_] != '\n') ++i_;
  }

  /// Reads the indentation of a line; false if the line has no code.
  bool begin_line() {
    if (i_ != line_start_) return true;  // behind a semicolon, whose line keeps its indentation
    std::uint32_t indent = 0;
    for (; i_ < text_.size() && (text_[i_] == ' ' || text_[i_] == '\t' || text_[i_] == '\f'); ++i_)
      indent = text_[i_] == '\t' ? (indent / 8 + 1) * 8 : indent + 1;
    if (i_ == text_.size()) return false;
    if (source_.notebook && (text_[i_] == '%' || text_[i_] == '!')) {
      for (;;) {  // a command may be continued
        skip_row();
        const bool more = i_ > 0 && text_[i_ - 1] == '\\' && i_ + 1 < text_.size();
        if (!more) break;
        ++i_, new_row();
      }
    } else if (text_[i_] == '#') {
      skip_row();
    } else if (text_[i_] != '\n' && text_[i_] != '\r') {
      line_.indent = indent;
      return true;
    }
    if (i_ < text_.size() && text_[i_] == '\r') ++i_;
    if (i_ < text_.size() && text_[i_] == '\n') ++i_, new_row();
    return false;
  }

  void end_line() {
    const std::uint32_t indent = line_.indent;
    if (!line_.tokens.empty()) lines_.push_back(std::move(line_));
    line_ = {indent, {}};
  }

  void step() {
    const char c = text_[i_];
    if (c == '\n') {
      ++i_, new_row();
      if (open_.empty()) end_line();
    } else if (c == '\\' && (next(1) == '\n' || (next(1) == '\r' && next(2) == '\n'))) {
      i_ += next(1) == '\n' ? 2 : 3, new_row();
    } else if (c == '#') {
      skip_row();
    } else if (c == ';' && open_.empty()) {
      ++i_, end_line();
    } else if (is_digit(c) || (c == '.' && is_digit(next(1)))) {
      number();
    } else if (c == '"' || c == '\'') {
      string("");
    } else if (is_letter(c)) {
      name();
    } else if (static_cast<unsigned char>(c) <= ' ') {
      ++i_;
    } else {
      punctuation();
    }
  }

  Token token(Token::Kind kind, std::size_t begin) const {
    Token t;
    t.kind = kind, t.begin = begin, t.end = i_, t.line = row_;
    t.column = static_cast<std::uint32_t>(begin - line_start_ + 1);
    return t;
  }

  void add(Token::Kind kind, std::size_t begin) {
    Token t = token(kind, begin);
    t.text = text_.substr(begin, i_ - begin);
    line_.tokens.push_back(std::move(t));
  }

  void number() {
    const std::size_t begin = i_;
    const bool hexadecimal = text_[i_] == '0' && (next(1) == 'x' || next(1) == 'X');
    for (; i_ < text_.size(); ++i_) {
      const char c = text_[i_];
      const bool sign = (c == '+' || c == '-') && i_ > begin && !hexadecimal &&
                        (text_[i_ - 1] == 'e' || text_[i_ - 1] == 'E') && is_digit(next(1));
      if (!is_digit(c) && !is_letter(c) && c != '.' && !sign) break;
    }
    add(Token::Kind::kNumber, begin);
  }

  void name() {
    const std::size_t begin = i_;
    while (i_ < text_.size() && (is_letter(text_[i_]) || is_digit(text_[i_]))) ++i_;
    if (i_ < text_.size() && (text_[i_] == '"' || text_[i_] == '\'') && i_ - begin <= 2) {
      std::string prefix = text_.substr(begin, i_ - begin);
      for (char& c : prefix) c = static_cast<char>(c | 0x20);
      constexpr std::array kPrefixes{"r", "u", "b", "f", "t", "br", "rb", "fr", "rf", "tr", "rt"};
      if (std::ranges::find(kPrefixes, prefix) != kPrefixes.end()) return string(prefix);
    }
    add(Token::Kind::kName, begin);
  }

  void string(std::string_view prefix) {
    const bool raw = prefix.find('r') != prefix.npos, format = prefix.find_first_of("ft") != prefix.npos;
    const std::size_t begin = i_ - prefix.size();
    Token t = token(Token::Kind::kString, begin);
    const char quote = text_[i_];
    const bool triple = next(1) == quote && next(2) == quote;
    i_ += triple ? 3 : 1;
    for (;;) {
      if (i_ >= text_.size() || (text_[i_] == '\n' && !triple))
        fail("the string is not closed",
             fmt::format("add {} behind it", triple ? std::string(3, quote) : std::string(1, quote)), t.line,
             t.column);
      const char c = text_[i_];
      if (c == quote && (!triple || (next(1) == quote && next(2) == quote))) {
        i_ += triple ? 3 : 1;
        break;
      }
      if (c == '\\' && i_ + 1 < text_.size()) {
        escape(t.text, raw);
        continue;
      }
      ++i_;
      if (c == '\n') new_row();
      if (format && c == '{') {
        if (next(0) == '{')
          ++i_;  // two of them are the character itself
        else
          t.constant = false;
      } else if (format && c == '}' && next(0) == '}') {
        ++i_;
      }
      t.text += c;
    }
    t.end = i_;
    line_.tokens.push_back(std::move(t));
  }

  /// A backslash and what it stands for.
  void escape(std::string& out, bool raw) {
    if (text_[i_ + 1] == '\r' && i_ + 2 < text_.size() && text_[i_ + 2] == '\n') ++i_;  // one end of line
    const char c = text_[i_ + 1];
    i_ += 2;
    if (c == '\n') new_row();
    if (raw) {
      out += '\\', out += c;
      return;
    }
    constexpr std::string_view kFrom = "ntr\\'\"0abfv", kTo("\n\t\r\\'\"\0\a\b\f\v", 11);
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == '\n') return;
    if (const std::size_t at = kFrom.find(c); at != kFrom.npos) {
      out += kTo[at];
    } else if (digits > 0) {
      std::uint32_t value = 0;
      std::size_t n = 0;
      for (; n < digits && i_ < text_.size(); ++n, ++i_) {
        const char d = text_[i_], lower = static_cast<char>(d | 0x20);
        if (!is_digit(d) && (lower < 'a' || lower > 'f')) break;
        value = value * 16 + static_cast<std::uint32_t>(is_digit(d) ? d - '0' : lower - 'a' + 10);
      }
      append_character(out, value);
    } else {
      out += '\\', out += c;
    }
  }

  void punctuation() {
    constexpr std::array<std::string_view, 24> kLong{
        "**=", "//=", ">>=", "<<=", "...", "==", "!=", "<=", ">=", "->", ":=", "+=",
        "-=",  "*=",  "/=",  "%=",  "&=",  "|=", "^=", "@=", "**", "//", ">>", "<<"};
    const std::size_t begin = i_;
    const std::string_view rest = std::string_view(text_).substr(i_);
    const auto found = std::ranges::find_if(kLong, [&](std::string_view o) { return rest.starts_with(o); });
    const char c = text_[i_];
    i_ += found == kLong.end() ? 1 : found->size();
    if (found == kLong.end()) {
      if (c == '(' || c == '[' || c == '{') {
        if (open_.size() == kMaxBrackets)
          fail(fmt::format("brackets are nested more than {} deep", kMaxBrackets), {}, row_, column() - 1);
        open_.push_back({c, row_, column() - 1});
      } else if (c == ')' || c == ']' || c == '}') {
        const char wanted = open_.empty()                   ? '\0'
                            : open_.back().character == '(' ? ')'
                            : open_.back().character == '[' ? ']'
                                                            : '}';
        if (c != wanted)
          fail(fmt::format("the bracket {} closes none that is open", c), {}, row_, column() - 1);
        open_.pop_back();
      } else if (std::string_view("+-*/%@&|^~<>=.,:").find(c) == std::string_view::npos) {
        return;  // ? of IPython, $, a lone backslash
      }
    }
    add(Token::Kind::kOperator, begin);
  }

  struct Bracket {
    char character;
    std::uint32_t line, column;
  };

  const Source& source_;
  const std::string& text_;
  std::size_t i_ = 0, line_start_ = 0, cell_ = 0;
  std::uint32_t row_ = 0;
  std::vector<Bracket> open_;
  Line line_;
  std::vector<Line> lines_;
};

/// The text of a cell: a string, or a list of lines.
std::string text_of_cell(const JsonValue& cell) {
  std::string out;
  const JsonValue* source = cell.find("source");
  if (!source) source = cell.find("input");  // of notebooks before version 4
  if (!source) return out;
  if (source->is_string()) return source->string;
  for (const JsonValue& line : source->elements)
    if (line.is_string()) out += line.string;
  return out;
}

/// Cells of another language, or of a file that is written: "%%bash".
bool is_other_language(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text.compare(first, 2, "%%") != 0) return false;
  const std::string word = text.substr(first + 2, text.find_first_of(" \t\r\n", first) - first - 2);
  constexpr std::array kPython{"capture", "time", "timeit", "prun", "python", "python3", "px"};
  return std::ranges::find(kPython, word) == kPython.end();
}

}  // namespace

Where Source::where(std::uint32_t line, std::uint32_t column) const {
  const Cell* cell = &cells.front();
  for (const Cell& c : cells)
    if (c.first <= line) cell = &c;
  return {cell->name, line - cell->first + 1, column};
}

bool is_notebook(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text[first] != '{') return false;
  return text.find("\"cells\"") != text.npos && text.find("\"cell_type\"") != text.npos;
}

Source read_source(std::string text, const std::string& name) {
  Source out;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (!is_notebook(text) && !(name.ends_with(".ipynb") && first != text.npos)) {
    out.cells.push_back({name, 0});
    if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
    out.text = std::move(text);
    return out;
  }
  out.notebook = true;
  JsonValue document;
  try {
    document = parse_json(text);
  } catch (const JsonError& e) {
    throw usage_error(fmt::format("this notebook is not valid JSON: {}", e.what()),
                      "save it again, or export it as a script (.py)",
                      JsonPositions(text, name).where(std::min<std::uint64_t>(e.at, text.size())));
  }
  const JsonValue* cells = document.find("cells");
  std::size_t number = 0;
  std::uint32_t row = 0;
  if (cells)
    for (const JsonValue& cell : cells->elements) {
      if (cell.text_of("cell_type") != "code") continue;
      ++number;
      std::string code = text_of_cell(cell);
      if (is_other_language(code)) continue;
      out.cells.push_back({fmt::format("{}:cell {}", name, number), row});
      if (!code.ends_with('\n')) code += '\n';
      row += static_cast<std::uint32_t>(std::ranges::count(code, '\n'));
      out.text += code;
    }
  if (out.cells.empty())
    throw usage_error("this notebook has no cell of code", "expected a notebook that trains a model",
                      {name, 1, 1});
  return out;
}

std::vector<Line> tokenize(const Source& source) { return Tokenizer(source).run(); }

}  // namespace trainhost::framework_files::python
