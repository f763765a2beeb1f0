// Strict streaming reader of untrusted JSON (RFC 8259). The caller states what must come next and gets the
// byte position of every violation. Unlike a tree, the stream shows duplicate keys and exact integers. The
// nesting depth is bounded, so recursion is too. For a tree with positions: json_value.hpp.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trainhost {

/// The text is not valid JSON or not what the caller asked for. `at`: byte position, counted from 0.
struct JsonError : std::runtime_error {
  JsonError(std::uint64_t byte, const std::string& what) : std::runtime_error(what), at(byte) {}
  std::uint64_t at;
};

class JsonReader {
 public:
  /// `text` must outlive the reader. Throws JsonError if it is not valid UTF-8. max_depth is at most 64.
  JsonReader(std::string_view text, unsigned max_depth);

  void open_object();
  /// Reads the key of the next member, at most max_bytes long after unescaping; false at the closing brace.
  bool next_member(std::string& key, std::size_t max_bytes);
  void open_array();
  /// Moves to the next element; false at the closing bracket.
  bool next_element();
  std::string string(std::size_t max_bytes);
  /// A whole number from 0 to 2^63 - 1, written in digits only: no sign, point, exponent or leading zero.
  std::uint64_t integer();
  /// The text of any number.
  std::string_view number();
  bool boolean();
  void null();
  /// Skips any value, and checks its grammar and depth.
  void skip_value();
  /// Throws unless only `padding` follows; '\0' stands for any JSON white space.
  void finish(char padding);

  /// Position of the next token, and its first character ('\0' at the end of the text).
  std::uint64_t at();
  char peek();
  /// Position of the key that next_member() read last.
  std::uint64_t key_at() const { return key_at_; }
  /// End of the last token.
  std::uint64_t end() const { return i_; }

 private:
  [[noreturn]] void fail_expected(const char* what);
  void skip_space();
  void open(char brace, const char* what);
  bool next(char closing);
  void literal(std::string_view word);
  void unescape(std::string& out);
  std::uint32_t four_hex_digits();

  std::string_view text_;
  std::size_t i_ = 0, key_at_ = 0;
  unsigned depth_ = 0, max_depth_;
  std::uint64_t has_entry_ = 0;  // bit d: the open container at depth d has at least one entry
};

}  // namespace trainhost
