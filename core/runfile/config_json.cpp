// config.json to fields: strict JSON by simdjson, then the place of every key for messages. Keeps the two
// outer levels (the model's fields and its rope objects); refuses a key given twice in any object that is not
// in a list.
#include <fmt/format.h>
#include <simdjson.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/base/text.hpp"
#include "core/runfile/model_fields.hpp"

namespace trainhost::runfile {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kMaxDepth = 64;

/// Places of keys in JSON already known to be valid: a scan that only tells strings from structure.
class KeyPlaces {
 public:
  KeyPlaces(const std::string& json, std::string file) : json_(json), file_(std::move(file)) { scan(); }
  /// Of the n-th occurrence (from 0) of `key` at `path`, a dotted path; the file alone when it was spelled
  /// with escapes.
  Where find(const std::string& path, std::size_t n = 0) const {
    const auto found = places_.find(path);
    return found == places_.end() || found->second.size() <= n ? Where{file_} : found->second[n];
  }

 private:
  void scan() {
    std::uint32_t line = 1, column = 1;
    std::vector<std::string> path;  // one name for each open bracket; "" for an array's elements
    std::string key;
    for (std::size_t i = 0; i < json_.size(); ++i) {
      const char c = json_[i];
      if (c == '"') {
        const Where where{file_, line, column};
        const std::size_t end = string_end(i);
        std::string text = json_.substr(i + 1, end - i - 1);
        for (; i < end; ++i) column += (json_[i] & 0xC0) != 0x80;
        if (next_after(end) == ':') {
          key = text;
          places_[joined(path, key)].push_back(where);
        }
      } else if (c == '{' || c == '[') {
        path.push_back(key);
        key.clear();
      } else if (c == '}' || c == ']') {
        path.pop_back();
      }
      if (c == '\n')
        ++line, column = 1;
      else if ((c & 0xC0) != 0x80)
        ++column;
    }
  }

  std::size_t string_end(std::size_t i) const {
    for (++i; i < json_.size() && json_[i] != '"'; ++i)
      if (json_[i] == '\\') ++i;
    return i;
  }

  char next_after(std::size_t i) const {
    const std::size_t at = json_.find_first_not_of(" \t\r\n", i + 1);
    return at == json_.npos ? '\0' : json_[at];
  }

  static std::string joined(const std::vector<std::string>& path, const std::string& key) {
    std::string out;
    for (std::size_t i = 1; i < path.size(); ++i) out += path[i] + '.';
    return out + key;
  }

  const std::string& json_;
  std::string file_;
  std::map<std::string, std::vector<Where>> places_;
};

/// simdjson says what is wrong but not where; nlohmann, slower, knows the byte.
[[noreturn]] void malformed(const std::string& json, const std::string& file, const char* what) {
  try {
    const auto unused = nlohmann::json::parse(json);
  } catch (const nlohmann::json::parse_error& e) {
    const std::string_view before =
        std::string_view(json).substr(0, e.byte > 0 ? std::min(e.byte - 1, json.size()) : 0);
    Where where{file, 1, 1};
    for (char c : before) {
      if (c == '\n')
        ++where.line, where.column = 1;
      else if ((c & 0xC0) != 0x80)
        ++where.column;
    }
    const std::string_view message = e.what();
    const auto colon = message.find(": ");
    const bool ended = message.find("unexpected end of input") != message.npos;
    throw usage_error(fmt::format("not valid JSON: {}",
                                  escaped(colon == message.npos ? message : message.substr(colon + 2), 200)),
                      ended ? "the file is cut off: copy it again" : "", where);
  } catch (const nlohmann::json::exception&) {
  }
  throw usage_error(fmt::format("not valid JSON: {}", what), {}, {file});
}

void refuse_twice(const dom::object& object, const std::string& path, const KeyPlaces& places) {
  std::set<std::string_view> seen;
  for (const auto [key, value] : object) {
    const std::string name = path + std::string(key);
    if (!seen.insert(key).second)
      throw usage_error(fmt::format("'{}' is given twice", escaped(name, 120)), {}, places.find(name, 1));
    dom::object inner;
    if (value.get(inner) == simdjson::SUCCESS) refuse_twice(inner, name + ".", places);
  }
}

Value to_value(const dom::element& e) {
  Value v;
  switch (e.type()) {
    case dom::element_type::INT64:
      v.kind = Value::Kind::kInteger;
      v.integer = int64_t(e.get_int64());
      v.number = static_cast<double>(v.integer);
      break;
    case dom::element_type::UINT64:  // above 2^63: no field goes there; as a number it is refused with its
                                     // value
    case dom::element_type::DOUBLE:
      v.kind = Value::Kind::kNumber;
      v.number = double(e.get_double());
      break;
    case dom::element_type::STRING:
      v.kind = Value::Kind::kText;
      v.text = std::string(std::string_view(e.get_string()));
      break;
    case dom::element_type::BOOL:
      v.kind = Value::Kind::kBool;
      v.boolean = bool(e.get_bool());
      break;
    case dom::element_type::NULL_VALUE:
      break;
    case dom::element_type::ARRAY:
      v.kind = Value::Kind::kList;
      for (const dom::element item : dom::array(e.get_array())) v.items.push_back(to_value(item));
      break;
    case dom::element_type::OBJECT:
      v.kind = Value::Kind::kTable;
      break;
  }
  return v;
}

void collect(const dom::object& object, const std::string& prefix, const KeyPlaces& places, Fields& out) {
  for (const auto [key, element] : object) {
    if (key.find('.') != key.npos) continue;  // ours to join with; no field has it in its name
    const std::string name = prefix + std::string(key);
    Value v = to_value(element);
    v.where = places.find(name);
    out[name] = std::move(v);
    dom::object inner;
    if (prefix.empty() && element.get(inner) == simdjson::SUCCESS) collect(inner, name + ".", places, out);
  }
}

}  // namespace

Fields read_config_fields(const std::string& json, const std::string& file) {
  dom::parser parser;
  dom::element root;
  if (parser.allocate(std::max<std::size_t>(json.size(), 64), kMaxDepth) != simdjson::SUCCESS)
    throw usage_error("the file is too large", {}, {file});
  if (const auto error = parser.parse(json).get(root)) malformed(json, file, simdjson::error_message(error));
  dom::object object;
  if (root.get(object) != simdjson::SUCCESS)
    throw usage_error("expected a JSON object with the model's fields", {}, {file, 1, 1});
  const KeyPlaces places(json, file);
  refuse_twice(object, "", places);
  Fields out;
  collect(object, "", places, out);
  return out;
}

}  // namespace trainhost::runfile
