// Expressions of one logical line of Python, by precedence of their operators.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/framework_files/python_program.hpp"

namespace trainhost::framework_files::python {

/// Reads words from the front; what is no Python is skipped up to the next comma or bracket. Throws
/// usage_error for expressions higher than kMaxHeight.
class LineParser {
 public:
  LineParser(const Source& source, const std::vector<Token>& tokens, std::size_t at)
      : source_(source), tokens_(tokens), at_(at) {}

  bool done() const { return at_ >= tokens_.size(); }
  const Token* peek() const { return done() ? nullptr : &tokens_[at_]; }
  bool is(std::string_view text, std::size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() && tokens_[at_ + ahead].kind != Token::Kind::kString &&
           tokens_[at_ + ahead].text == text;
  }
  bool accept(std::string_view text) { return is(text) && (++at_, true); }
  std::string name() { return !done() && tokens_[at_].kind == Token::Kind::kName ? tokens_[at_++].text : ""; }
  /// Skips to this word outside of brackets, or to the bracket that closes those around.
  void skip_to(std::string_view text);
  /// "a, b": a tuple if there is a comma.
  Node expressions();
  /// One operand of such a list.
  Node expression();

 private:
  // Bounds the recursion, which has several functions per level.
  static constexpr int kMaxParserDepth = 600;
  struct Deeper {
    explicit Deeper(LineParser& p) : parser(p) {
      if (++parser.depth_ > kMaxParserDepth) parser.fail_depth();
    }
    ~Deeper() { --parser.depth_; }
    LineParser& parser;
  };
  [[noreturn]] void fail_depth() const;
  Where here() const;
  static Node at(Node::Kind kind, const Node& first);
  Node here(Node::Kind kind) const;
  Node end(Node n) const;
  bool starts_expression() const;
  Node star_expression();
  Node lambda();
  Node binary(int least);
  Node unary();
  Node postfix(Node n);
  void arguments(Node& call);
  /// Skips what the parser does not know up to the closing bracket; the tokenizer ensured that there is one.
  void close(Node& n, std::string_view bracket);
  Node atom();
  Node bracketed(bool round);
  Node braces();

  const Source& source_;
  const std::vector<Token>& tokens_;
  std::size_t at_;
  int depth_ = 0;
};

}  // namespace trainhost::framework_files::python
