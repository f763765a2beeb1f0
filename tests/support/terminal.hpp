// Runs the built program on a pseudo-terminal, as a user at a keyboard does. For tests only.
#pragma once
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/support/process.hpp"

namespace trainhost::test {

struct TerminalOptions {
  unsigned short columns = 80;
  std::map<std::string, std::string> environment = {};  // added; an empty value removes the variable
};

/// The program on a terminal. Everything that it and the echo print is in `screen`.
class Terminal {
 public:
  explicit Terminal(std::vector<std::string> words, const TerminalOptions& o = {}) {
    words.insert(words.begin(), program());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    winsize size{24, o.columns, 0, 0};
    pid_ = forkpty(&fd_, nullptr, nullptr, &size);
    BOOST_REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      for (const auto& [name, value] : o.environment)
        if (value.empty())
          unsetenv(name.c_str());
        else
          setenv(name.c_str(), value.c_str(), 1);
      execv(argv[0], argv.data());
      _exit(127);
    }
    BOOST_REQUIRE(tcgetattr(fd_, &mode_) == 0);
  }
  ~Terminal() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(fd_);
  }
  Terminal(const Terminal&) = delete;

  void type(const std::string& text) {
    BOOST_REQUIRE(write(fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  /// The window gets another width; the program receives SIGWINCH.
  void resize(unsigned short columns) {
    const winsize size{24, columns, 0, 0};
    BOOST_REQUIRE(ioctl(fd_, TIOCSWINSZ, &size) == 0);
  }
  void signal(int number) { BOOST_REQUIRE(kill(pid_, number) == 0); }
  /// Reads until `text` is on the screen, behind what was found before. False after 60 s, or if the program
  /// has ended without it.
  bool shows(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (;;) {
      if (const std::size_t at = screen.find(text, seen_); at != screen.npos) {
        seen_ = at + text.size();
        return true;
      }
      if (std::chrono::steady_clock::now() > deadline || !read_some()) return false;
    }
  }
  /// Returns when at least `bytes` more are on the screen.
  bool grows(std::size_t bytes) {
    const std::size_t goal = screen.size() + bytes;
    while (screen.size() < goal)
      if (!read_some()) return false;
    return true;
  }
  /// Waits for the end of the program; its exit code, or 128 + the signal.
  int end() {
    while (read_some()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  bool mode_is_unchanged() const {
    termios now{};
    return tcgetattr(fd_, &now) == 0 && now.c_lflag == mode_.c_lflag && now.c_iflag == mode_.c_iflag &&
           now.c_oflag == mode_.c_oflag;
  }
  bool answers_on_screen(const char* text) const { return screen.find(text) != screen.npos; }

  std::string screen;

 private:
  bool read_some() {
    pollfd p{fd_, POLLIN, 0};
    if (poll(&p, 1, 60'000) <= 0) return false;
    char buffer[4096];
    const ssize_t n = read(fd_, buffer, sizeof buffer);  // -1 with EIO: the program has ended
    if (n > 0) screen.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  }

  pid_t pid_ = -1;
  int fd_ = -1;
  std::size_t seen_ = 0;
  termios mode_{};
};

/// The rows that a terminal of `columns` shows after it has received `bytes`, without trailing spaces. Knows
/// carriage return, line feed, wrapping, moving up, erasing and styles.
inline std::vector<std::string> rows_of(const std::string& bytes, std::size_t columns) {
  std::vector<std::vector<std::string>> cells(1);  // a cell is one code point
  std::size_t row = 0, column = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const char c = bytes[at];
    if (c == '\r') {
      column = 0, ++at;
    } else if (c == '\n') {
      ++row, ++at;
      if (row == cells.size()) cells.emplace_back();
    } else if (c == '\x1b') {
      const std::size_t end = bytes.find_first_of("ABCDHJKhlm", at + 1);
      if (end == bytes.npos) break;
      const std::size_t n = std::strtoul(bytes.c_str() + at + 2, nullptr, 10);
      if (bytes[end] == 'A') row -= std::min(row, std::max<std::size_t>(n, 1));
      if (bytes[end] == 'K' || bytes[end] == 'J') cells[row].resize(std::min(cells[row].size(), column));
      if (bytes[end] == 'J') cells.resize(row + 1);
      at = end + 1;
    } else {
      std::size_t end = at + 1;
      while (end < bytes.size() && (static_cast<unsigned char>(bytes[end]) & 0xC0) == 0x80) ++end;
      if (column == columns) {
        column = 0, ++row;
        if (row == cells.size()) cells.emplace_back();
      }
      if (cells[row].size() <= column) cells[row].resize(column + 1, " ");
      cells[row][column++] = bytes.substr(at, end - at);
      at = end;
    }
  }
  std::vector<std::string> rows;
  for (const auto& r : cells) {
    std::string text;
    for (const std::string& cell : r) text += cell;
    text.erase(text.find_last_not_of(' ') + 1);
    rows.push_back(text);
  }
  return rows;
}

}  // namespace trainhost::test
