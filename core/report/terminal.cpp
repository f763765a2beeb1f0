// See terminal.hpp.
#include "core/report/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace trainhost::report {

Terminal terminal_of(int fd) {
  Terminal t;
  t.is_tty = isatty(fd) == 1;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  t.color = t.is_tty && !(no_color && *no_color) && !(term && std::strcmp(term, "dumb") == 0);
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
