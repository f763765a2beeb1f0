// A script in Python as statements, scopes and expressions, as far as its constants and calls are needed:
// python_values.hpp computes values, python_job.hpp finds the calls that describe a training job.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/framework_files/python_tokens.hpp"

namespace trainhost::framework_files::python {

/// An expression. `children` per kind:
/// kAttribute: the object; kSubscript: the object, the index; kCall: the callee, then arguments;
/// kKeyword: the value; kStar, kDoubleStar: the operand; kUnary: the operand; kBinary: left, right;
/// kConditional: the condition, the value if it holds, the other one; kTuple, kList: the elements;
/// kDict: keys and values in turn, or one kDoubleStar; kOther (lambda, comprehension): its parts.
struct Node {
  enum class Kind {
    kNumber,
    kString,
    kName,
    kAttribute,
    kSubscript,
    kCall,
    kKeyword,
    kStar,
    kDoubleStar,
    kUnary,
    kBinary,
    kConditional,
    kTuple,
    kList,
    kDict,
    kOther
  };
  Kind kind = Kind::kOther;
  std::string text;      // number, characters, name, attribute, keyword or operator
  bool constant = true;  // kString: false for an f-string with values in it
  std::vector<Node> children;
  std::size_t begin = 0, end = 0;  // bytes of the source
  std::uint32_t line = 0, column = 1;
  std::uint32_t height = 1;  // nodes on the longest path down, at most kMaxHeight
};
/// Bounds the recursion over expressions. A sum of as many terms is as high.
inline constexpr std::uint32_t kMaxHeight = 400;

struct Test;

/// A condition under which a statement runs.
struct Guard {
  enum class When { kTrue, kFalse, kNever };  // kNever: a handler of exceptions
  const Test* test = nullptr;                 // null: kNever
  When when = When::kTrue;
  bool operator==(const Guard&) const = default;
};

/// An expression and its place: before this statement, in this scope, under these conditions.
struct Place {
  std::size_t scope = 0, statement = 0;
  std::vector<Guard> guards = {};
};

struct Test {
  Node node;
  Place place;
};

struct Statement {
  enum class Kind { kExpression, kAssignment, kReturn };
  Kind kind = Kind::kExpression;
  std::vector<Node> targets;  // a = b = value; a loop and `with` assign a value that is not known
  Node value;
  std::string operation;  // "+" of +=
  bool known = true;      // false: of a loop or `with`
  std::size_t scope = 0;
  std::vector<Guard> guards;
  std::uint32_t line = 0;
};

/// The module, a function or a class.
struct Scope {
  enum class Kind { kModule, kFunction, kClass };
  struct Parameter {
    std::string name;
    Node value;  // its default
    bool has_default = false;
  };
  Kind kind = Kind::kModule;
  std::string name;
  std::size_t parent = 0;
  std::size_t statement = 0;  // number of statements before it
  std::vector<Parameter> parameters;
};

struct Program {
  Source source;
  std::deque<Statement> statements;  // in the order of the text; addresses of nodes stay valid
  std::deque<Test> tests;            // of guards
  std::deque<Scope> scopes;          // the first is the module
  /// The text of a node in one line, at most `max` bytes.
  std::string text_of(const Node& n, std::size_t max = 60) const;
  Where where(const Node& n) const { return source.where(n.line, n.column); }
};

/// Throws usage_error as tokenize() does, and for expressions that are nested deeper than any script needs.
/// Statements that are no Python are skipped.
Program parse(Source source);

/// "torch.cuda.empty_cache" of names and attributes; "" for any other expression.
std::string dotted_name(const Node& n);

/// The last part of the callee's name: "from_pretrained"; "" for other nodes.
std::string callee(const Node& call);

}  // namespace trainhost::framework_files::python
