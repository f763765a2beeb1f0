// See python_values.hpp: values of expressions. Names are followed in python_names.cpp.
#include "core/framework_files/python_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/framework_files/python_arithmetic.hpp"

namespace trainhost::framework_files::python {

using Kind = Node::Kind;
using runfile::Value;

namespace {

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

}  // namespace

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
