// Error::full(): the message that a user sees, with untrusted text escaped (text.cpp). tools/trainhost prints
// it and returns the exit code.
#include "core/base/error.hpp"

#include <cstdio>
#include <string_view>

#include "core/base/text.hpp"

namespace trainhost {
namespace {

constexpr std::size_t kMaxMessage = 16384, kMaxFile = 1024;

/// Escapes each line. Messages of trainhost may have several lines; quoted values cannot add lines because
/// they were escaped when quoted.
std::string printable(std::string_view text, std::size_t max) {
  std::string out;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find('\n', at);
    out += escaped(text.substr(at, end == text.npos ? text.npos : end - at), max);
    if (end == text.npos || out.size() > max) return out;
    out += '\n';
    at = end + 1;
  }
}

}  // namespace

/// The position is omitted from the left: no column without a line, no line without a file. The hint has a
/// line of its own behind a message of several lines, of which the last one is about something else.
std::string Error::full() const {
  std::string out;
  std::string_view message = what();
  // The place "--set KEY" names the key already: "KEY: ..." is without it, and "KEY of NAME: ..." and
  // "KEY = VALUE: ..." follow "--set".
  const std::string_view place = where_.file;
  const std::string key(place.substr(place.rfind(' ') + 1));
  const bool option = place.starts_with("--set ");
  if (option && message.starts_with(key + ": ")) message.remove_prefix(key.size() + 2);
  if (option && (message.starts_with(key + " of ") || message.starts_with(key + " = "))) {
    out = "--set ";
  } else if (!where_.file.empty()) {
    out = escaped(where_.file, kMaxFile);
    if (where_.line) out += ":" + std::to_string(where_.line);
    if (where_.line && where_.column) out += ":" + std::to_string(where_.column);
    out += ": ";
  }
  out += printable(message, kMaxMessage);
  if (hint_.empty()) return out;
  const bool several_lines = message.find('\n') != std::string_view::npos;
  out += (several_lines ? "\n(" : " (") + printable(hint_, kMaxMessage) + ")";
  return out;
}

void write_stderr(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  std::clearerr(stderr);
}

}  // namespace trainhost
