// See terminal.hpp.
#include "core/report/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "core/base/error.hpp"
#include "core/report/text_table.hpp"

namespace trainhost::report {

namespace {

/// By the name of the locale, which says what the terminal shows even where its files are not installed.
bool locale_is_utf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const name = std::getenv(variable);
    if (!name || !*name) continue;
    return strcasestr(name, "utf-8") || strcasestr(name, "utf8");
  }
  return false;
}

}  // namespace

Terminal terminal_of(int fd) {
  Terminal t;
  t.is_tty = isatty(fd) == 1;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  t.cursor = t.is_tty && term && *term && std::strcmp(term, "dumb") != 0;
  t.color = t.cursor && !(no_color && *no_color);
  t.utf8 = locale_is_utf8();
  winsize size{};
  if (t.is_tty && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    t.width = size.ws_col, t.width_known = true;
  if (const char* columns = std::getenv("COLUMNS")) {
    unsigned n = 0;
    if (std::from_chars(columns, columns + std::strlen(columns), n).ec == std::errc{} && n >= 20 && n <= 1000)
      t.width = n, t.width_known = true;
  }
  return t;
}

void write_message(const std::string& text) {
  write_stderr(wrapped(text, line_width(terminal_of(2)), "    ") + "\n");
}

std::string styled(const Terminal& t, Style s, std::string_view text) {
  if (!t.color || s == Style::kPlain) return std::string(text);
  const char* code = s == Style::kBold   ? "1"
                     : s == Style::kDim  ? "2"
                     : s == Style::kGood ? "32"
                     : s == Style::kBad  ? "31"
                                         : "36";
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

}  // namespace trainhost::report
