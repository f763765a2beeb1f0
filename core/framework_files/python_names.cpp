// See python_values.hpp: which assignment, parameter or function an expression leads to, and which branches
// run.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/framework_files/python_arithmetic.hpp"
#include "core/framework_files/python_values.hpp"

namespace trainhost::framework_files::python {

using Kind = Node::Kind;

namespace {

/// The index of a name among the targets of an assignment: -1 for the whole value; nullopt if it is none of
/// them.
std::optional<std::ptrdiff_t> position_in(const Node& target, const std::string& name) {
  if (target.kind == Kind::kName)
    return target.text == name ? std::optional<std::ptrdiff_t>(-1) : std::nullopt;
  if (target.kind != Kind::kTuple && target.kind != Kind::kList) return std::nullopt;
  for (std::size_t i = 0; i < target.children.size(); ++i)
    if (target.children[i].kind == Kind::kName && target.children[i].text == name)
      return static_cast<std::ptrdiff_t>(i);
  return std::nullopt;
}

void each_target(const Node& target, const auto& visit) {
  if (target.kind == Kind::kName) visit(target.text);
  if (target.kind == Kind::kTuple || target.kind == Kind::kList)
    for (const Node& child : target.children)
      if (child.kind == Kind::kName) visit(child.text);
}

}  // namespace

const Node* argument(const Node& call, const char* keyword, std::size_t position) {
  for (const Node& c : call.children)
    if (&c != &call.children.front() && c.kind == Kind::kKeyword && c.text == keyword)
      return &c.children.front();
  std::size_t n = 0;
  for (std::size_t i = 1; i < call.children.size(); ++i) {
    const Node& c = call.children[i];
    if (c.kind == Kind::kStar) return nullptr;  // the places behind it are not known
    if (c.kind == Kind::kKeyword || c.kind == Kind::kDoubleStar) continue;
    if (n++ == position) return &c;
  }
  return nullptr;
}

Evaluator::Evaluator(const Program& program) : program_(program) {
  for (std::size_t i = 0; i < program.statements.size(); ++i) {
    const Statement& s = program.statements[i];
    for (const Node& target : s.targets)
      each_target(target, [&](const std::string& name) {
        std::vector<std::size_t>& all = assignments_[name];
        if (all.empty() || all.back() != i) all.push_back(i);
      });
    each_node(s.value, [&](const Node& n) {
      if (n.kind != Kind::kCall) return;
      if (n.children.front().kind == Kind::kName)
        calls_.emplace(n.children.front().text, std::pair{&n, place_of(s)});
      if (callee(n) != "add_argument") return;
      std::string name;
      for (std::size_t k = 1; k < n.children.size(); ++k)
        if (n.children[k].kind == Kind::kString && (name.empty() || n.children[k].text.starts_with("--")))
          name = n.children[k].text;
      std::string attribute = name.substr(std::min(name.find_first_not_of('-'), name.size()));
      std::replace(attribute.begin(), attribute.end(), '-', '_');
      if (const Node* own = argument(n, "dest"); own && own->kind == Kind::kString) attribute = own->text;
      if (!attribute.empty()) options_.try_emplace(attribute, Option{&n, place_of(s), name});
    });
  }
}

Place Evaluator::place_of(const Statement& s) const {
  // Statements are in one deque, whose elements are not adjacent: the index follows from the line.
  const auto at = std::ranges::lower_bound(program_.statements, s.line, {}, &Statement::line);
  std::size_t i = static_cast<std::size_t>(at - program_.statements.begin());
  while (i + 1 < program_.statements.size() && &program_.statements[i] != &s) ++i;
  return {s.scope, i, s.guards};
}

std::string Evaluator::line_of(const Statement& s) const {
  const Where w = program_.source.where(s.line, 1);
  const std::size_t cell = program_.source.notebook ? w.file.rfind(':') : std::string::npos;
  return cell == std::string::npos ? fmt::format("line {}", w.line)
                                   : fmt::format("{} line {}", w.file.substr(cell + 1), w.line);
}

Evaluator::Runs Evaluator::runs(const std::vector<Guard>& guards) const { return runs(guards, {}, 0); }

Evaluator::Runs Evaluator::runs(const std::vector<Guard>& guards, const std::vector<Guard>& holding,
                                int depth) const {
  Runs out = Runs::kYes;
  for (const Guard& g : guards) {
    if (std::ranges::find(holding, g) != holding.end()) continue;
    if (!g.test) return Runs::kNo;
    const auto cached = tests_.find(g.test);
    PyValue v = cached != tests_.end() ? cached->second : value(g.test->node, g.test->place, depth + 1);
    if (cached == tests_.end() && depth < kMaxValueDepth / 2) tests_[g.test] = v;
    if (records_)
      for (const Assumption& a : v.assumed) branch_assumptions_.try_emplace(a.name, a);
    if (!v.known) {
      out = Runs::kUnknown;
    } else if (holds(v) != (g.when == Guard::When::kTrue)) {
      return Runs::kNo;
    }
  }
  return out;
}

Found Evaluator::name(const std::string& text, const Place& at, int depth) const {
  const auto all = assignments_.find(text);
  for (std::size_t scope = at.scope;; scope = program_.scopes[scope].parent) {
    const Scope& s = program_.scopes[scope];
    const bool own = scope == at.scope;
    if (all != assignments_.end() && (own || s.kind != Scope::Kind::kClass)) {
      std::vector<const Statement*> active;
      for (auto i = all->second.rbegin(); i != all->second.rend(); ++i) {
        const Statement& statement = program_.statements[*i];
        if (statement.scope != scope || (own && *i >= at.statement)) continue;
        const Runs r = runs(statement.guards, own ? at.guards : std::vector<Guard>{}, depth + 1);
        if (r == Runs::kNo) continue;
        if (r == Runs::kUnknown)
          return {
              nullptr, nullptr, {}, fmt::format("{} assigns it under a condition", line_of(statement)), {}};
        active.push_back(&statement);
        if (own) break;  // the last one before the place
      }
      // A function reads the value at the time of the call.
      if (active.size() > 1)
        return {nullptr,
                nullptr,
                {},
                fmt::format("assigned in {} and {}", line_of(*active[1]), line_of(*active[0])),
                {}};
      if (!active.empty()) {
        const Statement& statement = *active.front();
        if (!statement.known)
          return {
              nullptr, nullptr, {}, fmt::format("{} assigns it in a loop or `with`", line_of(statement)), {}};
        const Place place = place_of(statement);
        if (!statement.operation.empty())
          return {nullptr, &statement, place, fmt::format("{} changes it", line_of(statement)), {}};
        for (const Node& target : statement.targets)
          if (const auto index = position_in(target, text))
            return *index < 0 ? Found{&statement.value, nullptr, place, {}, {}}
                              : element(statement.value, static_cast<std::size_t>(*index), place, depth + 1);
      }
    }
    if (s.kind == Scope::Kind::kFunction &&
        std::ranges::find(s.parameters, text, &Scope::Parameter::name) != s.parameters.end())
      return parameter(scope, text, depth + 1);
    if (scope == 0) return {};
  }
}

Found Evaluator::parameter(std::size_t scope, const std::string& text, int depth) const {
  const Scope& s = program_.scopes[scope];
  const auto p = std::ranges::find(s.parameters, text, &Scope::Parameter::name);
  const auto index = static_cast<std::size_t>(p - s.parameters.begin());
  std::vector<const std::pair<const Node*, Place>*> active;
  const auto [first, last] = calls_.equal_range(s.name);
  for (auto c = first; c != last; ++c)
    if (runs(c->second.second.guards, {}, depth + 1) != Runs::kNo) active.push_back(&c->second);
  if (active.size() > 1)
    return {
        nullptr, nullptr, {}, fmt::format("a parameter of {}(), which is called several times", s.name), {}};
  if (active.size() == 1) {
    const Node& call = *active.front()->first;
    if (const Node* given = argument(call, text.c_str(), index))
      return {given, nullptr, active.front()->second, {}, {}};
    const bool spread = std::ranges::any_of(
        call.children, [](const Node& n) { return n.kind == Kind::kDoubleStar || n.kind == Kind::kStar; });
    if (spread) return {nullptr, nullptr, {}, fmt::format("a parameter of {}()", s.name), {}};
  }
  if (!p->has_default) return {nullptr, nullptr, {}, fmt::format("a parameter of {}()", s.name), {}};
  Found out{&p->value, nullptr, {s.parent, s.statement, {}}, {}, {}};
  out.assumed.push_back({text, program_.text_of(p->value), program_.where(p->value),
                         fmt::format("the default of a parameter of {}()", s.name)});
  return out;
}

const Scope* Evaluator::script_function(const Node& call) const {
  if (call.kind != Kind::kCall || call.children.front().kind != Kind::kName) return nullptr;
  const Scope* out = nullptr;
  for (const Scope& s : program_.scopes)
    if (s.kind == Scope::Kind::kFunction && s.name == call.children.front().text) out = &s;
  return out;
}

Found Evaluator::returned(const Node& call, std::size_t index, bool whole, int depth) const {
  const Scope* function = script_function(call);
  if (!function || depth > kMaxValueDepth) return {};
  const Statement* found = nullptr;
  for (const Statement& s : program_.statements) {
    if (s.kind != Statement::Kind::kReturn || &program_.scopes[s.scope] != function) continue;
    const Runs r = runs(s.guards, {}, depth + 1);
    if (r == Runs::kNo) continue;
    if (found || r == Runs::kUnknown)
      return {nullptr, nullptr, {}, fmt::format("{}() returns different values", function->name), {}};
    found = &s;
  }
  if (!found) return {};
  return whole ? Found{&found->value, nullptr, place_of(*found), {}, {}}
               : element(found->value, index, place_of(*found), depth + 1);
}

Found Evaluator::element(const Node& n, std::size_t index, const Place& at, int depth) const {
  if (depth > kMaxValueDepth || ++steps_ > kMaxSteps) return {};
  if (n.kind == Kind::kTuple || n.kind == Kind::kList) {
    const bool stars = std::ranges::any_of(n.children, [](const Node& c) { return c.kind == Kind::kStar; });
    if (stars || index >= n.children.size()) return {};
    return {&n.children[index], nullptr, at, {}, {}};
  }
  if (n.kind == Kind::kCall) {
    Found inner = returned(n, index, false, depth + 1);
    if (inner.node || !inner.why.empty()) return inner;
    // "model, tokenizer = f()": the first one is what f makes.
    return index == 0 ? Found{&n, nullptr, at, {}, {}} : Found{};
  }
  if (n.kind != Kind::kName) return {};
  const Found whole = name(n.text, at, depth + 1);
  return whole.node ? element(*whole.node, index, whole.place, depth + 1) : whole;
}

Found Evaluator::origin(const Node& n, const Place& at, int depth) const {
  if (depth > kMaxValueDepth || ++steps_ > kMaxSteps) return {};
  const auto follow = [&](Found f) {
    if (!f.node) return f;
    Found out = origin(*f.node, f.place, depth + 1);
    out.assumed.insert(out.assumed.end(), f.assumed.begin(), f.assumed.end());
    return out;
  };
  if (n.kind == Kind::kName) {
    Found f = name(n.text, at, depth + 1);
    if (!f.node && !f.changed && f.why.empty())
      return {&n, nullptr, at, {}, {}};  // of another module, or a function
    return follow(std::move(f));
  }
  if (n.kind == Kind::kConditional) {
    const PyValue test = value(n.children[0], at, depth + 1);
    if (!test.known) return {nullptr, nullptr, {}, "it depends on a condition", {}};
    Found out = origin(n.children[holds(test) ? 1 : 2], at, depth + 1);
    out.assumed.insert(out.assumed.end(), test.assumed.begin(), test.assumed.end());
    return out;
  }
  if (n.kind == Kind::kCall)
    if (Found f = returned(n, 0, true, depth + 1); f.node || !f.why.empty()) return follow(std::move(f));
  return {&n, nullptr, at, {}, {}};
}

Found Evaluator::call_behind(const Node& n, const Place& at) const {
  Found f = origin(n, at);
  if (f.node && f.node->kind != Kind::kCall) f.node = nullptr;
  return f;
}

}  // namespace trainhost::framework_files::python
