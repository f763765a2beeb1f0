// What the terminal behind a stream can do. Asked once per command; nothing else reads the environment for
// this.
#pragma once
#include <string>
#include <string_view>

namespace trainhost::report {

struct Terminal {
  bool is_tty = false;       // progress bars only here
  bool color = false;        // a terminal, NO_COLOR unset or empty, TERM is not "dumb"
  unsigned width = 80;       // columns; COLUMNS wins over the terminal's own answer
  bool width_known = false;  // neither said so: a file or a pipe, whose lines stay whole
};

/// Where sentences are broken: 0 = nowhere.
inline unsigned line_width(const Terminal& t) { return t.width_known ? t.width : 0; }

/// The terminal behind file descriptor fd (1 or 2).
Terminal terminal_of(int fd);

enum class Style { kPlain, kBold, kDim, kGood, kBad, kAccent };
/// `text` in that style when the terminal has colours, unchanged otherwise.
std::string styled(const Terminal& t, Style s, std::string_view text);

}  // namespace trainhost::report
