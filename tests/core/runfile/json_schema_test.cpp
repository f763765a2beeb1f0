// The JSON Schema of run files against the parser: on random files, both refuse the same keys. The validator
// here knows the part of draft 4 that the schema uses. TRAINHOST_RANDOM_FILES sets the number of files.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "core/runfile/named_values.hpp"
#include "core/runfile/schema.hpp"
#include "core/runfile/settings.hpp"
#include "core/runfile/toml_read.hpp"
#include "tests/support/text_patterns.hpp"

using namespace trainhost;
using namespace trainhost::runfile;
using Json = nlohmann::json;

namespace {

bool has_type(const Json& v, const std::string& type) {
  if (type == "object") return v.is_object();
  if (type == "array") return v.is_array();
  if (type == "string") return v.is_string();
  if (type == "boolean") return v.is_boolean();
  if (type == "integer") return v.is_number_integer();  // draft 4: 1.0 is none
  BOOST_REQUIRE_EQUAL(type, "number");
  return v.is_number();
}

bool matches(const std::string& text, const std::string& pattern) {
  return !trainhost::test::find_pattern(text, pattern).empty();
}

std::size_t characters(const std::string& utf8) {
  return static_cast<std::size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// The keys that break the schema, dotted; an item of a list counts as its key.
class Validator {
 public:
  std::set<std::string> wrong_keys(const Json& schema, const Json& value) {
    wrong_.clear();
    table(schema, value, "");
    return wrong_;
  }

 private:
  static bool valid(const Json& schema, const Json& v) {
    static const std::set<std::string> kKnown = {"$schema",
                                                 "title",
                                                 "type",
                                                 "description",
                                                 "default",
                                                 "enum",
                                                 "minimum",
                                                 "maximum",
                                                 "pattern",
                                                 "items",
                                                 "minItems",
                                                 "maxItems",
                                                 "uniqueItems",
                                                 "properties",
                                                 "patternProperties",
                                                 "anyOf",
                                                 "minLength",
                                                 "not",
                                                 "additionalProperties"};
    for (const auto& [name, rule] : schema.items()) BOOST_REQUIRE_MESSAGE(kKnown.count(name), name);
    const auto rule = [&](const char* name) { return schema.find(name); };
    const auto end = schema.end();
    if (const auto r = rule("type"); r != end) {
      const bool any = r->is_string()
                           ? has_type(v, *r)
                           : std::any_of(r->begin(), r->end(), [&](const Json& t) { return has_type(v, t); });
      if (!any) return false;
    }
    if (const auto r = rule("enum"); r != end && std::find(r->begin(), r->end(), v) == r->end()) return false;
    if (const auto r = rule("not"); r != end && valid(*r, v)) return false;
    if (const auto r = rule("anyOf");
        r != end && std::none_of(r->begin(), r->end(), [&](const Json& s) { return valid(s, v); }))
      return false;
    if (v.is_number()) {
      if (const auto r = rule("minimum"); r != end && v < *r) return false;
      if (const auto r = rule("maximum"); r != end && v > *r) return false;
    }
    if (v.is_string()) {
      if (const auto r = rule("minLength"); r != end && characters(v) < r->get<std::size_t>()) return false;
      if (const auto r = rule("pattern"); r != end && !matches(v, *r)) return false;
    }
    if (v.is_array()) {
      if (const auto r = rule("minItems"); r != end && v.size() < r->get<std::size_t>()) return false;
      if (const auto r = rule("maxItems"); r != end && v.size() > r->get<std::size_t>()) return false;
      if (rule("uniqueItems") != end && std::set<Json>(v.begin(), v.end()).size() != v.size()) return false;
      if (const auto r = rule("items"); r != end)
        return std::all_of(v.begin(), v.end(), [&](const Json& item) { return valid(*r, item); });
    }
    return true;
  }

  void table(const Json& schema, const Json& v, const std::string& path) {
    if (!valid(schema, v)) {
      wrong_.insert(path);
      return;
    }
    if (!v.is_object()) return;
    for (const auto& [key, value] : v.items()) {
      const std::string inner = path.empty() ? key : path + "." + key;
      const Json* rule = nullptr;
      if (const auto p = schema.find("properties"); p != schema.end() && p->contains(key)) rule = &p->at(key);
      if (const auto p = schema.find("patternProperties"); !rule && p != schema.end())
        for (const auto& [pattern, s] : p->items())
          if (matches(key, pattern)) rule = &s;
      if (rule)
        table(*rule, value, inner);
      else
        wrong_.insert(inner);  // additionalProperties is false everywhere
    }
  }

  std::set<std::string> wrong_;
};

/// A random run file as a tree; what JSON does not have is null there: dates, inf and nan.
class RandomFile {
 public:
  explicit RandomFile(std::uint64_t seed) : random_(seed) {}

  std::string toml;  // one line per key, each with its full name
  Json json = Json::object();

  void make() {
    for (std::size_t n = 1 + below(8); n > 0; --n) {
      switch (below(20)) {
        case 0:
          add(misspelt(any_key().name), value_text());
          break;
        case 1:
          add(std::string(any_table()) + ".zzzzzz", value_text());
          break;
        case 2:
          add(pick(
                  {"zzz", "steps", "trian.steps", "train.steps.deep", "model.rope_scalin.factor", "[train]"}),
              value_text());
          break;
        case 3:
          add(any_table(), pick({"5", "\"x\"", "[]", "[1]", "true", "1979-05-27"}));
          break;
        case 4:
          add("plugin." + pick({"cuda", "a-b", "x_1", "9", "*", "a b"}) +
                  pick({"", ".mode", ".*", ".a.b", ".c d"}),
              value_text());
          break;
        case 5:
          add("memory.estimators." + pick({"llama", "*", "gpt2", "nofamily", "a b"}),
              coin() ? text_value_of(*find_key("memory.estimator")) : value_text());
          break;
        case 6:
        case 7:
          add(any_key().name, value_text());
          break;
        default: {
          const Key& k = any_key();
          add(k.name, text_value_of(k));
        }
      }
    }
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  bool coin() { return below(2); }
  std::string pick(const std::vector<std::string>& from) { return from[below(from.size())]; }
  const Key& any_key() { return schema()[below(schema().size())]; }
  const char* any_table() { return tables()[below(tables().size())].name; }

  std::string misspelt(std::string name) {
    const std::size_t at = name.rfind('.') + 1 + below(name.size() - name.rfind('.') - 1);
    if (coin())
      name.erase(at, 1);
    else
      name.insert(at, 1, static_cast<char>('a' + below(26)));
    return name;
  }

  std::string number(double x) {
    char out[64];
    std::snprintf(out, sizeof out, "%.17g", x);
    return std::string(out).find_first_of(".en") == std::string::npos ? std::string(out) + ".0" : out;
  }

  /// Any value, most of them of the wrong type.
  std::string value_text() {
    return pick({"0",
                 "1",
                 "-1",
                 "5",
                 "1.0",
                 "0.5",
                 "1e3",
                 "nan",
                 "inf",
                 "-inf",
                 "true",
                 "false",
                 "\"\"",
                 "\"x\"",
                 "\"auto\"",
                 "\"bf16\"",
                 "\"1GiB\"",
                 "\"12\"",
                 "\"a\\u0000b\"",
                 "\"\\n\"",
                 "[]",
                 "[1]",
                 "[1, 2]",
                 "[0.9, 0.95]",
                 "[\"x\"]",
                 "[\"x\", \"x\"]",
                 "[\"\"]",
                 "[\"auto\"]",
                 "[[1]]",
                 "[true]",
                 "1979-05-27",
                 "07:32:00",
                 "9223372036854775807",
                 "-9223372036854775808",
                 "{}"});
  }

  /// A value of the type of the key: within its limits, at them, or just beyond.
  std::string text_value_of(const Key& k) {
    switch (k.type) {
      case Type::kInteger: {
        // 2^63 cannot be written.
        const double max = std::min(k.max, 9.2e18);
        const double x = pick_number({k.min, k.min - 1, k.min + 1, max, max + 1, max - 1, 3});
        return std::to_string(static_cast<std::int64_t>(std::max(-9.2e18, std::min(x, 9.2e18))));
      }
      case Type::kNumber:
        return number_value(k);
      case Type::kPair:
      case Type::kNumbers: {
        std::string out;
        for (std::size_t n = below(4); n > 0; --n) out += (out.empty() ? "" : ", ") + number_value(k);
        return "[" + out + "]";
      }
      case Type::kSize:
        return '"' + pick({"512MiB", "80GB",  "4096B",  "1.5GiB", " 1 TB ", "0GiB",  "0.0GiB", ".5kb",
                           "5.MB",   "24",    "24G",    "1e3MB",  "1e3B",   "0e1B",  "-1GiB",  "1,5GiB",
                           "GiB",    "1GiBx", "1 Gi B", "24gib",  "3PiB",   "0x1GB", "007KB",  ""}) +
               '"';
      case Type::kBool:
        return pick({"true", "false", "1", "\"true\""});
      case Type::kChoice:
        return word({split(k.choices)});
      case Type::kText:
      case Type::kPath:
        return word(known_names(k));
      case Type::kTexts:
      case Type::kPaths: {
        if (coin()) return word(words_of(k));
        std::string out;
        for (std::size_t n = below(4); n > 0; --n) out += (out.empty() ? "" : ", ") + word(words_of(k));
        return "[" + out + "]";
      }
    }
    return "";
  }

  std::string number_value(const Key& k) {
    const double x = pick_number({k.min, std::nextafter(k.min, -1e308), k.max, std::nextafter(k.max, 1e308),
                                  (k.min + k.max) / 2, k.min / 2, 0, 1, -1, 0.5});
    return x == std::floor(x) && std::abs(x) < 1e15 && coin() ? std::to_string(static_cast<std::int64_t>(x))
                                                              : number(x);
  }
  double pick_number(const std::vector<double>& from) { return from[below(from.size())]; }

  static std::vector<std::string> split(std::string_view text) {
    std::vector<std::string> out(1);
    for (const char c : text)
      if (c == '|')
        out.emplace_back();
      else
        out.back() += c;
    return out;
  }

  std::vector<std::string> words_of(const Key& k) {
    const std::string name = k.name;
    if (name == "plugins.allow")
      return {std::string(64, 'a'), "sha256:" + std::string(64, 'F'), std::string(63, '0')};
    if (name == "plugins.order") return {"cpu", "cuda", "mine"};
    return known_names(k);
  }

  /// One of `words`, or a word that is most likely none of them.
  std::string word(const std::vector<std::string>& words) {
    std::string out = words.empty() ? pick({"x", "a/b.txt", "*.txt", "xä", "two words"}) : pick(words);
    if (below(6) == 0)
      out = pick({"", "x", "auto", "all", out + "x", out.substr(1), "FP32", " " + out, "a\\u0000", "\\n"});
    return '"' + out + '"';
  }

  /// Adds `name` = `value`, unless the name or its table has a value. A part in brackets is quoted.
  void add(const std::string& name, const std::string& value) {
    // Inline tables cannot be extended.
    for (const std::string& c : closed_)
      if (name.starts_with(c + ".")) return;
    std::vector<std::string> parts(1);
    for (const char c : name)
      if (c == '.')
        parts.emplace_back();
      else
        parts.back() += c;
    Json* at = &json;
    std::string path;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!at->is_object()) return;
      const bool bare =
          parts[i].find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
              std::string::npos &&
          !parts[i].empty();
      path += (path.empty() ? "" : ".") + (bare ? parts[i] : '"' + parts[i] + '"');
      if (i + 1 == parts.size() && at->contains(parts[i])) return;
      if (i + 1 < parts.size() && !at->contains(parts[i])) (*at)[parts[i]] = Json::object();
      at = &(*at)[parts[i]];
    }
    if (value == "{}") closed_.insert(name);
    *at = json_of(value);
    toml += path + " = " + value + "\n";
  }

  static Json json_of(const std::string& value) {
    if (value == "{}") return Json::object();
    for (const char* other : {"nan", "inf", "-inf", "1979", "07:"})
      if (value.starts_with(other)) return nullptr;
    return Json::parse(value);
  }

  std::mt19937_64 random_;
  std::set<std::string> closed_;
};

std::string joined(const std::set<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : ", ") + w;
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(json_schema)

BOOST_AUTO_TEST_CASE(schema_and_parser_agree_on_random_files) {
  const Json schema_json = Json::parse(run_file_json_schema());
  const char* given = std::getenv("TRAINHOST_RANDOM_FILES");
  const int files = given ? std::atoi(given) : 4000;
  Validator validator;
  std::set<std::string> seen_valid, seen_wrong;
  int accepted = 0, refused = 0;
  for (int i = 0; i < files; ++i) {
    RandomFile file(static_cast<std::uint64_t>(i));
    file.make();
    std::vector<RunFileError> errors;
    const std::vector<Entry> entries = read_toml(file.toml, "run.toml", &errors);
    const Settings settings("run.toml", entries, {}, &errors);
    std::set<std::string> parser;
    for (const RunFileError& e : errors) parser.insert(e.key);
    const std::set<std::string> wrong = validator.wrong_keys(schema_json, file.json);
    BOOST_REQUIRE_MESSAGE(wrong == parser, "file " << i << "\n"
                                                   << file.toml << "\nschema refuses: " << joined(wrong)
                                                   << "\nparser refuses: " << joined(parser));
    (wrong.empty() ? accepted : refused) += 1;
    seen_wrong.insert(wrong.begin(), wrong.end());
    for (const auto& [key, value] : settings.values()) seen_valid.insert(key);
  }
  BOOST_TEST_MESSAGE(accepted << " files accepted, " << refused << " refused");
  BOOST_TEST(accepted > files / 20);
  BOOST_TEST(refused > files / 20);
  for (const Key& k : schema()) {  // each key was right and wrong at least once
    BOOST_TEST(seen_valid.count(k.name) == 1u, k.name);
    BOOST_TEST(seen_wrong.count(k.name) == 1u, k.name);
  }
}

BOOST_AUTO_TEST_CASE(every_key_has_description_and_default) {
  const Json s = Json::parse(run_file_json_schema());
  BOOST_TEST(s["$schema"] == "http://json-schema.org/draft-04/schema#");
  for (const Key& k : schema()) {
    const Json* at = &s;
    std::string part, name = std::string(k.name) + ".";
    for (const char c : name)
      if (c == '.') {
        BOOST_REQUIRE_MESSAGE(at->contains("properties") && at->at("properties").contains(part), k.name);
        at = &at->at("properties").at(part);
        part.clear();
      } else {
        part += c;
      }
    BOOST_TEST(at->at("description").get<std::string>().starts_with(k.doc), k.name);
    BOOST_TEST(at->contains("default") == (*k.default_toml != 0), k.name);
  }
  const Json& train = s["properties"]["train"]["properties"];
  BOOST_TEST(train["precision"]["enum"] == Json::parse(R"(["fp32", "tf32", "bf16", "fp16", "fp8"])"));
  BOOST_TEST(train["micro_batch"]["maximum"] == 1048576);
  BOOST_TEST(train["micro_batch"]["default"] == 4);
  BOOST_TEST(!train["seed"].contains("maximum"));
  const Json devices = s["properties"]["memory"]["properties"]["device"]["enum"];
  BOOST_TEST((std::find(devices.begin(), devices.end(), "h100-80gb") != devices.end()));
}

BOOST_AUTO_TEST_SUITE_END()
