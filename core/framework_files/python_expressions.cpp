// See python_expressions.hpp.
#include "core/framework_files/python_expressions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace trainhost::framework_files::python {

using Kind = Node::Kind;

namespace {

struct Operator {
  std::string_view text;
  int precedence;
};
constexpr Operator kOperators[] = {{"or", 2}, {"and", 3}, {"in", 5},  {"not", 5}, {"is", 5}, {"<", 5},
                                   {">", 5},  {"==", 5},  {"!=", 5},  {"<=", 5},  {">=", 5}, {"|", 6},
                                   {"^", 7},  {"&", 8},   {"<<", 9},  {">>", 9},  {"+", 10}, {"-", 10},
                                   {"*", 11}, {"/", 11},  {"//", 11}, {"%", 11},  {"@", 11}, {"**", 13}};
constexpr int kComparison = 5, kUnary = 12, kPower = 13, kNot = 4;

}  // namespace

void LineParser::skip_to(std::string_view text) {
  for (int depth = 0; !done(); ++at_) {
    const bool word = tokens_[at_].kind == Token::Kind::kOperator;
    if (depth == 0 && is(text)) return;
    const std::string& t = tokens_[at_].text;
    if (word && (t == "(" || t == "[" || t == "{")) ++depth;
    if (word && (t == ")" || t == "]" || t == "}") && --depth < 0) return;
  }
}

Node LineParser::expressions() {
  Node first = star_expression();
  if (!is(",")) return first;
  Node tuple = at(Kind::kTuple, first);
  tuple.children.push_back(std::move(first));
  while (accept(",")) {
    if (!starts_expression()) break;
    tuple.children.push_back(star_expression());
  }
  return end(std::move(tuple));
}

Node LineParser::expression() {
  const Deeper deeper(*this);
  if (is("lambda")) return lambda();
  Node value = binary(2);
  if (is(":=") && value.kind == Kind::kName) {  // an assignment in an expression: its value
    ++at_;
    return expression();
  }
  if (!accept("if")) return value;
  Node out = at(Kind::kConditional, value);
  out.children.push_back(binary(2));
  out.children.push_back(std::move(value));
  if (accept("else")) {
    out.children.push_back(expression());
    return end(std::move(out));
  }
  // The condition of a comprehension: the caller drops it.
  out.kind = Kind::kOther;
  return end(std::move(out));
}

void LineParser::fail_depth() const {
  throw usage_error(fmt::format("expressions are nested more than {} deep", kMaxHeight), {}, here());
}

Where LineParser::here() const {
  const Token& t = tokens_[std::min(at_, tokens_.size() - 1)];
  return source_.where(t.line, t.column);
}

Node LineParser::at(Kind kind, const Node& first) {
  Node n;
  n.kind = kind, n.begin = first.begin, n.end = first.end, n.line = first.line, n.column = first.column;
  return n;
}

Node LineParser::here(Kind kind) const {
  Node n;
  n.kind = kind;
  const Token& t = tokens_[std::min(at_, tokens_.size() - 1)];
  n.begin = t.begin, n.end = t.end, n.line = t.line, n.column = t.column;
  return n;
}

Node LineParser::end(Node n) const {
  if (at_ > 0) n.end = std::max(n.end, tokens_[at_ - 1].end);
  for (const Node& child : n.children) n.height = std::max(n.height, child.height + 1);
  if (n.height > kMaxHeight) fail_depth();
  return n;
}

bool LineParser::starts_expression() const {
  if (done()) return false;
  const Token& t = tokens_[at_];
  if (t.kind != Token::Kind::kOperator) return t.text != "for" && t.text != "if" && t.text != "in";
  constexpr std::array kStarts{"(", "[", "{", "-", "+", "~", "*", "**", "..."};
  return std::ranges::find(kStarts, t.text) != kStarts.end();
}

Node LineParser::star_expression() {
  for (const auto& [text, kind] : {std::pair{"*", Kind::kStar}, {"**", Kind::kDoubleStar}})
    if (is(text)) {
      Node n = here(kind);
      ++at_;
      n.children.push_back(expression());
      return end(std::move(n));
    }
  return expression();
}

Node LineParser::lambda() {
  Node n = here(Kind::kOther);
  ++at_;
  skip_to(":");
  accept(":");
  if (!done()) n.children.push_back(expression());
  return end(std::move(n));
}

Node LineParser::binary(int least) {
  const Deeper deeper(*this);
  Node left = unary();
  for (;;) {
    if (done() || tokens_[at_].kind == Token::Kind::kString) return left;
    const auto found = std::ranges::find(kOperators, std::string_view(tokens_[at_].text), &Operator::text);
    if (found == std::end(kOperators) || found->precedence < least) return left;
    if (found->text == "not" && !is("in", 1)) return left;
    Node n = at(Kind::kBinary, left);
    n.text = found->text;
    ++at_;
    if (n.text == "not") ++at_, n.text = "not in";
    if (n.text == "is" && accept("not")) n.text = "is not";
    n.children.push_back(std::move(left));
    // ** is right-associative and binds its right operand less than a sign.
    n.children.push_back(found->precedence == kPower ? binary(kUnary) : binary(found->precedence + 1));
    // A chain (a < b < c) is not the comparison of a result.
    if (found->precedence == kComparison && !done()) {
      const auto more = std::ranges::find(kOperators, std::string_view(tokens_[at_].text), &Operator::text);
      if (more != std::end(kOperators) && more->precedence == kComparison) n.kind = Kind::kOther;
    }
    left = end(std::move(n));
  }
}

Node LineParser::unary() {
  const Deeper deeper(*this);
  for (const char* word : {"not", "-", "+", "~", "await", "yield"})
    if (is(word)) {
      Node n = here(Kind::kUnary);
      n.text = word;
      ++at_;
      if (n.text == "yield" || n.text == "await") {
        n.kind = Kind::kOther;
        accept("from");
        if (!starts_expression()) return n;
      }
      n.children.push_back(binary(n.text == "not" ? kNot + 1 : kUnary));
      return end(std::move(n));
    }
  return postfix(atom());
}

Node LineParser::postfix(Node n) {
  for (;;) {
    if (is("(")) {
      Node call = at(Kind::kCall, n);
      call.children.push_back(std::move(n));
      ++at_;
      arguments(call);
      n = end(std::move(call));
    } else if (is("[")) {
      Node subscript = at(Kind::kSubscript, n);
      subscript.children.push_back(std::move(n));
      ++at_;
      subscript.children.push_back(starts_expression() ? expressions() : here(Kind::kOther));
      close(subscript, "]");
      n = end(std::move(subscript));
    } else if (is(".") && at_ + 1 < tokens_.size() && tokens_[at_ + 1].kind == Token::Kind::kName) {
      Node attribute = at(Kind::kAttribute, n);
      attribute.text = tokens_[at_ + 1].text;
      attribute.children.push_back(std::move(n));
      at_ += 2;
      n = end(std::move(attribute));
    } else {
      return n;
    }
  }
}

void LineParser::arguments(Node& call) {
  while (!done() && !is(")")) {
    if (tokens_[at_].kind == Token::Kind::kName && is("=", 1)) {
      Node keyword = here(Kind::kKeyword);
      keyword.text = tokens_[at_].text;
      at_ += 2;
      if (done() || is(")")) break;
      keyword.children.push_back(expression());
      call.children.push_back(end(std::move(keyword)));
    } else if (starts_expression()) {
      Node value = star_expression();
      if (is("for") || is("async")) value.kind = Kind::kOther, skip_to(")");  // a generator
      call.children.push_back(std::move(value));
    } else {
      skip_to(",");  // no Python
    }
    if (!accept(",")) break;
  }
  close(call, ")");
}

void LineParser::close(Node& n, std::string_view bracket) {
  if (is(bracket)) {
    ++at_;
    return;
  }
  if (n.kind != Kind::kCall) n.kind = Kind::kOther;
  skip_to(bracket);
  accept(bracket);
}

Node LineParser::atom() {
  if (done()) return here(Kind::kOther);
  const Token& t = tokens_[at_];
  Node n = here(Kind::kOther);
  if (t.kind == Token::Kind::kNumber) {
    n.kind = Kind::kNumber, n.text = t.text, ++at_;
  } else if (t.kind == Token::Kind::kString) {
    n.kind = Kind::kString;
    for (; !done() && tokens_[at_].kind == Token::Kind::kString; ++at_)  // adjacent ones are one
      n.text += tokens_[at_].text, n.constant = n.constant && tokens_[at_].constant;
  } else if (t.kind == Token::Kind::kName) {
    n.kind = Kind::kName, n.text = t.text, ++at_;
  } else if (t.text == "(" || t.text == "[") {
    n = bracketed(t.text == "(");
  } else if (t.text == "{") {
    n = braces();
  } else {
    ++at_;  // "..." or no Python
  }
  return end(std::move(n));
}

Node LineParser::bracketed(bool round) {
  Node n = here(round ? Kind::kTuple : Kind::kList);
  const std::string_view closing = round ? ")" : "]";
  ++at_;
  bool comma = false;
  while (!done() && !is(closing)) {
    if (!starts_expression()) break;
    n.children.push_back(star_expression());
    if (is("for") || is("async")) {  // a comprehension
      n.kind = Kind::kOther;
      break;
    }
    if (!accept(",")) break;
    comma = true;
  }
  close(n, closing);
  if (round && n.children.size() == 1 && !comma && n.kind == Kind::kTuple) {  // brackets alone
    Node inner = std::move(n.children.front());
    inner.begin = std::min(inner.begin, n.begin);
    return inner;
  }
  return n;
}

Node LineParser::braces() {
  Node n = here(Kind::kDict);
  ++at_;
  while (!done() && !is("}")) {
    if (!starts_expression()) break;
    Node key = star_expression();
    if (key.kind == Kind::kDoubleStar) {
      n.children.push_back(std::move(key));
    } else if (accept(":")) {
      n.children.push_back(std::move(key));
      n.children.push_back(starts_expression() ? expression() : here(Kind::kOther));
    } else {
      n.kind = Kind::kOther;  // a set
      n.children.push_back(std::move(key));
    }
    if (is("for") || is("async")) {
      n.kind = Kind::kOther;
      break;
    }
    if (!accept(",")) break;
  }
  close(n, "}");
  return n;
}

}  // namespace trainhost::framework_files::python
