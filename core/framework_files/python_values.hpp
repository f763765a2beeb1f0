// Values of expressions of a script, without running it: constants, what was assigned to a name, parameters
// of functions that are called once, and defaults of options of the command line, which are reported as
// assumed.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/framework_files/python_program.hpp"
#include "core/runfile/value.hpp"

namespace trainhost::framework_files::python {

/// A value that was not written where it is used: "--lr" and its default.
struct Assumption {
  std::string name, value;
  Where where;
  std::string note;  // "default of the option"
  bool operator==(const Assumption& other) const { return name == other.name; }
};

struct PyMember;
struct PyValue {
  bool known = false;
  runfile::Value value;  // kTable: a dict, whose members are below
  std::vector<PyMember> members;
  std::string why = {};        // it is not known: "assigned in lines 3 and 9"
  const Node* call = nullptr;  // it is the result of this call
  Place place = {};            // of that call
  bool by_device = false;      // whether the GPU has bf16
  std::vector<Assumption> assumed = {};
};

/// A key of a dict and its value.
struct PyMember {
  std::string name;
  PyValue value;
};

/// An expression and its place; null where it is not known, for the reason `why`.
struct Found {
  const Node* node = nullptr;
  const Statement* changed = nullptr;  // x += 1: the value follows from the one before
  Place place = {};
  std::string why = {};
  std::vector<Assumption> assumed = {};
};

/// Bounds of evaluation: its recursion, and its steps in one script. Names that double each other need more.
inline constexpr int kMaxValueDepth = 150, kMaxSteps = 200'000;

class Evaluator {
 public:
  explicit Evaluator(const Program& program);

  PyValue value(const Node& n, const Place& at) const { return value(n, at, 0); }
  /// Follows names, elements of tuples, parameters and functions that only return a value to the expression
  /// that makes it.
  Found origin(const Node& n, const Place& at) const { return origin(n, at, 0); }
  /// The call that makes the object; null for anything else.
  Found call_behind(const Node& n, const Place& at) const;
  /// Whether the statement runs: kNo in a branch whose condition does not hold.
  enum class Runs { kYes, kNo, kUnknown };
  Runs runs(const std::vector<Guard>& guards) const;
  Place place_of(const Statement& s) const;
  /// From here on, assumptions that decide which branches run are kept.
  void record_branches() { records_ = true; }
  const std::map<std::string, Assumption>& branch_assumptions() const { return branch_assumptions_; }
  const Program& program() const { return program_; }
  /// The text of an expression that is not known, as a value: kOther, in backquotes, with the reason.
  runfile::Value unknown(const Node& n, const std::string& why) const;

 private:
  struct Option {
    const Node* call;
    Place place;
    std::string name;  // "--lr"
  };

  PyValue value(const Node& n, const Place& at, int depth) const;
  PyValue value_of_call(const Node& n, const Place& at, int depth) const;
  PyValue attribute(const Node& n, const Place& at, int depth) const;
  PyValue subscript(const Node& n, const Place& at, int depth) const;
  void apply_changes(PyValue& v, const std::string& name, const Place& from, const Place& to,
                     int depth) const;
  PyValue binary(const Node& n, const Place& at, int depth) const;
  PyValue sequence(const Node& n, const Place& at, int depth) const;
  PyValue dictionary(const Node& n, const Place& at, int depth) const;
  PyValue default_of_option(const Option& option, int depth) const;
  PyValue field(const std::string& name, std::size_t scope, int depth) const;
  Found origin(const Node& n, const Place& at, int depth) const;
  Found name(const std::string& text, const Place& at, int depth) const;
  Found parameter(std::size_t scope, const std::string& text, int depth) const;
  Found element(const Node& value, std::size_t index, const Place& at, int depth) const;
  /// What a function of the script returns: the whole, or one element of it.
  Found returned(const Node& call, std::size_t index, bool whole, int depth) const;
  const Scope* script_function(const Node& call) const;
  Runs runs(const std::vector<Guard>& guards, const std::vector<Guard>& holding, int depth) const;
  std::string line_of(const Statement& s) const;

  const Program& program_;
  std::map<std::string, Option> options_;                            // by the name of the attribute
  std::multimap<std::string, std::pair<const Node*, Place>> calls_;  // of functions of the script
  std::map<std::string, std::vector<std::size_t>> assignments_;      // statements per name
  mutable std::map<std::string, Assumption> branch_assumptions_;
  mutable std::map<const Test*, PyValue> tests_;  // of guards
  bool records_ = false;
  mutable int steps_ = 0;
};

/// Keyword argument, or the positional one with that index; null if the call has neither.
const Node* argument(const Node& call, const char* keyword, std::size_t position = ~std::size_t{0});

/// Calls visit(node) for a node and every one below it, parents first.
template <class Visit>
void each_node(const Node& n, const Visit& visit) {
  visit(n);
  for (const Node& child : n.children) each_node(child, visit);
}

}  // namespace trainhost::framework_files::python
