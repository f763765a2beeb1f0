// core/base: the strict JSON reader and its tree with positions.
#include <boost/test/unit_test.hpp>

#include "core/base/json_value.hpp"

using namespace trainhost;

namespace {

/// "BYTE: MESSAGE" for invalid JSON, "" for valid JSON.
std::string fault(const std::string& text, unsigned max_depth = 8) {
  try {
    parse_json(text, max_depth);
  } catch (const JsonError& e) {
    return std::to_string(e.at) + ": " + e.what();
  }
  return "";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(json)

BOOST_AUTO_TEST_CASE(a_tree_has_every_value_in_the_order_of_the_text) {
  const JsonValue v = parse_json(R"( {"a": [1, -2.5e1, true, null], "b": {"c": "\u00e9\n"}, "a": false} )");
  BOOST_REQUIRE(v.members.size() == 3u);
  BOOST_TEST(v.members[2].key == "a");  // duplicate keys are kept; find() returns the first
  const JsonValue& a = *v.find("a");
  BOOST_REQUIRE(a.elements.size() == 4u);
  BOOST_TEST((a.elements[0].kind == JsonValue::Kind::kInteger && a.elements[0].integer == 1));
  BOOST_TEST((a.elements[1].kind == JsonValue::Kind::kNumber && a.elements[1].number == -25));
  BOOST_TEST((a.elements[2].boolean && a.elements[3].is_null()));
  BOOST_TEST(v.find("b")->find("c")->string == "\xC3\xA9\n");
  BOOST_TEST(!v.find("c"));
  BOOST_TEST(!a.find("c"));
}

BOOST_AUTO_TEST_CASE(whole_numbers_are_exact_up_to_64_bits) {
  const auto number = [](const std::string& text) { return parse_json(text); };
  BOOST_TEST(number("9223372036854775807").integer == INT64_MAX);
  BOOST_TEST(number("-9223372036854775808").integer == INT64_MIN);
  const JsonValue beyond = number("9223372036854775808");
  BOOST_TEST((beyond.kind == JsonValue::Kind::kNumber && beyond.number == 0x1p63 && beyond.integer == 0));
  BOOST_TEST((number("16.0").kind == JsonValue::Kind::kNumber && number("1e3").number == 1000));
  BOOST_TEST(number("1e-999").number == 0);
  BOOST_TEST(number("0." + std::string(400, '0') + "1").number == 0);
  BOOST_TEST(fault("[1e999]") == "1: number out of range");
  BOOST_TEST(fault("1" + std::string(400, '0')) == "0: number out of range");
}

BOOST_AUTO_TEST_CASE(positions_are_lines_and_characters) {
  const std::string text = "{\n \"\xC3\xA9\": 1, \"b\": [2,\n3]}";
  const JsonValue v = parse_json(text);
  JsonPositions positions(text, "f");
  const auto at = [&](std::uint64_t byte) {
    const Where w = positions.where(byte);
    return std::to_string(w.line) + ":" + std::to_string(w.column);
  };
  BOOST_TEST(at(v.members[0].key_at) == "2:2");
  BOOST_TEST(at(v.members[1].key_at) == "2:10");
  BOOST_TEST(at(v.members[1].value.elements[1].begin) == "3:1");
  BOOST_TEST(at(v.members[0].value.begin) == "2:7");  // backwards
  BOOST_TEST(text.substr(v.members[1].value.begin, v.members[1].value.end - v.members[1].value.begin) ==
             "[2,\n3]");
}

BOOST_AUTO_TEST_CASE(anything_beyond_rfc_8259_is_an_error_with_its_byte) {
  BOOST_TEST(fault("") == "0: expected a value, found the end of the text");
  BOOST_TEST(fault("{") == "1: expected a string, found the end of the text");
  BOOST_TEST(fault("{\"a\" 1}") == "5: expected ':', found '1'");
  BOOST_TEST(fault("[1 2]") == "3: expected ',' or ']', found '2'");
  BOOST_TEST(fault("[1,]") == "3: expected a value, found ']'");
  BOOST_TEST(fault("{\"a\":1,}") == "7: expected a string, found '}'");
  BOOST_TEST(fault("01") == "0: malformed number");
  BOOST_TEST(fault("-") == "0: malformed number");
  BOOST_TEST(fault("1 x") == "2: 'x' after the end of the value");
  BOOST_TEST(fault("[tru]") == "1: expected a value, found 'tru'");
  BOOST_TEST(fault("\"a") == "0: unterminated string");
  BOOST_TEST(fault("\"\\ud800\"") == "1: unpaired surrogate in a string");
  BOOST_TEST(fault("\"a\xFF\"") == "2: not valid UTF-8");
  BOOST_TEST(fault("[[[]]]", 2) == "2: nested deeper than 2 levels");
  BOOST_TEST(fault("[[]]", 2) == "");
}

BOOST_AUTO_TEST_SUITE_END()
