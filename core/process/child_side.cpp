// See child_side.hpp. A record is a sequence of frames: a 32-bit length, then that many bytes. A frame of
// length 0 ends the record. Length and content are written together.
#include "core/process/child_side.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace trainhost {
namespace {

constexpr std::size_t kMaxPart = 1 << 20, kMaxChildInput = 64 * 1024;

void write_all(const char* from, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::write(kChildRecordDescriptor, from, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return;  // no reader, or the descriptor was closed: the parent notices that the end is missing
    from += n, bytes -= static_cast<std::size_t>(n);
  }
}

void frame(std::string_view part) {
  const auto length = static_cast<std::uint32_t>(part.size());
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  bytes += part;
  write_all(bytes.data(), bytes.size());
}

}  // namespace

void ChildRecord::write(std::string_view part) {
  // A longer part is cut: the parent rejects frames above its limit (kMaxFrame in child.cpp).
  if (!part.empty()) frame(part.substr(0, kMaxPart));
}

void ChildRecord::done(int code) {
  frame({});
  // Not exit(): handlers and destructors of plugins could crash or hang after the result.
  ::_exit(code);
}

std::string read_child_input() {
  std::string all;
  char buffer[4096];
  // A little more than the parent sends (48 KiB).
  while (all.size() < kMaxChildInput) {
    const ssize_t n = ::read(0, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    all.append(buffer, static_cast<std::size_t>(n));
  }
  return all;
}

}  // namespace trainhost
