// Properties of the terminal behind a stream. No other code reads the environment for this. Read once per
// command; a line that is rewritten reads the width each time, because the window may be resized.
#pragma once
#include <string>
#include <string_view>

namespace trainhost::report {

struct Terminal {
  bool is_tty = false;       // progress bars are shown only on a terminal
  bool color = false;        // cursor, and NO_COLOR is unset or empty
  unsigned width = 80;       // columns; COLUMNS takes precedence over the terminal size
  bool width_known = false;  // false for a file or a pipe: lines are not wrapped
  bool cursor = false;       // is_tty, and a line can be rewritten: TERM is set and not "dumb"
  bool utf8 = false;         // the locale is UTF-8: LC_ALL, LC_CTYPE or LANG, the first that is not empty
};

/// Width at which text is wrapped; 0 = not at all.
inline unsigned line_width(const Terminal& t) { return t.width_known ? t.width : 0; }

/// The terminal behind file descriptor fd (1 or 2).
Terminal terminal_of(int fd);

/// line_width() of standard output.
inline unsigned output_width() { return line_width(terminal_of(1)); }

/// Writes a message and the end of the line to stderr, wrapped at the width of its terminal.
void write_message(const std::string& text);

enum class Style { kPlain, kBold, kDim, kGood, kBad, kAccent };
/// `text` in that style when the terminal has colours, unchanged otherwise.
std::string styled(const Terminal& t, Style s, std::string_view text);

}  // namespace trainhost::report
