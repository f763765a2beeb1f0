// JSON from strangers, read as a stream: the caller says what must come next and hears the byte where it did
// not. Sees what a tree would hide: duplicate keys (they are all handed out), exact integers, the depth.
// Never recurses deeper than max_depth, never converts a number through double. Used by
// safetensors_header.cpp, shard_index.cpp and checkpoint_manifest.cpp.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trainhost::checkpoint {

/// The text is not what was asked for. `at` counts bytes from its start.
struct JsonFault : std::runtime_error {
  JsonFault(std::uint64_t byte, const std::string& what) : std::runtime_error(what), at(byte) {}
  std::uint64_t at;
};

class StrictJson {
 public:
  /// `text` must outlive the reader and be valid UTF-8 (checked here). max_depth <= 64.
  StrictJson(std::string_view text, unsigned max_depth);

  void open_object();
  /// The next member's key, at most max_bytes long after unescaping; false at the closing brace.
  bool next_member(std::string& key, std::size_t max_bytes);
  void open_array();
  bool next_element();
  std::string string(std::size_t max_bytes);
  /// A whole number of 0 to 2^63 - 1, written with digits alone: no sign, point, exponent or leading zero.
  std::uint64_t integer();
  /// Any value, checked for grammar and depth.
  void skip_value();
  /// Nothing but `padding` may follow; with '\0', any JSON white space.
  void finish(char padding);

  /// Where the next token starts.
  std::uint64_t at();

 private:
  [[noreturn]] void expected(const char* what);
  void space();
  void open(char brace, const char* what);
  bool next(char closing);
  void literal(std::string_view word);
  void number();
  void escape(std::string& out);
  std::uint32_t hex4();

  std::string_view text_;
  std::size_t i_ = 0;
  unsigned depth_ = 0, max_depth_;
  std::uint64_t begun_ = 0;  // bit d: the container at depth d has had its first entry
};

}  // namespace trainhost::checkpoint
