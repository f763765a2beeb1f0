// See python_program.hpp. A parser by precedence for expressions, and one by indentation for statements.
#include "core/framework_files/python_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "core/base/text.hpp"

namespace trainhost::framework_files::python {
namespace {

using Kind = Node::Kind;

// Bounds the recursion of the parser, which has several functions per level.
constexpr int kMaxParserDepth = 600;

struct Operator {
  std::string_view text;
  int precedence;
};
constexpr Operator kOperators[] = {{"or", 2}, {"and", 3}, {"in", 5},  {"not", 5}, {"is", 5}, {"<", 5},
                                   {">", 5},  {"==", 5},  {"!=", 5},  {"<=", 5},  {">=", 5}, {"|", 6},
                                   {"^", 7},  {"&", 8},   {"<<", 9},  {">>", 9},  {"+", 10}, {"-", 10},
                                   {"*", 11}, {"/", 11},  {"//", 11}, {"%", 11},  {"@", 11}, {"**", 13}};
constexpr int kComparison = 5, kUnary = 12, kPower = 13, kNot = 4;

/// One logical line.
class LineParser {
 public:
  LineParser(const Source& source, const std::vector<Token>& tokens, std::size_t at)
      : source_(source), tokens_(tokens), at_(at) {}

  bool done() const { return at_ >= tokens_.size(); }
  std::size_t position() const { return at_; }
  const Token* peek() const { return done() ? nullptr : &tokens_[at_]; }
  bool is(std::string_view text, std::size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() && tokens_[at_ + ahead].kind != Token::Kind::kString &&
           tokens_[at_ + ahead].text == text;
  }
  bool accept(std::string_view text) { return is(text) && (++at_, true); }
  std::string name() { return !done() && tokens_[at_].kind == Token::Kind::kName ? tokens_[at_++].text : ""; }
  void skip_to(std::string_view text) {
    for (int depth = 0; !done(); ++at_) {
      const bool word = tokens_[at_].kind == Token::Kind::kOperator;
      if (depth == 0 && is(text)) return;
      const std::string& t = tokens_[at_].text;
      if (word && (t == "(" || t == "[" || t == "{")) ++depth;
      if (word && (t == ")" || t == "]" || t == "}") && --depth < 0) return;
    }
  }

  /// "a, b": a tuple if there is a comma.
  Node expressions() {
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

  Node expression() {
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

 private:
  struct Deeper {
    explicit Deeper(LineParser& p) : parser(p) {
      if (++parser.depth_ > kMaxParserDepth) parser.fail_depth();
    }
    ~Deeper() { --parser.depth_; }
    LineParser& parser;
  };

  [[noreturn]] void fail_depth() const {
    throw usage_error(fmt::format("expressions are nested more than {} deep", kMaxHeight), {}, here());
  }
  Where here() const {
    const Token& t = tokens_[std::min(at_, tokens_.size() - 1)];
    return source_.where(t.line, t.column);
  }
  static Node at(Kind kind, const Node& first) {
    Node n;
    n.kind = kind, n.begin = first.begin, n.end = first.end, n.line = first.line, n.column = first.column;
    return n;
  }
  Node here(Kind kind) const {
    Node n;
    n.kind = kind;
    const Token& t = tokens_[std::min(at_, tokens_.size() - 1)];
    n.begin = t.begin, n.end = t.end, n.line = t.line, n.column = t.column;
    return n;
  }
  Node end(Node n) const {
    if (at_ > 0) n.end = std::max(n.end, tokens_[at_ - 1].end);
    for (const Node& child : n.children) n.height = std::max(n.height, child.height + 1);
    if (n.height > kMaxHeight) fail_depth();
    return n;
  }

  bool starts_expression() const {
    if (done()) return false;
    const Token& t = tokens_[at_];
    if (t.kind != Token::Kind::kOperator) return t.text != "for" && t.text != "if" && t.text != "in";
    constexpr std::array kStarts{"(", "[", "{", "-", "+", "~", "*", "**", "..."};
    return std::ranges::find(kStarts, t.text) != kStarts.end();
  }

  Node star_expression() {
    for (const auto& [text, kind] : {std::pair{"*", Kind::kStar}, {"**", Kind::kDoubleStar}})
      if (is(text)) {
        Node n = here(kind);
        ++at_;
        n.children.push_back(expression());
        return end(std::move(n));
      }
    return expression();
  }

  Node lambda() {
    Node n = here(Kind::kOther);
    ++at_;
    skip_to(":");
    accept(":");
    if (!done()) n.children.push_back(expression());
    return end(std::move(n));
  }

  Node binary(int least) {
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

  Node unary() {
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

  Node postfix(Node n) {
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

  void arguments(Node& call) {
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

  /// Skips what the parser does not know up to the closing bracket; the tokenizer ensured that there is one.
  void close(Node& n, std::string_view bracket) {
    if (is(bracket)) {
      ++at_;
      return;
    }
    if (n.kind != Kind::kCall) n.kind = Kind::kOther;
    skip_to(bracket);
    accept(bracket);
  }

  Node atom() {
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

  Node bracketed(bool round) {
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

  Node braces() {
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

  const Source& source_;
  const std::vector<Token>& tokens_;
  std::size_t at_;
  int depth_ = 0;
};

class Parser {
 public:
  explicit Parser(Program& program) : program_(program) { program_.scopes.emplace_back(); }

  void run() {
    for (const Line& line : tokenize(program_.source)) read(line);
  }

 private:
  struct Block {
    std::uint32_t indent;  // of its header
    std::size_t scope;
    std::vector<Guard> guards;
    std::vector<const Test*> tests;  // of `if` and `elif` before it
    bool branch;
  };

  void read(const Line& line) {
    const std::vector<Token>& tokens = line.tokens;
    // Lines of a one-line block ("if x: a; b") have its indentation; the header alone opened one.
    while (!blocks_.empty() && line.indent <= blocks_.back().indent) {
      if (one_line_ == tokens.front().line + 1 && blocks_.back().indent == line.indent) break;
      closed_[blocks_.back().indent] = blocks_.back().tests;
      blocks_.pop_back();
    }
    LineParser p(program_.source, tokens, 0);
    const std::string first = tokens.front().kind == Token::Kind::kName ? tokens.front().text : "";
    if (first == "async") p.accept("async");
    if (p.is("@")) return;  // a decorator
    if (header(p, line, first == "async" && tokens.size() > 1 ? tokens[1].text : first)) return;
    simple(p, line);
  }

  std::size_t scope() const { return blocks_.empty() ? 0 : blocks_.back().scope; }
  std::vector<Guard> guards() const { return blocks_.empty() ? std::vector<Guard>{} : blocks_.back().guards; }

  Statement statement(const Line& line) const {
    Statement s;
    s.scope = scope(), s.guards = guards(), s.line = line.tokens.front().line;
    return s;
  }

  /// Reads the header of a compound statement, and what follows it in its line. False for any other line.
  bool header(LineParser& p, const Line& line, const std::string& word) {
    Block b{line.indent, scope(), guards(), {}, false};
    if (word == "if" || word == "elif" || word == "while") {
      p.accept(word);
      program_.tests.push_back({p.expression(), {scope(), program_.statements.size(), guards()}});
      const Test* test = &program_.tests.back();
      if (word == "elif") add_else(b, line.indent);
      b.guards.push_back({test, Guard::When::kTrue});
      if (word != "while") b.tests.push_back(test);
    } else if (word == "else" && p.is(":", 1)) {
      p.accept(word);
      add_else(b, line.indent);
      b.tests.clear();
    } else if (word == "try" || word == "finally") {
      if (!p.is(":", 1)) return false;
      p.accept(word);
    } else if (word == "except") {
      p.skip_to(":");
      b.guards.push_back({nullptr, Guard::When::kNever});
    } else if (word == "for") {
      p.accept(word);
      Statement s = statement(line);
      s.kind = Statement::Kind::kAssignment, s.known = false;
      s.targets.push_back(loop_target(p));
      if (p.accept("in")) s.value = p.expressions();
      program_.statements.push_back(std::move(s));
    } else if (word == "with") {
      p.accept(word);
      p.accept("(");
      do {
        Statement s = statement(line);
        s.value = p.expression();
        if (p.accept("as")) {
          s.kind = Statement::Kind::kAssignment, s.known = false;
          s.targets.push_back(p.expression());
        }
        program_.statements.push_back(std::move(s));
      } while (p.accept(",") && !p.is(")"));
    } else if (word == "def") {
      p.accept(word);
      Scope s;
      s.kind = Scope::Kind::kFunction, s.name = p.name(), s.parent = scope(),
      s.statement = program_.statements.size();
      if (p.accept("(")) parameters(p, s);
      program_.scopes.push_back(std::move(s));
      b.scope = program_.scopes.size() - 1, b.guards.clear();
    } else if (word == "class") {
      p.accept(word);
      Scope s;
      s.kind = Scope::Kind::kClass, s.name = p.name(), s.parent = scope(),
      s.statement = program_.statements.size();
      program_.scopes.push_back(std::move(s));
      b.scope = program_.scopes.size() - 1, b.guards.clear();
    } else {
      return false;
    }
    p.skip_to(":");
    if (!p.accept(":")) return true;  // no Python: lines below it are read as they are
    blocks_.push_back(std::move(b));
    if (!p.done()) {
      one_line_ = line.tokens.front().line + 1;
      simple(p, line);
    } else {
      one_line_ = 0;
    }
    return true;
  }

  /// The tests of the branches before `else` or `elif` do not hold. `else` of a loop has none.
  void add_else(Block& b, std::uint32_t indent) {
    const auto before = closed_.find(indent);
    if (before == closed_.end()) return;
    for (const Test* test : before->second) b.guards.push_back({test, Guard::When::kFalse});
    b.tests = before->second;
  }

  static Node loop_target(LineParser& p) {
    // "for a, b in x": `in` is an operator of expressions.
    Node tuple;
    tuple.kind = Kind::kTuple;
    for (std::string name; !(name = p.name()).empty() && name != "in";) {
      Node n;
      n.kind = Kind::kName, n.text = name;
      tuple.children.push_back(std::move(n));
      if (!p.accept(",")) break;
    }
    if (!p.is("in")) p.skip_to("in");
    return tuple;
  }

  static void parameters(LineParser& p, Scope& s) {
    while (!p.done() && !p.is(")")) {
      const bool rest = p.accept("*") || p.accept("**");
      Scope::Parameter parameter;
      parameter.name = p.name();
      if (p.accept(":")) p.expression();
      if (p.accept("=")) parameter.value = p.expression(), parameter.has_default = true;
      if (!parameter.name.empty() && !rest) s.parameters.push_back(std::move(parameter));
      if (!p.accept(",") && !p.accept("/")) break;
    }
    p.skip_to(")");
    p.accept(")");
  }

  void simple(LineParser& p, const Line& line) {
    constexpr std::array kSkipped{"import",   "from", "pass",  "break",  "continue", "global",
                                  "nonlocal", "del",  "raise", "assert", "print"};
    const Token* first = p.peek();
    if (!first) return;
    if (first->kind == Token::Kind::kName && std::ranges::find(kSkipped, first->text) != kSkipped.end() &&
        !p.is("(", 1))
      return;
    Statement s = statement(line);
    if (p.accept("return")) {
      s.kind = Statement::Kind::kReturn;
      if (!p.done()) s.value = p.expressions();
      program_.statements.push_back(std::move(s));
      return;
    }
    Node value = p.expressions();
    if (p.accept(":")) {  // an annotation
      p.expression();
      if (!p.is("=")) return;
    }
    constexpr std::array kAugmented{
        "+=", "-=", "*=", "/=", "//=", "%=", "**=", "|=", "&=", "^=", ">>=", "<<=", "@="};
    const auto augmented = std::ranges::find_if(kAugmented, [&](const char* o) { return p.is(o); });
    if (augmented != kAugmented.end()) {
      p.accept(*augmented);
      s.kind = Statement::Kind::kAssignment;
      s.operation = std::string(*augmented).substr(0, std::string_view(*augmented).size() - 1);
      s.targets.push_back(std::move(value));
      s.value = p.expressions();
    } else if (p.is("=")) {
      s.kind = Statement::Kind::kAssignment;
      while (p.accept("=")) {
        s.targets.push_back(std::move(value));
        value = p.expressions();
      }
      s.value = std::move(value);
    } else {
      s.value = std::move(value);
    }
    program_.statements.push_back(std::move(s));
  }

  Program& program_;
  std::vector<Block> blocks_;
  std::map<std::uint32_t, std::vector<const Test*>>
      closed_;                  // tests of the last closed block, by indentation
  std::uint32_t one_line_ = 0;  // line + 1 of a header whose block is in its own line
};

}  // namespace

Program parse(Source source) {
  Program program;
  program.source = std::move(source);
  Parser(program).run();
  return program;
}

std::string Program::text_of(const Node& n, std::size_t max) const {
  std::string out;
  for (std::size_t i = n.begin; i < n.end && i < source.text.size() && out.size() <= max; ++i) {
    const char c = source.text[i];
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!space)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  if (out.size() <= max) return escaped(out, max);
  out.resize(max - 3);
  return escaped(out, max) + "...";
}

std::string dotted_name(const Node& n) {
  if (n.kind == Kind::kName) return n.text;
  if (n.kind != Kind::kAttribute) return "";
  const std::string before = dotted_name(n.children.front());
  return before.empty() ? "" : before + "." + n.text;
}

std::string callee(const Node& call) {
  if (call.kind != Kind::kCall) return "";
  const Node& f = call.children.front();
  return f.kind == Kind::kName || f.kind == Kind::kAttribute ? f.text : "";
}

}  // namespace trainhost::framework_files::python
