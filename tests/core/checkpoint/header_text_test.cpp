// Rules 4 to 9 and 16: the text of a header. Every variant of a mistake is tested in its own file.
#include "tests/core/checkpoint/rules_fixture.hpp"

using namespace trainhost;
using namespace trainhost::test;

BOOST_FIXTURE_TEST_SUITE(checkpoint_header_text, Rules)

BOOST_AUTO_TEST_CASE(rule_4_a_header_starts_with_a_brace_and_is_padded_with_spaces) {
  for (const char* first : {"[", " ", "\"", "n", "\n", "\t", "\xEF\xBB\xBF", "1",    "-", "}",
                            "x", "/", "#",  "'", "<",  "P",  "\x80",         "\xff", ",", ":"})
    breaks(4, safetensors(first + kGood, 8));
  breaks(4, safetensors(""));
  breaks(4, safetensors(std::string("\0{}", 3)));
  for (const char* last : {"\n",       "\t",   "\r", "}", "]", ",", "x", "{}",  "  x", " \n",
                           "    \t  ", "null", "\"", "0", "/", "#", ";", "  {", ":",   "\x01"})
    breaks(4, safetensors(kGood + last, 8));
  breaks(4, safetensors(kGood + std::string(1, '\0'), 8), std::string(1, '\0'));
  for (std::size_t n = 0; n < 70; ++n) opens(safetensors(kGood + std::string(n, ' '), 8), 1);
}

BOOST_AUTO_TEST_CASE(rule_5_the_header_is_strict_json_and_valid_utf8) {
  const std::string t = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::vector<std::string> malformed{"{" + t + "}",
                                           "{\"a\"" + t + "}",
                                           "{\"a\":" + t,
                                           "{\"a\":" + t + ",}",
                                           "{,\"a\":" + t + "}",
                                           "{\"a\":" + t + ",,\"b\":" + t + "}",
                                           "{\"a\":" + t + " \"b\":" + t + "}",
                                           "{'a':" + t + "}",
                                           "{a:" + t + "}",
                                           "{\"a\"=" + t + "}",
                                           "{\"a\":" + t + "]",
                                           "{\"a\\\":" + t + "}",
                                           "{\"a\\x\":" + t + "}",
                                           "{\"a\\u12\":" + t + "}",
                                           "{\"a\\u12g4\":" + t + "}",
                                           "{\"a\\ud800\":" + t + "}",
                                           "{\"a\\udc00\":" + t + "}",
                                           "{\"a\\ud800xxdc00\":" + t + "}",
                                           "{\"a\\x0041\":" + t + "}",
                                           "{\"a\\ud800\\u0041\":" + t + "}",
                                           "{\"a\nb\":" + t + "}",
                                           "{\"a\":[]}",
                                           "{\"a\":null}",
                                           "{\"a\":1}",
                                           "{\"a\":\"F32\"}",
                                           "{\"a\":true}",
                                           "{/**/\"a\":" + t + "}",
                                           "{\"a\":{\"a\":" + t + "}}",
                                           "{\"a\":{\"extra\":1}}",
                                           "{\"a\":{\"dtype\"}}",
                                           "{\"a\":{\"DTYPE\":\"F32\"}}",
                                           "{",
                                           "{\"",
                                           "{\"a",
                                           "{\"a\"",
                                           "{\"a\":",
                                           "{\"a\":{",
                                           "{\"a\":" + std::string(90'000, '['),
                                           "{\"a\":" + std::string(90'000, '{')};
  for (const std::string& bad : malformed) breaks(5, safetensors(bad, 8));
  for (const char* bytes : {"\x80",
                            "\xBF",
                            "\xC0\x80",
                            "\xC1\xBF",
                            "\xC2",
                            "\xE0\x80\x80",
                            "\xE0\x9F\xBF",
                            "\xE2\x82",
                            "\xED\xA0\x80",
                            "\xED\xBF\xBF",
                            "\xF0\x80\x80\x80",
                            "\xF0\x8F\xBF\xBF",
                            "\xF0\x9F\x98",
                            "\xF4\x90\x80\x80",
                            "\xF5\x80\x80\x80",
                            "\xF8\x88\x80\x80\x80",
                            "\xFE",
                            "\xFF",
                            "\xC2\x20",
                            "\xE2\x28\xA1"})
    breaks(5, safetensors("{\"a" + std::string(bytes) + "\":" + t + "}", 8));
}

BOOST_AUTO_TEST_CASE(rule_6_names_and_keys_are_unique) {
  for (int n = 2; n < 22; ++n) {  // the two equal names at every distance
    std::string header = "{";
    for (int i = 0; i < n; ++i)
      header += (i ? "," : "") +
                entry(i == 0 || i == n - 1 ? "same" : "t" + std::to_string(i), "\"U8\"", "[0]", "[0,0]");
    breaks(6, safetensors(header + "}"));
  }
  const std::string e = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  breaks(6, safetensors(R"({"ab":)" + e + R"(,"a\u0062":)" + e + "}"));
  breaks(6, safetensors(R"({"é":)" + e + R"(,"\u00e9":)" + e + "}"));
  breaks(6, safetensors(R"({"中":)" + e + R"(,"\u4e2d":)" + e + "}"));
  breaks(6, safetensors(R"({"😀":)" + e + R"(,"\ud83d\ude00":)" + e + "}"));
  breaks(6, safetensors(R"({"a/b":)" + e + R"(,"a\/b":)" + e + "}"));
  breaks(6, safetensors(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"));
  breaks(6, safetensors(R"({"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})"));
  breaks(6, safetensors(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"data_offsets":[0,0]}})"));
  breaks(6, safetensors(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"\u0064type":"U8"}})"));
  breaks(6, safetensors(R"({"__metadata__":{},"__metadata__":{}})"));
  breaks(6, safetensors(R"({"__metadata__":{},"\u005f_metadata__":{}})"));
  breaks(6, safetensors(R"({"__metadata__":{"k":"1","k":"2"}})"));
  breaks(6, safetensors(R"({"__metadata__":{"k":"1","\u006b":"1"}})"));
}

BOOST_AUTO_TEST_CASE(rule_7_metadata_maps_strings_to_strings) {
  for (const char* v : {"1", "1.5", "null", "true", "false", "[]", "{}", "[\"a\"]", "{\"a\":\"b\"}", "-1",
                        "1e9", "\"unended"})
    breaks(7, safetensors("{\"__metadata__\":{\"k\":" + std::string(v) + "}}"));
  for (const char* v : {"1", "null", "true", "[]", "\"text\"", "[{}]", "[\"a\",\"b\"]", "{\"a\"}", "{\"a\":}",
                        "{:\"a\"}", "{1:\"a\"}", "{\"a\":\"b\",}"})
    breaks(7, safetensors("{\"__metadata__\":" + std::string(v) + "}"));
  breaks(7, safetensors(R"({"__metadata__":{"k":x"}})"), "x");
  BOOST_TEST(says(error(safetensors(R"({"__metadata__":{"k")")), "expected ':', found the end"));
  breaks(7, safetensors("{\"__metadata__\":{\"k\":\"" + std::string(1'000'001, 'x') + "\"}}"));
  breaks(7, safetensors("{\"__metadata__\":{\"" + std::string(1'000'001, 'x') + "\":\"\"}}"));
  std::string many;
  for (int i = 0; many.size() < 1'000'100; ++i) many += (i ? ",\"" : "\"") + std::to_string(i) + "\":\"\"";
  breaks(7, safetensors("{\"__metadata__\":{" + many + "}}"));
  opens(safetensors("{\"__metadata__\":{\"k\":\"" + std::string(900'000, 'x') + "\"}}"), 0);
  opens(safetensors("{" + kGood.substr(1, kGood.size() - 2) + ",\"__metadata__\":{\"format\":\"pt\"}}", 8),
        1);
}

BOOST_AUTO_TEST_CASE(rule_8_unknown_dtypes_are_rejected) {
  for (const char* d :
       {"\"F33\"",  "\"f32\"",        "\"FLOAT\"",   "\"\"",   "\"BF 16\"",   "\"I128\"",   "\"F32 \"",
        "\" F32\"", "\"F32\\u0000\"", "\"float32\"", "\"F8\"", "\"F8_E4M4\"", "\"Q4_0\"",   "\"F128\"",
        "\"U4\"",   "\"BOOL8\"",      "\"C128\"",    "\"F\"",  "\"32\"",      "\"BF16x2\"", "1",
        "null",     "true",           "[\"F32\"]",   "{}",     "F32"})
    breaks(8, safetensors("{" + entry("a", d, "[2]", "[0,8]") + "}", 8), std::string(d).substr(0, 1));
  breaks(8, safetensors("{" + entry("a", "\"" + std::string(5000, 'F') + "\"", "[2]", "[0,8]") + "}", 8));
  breaks(8, safetensors("{" + entry("a", "\"F32\x01\"", "[2]", "[0,8]") + "}", 8), "\x01");
  breaks(8, safetensors(R"({"a":{"shape":[0],"data_offsets":[0,0]}})"));
  BOOST_TEST(
      says(error(safetensors("{" + entry("a", "\"BF61\"", "[2]", "[0,4]") + "}", 4)), "did you mean 'BF16'"));
}

BOOST_AUTO_TEST_CASE(rule_9_dimensions_are_whole_numbers_written_in_digits) {
  for (const char* d : {"4.0",
                        "1e3",
                        "-1",
                        "-0",
                        "01",
                        "00",
                        "\"4\"",
                        "null",
                        "true",
                        "[]",
                        "{}",
                        "+1",
                        ".5",
                        "4.",
                        "0x10",
                        "NaN",
                        "Infinity",
                        "1E2",
                        "2e0",
                        "9223372036854775808",
                        "18446744073709551615",
                        "18446744073709551616",
                        "18446744073709551618",
                        "99999999999999999999999999999999999999",
                        "1_000",
                        "1e",
                        "0.0",
                        "4e-1"})
    breaks(9, safetensors("{" + entry("a", "\"F32\"", "[2," + std::string(d) + "]", "[0,8]") + "}", 8));
  for (const char* s :
       {"4", "null", "\"[2]\"", "{}", "true", "[2", "[,2]", "[2,]", "[2 2]", "(2)", "[2,,2]", "[[2]]"})
    breaks(9, safetensors("{" + entry("a", "\"F32\"", s, "[0,8]") + "}", 8));
  for (int rank = 9; rank < 13; ++rank) {
    std::string s = "[1";
    for (int i = 1; i < rank; ++i) s += ",1";
    breaks(9, safetensors("{" + entry("a", "\"F32\"", s + "]", "[0,4]") + "}", 4));
  }
  breaks(9, safetensors(R"({"a":{"dtype":"F32","data_offsets":[0,0]}})"));
  breaks(9, safetensors("{" + entry("a", "\"F32\"", "[2,4.0]", "[0,32]") + "}", 32), "4.0");
  opens(safetensors("{" + entry("a", "\"F32\"", "[]", "[0,4]") + "}", 4), 1);
  opens(safetensors("{" + entry("a", "\"F32\"", "[1,1,1,1,1,1,1,2]", "[0,8]") + "}", 8), 1);
}

BOOST_AUTO_TEST_CASE(rule_16_names_are_limited_in_length_characters_and_number) {
  const std::string e = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  const char* hex = "0123456789abcdef";
  for (int c = 0; c < 0x20; ++c)
    breaks(16, safetensors(std::string("{\"a\\u00") + hex[c >> 4] + hex[c & 15] + "b\":" + e + "}"));
  for (const char* s :
       {"\x7f", "\xC2\x80", "\xC2\x9B", "\\u0085", "\\u007f", "\\n", "\\t", "\\r", "\\b", "\\f"})
    breaks(16, safetensors("{\"a" + std::string(s) + "\":" + e + "}"));
  breaks(16, safetensors("{\"" + std::string(4097, 'n') + "\":" + e + "}"));
  breaks(16, safetensors("{\"" + std::string(1'000'000, 'n') + "\":" + e + "}"));
  opens(safetensors("{\"" + std::string(4096, 'n') + "\":" + e + "}"), 1);
  std::string many = "{";
  for (int i = 0; i <= 1'000'000; ++i) many += (i ? ",\"" : "\"") + std::to_string(i) + "\":" + e;
  breaks(16, safetensors(many + "}"));
}

BOOST_AUTO_TEST_SUITE_END()
