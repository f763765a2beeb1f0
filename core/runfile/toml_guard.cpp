// Scans TOML just far enough to recognise strings and comments; linear time, no allocation. Reasons for the
// limits: toml++ 3.3 recurses without bound on dotted keys (a key of 400 KB overflows the stack) and handles
// some code points in bare keys unsafely. The scan never looks back and each byte is visited once.
#include "core/runfile/toml_guard.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::runfile {
namespace {

class Scanner {
 public:
  Scanner(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  std::optional<OpenString> run() {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark
    while (at_ < text_.size()) step();
    return open_;
  }

 private:
  /// Outside strings and comments. dots_ counts the parts of one key: '=', ',' and line ends start a new one.
  /// A number such as 1.5 also counts a dot, which is far below the limit.
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
          fail(fmt::format("brackets are nested more than {} levels deep", kMaxTomlNesting),
               "close each bracket where its list ends");
        break;
      case ']':
      case '}':
        dots_ = 0;
        // An unmatched closing bracket is left to the parser, which has the better message.
        if (depth_ > 0) --depth_;
        break;
      case '=':
      case ',':
      case '\n':
        dots_ = 0;
        break;
      case '.':
        if (++dots_ > kMaxTomlKeyDots)
          fail(fmt::format("a dotted key has more than {} parts", kMaxTomlKeyDots + 1),
               "a key has one dot at most: train.steps");
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x80) fail_non_ascii();
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

  /// Strings hide brackets, dots and any UTF-8. Only basic strings (") know escapes; literal strings (') do
  /// not.
  void skip_string(char quote) {
    const std::string triple(3, quote);
    const bool multiline = text_.substr(at_, 3) == triple;
    const OpenString begin{line_, column_, multiline ? triple : std::string(1, quote)};
    for (int i = 0; i < (multiline ? 3 : 1); ++i) advance();
    while (at_ < text_.size()) {
      if (text_[at_] == '\\' && quote == '"') {
        advance();
        // An escaped line end continues a multi-line string, but does not belong to a single-line one.
        if (at_ < text_.size() && (multiline || text_[at_] != '\n')) advance();
      } else if (!multiline && text_[at_] == '\n') {
        break;
      } else if (multiline ? text_.substr(at_, 3) == triple : text_[at_] == quote) {
        // Up to two quotes that belong to a multi-line string may precede its three closing quotes.
        for (int i = 0; i < (multiline ? 5 : 1) && at_ < text_.size() && text_[at_] == quote; ++i) advance();
        return;
      } else {
        advance();
      }
    }
    if (!open_) open_ = begin;
  }

  /// Typographic quotes come from word processors and web pages.
  [[noreturn]] void fail_non_ascii() const {
    for (const char* quote : {"\u201C", "\u201D", "\u2018", "\u2019", "\u00AB", "\u00BB"})
      if (text_.substr(at_).starts_with(quote))
        fail("a typographic quotation mark is no quote in TOML", "write \" or '");
    fail("only ASCII is allowed outside strings and comments", "enclose the text in quotes");
  }

  [[noreturn]] void fail(std::string what, std::string hint = {}) const {
    throw usage_error(std::move(what), std::move(hint), {name_, line_, column_});
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1, column_ = 1;
  int depth_ = 0, dots_ = 0;
  std::optional<OpenString> open_;
};

/// TOML is UTF-8 throughout, so a line end is found without decoding.
std::uint32_t line_of_bad_utf8(std::string_view text) {
  std::uint32_t line = 1;
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1), ++line)
    if (!valid_utf8(text.substr(0, end))) break;
  return line;
}

}  // namespace

std::optional<OpenString> guard_toml(std::string_view text, const std::string& name) {
  if (text.size() > kMaxTomlBytes)
    throw usage_error(fmt::format("the file has {} bytes; a run file has at most {}",
                                  format_count(text.size()), format_count(kMaxTomlBytes)),
                      {}, {name});
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw usage_error("the file is UTF-16", "save it as UTF-8", {name, 1, 1});
  if (!valid_utf8(text))
    throw usage_error("the file is not valid UTF-8", "save it as UTF-8", {name, line_of_bad_utf8(text)});
  return Scanner(text, name).run();
}

}  // namespace trainhost::runfile
