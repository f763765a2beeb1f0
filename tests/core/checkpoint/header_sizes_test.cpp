// Rules 10 to 15: counts, bytes and offsets agree with each other and with the file, without overflow.
#include "tests/core/checkpoint/rules_fixture.hpp"

using namespace trainhost;
using namespace trainhost::test;

BOOST_FIXTURE_TEST_SUITE(checkpoint_header_sizes, Rules)

BOOST_AUTO_TEST_CASE(rule_10_a_product_of_dimensions_never_wraps) {
  for (int bit = 1; bit < 63; ++bit) {  // 2^bit * 2^(64-bit) is 0 in 64 bits, and + 1 is 2^bit
    std::string a = std::to_string(1ull << bit), b = std::to_string(1ull << std::min(62, 64 - bit));
    breaks(10, safetensors("{" + entry("a", "\"U8\"", "[" + a + "," + b + ",2]", "[0,0]") + "}"));
  }
  breaks(10, safetensors("{" + entry("a", "\"F32\"", "[4398046511105,4398046511104]", "[0,4]") + "}", 4));
  breaks(10, safetensors("{" + entry("a", "\"F32\"", "[4294967296,4294967296]", "[0,0]") + "}"));
  breaks(10, safetensors("{" + entry("a", "\"F32\"", "[9223372036854775807,2]", "[0,0]") + "}"));
  for (const char* s :
       {"[0,9223372036854775807,9223372036854775807]", "[9223372036854775807,0,9223372036854775807]",
        "[9223372036854775807,9223372036854775807,0]"})  // one zero dimension makes the product zero
    opens(safetensors("{" + entry("a", "\"F64\"", s, "[0,0]") + "}"), 1);
}

BOOST_AUTO_TEST_CASE(rule_11_a_size_in_bytes_never_wraps_and_is_whole) {
  for (const char* d : {"F32", "I32", "U32", "F64", "I64", "U64", "C64"})
    for (std::uint64_t n : {1ull << 61, (1ull << 62), (1ull << 62) + 1, (1ull << 63) - 1})
      breaks(11, safetensors(
                     "{" + entry("a", "\"" + std::string(d) + "\"", "[" + std::to_string(n) + "]", "[0,0]") +
                     "}"));
  for (std::uint64_t n : {1, 3, 5, 7, 9, 11, 13}) {
    breaks(11, safetensors("{" +
                               entry("a", "\"F4\"", "[" + std::to_string(n) + "]",
                                     "[0," + std::to_string(n / 2) + "]") +
                               "}",
                           n / 2));
    breaks(11, safetensors("{" +
                               entry("a", "\"F6_E2M3\"", "[" + std::to_string(n) + "]",
                                     "[0," + std::to_string(n * 6 / 8) + "]") +
                               "}",
                           n * 6 / 8));
  }
}

BOOST_AUTO_TEST_CASE(rule_12_there_are_two_offsets_in_order) {
  for (const char* o : {"[]",
                        "[0]",
                        "[0,8,8]",
                        "[0,8,16,24]",
                        "[8,0]",
                        "[1,0]",
                        "[9223372036854775807,0]",
                        "\"0,8\"",
                        "null",
                        "{}",
                        "8",
                        "[-8,0]",
                        "[0,-8]",
                        "[0.0,8]",
                        "[0,8.0]",
                        "[0,8e0]",
                        "[\"0\",\"8\"]",
                        "[null,8]",
                        "[[0,8]]",
                        "[0,9223372036854775808]",
                        "[0,18446744073709551624]",
                        "[0,08]",
                        "[0 8]",
                        "[0,8",
                        "[0,]",
                        "[,8]"})
    breaks(12, safetensors("{" + entry("a", "\"F32\"", "[2]", o) + "}", 8));
  BOOST_TEST(
      says(error(safetensors("{" + entry("a", "\"F32\"", "[2]", "[0,8,8]") + "}", 8)), "more than two"));
  breaks(12, safetensors(R"({"a":{"dtype":"F32","shape":[0]}})"));
  breaks(12, safetensors("{" + entry("a", "\"F32\"", "[2]", "[8,0]") + "}", 8), "[8,0]");
}

BOOST_AUTO_TEST_CASE(rule_13_offsets_span_the_bytes_of_shape_and_dtype) {
  for (std::uint64_t n = 0; n < 24; ++n)
    if (n != 8)
      breaks(13, safetensors("{" + entry("a", "\"F32\"", "[2]", "[0," + std::to_string(n) + "]") + "}", n));
  breaks(13, safetensors("{" + entry("a", "\"F16\"", "[2]", "[0,8]") + "}", 8));
  breaks(13, safetensors("{" + entry("a", "\"F4\"", "[2]", "[0,2]") + "}", 2));
  breaks(13, safetensors("{" + entry("a", "\"F32\"", "[0]", "[0,4]") + "}", 4));
  breaks(13, safetensors("{" + entry("a", "\"F32\"", "[]", "[0,0]") + "}"));
}

BOOST_AUTO_TEST_CASE(rule_14_tensors_cover_the_data_without_gap_or_overlap) {
  auto two = [](std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d, bool swap) {
    auto e = [](const char* name, std::uint64_t from, std::uint64_t to) {
      return entry(name, "\"U8\"", "[" + std::to_string(to - from) + "]",
                   "[" + std::to_string(from) + "," + std::to_string(to) + "]");
    };
    std::string x = e("a", a, b), y = e("b", c, d);
    return "{" + (swap ? y + "," + x : x + "," + y) + "}";
  };
  for (bool swap : {false, true}) {
    for (std::uint64_t gap = 1; gap < 8; ++gap) {
      breaks(14, safetensors(two(0, 8, 8 + gap, 16 + gap, swap), 16 + gap));  // a gap
      breaks(14, safetensors(two(0, 8, 8 - gap, 16, swap), 16));              // an overlap
    }
    breaks(14, safetensors(two(0, 8, 0, 8, swap), 8));    // the same bytes twice
    breaks(14, safetensors(two(1, 8, 8, 16, swap), 16));  // a gap at the start
    breaks(14, safetensors(two(0, 16, 4, 4, swap), 16));  // an empty tensor inside another
    opens(safetensors(two(0, 8, 8, 8, swap), 8), 2);      // empty tensors at boundaries are valid
    opens(safetensors(two(0, 0, 0, 8, swap), 8), 2);
  }
}

BOOST_AUTO_TEST_CASE(rule_15_the_data_end_with_the_file) {
  for (std::size_t more = 1; more <= 16; ++more) breaks(15, safetensors(kGood, 8) + std::string(more, '\0'));
  for (std::size_t less = 1; less <= 8; ++less) breaks(15, safetensors(kGood, 8 - less));
  BOOST_TEST(
      says(error(safetensors(kGood, 7)), "ends at byte 8 of the data, but the file has 7: it is truncated"));
  breaks(15, safetensors("{}") + "x");
  breaks(15, safetensors("{" + entry("a", "\"U8\"", "[9223372036854775807]", "[0,9223372036854775807]") + "}",
                         8));
  opens(safetensors("{}"), 0);
}

BOOST_AUTO_TEST_SUITE_END()
