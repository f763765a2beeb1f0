// Scans TOML just far enough to recognise strings and comments; linear time, no allocation. Reasons for the
// limits: toml++ 3.3 recurses without bound on dotted keys and handles some code points in bare keys
// unsafely.
#include "core/runfile/toml_guard.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::runfile {
namespace {

class Scanner {
 public:
  Scanner(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void run() {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark
    while (at_ < text_.size()) step();
  }

 private:
  void step() {
    const char c = text_[at_];
    switch (c) {
      case '#':
        skip_comment();
        return;
      case '"':
      case '\'':
        skip_string(c);
        return;
      case '[':
      case '{':
        dots_ = 0;
        if (++depth_ > kMaxTomlNesting)
          fail(fmt::format("brackets are nested more than {} levels deep", kMaxTomlNesting));
        break;
      case ']':
      case '}':
        dots_ = 0;
        if (depth_ > 0) --depth_;
        break;
      case '=':
      case ',':
      case '\n':
        dots_ = 0;
        break;
      case '.':
        if (++dots_ > kMaxTomlKeyDots)
          fail(fmt::format("a dotted key has more than {} parts", kMaxTomlKeyDots + 1));
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x80)
          fail("only ASCII is allowed outside strings and comments", "enclose the text in quotes");
    }
    advance();
  }

  void advance() {
    const auto c = static_cast<unsigned char>(text_[at_++]);
    if (c == '\n')
      ++line_, column_ = 1;
    else if ((c & 0xC0) != 0x80)
      ++column_;  // columns count characters, not bytes
  }

  void skip_comment() {
    while (at_ < text_.size() && text_[at_] != '\n') advance();
  }

  void skip_string(char quote) {
    const std::string triple(3, quote);
    const bool multiline = text_.substr(at_, 3) == triple;
    for (int i = 0; i < (multiline ? 3 : 1); ++i) advance();
    while (at_ < text_.size()) {
      if (text_[at_] == '\\' && quote == '"') {
        advance();
        if (at_ < text_.size() && (multiline || text_[at_] != '\n')) advance();
      } else if (!multiline && text_[at_] == '\n') {
        return;  // unterminated: reported by the parser
      } else if (multiline ? text_.substr(at_, 3) == triple : text_[at_] == quote) {
        // Up to two quotes that belong to a multi-line string may precede its three closing quotes.
        for (int i = 0; i < (multiline ? 5 : 1) && at_ < text_.size() && text_[at_] == quote; ++i) advance();
        return;
      } else {
        advance();
      }
    }
  }

  [[noreturn]] void fail(std::string what, std::string hint = {}) const {
    throw usage_error(std::move(what), std::move(hint), {name_, line_, column_});
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1, column_ = 1;
  int depth_ = 0, dots_ = 0;
};

std::uint32_t line_of_bad_utf8(std::string_view text) {
  std::uint32_t line = 1;
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1), ++line)
    if (!valid_utf8(text.substr(0, end))) break;
  return line;
}

}  // namespace

void guard_toml(std::string_view text, const std::string& name) {
  if (text.size() > kMaxTomlBytes)
    throw usage_error(fmt::format("the file has {} bytes; a run file has at most {}",
                                  format_count(text.size()), format_count(kMaxTomlBytes)),
                      {}, {name});
  if (!valid_utf8(text)) throw usage_error("the file is not valid UTF-8", {}, {name, line_of_bad_utf8(text)});
  Scanner(text, name).run();
}

}  // namespace trainhost::runfile
