// Writing JSON, compared with nlohmann on random trees, and pinned texts.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/json_value.hpp"

namespace trainhost {
namespace {

using Other = nlohmann::ordered_json;

/// Builds the same value in both libraries.
struct Pair {
  JsonValue ours;
  Other other;
};

class RandomTree {
 public:
  explicit RandomTree(unsigned seed) : random_(seed) {}

  Pair value(int depth) {
    switch (draw(depth > 0 ? 9 : 7)) {
      case 0:
        return {nullptr, nullptr};
      case 1: {
        const bool b = draw(2);
        return {b, b};
      }
      case 2: {
        const auto i = static_cast<std::int64_t>(random_()) >> draw(64);
        return {i, i};
      }
      case 3: {
        const std::uint64_t i = random_() >> draw(64);
        return {i, i};
      }
      case 4:
      case 5: {
        const double x = number();
        return {x, x};
      }
      case 6: {
        const std::string s = text();
        return {s, s};
      }
      case 7: {
        Pair p = {JsonValue::array(), Other::array()};
        for (unsigned n = draw(4); n > 0; --n) {
          Pair element = value(depth - 1);
          p.ours.push_back(std::move(element.ours));
          p.other.push_back(std::move(element.other));
        }
        return p;
      }
      default: {
        Pair p = {JsonValue::object(), Other::object()};
        for (unsigned n = draw(4); n > 0; --n) {
          const std::string key = text();
          Pair member = value(depth - 1);
          p.ours[key] = std::move(member.ours);
          p.other[key] = std::move(member.other);
        }
        return p;
      }
    }
  }

 private:
  unsigned draw(unsigned n) { return static_cast<unsigned>(random_() % n); }
  /// Few binary digits: nlohmann's algorithm does not always find the fewest decimal digits.
  double number() { return (static_cast<int>(draw(2'000'001)) - 1'000'000) / 64.0; }
  std::string text() {
    static const char* const kParts[] = {"a",    "layers", "\"", "\\", "\n", "\x01", "\x1f",
                                         "\x7f", "é",      "漢", "😀",  "/",  " "};
    std::string s;
    for (unsigned n = draw(5); n > 0; --n) s += kParts[draw(std::size(kParts))];
    return s;
  }
  std::mt19937_64 random_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(json_write)

BOOST_AUTO_TEST_CASE(random_trees_are_written_as_nlohmann_writes_them) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    const Pair p = RandomTree(seed).value(4);
    BOOST_REQUIRE_EQUAL(p.ours.dump(), p.other.dump());
    BOOST_REQUIRE_EQUAL(p.ours.dump(2), p.other.dump(2));
  }
}

BOOST_AUTO_TEST_CASE(written_trees_are_read_back) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    const std::string text = RandomTree(seed).value(4).ours.dump(seed % 2 ? 2 : -1);
    BOOST_REQUIRE_EQUAL(parse_json(text).dump(), JsonValue(parse_json(text)).dump());
    BOOST_REQUIRE_EQUAL(Other::parse(parse_json(text).dump()), Other::parse(text));
  }
}

BOOST_AUTO_TEST_CASE(doubles_read_back_bit_for_bit) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t bits = random();
    double x, y;
    std::memcpy(&x, &bits, sizeof x);
    if (!std::isfinite(x)) continue;
    y = parse_json(JsonValue(x).dump()).number;
    BOOST_REQUIRE_EQUAL(std::memcmp(&x, &y, sizeof x), 0);
  }
}

BOOST_AUTO_TEST_CASE(forms_of_numbers) {
  for (const auto& [x, text] :
       std::vector<std::pair<double, const char*>>{{0.0, "0.0"},
                                                   {-0.0, "-0.0"},
                                                   {1.0, "1.0"},
                                                   {0.0001, "0.0001"},
                                                   {0.00001, "1e-05"},
                                                   {123456789012345.0, "123456789012345.0"},
                                                   {1e15, "1e+15"},
                                                   {1.5e300, "1.5e+300"},
                                                   {3.5, "3.5"}})
    BOOST_TEST(JsonValue(x).dump() == text);
  BOOST_TEST(JsonValue(std::numeric_limits<double>::infinity()).dump() == "null");
  BOOST_TEST(JsonValue(std::numeric_limits<double>::quiet_NaN()).dump() == "null");
  BOOST_TEST(JsonValue(std::numeric_limits<std::uint64_t>::max()).dump() == "18446744073709551615");
  BOOST_TEST(JsonValue(std::numeric_limits<std::int64_t>::min()).dump() == "-9223372036854775808");
}

BOOST_AUTO_TEST_CASE(bytes_that_are_not_utf8_become_replacement_characters) {
  BOOST_TEST(json_string("a\xff"
                         "b\xc3") ==
             "\"a\xEF\xBF\xBD"
             "b\xEF\xBF\xBD\"");
  BOOST_TEST(json_string("é\xff") == "\"é\xEF\xBF\xBD\"");
}

BOOST_AUTO_TEST_CASE(lists_of_pairs_are_objects) {
  BOOST_TEST((JsonValue{{"a", 1}, {"b", {1, 2}}}.dump()) == R"({"a":1,"b":[1,2]})");
  BOOST_TEST((JsonValue{{"a", 1}, {2, 1}}.dump()) == R"([["a",1],[2,1]])");
  BOOST_TEST((JsonValue::array({"a", "b"}).dump()) == R"(["a","b"])");
  JsonValue v = {{"a", nullptr}};
  v["b"]["c"] = true;
  v["a"] = std::vector<std::string>{"x"};
  BOOST_TEST(v.dump() == R"({"a":["x"],"b":{"c":true}})");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace trainhost
