// The host extension "trainhost.config/1", compared with nlohmann's parser, and its answers to invalid
// questions.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/plugin/config_table.hpp"

namespace {

const th_config kTable = trainhost::plugin::config_table();

th_model with(const char* json) {
  th_model m{};
  m.struct_size = sizeof m;
  m.config_json = json;
  return m;
}

const char* const kJson = R"({
  "hidden": 4096, "moe": {"experts": 64, "top_k": 8, "shared": null, "factors": [1.5, 2, {"deep": [7]}]}, "tied": true,
  "untied": false, "name": "a\u00e4\u20ac", "empty": [], "eps": 1e-5, "whole": 4.0, "huge": 18446744073709551615,
  "large": 9223372036854775807, "negative": -3, "0": "zero", "very": 1e19})";

/// Every path of a JSON value, dotted.
void paths(const nlohmann::json& j, const std::string& at, std::vector<std::string>& out) {
  out.push_back(at);
  auto below = [&](const std::string& key) { return at.empty() ? key : at + "." + key; };
  if (j.is_object())
    for (const auto& [key, value] : j.items()) paths(value, below(key), out);
  if (j.is_array())
    for (std::size_t i = 0; i < j.size(); ++i) paths(j[i], below(std::to_string(i)), out);
}

nlohmann::json at(const nlohmann::json& j, const std::string& path) {
  std::string pointer = path.empty() ? "" : "/" + path;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return j.at(nlohmann::json::json_pointer(pointer));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(every_key_gives_the_value_of_another_parser) {
  const nlohmann::json whole = nlohmann::json::parse(kJson);
  const th_model m = with(kJson);
  std::vector<std::string> all;
  paths(whole, "", all);
  BOOST_TEST(all.size() > 20u);
  for (const std::string& path : all) {
    const nlohmann::json j = at(whole, path);
    BOOST_TEST_CONTEXT(path) {
      double number = -1;
      BOOST_TEST(kTable.number(&kTable, &m, path.c_str(), &number) == (j.is_null()     ? TH_E_ABSENT
                                                                       : j.is_number() ? TH_OK
                                                                                       : TH_E_ARG));
      BOOST_TEST(number == (j.is_number() ? j.get<double>() : -1.0));
      std::uint64_t items = 99;
      const bool list = j.is_array() || j.is_object();
      BOOST_TEST(kTable.count(&kTable, &m, path.c_str(), &items) == (j.is_null() ? TH_E_ABSENT
                                                                     : list      ? TH_OK
                                                                                 : TH_E_ARG));
      BOOST_TEST(items == (list ? j.size() : 99u));
      char text[64] = "before";
      std::uint64_t length = 0;
      BOOST_TEST(kTable.text(&kTable, &m, path.c_str(), text, sizeof text, &length) ==
                 (j.is_null()     ? TH_E_ABSENT
                  : j.is_string() ? TH_OK
                                  : TH_E_ARG));
      BOOST_TEST(text == (j.is_string() ? j.get<std::string>() : "before"));
    }
  }
}

BOOST_AUTO_TEST_CASE(an_integer_may_be_written_in_several_ways) {
  const th_model m = with(kJson);
  auto integer = [&](const char* key) -> std::pair<th_status, std::int64_t> {
    std::int64_t v = 77;
    th_status s = kTable.integer(&kTable, &m, key, &v);
    return {s, v};
  };
  BOOST_TEST((integer("hidden") == std::pair{TH_OK, std::int64_t{4096}}));
  BOOST_TEST((integer("whole") == std::pair{TH_OK, std::int64_t{4}}));
  BOOST_TEST((integer("negative") == std::pair{TH_OK, std::int64_t{-3}}));
  BOOST_TEST((integer("large") == std::pair{TH_OK, INT64_MAX}));
  BOOST_TEST((integer("tied") == std::pair{TH_OK, std::int64_t{1}}));
  BOOST_TEST((integer("untied") == std::pair{TH_OK, std::int64_t{0}}));
  BOOST_TEST((integer("moe.factors.2.deep.0") == std::pair{TH_OK, std::int64_t{7}}));
  for (const char* not_whole : {"huge", "very", "eps", "moe.factors.0", "name", "moe"})
    BOOST_TEST((integer(not_whole) == std::pair{TH_E_ARG, std::int64_t{77}}), not_whole);
  for (const char* nothing : {"hiden", "moe.shared", "moe.factors.3", "moe.factors.-1", "moe.factors.x",
                              "moe.factors.0.1", "hidden.0", ".", "moe..experts"})
    BOOST_TEST((integer(nothing) == std::pair{TH_E_ABSENT, std::int64_t{77}}), nothing);
}

BOOST_AUTO_TEST_CASE(a_text_is_truncated_between_characters) {
  const th_model m = with(kJson);  // a, then two bytes, then three
  const char* const kCut[] = {"", "", "a", "a", "a\u00e4", "a\u00e4", "a\u00e4", "a\u00e4\u20ac"};
  for (std::uint64_t capacity = 1; capacity < 8; ++capacity) {
    char text[8] = "#######";
    std::uint64_t length = 0;
    BOOST_TEST(kTable.text(&kTable, &m, "name", text, capacity, &length) == TH_OK);
    BOOST_TEST(std::string(text) == kCut[capacity]);
    BOOST_TEST(length == 6u);
  }
  BOOST_TEST(kTable.text(&kTable, &m, "name", nullptr, 0, nullptr) == TH_OK);
  BOOST_TEST(kTable.text(&kTable, &m, "name", nullptr, 1, nullptr) == TH_E_ARG);
}

BOOST_AUTO_TEST_CASE(a_missing_or_invalid_config_is_reported) {
  std::int64_t v = 5;
  th_model m = with(nullptr);
  BOOST_TEST(kTable.integer(&kTable, &m, "a", &v) == TH_E_ABSENT);
  m = with("{\"a\": 1");
  BOOST_TEST(kTable.integer(&kTable, &m, "a", &v) == TH_E_ARG);
  m = with("{\"a\": 1}");
  BOOST_TEST(kTable.integer(&kTable, nullptr, "a", &v) == TH_E_ARG);
  BOOST_TEST(kTable.integer(&kTable, &m, nullptr, &v) == TH_E_ARG);
  BOOST_TEST(kTable.integer(&kTable, &m, "a", nullptr) == TH_E_ARG);
  m.struct_size = offsetof(th_model, config_json);
  BOOST_TEST(kTable.integer(&kTable, &m, "a", &v) == TH_E_ABSENT);
  const std::string deep(5000, '[');
  m = with(deep.c_str());
  BOOST_TEST(kTable.integer(&kTable, &m, "0", &v) == TH_E_ARG);
  BOOST_TEST(v == 5);
}

BOOST_AUTO_TEST_SUITE_END()
