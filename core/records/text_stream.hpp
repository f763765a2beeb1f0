// Sequential reading of a text of any length: lines, and single characters, from one buffer. Knows nothing of
// records.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace trainhost::records {

/// Fills the buffer with the next bytes of a file and returns their number; 0 at the end.
using ReadBytes = std::function<std::size_t(std::span<char>)>;

class TextStream {
 public:
  static constexpr int kEnd = -1;
  explicit TextStream(ReadBytes read) : read_(std::move(read)), buffer_(kBufferBytes, '\0') {}

  /// The next character without consuming it, as unsigned char; kEnd at the end of the text.
  int peek() { return at_ < end_ || fill() ? static_cast<unsigned char>(buffer_[at_]) : kEnd; }
  /// Consumes the character that peek() shows; counts lines.
  void skip() { line_ += buffer_[at_++] == '\n'; }
  /// The rest of the line without its '\n', appended to `line`; consumes the '\n'. False at the end of the
  /// text. At most `limit` bytes are kept; what exceeds them is consumed and `line` then has limit + 1 bytes.
  bool line(std::string& line, std::size_t limit);
  /// The line of the next character, from 1.
  std::uint64_t line_number() const { return line_; }

 private:
  static constexpr std::size_t kBufferBytes = std::size_t{1} << 18;
  bool fill();

  ReadBytes read_;
  std::string buffer_;
  std::size_t at_ = 0, end_ = 0;
  std::uint64_t line_ = 1;
  bool begun_ = false;
};

}  // namespace trainhost::records
