// See python_values.hpp.
#include "core/framework_files/python_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace trainhost::framework_files::python {
namespace {

using Kind = Node::Kind;
using runfile::Value;

constexpr int kMaxValueDepth = 150;
constexpr int kMaxSteps = 200'000;  // of one script; names that double each other need more

PyValue known(Value v) {
  PyValue out;
  out.known = true, out.value = std::move(v);
  return out;
}
PyValue none() { return known({}); }
PyValue of_text(std::string text) { return known(runfile::text_value(std::move(text))); }
PyValue of_flag(bool flag) {
  Value v;
  v.kind = Value::Kind::kBool, v.boolean = flag;
  return known(std::move(v));
}
PyValue of_integer(std::int64_t n) {
  Value v;
  v.kind = Value::Kind::kInteger, v.integer = n, v.number = static_cast<double>(n);
  return known(std::move(v));
}
PyValue of_number(double n) {
  if (!std::isfinite(n)) return {};
  Value v;
  v.kind = Value::Kind::kNumber, v.number = n, v.text = fmt::format("{}", n);
  return known(std::move(v));
}
PyValue not_known(std::string why) {
  PyValue out;
  out.why = std::move(why);
  return out;
}

bool is_number(const PyValue& v) {
  return v.known && (v.value.kind == Value::Kind::kInteger || v.value.kind == Value::Kind::kNumber);
}
bool is_text(const PyValue& v) { return v.known && v.value.kind == Value::Kind::kText; }

void add_assumptions(PyValue& to, const std::vector<Assumption>& from) {
  for (const Assumption& a : from)
    if (std::ranges::find(to.assumed, a) == to.assumed.end()) to.assumed.push_back(a);
}
PyValue with(PyValue v, const PyValue& a, const PyValue& b = {}) {
  add_assumptions(v, a.assumed), add_assumptions(v, b.assumed);
  v.by_device = v.by_device || a.by_device || b.by_device;
  if (!v.known && v.why.empty()) v.why = a.known ? b.why : a.why;
  return v;
}

/// Python's truth of a value.
bool holds(const PyValue& v) {
  switch (v.value.kind) {
    case Value::Kind::kNull:
      return false;
    case Value::Kind::kBool:
      return v.value.boolean;
    case Value::Kind::kInteger:
    case Value::Kind::kNumber:
      return v.value.number != 0;
    case Value::Kind::kText:
      return !v.value.text.empty();
    case Value::Kind::kList:
      return !v.value.items.empty();
    default:
      return !v.members.empty();
  }
}

bool equal(const Value& a, const Value& b) {
  const auto number = [](const Value& v) {
    return v.kind == Value::Kind::kInteger || v.kind == Value::Kind::kNumber;
  };
  if (number(a) && number(b)) return a.number == b.number;
  if (a.kind != b.kind) return false;
  if (a.kind == Value::Kind::kText) return a.text == b.text;
  if (a.kind == Value::Kind::kBool) return a.boolean == b.boolean;
  if (a.kind == Value::Kind::kList) return std::ranges::equal(a.items, b.items, equal);
  return a.kind == Value::Kind::kNull;
}

/// The number of a token: 4_096, 1e-4, 0x10. Complex ones are not known.
PyValue number_of(std::string text) {
  std::erase(text, '_');
  int base = 10;
  std::size_t skip = 0;
  if (text.size() > 2 && text[0] == '0') {
    const char c = static_cast<char>(text[1] | 0x20);
    base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
    if (base != 10) skip = 2;
  }
  const char *begin = text.data() + skip, *end = text.data() + text.size();
  std::int64_t n = 0;
  if (const auto [rest, failed] = std::from_chars(begin, end, n, base); failed == std::errc{} && rest == end)
    return of_integer(n);
  if (base != 10) return {};
  if (text.ends_with('.')) text += '0';
  if (text.starts_with('.')) text.insert(text.begin(), '0');
  double x = 0;
  const char* last = text.data() + text.size();
  if (const auto [rest, failed] = std::from_chars(text.data(), last, x);
      failed == std::errc{} && rest == last)
    return of_number(x);
  return {};
}

std::optional<std::int64_t> whole_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t out = 1;
  if (exponent > 64) return std::nullopt;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(out, base, &out)) return std::nullopt;
  return out;
}

PyValue arithmetic(const std::string& o, const PyValue& a, const PyValue& b) {
  if (o == "+" && is_text(a) && is_text(b)) return of_text(a.value.text + b.value.text);
  if (o == "+" && a.known && b.known && a.value.kind == Value::Kind::kList &&
      b.value.kind == Value::Kind::kList) {
    PyValue out = a;
    out.value.items.insert(out.value.items.end(), b.value.items.begin(), b.value.items.end());
    return out;
  }
  if (!is_number(a) || !is_number(b)) return {};
  const Value &l = a.value, &r = b.value;
  if (l.kind == Value::Kind::kInteger && r.kind == Value::Kind::kInteger) {
    std::int64_t n = 0;
    const bool divides = r.integer != 0 && !(l.integer == INT64_MIN && r.integer == -1);
    if (o == "+" && !__builtin_add_overflow(l.integer, r.integer, &n)) return of_integer(n);
    if (o == "-" && !__builtin_sub_overflow(l.integer, r.integer, &n)) return of_integer(n);
    if (o == "*" && !__builtin_mul_overflow(l.integer, r.integer, &n)) return of_integer(n);
    if (o == "//" && divides)
      return of_integer(l.integer / r.integer -
                        ((l.integer % r.integer != 0) && ((l.integer < 0) != (r.integer < 0))));
    if (o == "%" && divides) return of_integer(((l.integer % r.integer) + r.integer) % r.integer);
    if (o == "<<" && r.integer >= 0 && r.integer < 62 && l.integer >= 0 &&
        l.integer <= (INT64_MAX >> r.integer))
      return of_integer(l.integer << r.integer);
    if (o == "**" && r.integer >= 0) {
      const auto power = whole_power(l.integer, r.integer);
      return power ? of_integer(*power) : PyValue{};
    }
    if (o != "/" && o != "**") return {};
  }
  if (o == "+") return of_number(l.number + r.number);
  if (o == "-") return of_number(l.number - r.number);
  if (o == "*") return of_number(l.number * r.number);
  if (o == "/" && r.number != 0) return of_number(l.number / r.number);
  if (o == "//" && r.number != 0) return of_number(std::floor(l.number / r.number));
  if (o == "**") return of_number(std::pow(l.number, r.number));
  return {};
}

PyValue comparison(const std::string& o, const PyValue& a, const PyValue& b) {
  if (!a.known || !b.known) return {};
  if (o == "==" || o == "is") return of_flag(equal(a.value, b.value));
  if (o == "!=" || o == "is not") return of_flag(!equal(a.value, b.value));
  if (o == "in" || o == "not in") {
    bool found = false;
    if (b.value.kind == Value::Kind::kList)
      found = std::ranges::any_of(b.value.items, [&](const Value& v) { return equal(a.value, v); });
    else if (is_text(a) && is_text(b))
      found = b.value.text.find(a.value.text) != std::string::npos;
    else
      return {};
    return of_flag(found == (o == "in"));
  }
  if (!is_number(a) || !is_number(b)) return {};
  const double l = a.value.number, r = b.value.number;
  if (o == "<") return of_flag(l < r);
  if (o == ">") return of_flag(l > r);
  if (o == "<=") return of_flag(l <= r);
  if (o == ">=") return of_flag(l >= r);
  return {};
}

/// The name of a type of torch: "float16" of torch.half.
std::string type_name(const std::string& name) {
  if (name == "half") return "float16";
  if (name == "float") return "float32";
  constexpr std::array kTypes{"bfloat16", "float16", "float32", "float64", "uint8", "int8", "float8_e4m3fn"};
  return std::ranges::find(kTypes, name) == kTypes.end() ? "" : name;
}

/// Functions that tell whether the GPU computes in bf16.
bool asks_for_bf16(const std::string& name) {
  constexpr std::array kNames{"is_bfloat16_supported", "is_bf16_supported", "is_torch_bf16_gpu_available",
                              "is_bf16_gpu_supported", "is_torch_bf16_available"};
  return std::ranges::find(kNames, name) != kNames.end();
}

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
      std::ranges::replace(attribute, '-', '_');
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

PyValue Evaluator::value(const Node& n, const Place& at, int depth) const {
  if (depth > kMaxValueDepth || ++steps_ > kMaxSteps) return not_known("it follows from too many others");
  switch (n.kind) {
    case Kind::kNumber:
      return number_of(n.text);
    case Kind::kString:
      return n.constant ? of_text(n.text) : not_known("");
    case Kind::kName: {
      if (n.text == "True" || n.text == "False") return of_flag(n.text == "True");
      if (n.text == "None") return none();
      if (n.text == "__name__") return of_text("__main__");
      if (n.text == "TYPE_CHECKING") return of_flag(false);
      const Found f = name(n.text, at, depth + 1);
      PyValue out;
      if (f.node) {
        out = value(*f.node, f.place, depth + 1);
      } else if (f.changed) {
        Place before = f.place;
        const PyValue old = value(f.changed->targets.front(), before, depth + 1),
                      change = value(f.changed->value, before, depth + 1);
        out = with(arithmetic(f.changed->operation, old, change), old, change);
      } else {
        out.why = f.why;
      }
      add_assumptions(out, f.assumed);
      if (out.known && f.node) apply_changes(out, n.text, f.place, at, depth + 1);
      return out;
    }
    case Kind::kAttribute:
      return attribute(n, at, depth + 1);
    case Kind::kSubscript:
      return subscript(n, at, depth + 1);
    case Kind::kCall:
      return value_of_call(n, at, depth + 1);
    case Kind::kUnary: {
      const PyValue v = value(n.children.front(), at, depth + 1);
      if (!v.known) return with({}, v);
      if (n.text == "not") return with(of_flag(!holds(v)), v);
      if (n.text == "-" && is_number(v))
        return with(v.value.kind == Value::Kind::kInteger && v.value.integer != INT64_MIN
                        ? of_integer(-v.value.integer)
                        : of_number(-v.value.number),
                    v);
      return n.text == "+" ? v : PyValue{};
    }
    case Kind::kBinary:
      return binary(n, at, depth + 1);
    case Kind::kConditional: {
      const PyValue test = value(n.children[0], at, depth + 1);
      if (!test.known) return with(not_known("it depends on a condition"), test);
      return with(value(n.children[holds(test) ? 1 : 2], at, depth + 1), test);
    }
    case Kind::kTuple:
    case Kind::kList:
      return sequence(n, at, depth + 1);
    case Kind::kDict:
      return dictionary(n, at, depth + 1);
    default:
      return {};
  }
}

/// Changes of a dict or a list between its assignment and its use: options["r"] = 8, names.append("lm_head").
void Evaluator::apply_changes(PyValue& v, const std::string& name, const Place& from, const Place& to,
                              int depth) const {
  const bool table = v.value.kind == Value::Kind::kTable;
  if (!table && v.value.kind != Value::Kind::kList) return;
  const auto is_it = [&](const Node& n) { return n.kind == Kind::kName && n.text == name; };
  const bool same = from.scope == to.scope;  // a function reads what the whole module made of it
  const std::size_t end = same ? to.statement : program_.statements.size();
  for (std::size_t i = from.statement + 1; i < end; ++i) {
    const Statement& s = program_.statements[i];
    if (s.scope != from.scope) continue;
    const Node* target = nullptr;
    for (const Node& t : s.targets)
      if (t.kind == Kind::kSubscript && is_it(t.children.front())) target = &t;
    const Node* method = s.value.kind == Kind::kCall ? &s.value.children.front() : nullptr;
    if (method && (method->kind != Kind::kAttribute || !is_it(method->children.front()))) method = nullptr;
    if (!target && !method) continue;
    constexpr std::array kChanges{"append", "extend",     "insert", "remove",  "pop",
                                  "update", "setdefault", "clear",  "reverse", "sort"};
    if (!target && std::ranges::find(kChanges, method->text) == kChanges.end()) continue;
    const Runs r = runs(s.guards, same ? to.guards : std::vector<Guard>{}, depth + 1);
    if (r == Runs::kNo) continue;
    const PyValue key = target ? value(target->children[1], place_of(s), depth + 1) : PyValue{};
    if (!table || !is_text(key) || !s.operation.empty()) {
      v = not_known(fmt::format("{} changes it", line_of(s)));
      return;
    }
    std::erase_if(v.members, [&](const auto& m) { return m.name == key.value.text; });
    PyValue member = r == Runs::kYes ? value(s.value, place_of(s), depth + 1)
                                     : not_known(fmt::format("{} sets it under a condition", line_of(s)));
    if (!member.known && !member.call) member.value = unknown(s.value, member.why);
    v.members.push_back({key.value.text, std::move(member)});
  }
}

PyValue Evaluator::binary(const Node& n, const Place& at, int depth) const {
  const PyValue a = value(n.children[0], at, depth);
  if (n.text == "and" || n.text == "or") {
    if (a.known && holds(a) == (n.text == "or")) return a;
    const PyValue b = value(n.children[1], at, depth);
    if (a.known) return with(b, a);
    // False whatever the other one is.
    if (b.known && holds(b) == (n.text == "or") && b.value.kind == Value::Kind::kBool) return with(b, a);
    return with({}, a, b);
  }
  const PyValue b = value(n.children[1], at, depth);
  PyValue out = arithmetic(n.text, a, b);
  if (!out.known) out = comparison(n.text, a, b);
  return with(std::move(out), a, b);
}

PyValue Evaluator::sequence(const Node& n, const Place& at, int depth) const {
  PyValue out;
  out.known = true, out.value.kind = Value::Kind::kList;
  for (const Node& child : n.children) {
    const bool spread = child.kind == Kind::kStar;
    PyValue item = value(spread ? child.children.front() : child, at, depth);
    if (!item.known || item.value.kind == Value::Kind::kTable ||
        (spread && item.value.kind != Value::Kind::kList))
      return with({}, item);
    add_assumptions(out, item.assumed);
    if (spread)
      out.value.items.insert(out.value.items.end(), item.value.items.begin(), item.value.items.end());
    else
      out.value.items.push_back(std::move(item.value));
  }
  return out;
}

PyValue Evaluator::dictionary(const Node& n, const Place& at, int depth) const {
  PyValue out;
  out.known = true, out.value.kind = Value::Kind::kTable;
  for (std::size_t i = 0; i < n.children.size(); ++i) {
    if (n.children[i].kind == Kind::kDoubleStar) {
      PyValue more = value(n.children[i].children.front(), at, depth);
      if (!more.known || more.value.kind != Value::Kind::kTable) return with({}, more);
      for (auto& member : more.members) out.members.push_back(std::move(member));
      add_assumptions(out, more.assumed);
      continue;
    }
    if (i + 1 >= n.children.size()) break;
    const PyValue key = value(n.children[i], at, depth);
    PyValue member = value(n.children[i + 1], at, depth);
    if (!member.known && !member.call) member.value = unknown(n.children[i + 1], member.why);
    if (key.known && key.value.kind == Value::Kind::kText)
      out.members.push_back({key.value.text, std::move(member)});
    if (key.known && key.value.kind == Value::Kind::kInteger)
      out.members.push_back({std::to_string(key.value.integer), std::move(member)});
    ++i;
  }
  return out;
}

PyValue Evaluator::default_of_option(const Option& option, int depth) const {
  const Node* given = argument(*option.call, "default");
  const Node* action = argument(*option.call, "action");
  PyValue out;
  if (given) {
    out = value(*given, option.place, depth);
  } else if (action && action->text == "store_true") {
    out = of_flag(false);
  } else if (action && action->text == "store_false") {
    out = of_flag(true);
  } else {
    const Node* required = argument(*option.call, "required");
    if ((required && required->text == "True") || !option.name.starts_with('-'))
      return not_known(fmt::format("the option {}", option.name));
    out = none();
  }
  if (out.known)
    out.assumed.push_back({option.name,
                           given                                  ? program_.text_of(*given)
                           : out.value.kind == Value::Kind::kNull ? "None"
                           : out.value.boolean                    ? "True"
                                                                  : "False",
                           program_.where(*option.call), "the default of the option"});
  return out;
}

PyValue Evaluator::field(const std::string& text, std::size_t scope, int depth) const {
  const auto all = assignments_.find(text);
  if (all == assignments_.end()) return {};
  for (auto i = all->second.rbegin(); i != all->second.rend(); ++i) {
    const Statement& s = program_.statements[*i];
    if (s.scope != scope || s.kind != Statement::Kind::kAssignment || !s.operation.empty()) continue;
    const Node* node = &s.value;
    const std::string maker = callee(*node);
    const bool is_field = maker == "field" || maker == "Field" || maker == "HfArg";
    if (is_field) node = argument(*node, "default", maker == "Field" ? 0 : ~std::size_t{0});
    if (!node) return not_known(fmt::format("a field of {}", program_.scopes[scope].name));
    PyValue out = value(*node, place_of(s), depth);
    if (out.known)
      out.assumed.push_back({text, program_.text_of(*node), program_.where(*node),
                             fmt::format("the default of a field of {}", program_.scopes[scope].name)});
    return out;
  }
  return {};
}

PyValue Evaluator::attribute(const Node& n, const Place& at, int depth) const {
  const Node& object = n.children.front();
  if (object.kind == Kind::kName && object.text == "torch")
    if (const std::string type = type_name(n.text); !type.empty()) return of_text(type);
  const Found f = origin(object, at, depth);
  const auto class_named = [&](const std::string& name) -> std::size_t {
    for (std::size_t i = 1; i < program_.scopes.size(); ++i)
      if (program_.scopes[i].kind == Scope::Kind::kClass && program_.scopes[i].name == name) return i;
    return 0;
  };
  if (f.node && f.node->kind == Kind::kCall) {
    const std::string maker = callee(*f.node);
    if (maker != "parse_args" && maker != "parse_known_args") {
      if (const Node* given = argument(*f.node, n.text.c_str())) return value(*given, f.place, depth);
    }
    if (const std::size_t scope = class_named(maker)) return field(n.text, scope, depth);
  } else if (f.node && f.node->kind == Kind::kName) {
    if (const std::size_t scope = class_named(f.node->text)) {
      PyValue v = field(n.text, scope, depth);
      v.assumed.clear();  // an attribute of the class itself
      return v;
    }
  }
  // Objects of parsers: options of argparse, or the only field of that name.
  if (const auto option = options_.find(n.text); option != options_.end())
    return default_of_option(option->second, depth);
  std::size_t found = 0;
  for (std::size_t i = 1; i < program_.scopes.size(); ++i) {
    if (program_.scopes[i].kind != Scope::Kind::kClass || !field(n.text, i, depth + 1).known) continue;
    if (found) return not_known("several classes have such a field");
    found = i;
  }
  return found ? field(n.text, found, depth) : not_known(f.why);
}

PyValue Evaluator::subscript(const Node& n, const Place& at, int depth) const {
  const PyValue object = value(n.children[0], at, depth), index = value(n.children[1], at, depth);
  if (!object.known || !index.known) return with({}, object, index);
  if (object.value.kind == Value::Kind::kTable && is_text(index)) {
    for (auto m = object.members.rbegin(); m != object.members.rend(); ++m)
      if (m->name == index.value.text) return with(m->value, object);
  }
  if (object.value.kind == Value::Kind::kList && index.value.kind == Value::Kind::kInteger) {
    const auto size = static_cast<std::int64_t>(object.value.items.size());
    const std::int64_t i = index.value.integer < 0 ? index.value.integer + size : index.value.integer;
    if (i >= 0 && i < size) return with(known(object.value.items[static_cast<std::size_t>(i)]), object);
  }
  return {};
}

PyValue Evaluator::value_of_call(const Node& n, const Place& at, int depth) const {
  const std::string last = callee(n), whole = dotted_name(n.children.front());
  PyValue out;
  out.call = &n, out.place = at;
  const Node* first =
      n.children.size() > 1 && n.children[1].kind != Kind::kKeyword ? &n.children[1] : nullptr;
  if (whole == "dict" && !first) {
    out.known = true, out.call = nullptr, out.value.kind = Value::Kind::kTable;
    for (std::size_t i = 1; i < n.children.size(); ++i) {
      if (n.children[i].kind != Kind::kKeyword) return {};
      PyValue member = value(n.children[i].children.front(), at, depth);
      if (!member.known && !member.call) member.value = unknown(n.children[i].children.front(), member.why);
      out.members.push_back({n.children[i].text, std::move(member)});
    }
    return out;
  }
  if (asks_for_bf16(last)) {
    out = of_flag(true);
    out.by_device = true;
    return out;
  }
  if (first && n.children.size() == 2 &&
      (whole == "int" || whole == "float" || whole == "str" || whole == "bool" || whole == "list" ||
       whole == "tuple")) {
    const PyValue v = value(*first, at, depth);
    if (!v.known) return with({}, v);
    if (whole == "list" || whole == "tuple") return v.value.kind == Value::Kind::kList ? v : PyValue{};
    if (whole == "bool") return with(of_flag(holds(v)), v);
    if (whole == "str") return is_text(v) ? v : PyValue{};
    const PyValue number = is_text(v) ? number_of(v.value.text) : v;
    if (!is_number(number)) return {};
    if (whole == "float") return with(of_number(number.value.number), v);
    if (number.value.kind == Value::Kind::kInteger) return with(number, v);
    return std::abs(number.value.number) < 9e15
               ? with(of_integer(static_cast<std::int64_t>(number.value.number)), v)
               : PyValue{};
  }
  if (whole == "getattr" && n.children.size() == 3 && dotted_name(n.children[1]) == "torch") {
    const PyValue name = value(n.children[2], at, depth);
    if (is_text(name) && !type_name(name.value.text).empty())
      return with(of_text(type_name(name.value.text)), name);
    return with({}, name);
  }
  if (whole == "os.environ.get" || whole == "os.getenv" || whole == "getenv" || whole == "environ.get") {
    const Node *variable = argument(n, "key", 0), *fallback = argument(n, "default", 1);
    if (!fallback || !variable || variable->kind != Kind::kString) return out;
    PyValue v = value(*fallback, at, depth);
    if (v.known)
      v.assumed.push_back({variable->text, program_.text_of(*fallback), program_.where(n),
                           "the variable of the environment is not set"});
    return v;
  }
  if (last == "split" && n.children.front().kind == Kind::kAttribute) {
    const PyValue text = value(n.children.front().children.front(), at, depth);
    const PyValue separator = first ? value(*first, at, depth) : of_text(" ");
    if (!is_text(text) || !is_text(separator) || separator.value.text.empty()) return with({}, text);
    PyValue list;
    list.known = true, list.value.kind = Value::Kind::kList;
    std::size_t begin = 0;
    for (std::size_t end; (end = text.value.text.find(separator.value.text, begin)) != std::string::npos;
         begin = end + separator.value.text.size())
      list.value.items.push_back(runfile::text_value(text.value.text.substr(begin, end - begin)));
    list.value.items.push_back(runfile::text_value(text.value.text.substr(begin)));
    return with(list, text);
  }
  if (const Found f = returned(n, 0, true, depth); f.node) return value(*f.node, f.place, depth + 1);
  return out;
}

runfile::Value Evaluator::unknown(const Node& n, const std::string& why) const {
  Value v;
  v.kind = Value::Kind::kOther;
  v.text = fmt::format("`{}`{}", program_.text_of(n, 50), why.empty() ? "" : fmt::format(" ({})", why));
  v.where = program_.where(n);
  return v;
}

}  // namespace trainhost::framework_files::python
