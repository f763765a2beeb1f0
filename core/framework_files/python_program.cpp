// See python_program.hpp. Statements by indentation; expressions: python_expressions.hpp.
#include "core/framework_files/python_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "core/base/text.hpp"
#include "core/framework_files/python_expressions.hpp"

namespace trainhost::framework_files::python {
namespace {

using Kind = Node::Kind;

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
    enum class Kind : std::uint8_t { kOther, kLoop, kMatch } kind;
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
    Block b{line.indent, scope(), guards(), {}, Block::Kind::kOther};
    if (word == "if" || word == "elif" || word == "while") {
      p.accept(word);
      program_.tests.push_back({p.expression(), {scope(), program_.statements.size(), guards()}});
      const Test* test = &program_.tests.back();
      if (word == "elif") add_else(b, line.indent);
      b.guards.push_back({test, Guard::When::kTrue});
      if (word != "while") b.tests.push_back(test);
      if (word == "while") b.kind = Block::Kind::kLoop;
    } else if (word == "match" && line.tokens.back().text == ":") {
      p.accept(word);
      b.kind = Block::Kind::kMatch;
    } else if (word == "case" && !blocks_.empty() && blocks_.back().kind == Block::Kind::kMatch) {
      // Which case holds is not computed: a name without a value is a test that is not known.
      Node unknown;
      unknown.kind = Kind::kName, unknown.text = word;
      program_.tests.push_back({unknown, {scope(), program_.statements.size(), guards()}});
      b.guards.push_back({&program_.tests.back(), Guard::When::kTrue});
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
      b.kind = Block::Kind::kLoop;
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
      // How often a loop runs is not computed.
      if (std::ranges::any_of(
              blocks_, [&](const Block& b) { return b.kind == Block::Kind::kLoop && b.scope == scope(); }))
        s.known = false;
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
