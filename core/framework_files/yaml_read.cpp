// See yaml_read.hpp. Only this file uses yaml-cpp, which parses the text; types of scalars, dotted keys, and
// limits against small files that expand to large ones are decided here.
#include "core/framework_files/yaml_read.hpp"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "core/base/json_remedy.hpp"
#include "core/base/json_value.hpp"
#include "core/base/text.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

// Far above any configuration file; the depth also bounds the recursion of Flattener.
constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxEntries = 20000;  // aliases could multiply a small file

Where position(const YAML::Mark& m, const std::string& name) {
  // Marks count from 0; -1: not known.
  return {name, static_cast<std::uint32_t>(std::max(0, m.line + 1)),
          static_cast<std::uint32_t>(std::max(0, m.column + 1))};
}

bool one_of(const std::string& word, std::initializer_list<const char*> words) {
  std::string lower = word;
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return std::ranges::any_of(words, [&](const char* w) { return lower == w; });
}

/// The type of a plain scalar; a quoted one has the tag "!" and is text.
Value scalar(const YAML::Node& n, const std::string& name) {
  const std::string& text = n.Scalar();
  Value v = runfile::text_value(text, position(n.Mark(), name));
  if (n.Tag() == "!") return v;
  if (text.empty() || one_of(text, {"~", "null"})) v.kind = Value::Kind::kNull;
  // yaml-cpp has no types of its own. These are the words of YAML 1.1, which PyYAML reads as booleans.
  if (one_of(text, {"true", "yes", "on"})) v.kind = Value::Kind::kBool, v.boolean = true;
  if (one_of(text, {"false", "no", "off"})) v.kind = Value::Kind::kBool;
  // 1e9 is a number here, as in JSON; PyYAML wants a point in it.
  const char *begin = text.data() + text.starts_with('+'), *end = text.data() + text.size();
  double number = 0;
  if (const auto [rest, failed] = std::from_chars(begin, end, v.integer);
      failed == std::errc{} && rest == end) {
    v.kind = Value::Kind::kInteger;
    v.number = static_cast<double>(v.integer);
  } else if (const auto [at, wrong] = std::from_chars(begin, end, number);
             wrong == std::errc{} && at == end && std::isfinite(number)) {
    v.kind = Value::Kind::kNumber;
    v.number = number;
  }
  return v;
}

/// Whether the quotation mark at `begin` has a second one. yaml-cpp accepts a text that ends before.
bool is_closed(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  for (std::size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == quote) return true;  // one that is doubled only begins the next part
    i += quote == '"' && text[i] == '\\';
  }
  return false;
}

class Flattener {
 public:
  /// name: of the file, for positions; both must outlive this.
  Flattener(const std::string& text, const std::string& name, std::vector<Where>* repeated)
      : text_(text), name_(name), repeated_(repeated) {}

  void add(const YAML::Node& n, const std::string& key, const Where& key_where, int depth) {
    if (depth > kMaxDepth)
      throw usage_error(fmt::format("values are nested more than {} levels deep", kMaxDepth), {}, key_where);
    if (n.IsMap() && (n.size() > 0 || key.empty()))
      add_map(n, key, depth);
    else if (n.IsSequence())
      add_list(n, key, key_where, depth);
    else
      append({key, key_where, n.IsScalar() ? scalar_of(n) : null(n)});  // an empty table is null
  }

  std::vector<Entry> take() { return std::move(out_); }

 private:
  Value scalar_of(const YAML::Node& n) const {
    const auto at = static_cast<std::size_t>(std::max(0, n.Mark().pos));
    if (n.Tag() == "!" && at < text_.size() && (text_[at] == '"' || text_[at] == '\'') &&
        !is_closed(text_, at))
      throw usage_error("the quotation mark is not closed", fmt::format("add {} behind the value", text_[at]),
                        position(n.Mark(), name_));
    return scalar(n, name_);
  }

  Value null(const YAML::Node& n) const {
    Value v;
    v.where = position(n.Mark(), name_);
    return v;
  }

  void append(Entry e) {
    if (out_.size() == kMaxEntries)
      throw usage_error(fmt::format("the file has more than {} values", kMaxEntries), {}, e.key_where);
    out_.push_back(std::move(e));
  }

  void add_map(const YAML::Node& n, const std::string& key, int depth) {
    // yaml-cpp keeps both of two equal keys, PyYAML the last one: with two values neither is what the author
    // meant, which matters where the key does.
    std::map<std::string, YAML::Node> seen;
    for (const auto& member : n) {
      const Where where = position(member.first.Mark(), name_);
      if (!member.first.IsScalar()) throw usage_error("a key is not a word", {}, where);
      const std::string& word = member.first.Scalar();
      if (const auto [first, is_new] = seen.emplace(word, member.second); !is_new) {
        const YAML::Node &a = first->second, &b = member.second;
        const bool scalars = a.IsScalar() && b.IsScalar();
        if (scalars && a.Scalar() == b.Scalar()) continue;
        const std::string whole = key.empty() ? word : key + "." + word;
        if (scalars && repeated_) {
          std::erase_if(out_, [&](const Entry& e) { return e.key == whole; });
          append({whole, where, scalar_of(b)});
          repeated_->push_back(where);
          continue;
        }
        throw usage_error(
            fmt::format("'{}' is given twice{}", escaped(word, 80), scalars ? ", with two values" : ""),
            "remove one of the two", where);
      }
      add(member.second, key.empty() ? word : key + "." + word, where, depth + 1);
    }
  }

  /// A list of scalars is one value; a list of anything else has a key per item.
  void add_list(const YAML::Node& n, const std::string& key, const Where& where, int depth) {
    const bool scalars = std::all_of(n.begin(), n.end(),
                                     [](const YAML::Node& item) { return item.IsScalar() || item.IsNull(); });
    if (!scalars) {
      for (std::size_t i = 0; i < n.size(); ++i) add(n[i], fmt::format("{}.{}", key, i), where, depth + 1);
      return;
    }
    // An empty list too is one value: "no modules", not a missing key.
    Value v = null(n);
    v.kind = Value::Kind::kList;
    for (const YAML::Node& item : n) v.items.push_back(item.IsScalar() ? scalar_of(item) : null(item));
    append({key, where, std::move(v)});
  }

  const std::string &text_, &name_;
  std::vector<Where>* repeated_;
  std::vector<Entry> out_;
};

/// The position behind the text: an empty line at its end does not count.
Where end_of(const std::string& text, const std::string& name) {
  return JsonPositions(text, name).where(text.find_last_not_of(" \t\r\n") + 1);
}

}  // namespace

void check_json(const std::string& text, const std::string& name, bool allows_commas) {
  try {
    parse_json(text);
  } catch (const JsonError& e) {
    const bool at_end = e.at >= text.size(), comment = !at_end && (text[e.at] == '/' || text[e.at] == '#');
    const bool comma = !allows_commas && is_trailing_comma(text, e);
    if (!comment && !comma && !is_truncated_json(text, e)) return;
    throw usage_error(fmt::format("not valid JSON: {}", e.what()),
                      comment ? "remove the comment: JSON has none" : json_remedy(text, e),
                      at_end ? end_of(text, name) : JsonPositions(text, name).where(e.at));
  }
}

std::vector<Entry> read_yaml(const std::string& text, const std::string& name, std::vector<Where>* repeated) {
  try {
    const YAML::Node document = YAML::Load(text);
    if (!document.IsMap())
      throw usage_error("the file does not contain keys and values", "expected YAML or JSON: key: value",
                        {name, 1, 1});
    Flattener f(text, name, repeated);
    f.add(document, "", {name, 1, 1}, 0);
    return f.take();
  } catch (const YAML::Exception& e) {
    // yaml-cpp has no position for what ends too early.
    // \x, \u and \U begin the number of a character: "C:\Users".
    const bool escape = e.msg.starts_with("unknown escape character") ||
                        e.msg.starts_with("bad character found while scanning hex number");
    const bool no_position = e.mark.is_null() || e.mark.pos <= 0;
    throw usage_error(fmt::format("this is neither YAML nor JSON: {}", escaped(e.msg, 120)),
                      escape        ? "a path of Windows: write '/' for '\\', or put it in single quotes"
                      : no_position ? "a bracket or quotation mark is not closed, or the file is truncated"
                                    : "check brackets, quotes and indentation at this line",
                      no_position ? end_of(text, name) : position(e.mark, name));
  }
}

}  // namespace trainhost::framework_files
