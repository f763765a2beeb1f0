// Parses the source text of a grammar (see grammar.hpp) into rules and word classes. Grammars are part of the
// program, so a mistake throws std::logic_error with the line. One pass over the lines, then resolve(): rules
// and slots may be used before the line that defines them, so names are replaced by indices only when all are
// known.
#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <stdexcept>

#include "core/data/grammar.hpp"

namespace trainhost::data {

class GrammarReader {
 public:
  GrammarReader(std::string_view source, Grammar& out) : rest_(source), out_(out) {}

  /// Dispatch by the first character of a line: '@' word class, other text rule, space an entry of the last
  /// word class or an alternative of the last rule.
  void read() {
    assert(out_.rules_.empty() && out_.classes_.empty());
    for (std::string_view line; next_line(line);) {
      if (line.empty() || line.front() == '#') continue;
      if (line.front() == '@')
        begin_class(line.substr(1));
      else if (line.front() != ' ')
        begin_rule(line);
      else if (in_class_)
        add_entry(trimmed(line));
      else
        add_alternative(trimmed(line));
    }
    resolve();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::logic_error("grammar, line " + std::to_string(line_) + ": " + what);
  }

  /// The last line need not end in a newline. line_ counts from 1 and is the line that fail() reports.
  bool next_line(std::string_view& line) {
    if (rest_.empty()) return false;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    return true;
  }

  static std::string_view trimmed(std::string_view s) {
    while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
    while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
    return s;
  }

  /// Parts between marks, without spaces around them; at least one part, which may be empty.
  static std::vector<std::string> split(std::string_view s, char mark) {
    std::vector<std::string> parts;
    for (;;) {
      const std::size_t at = s.find(mark);
      parts.emplace_back(trimmed(s.substr(0, at)));
      if (at == std::string_view::npos) return parts;
      s.remove_prefix(at + 1);
    }
  }

  std::string name_before_colon(std::string_view line, std::string_view& after) const {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) fail("a name must end in a colon");
    after = line.substr(colon + 1);
    return std::string(trimmed(line.substr(0, colon)));
  }

  /// class_of_ maps a name to its index in Grammar::classes_; entries follow on the next lines.
  void begin_class(std::string_view line) {
    std::string_view fields;
    WordClass c;
    c.name = name_before_colon(line, fields);
    c.fields = split(fields, ',');
    if (!class_of_.emplace(c.name, out_.classes_.size()).second) fail("word class " + c.name + " twice");
    out_.classes_.push_back(std::move(c));
    in_class_ = true;
  }

  void begin_rule(std::string_view line) {
    std::string_view nothing;
    Rule r;
    r.name = name_before_colon(line, nothing);
    if (!trimmed(nothing).empty()) fail("text behind the name of a rule");
    if (!rule_of_.emplace(r.name, out_.rules_.size()).second) fail("rule " + r.name + " twice");
    out_.rules_.push_back(std::move(r));
    in_class_ = false;
  }

  /// One row of a word class. The capitalised row is stored beside it, so that sampling copies no text.
  void add_entry(std::string_view line) {
    WordClass& c = out_.classes_.back();
    std::vector<std::string> words = split(line, '|');
    if (words.size() != c.fields.size())
      fail("an entry of " + c.name + " needs " + std::to_string(c.fields.size()) + " fields");
    // A slot stores entry + 1 in a byte, where 0 means empty; hence at most 255 entries.
    if (c.plain.size() == 255) fail("more than 255 entries in " + c.name);
    for (const std::string& w : words)
      if (w.empty()) fail("an empty field");
    c.plain.push_back(words);
    // ASCII only: the built-in text has no other letters, and one byte must stay one token.
    for (std::string& w : words)
      if (w[0] >= 'a' && w[0] <= 'z') w[0] = static_cast<char>(w[0] - 'a' + 'A');
    c.capital.push_back(std::move(words));
  }

  /// "WEIGHT text". At most four digits, so a sum of weights cannot overflow 32 bits.
  void add_alternative(std::string_view line) {
    if (out_.rules_.empty()) fail("an indented line before any rule");
    Alternative a;
    std::size_t digits = 0;
    a.weight = 0;
    for (; digits < line.size() && line[digits] >= '0' && line[digits] <= '9'; ++digits)
      a.weight = a.weight * 10 + static_cast<std::uint32_t>(line[digits] - '0');
    if (digits == 0 || digits > 4 || a.weight == 0) fail("an alternative begins with its weight");
    line = trimmed(line.substr(digits));
    while (!line.empty()) a.symbols.push_back(take_symbol(line));
    if (a.symbols.empty()) fail("an alternative without text");
    assert(out_.rules_.back().total <= UINT32_MAX - a.weight);
    out_.rules_.back().total += a.weight;
    out_.rules_.back().alternatives.push_back(std::move(a));
  }

  /// Removes the first symbol from `line`: <rule>, [slot], or the text before the next bracket.
  Symbol take_symbol(std::string_view& line) {
    const bool rule = line.front() == '<', slot = line.front() == '[';
    if (!rule && !slot) return take_text(line);
    const std::size_t end = line.find(rule ? '>' : ']');
    if (end == std::string_view::npos) fail("an open bracket");
    const std::string_view inner = line.substr(1, end - 1);
    line.remove_prefix(end + 1);
    return rule ? rule_symbol(inner) : slot_symbol(inner);
  }

  /// A backslash followed by n is a newline; a backslash before anything else stays.
  static Symbol take_text(std::string_view& line) {
    const std::size_t end = std::min(line.find_first_of("<["), line.size());
    Symbol s;
    for (std::size_t i = 0; i < end; ++i) {
      const bool newline = line[i] == '\\' && i + 1 < end && line[i + 1] == 'n';
      s.text += newline ? '\n' : line[i];
      i += newline;
    }
    line.remove_prefix(end);
    return s;
  }

  /// s.target holds an index into pending_rules_ until resolve(), which has the line for the message.
  Symbol rule_symbol(std::string_view name) {
    Symbol s;
    s.kind = Symbol::kRule;
    pending_rules_.push_back({std::string(name), line_});
    s.target =
        static_cast<std::uint32_t>(pending_rules_.size() - 1);  // becomes the rule's number in resolve()
    return s;
  }

  // Forms: ^a  a.his  a=person  a=person.his  b=person-a-c. Parsed from the outside to the inside: capital,
  // field behind the dot, excluded slots behind the dash, word class behind the equals sign.
  Symbol slot_symbol(std::string_view inner) {
    Symbol s;
    if (!inner.empty() && inner.front() == '^') s.capital = true, inner.remove_prefix(1);
    std::string field;
    if (const std::size_t dot = inner.find('.'); dot != std::string_view::npos) {
      field = inner.substr(dot + 1);
      inner = inner.substr(0, dot);
    }
    if (const std::size_t dash = inner.find('-'); dash != std::string_view::npos) {
      for (const std::string& other : split(inner.substr(dash + 1), '-'))
        s.apart.push_back(slot_number(other));
      inner = inner.substr(0, dash);
    }
    const std::size_t equals = inner.find('=');
    s.kind = equals == std::string_view::npos ? Symbol::kUse : Symbol::kBind;
    s.slot = slot_number(inner.substr(0, equals));
    if (s.kind == Symbol::kBind) set_class(s.slot, std::string(inner.substr(equals + 1)));
    pending_fields_.push_back({field, line_});
    s.target = static_cast<std::uint32_t>(pending_fields_.size() - 1);  // becomes the word class in resolve()
    return s;
  }

  /// Slots are numbered in the order of their first use. Numbers fit a byte because kSlots is 32.
  std::uint8_t slot_number(std::string_view name) {
    const auto found = slots_.emplace(std::string(name), slots_.size());
    if (slots_.size() > kSlots) fail("too many slots");
    static_assert(kSlots <= 256);
    return static_cast<std::uint8_t>(found.first->second);
  }

  /// A slot has one word class in the whole grammar, wherever it is bound. This makes the fields of [a.his]
  /// known without following the derivation that reaches it.
  void set_class(std::uint8_t slot, const std::string& name) {
    const auto found = class_of_.find(name);
    if (found == class_of_.end()) fail("no word class " + name);
    if (slot_class_[slot] && *slot_class_[slot] != found->second) fail("a slot with two word classes");
    slot_class_[slot] = static_cast<std::uint32_t>(found->second);
  }

  std::uint8_t field_number(const WordClass& c, const std::string& name) const {
    const auto found = std::find(c.fields.begin(), c.fields.end(), name);
    if (found == c.fields.end()) fail(c.name + " has no field " + name);
    return static_cast<std::uint8_t>(found - c.fields.begin());
  }

  /// After this pass every target and field is a valid index, so sampling and scoring need no checks. What
  /// remains dynamic is only whether a slot was bound before its use.
  void resolve() {
    for (Rule& r : out_.rules_) {
      if (r.alternatives.empty()) fail("rule " + r.name + " is empty");
      for (Alternative& a : r.alternatives)
        for (Symbol& s : a.symbols) {
          if (s.kind == Symbol::kRule)
            resolve_rule(s);
          else if (s.kind != Symbol::kText)
            resolve_slot(s);
        }
    }
  }

  void resolve_rule(Symbol& s) {
    assert(s.target < pending_rules_.size());
    const auto& [name, line] = pending_rules_[s.target];
    const auto found = rule_of_.find(name);
    line_ = line;
    if (found == rule_of_.end()) fail("no rule " + name);
    s.target = static_cast<std::uint32_t>(found->second);
  }

  void resolve_slot(Symbol& s) {
    assert(s.target < pending_fields_.size());
    const auto& [field, line] = pending_fields_[s.target];
    line_ = line;
    if (!slot_class_[s.slot]) fail("a slot that nothing chooses");
    s.target = *slot_class_[s.slot];
    const WordClass& c = out_.classes_[s.target];
    s.field = field.empty() ? std::uint8_t{0} : field_number(c, field);
    // Excluded entries are compared by index, which is meaningful only within one word class.
    for (std::uint8_t other : s.apart)
      if (slot_class_[other] != s.target) fail("a slot kept apart from one of another word class");
    // One entry more than slots kept apart: Grammar::choices() then always has at least one choice.
    if (s.kind == Symbol::kBind && c.plain.size() <= s.apart.size()) fail("too few entries in " + c.name);
  }

  std::string_view rest_;
  Grammar& out_;
  int line_ = 0;
  bool in_class_ = false;
  std::map<std::string, std::size_t> class_of_, rule_of_, slots_;
  std::array<std::optional<std::uint32_t>, kSlots> slot_class_{};
  std::vector<std::pair<std::string, int>> pending_rules_, pending_fields_;  // name and line
};

Grammar::Grammar(std::string_view source) {
  GrammarReader(source, *this).read();
  if (rules_.empty()) throw std::logic_error("grammar: no rule");
}

}  // namespace trainhost::data
