// The text of a YAML file and a position in it: lines, blanks, comments, the marks of a document. The parser
// is small_yaml.cpp.
#pragma once
#include <string>
#include <string_view>

#include "tools/web/yaml/yaml-cpp/yaml.h"

namespace YAML {

inline constexpr std::size_t npos = std::string::npos;

inline bool is_flow_mark(char c) { return c == ',' || c == '[' || c == ']' || c == '{' || c == '}'; }
inline bool is_blank(char c) { return c == ' ' || c == '\t'; }

class Scanner {
 public:
  explicit Scanner(const std::string& text) {
    const std::size_t bom = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
    for (std::size_t i = bom; i < text.size(); ++i) {  // lines end with \n here
      if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
      text_ += text[i] == '\r' ? '\n' : text[i];
    }
  }

 protected:
  [[noreturn]] void fail(const std::string& what) const { throw Exception{mark(), what}; }

  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool at_end() const { return at_ >= text_.size(); }
  int column() const { return static_cast<int>(at_ - line_begin_); }
  Mark mark() const { return {line_, column(), static_cast<int>(at_)}; }
  void advance(std::size_t n = 1) {
    for (; n > 0 && !at_end(); --n)
      if (text_[at_++] == '\n') ++line_, line_begin_ = at_;
  }
  bool ends_word(std::size_t ahead) const {
    const char c = peek(ahead);
    return at_ + ahead >= text_.size() || is_blank(c) || c == '\n';
  }
  bool at_marker(const char* three) const {
    return column() == 0 && text_.compare(at_, 3, three) == 0 && ends_word(3);
  }
  bool at_document_end() const { return at_end() || at_marker("---") || at_marker("..."); }
  bool at_dash() const { return peek() == '-' && ends_word(1); }
  /// A colon that ends a key. After a key in quotation marks in a flow collection no blank is needed.
  bool at_colon(bool flow, bool quoted = false) const {
    return peek() == ':' && (ends_word(1) || (flow && (quoted || is_flow_mark(peek(1)))));
  }
  bool at_comment() const {
    return peek() == '#' && (at_ == 0 || is_blank(text_[at_ - 1]) || text_[at_ - 1] == '\n');
  }

  void skip_blanks() {
    while (is_blank(peek())) advance();
  }
  /// Skips blanks and a comment on this line.
  bool at_line_end() {
    skip_blanks();
    if (at_comment())
      while (!at_end() && peek() != '\n') advance();
    return at_end() || peek() == '\n';
  }
  /// To the next token on this or a later line.
  void skip_to_token(bool flow = false) {
    while (at_line_end() && !at_end()) advance();
    const std::size_t tab = text_.find('\t', line_begin_);
    if (!flow && tab < at_ && text_.find_first_not_of(" \t", line_begin_) == at_)
      fail("a tab cannot be used for indentation");
  }

  Node node(Node::Kind kind, Mark where) const {
    Node n;
    n.data->kind = kind;
    n.data->mark = where;
    return n;
  }

  /// Whether a key and its colon are next on this line.
  bool key_ahead() const {
    std::size_t i = at_;
    const char first = peek();
    while (i < text_.size() && (text_[i] == '&' || text_[i] == '!') && i == at_) {
      while (i < text_.size() && !is_blank(text_[i]) && text_[i] != '\n') ++i;
      while (i < text_.size() && is_blank(text_[i])) ++i;
    }
    if (first == '[' || first == '{' || first == '#') return false;
    const char quote = i < text_.size() ? text_[i] : '\0';
    if (quote == '"' || quote == '\'') {
      for (++i; i < text_.size() && text_[i] != quote && text_[i] != '\n'; ++i)
        if (quote == '"' && text_[i] == '\\') ++i;
      for (++i; i < text_.size() && is_blank(text_[i]); ++i) {
      }
      return i < text_.size() && text_[i] == ':' && ends_word(i + 1 - at_);
    }
    for (; i < text_.size() && text_[i] != '\n'; ++i) {
      if (text_[i] == ':' && ends_word(i + 1 - at_)) return true;
      if (text_[i] == '#' && i > 0 && is_blank(text_[i - 1])) return false;
    }
    return false;
  }

  std::string text_;
  std::size_t at_ = 0, line_begin_ = 0;
  int line_ = 0;
};

}  // namespace YAML
