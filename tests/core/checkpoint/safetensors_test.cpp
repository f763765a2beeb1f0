// Rules 1 to 17 one by one: files that break exactly one of them, generated in variants, and the error that names the
// rule and the byte. Valid files of the strangest kinds must open. Weights and writing: weights_test.cpp, writer_test.cpp.
#include "core/checkpoint/safetensors.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "tests/core/checkpoint/fixtures.hpp"
#include "tests/core/checkpoint/largest_allocation.hpp"

using namespace trainhost;
using namespace trainhost::checkpoint;
using namespace trainhost::test;

namespace {

int g_files = 0;  // rule-breaking files over all cases

struct Dir {
  TempDir dir;
  fs::path file = dir / "hostile.safetensors";

  std::string error(const std::string& bytes) {
    ++g_files;
    put(file, bytes);
    return message_of([&] { SafetensorsFile f(file); });
  }

  /// Refused by that rule; `token`, when given, stands in the file where the message says.
  void breaks(int rule, const std::string& bytes, const std::string& token = {}) {
    std::string m = error(bytes);
    std::string shown = bytes.size() < 300 ? bytes.substr(std::min<std::size_t>(8, bytes.size())) : "(long)";
    std::string named = "rule " + std::to_string(rule);
    BOOST_TEST((says(m, named + ",") || (token.empty() && says(m, named + ")"))), named << ": " << shown << " gave: " << m);
    BOOST_TEST(says(m, file.string()), m);
    if (token.empty()) return;
    auto at = m.rfind("byte ");
    BOOST_REQUIRE(at != m.npos);
    std::size_t byte = std::stoull(m.substr(at + 5));
    BOOST_TEST(bytes.substr(byte, token.size()) == token, m << " does not point at " << token);
  }

  void opens(const std::string& bytes, std::size_t tensors) {
    put(file, bytes);
    std::string m = message_of([&] { BOOST_TEST(SafetensorsFile(file).tensors().size() == tensors); });
    BOOST_TEST(m == "");
  }
};

const std::string kGood = "{" + entry("a", "\"F32\"", "[2]", "[0,8]") + "}";

}  // namespace

BOOST_FIXTURE_TEST_SUITE(checkpoint_rules, Dir)

BOOST_AUTO_TEST_CASE(rule_1_a_file_shorter_than_its_length_field_is_refused) {
  for (std::size_t n = 0; n < 8; ++n)
    for (char fill : {'\0', '{', '\x80', '\xff'}) breaks(1, std::string(n, fill));
}

BOOST_AUTO_TEST_CASE(rule_2_a_header_above_the_cap_is_refused_before_anything_is_allocated) {
  largest_allocation() = 0;
  for (int bit = 27; bit < 64; ++bit)
    for (std::uint64_t n : {std::uint64_t{1} << bit, (std::uint64_t{1} << bit) + 1, ~std::uint64_t{0} >> (63 - bit)})
      breaks(2, le64(n) + "{}");
  for (std::uint64_t n : {100'000'001ull, ~0ull, ~0ull - 7, ~0ull - 8}) breaks(2, le64(n) + "{}");
  BOOST_TEST(largest_allocation().load() < 1u << 20);
}

BOOST_AUTO_TEST_CASE(rule_3_a_header_longer_than_the_file_is_refused_before_anything_is_allocated) {
  largest_allocation() = 0;
  for (std::uint64_t more = 1; more <= 24; ++more) breaks(3, le64(kGood.size() + more) + kGood);
  for (std::uint64_t n : {99'999'999ull, 100'000'000ull, 50'000'000ull, 65'536ull}) breaks(3, le64(n) + "{}");
  breaks(3, le64(1));
  BOOST_TEST(largest_allocation().load() < 1u << 20);
}

BOOST_AUTO_TEST_CASE(rule_4_a_header_starts_with_a_brace_and_ends_in_spaces_alone) {
  for (const char* first : {"[", " ", "\"", "n", "\n", "\t", "\xEF\xBB\xBF", "1", "-", "}", "x", "/", "#", "'", "<", "P", "\x80", "\xff", ",", ":"})
    breaks(4, safetensors(first + kGood, 8));
  breaks(4, safetensors(""));
  breaks(4, safetensors(std::string("\0{}", 3)));
  for (const char* last : {"\n", "\t", "\r", "}", "]", ",", "x", "{}", "  x", " \n", "    \t  ", "null", "\"", "0", "/", "#", ";", "  {", ":", "\x01"})
    breaks(4, safetensors(kGood + last, 8));
  breaks(4, safetensors(kGood + std::string(1, '\0'), 8), std::string(1, '\0'));
  for (std::size_t n = 0; n < 70; ++n) opens(safetensors(kGood + std::string(n, ' '), 8), 1);
}

BOOST_AUTO_TEST_CASE(rule_5_the_header_is_strict_json_and_valid_utf8) {
  const std::string t = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::vector<std::string> malformed{
       "{" + t + "}", "{\"a\"" + t + "}", "{\"a\":" + t, "{\"a\":" + t + ",}", "{,\"a\":" + t + "}", "{\"a\":" + t + ",,\"b\":" + t + "}",
        "{\"a\":" + t + " \"b\":" + t + "}", "{'a':" + t + "}", "{a:" + t + "}", "{\"a\"=" + t + "}", "{\"a\":" + t + "]",
        "{\"a\\\":" + t + "}", "{\"a\\x\":" + t + "}", "{\"a\\u12\":" + t + "}", "{\"a\\u12g4\":" + t + "}",
        "{\"a\\ud800\":" + t + "}", "{\"a\\udc00\":" + t + "}", "{\"a\\ud800\\u0041\":" + t + "}", "{\"a\nb\":" + t + "}",
        "{\"a\":[]}", "{\"a\":null}", "{\"a\":1}", "{\"a\":\"F32\"}", "{\"a\":true}", "{/**/\"a\":" + t + "}",
        "{\"a\":{\"a\":" + t + "}}", "{\"a\":{\"extra\":1}}", "{\"a\":{\"dtype\"}}",
        "{\"a\":{\"DTYPE\":\"F32\"}}", "{", "{\"", "{\"a", "{\"a\"",
        "{\"a\":", "{\"a\":{", "{\"a\":" + std::string(90'000, '['), "{\"a\":" + std::string(90'000, '{')};
  for (const std::string& bad : malformed)
    breaks(5, safetensors(bad, 8));
  for (const char* bytes : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xE2\x82", "\xED\xA0\x80",
                            "\xED\xBF\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF0\x9F\x98", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                            "\xF8\x88\x80\x80\x80", "\xFE", "\xFF", "\xC2\x20", "\xE2\x28\xA1"})
    breaks(5, safetensors("{\"a" + std::string(bytes) + "\":" + t + "}", 8));
}

BOOST_AUTO_TEST_CASE(rule_6_no_name_and_no_key_comes_twice) {
  for (int n = 2; n < 22; ++n) {  // the two equal names at every distance
    std::string header = "{";
    for (int i = 0; i < n; ++i)
      header += (i ? "," : "") + entry(i == 0 || i == n - 1 ? "same" : "t" + std::to_string(i), "\"U8\"", "[0]", "[0,0]");
    breaks(6, safetensors(header + "}"));
  }
  const std::string e = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  breaks(6, safetensors(R"({"ab":)" + e + R"(,"a\u0062":)" + e + "}"));
  breaks(6, safetensors(R"({"é":)" + e + R"(,"\u00e9":)" + e + "}"));
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
  for (const char* v : {"1", "1.5", "null", "true", "false", "[]", "{}", "[\"a\"]", "{\"a\":\"b\"}", "-1", "1e9", "\"unended"})
    breaks(7, safetensors("{\"__metadata__\":{\"k\":" + std::string(v) + "}}"));
  for (const char* v : {"1", "null", "true", "[]", "\"text\"", "[{}]", "[\"a\",\"b\"]", "{\"a\"}", "{\"a\":}", "{:\"a\"}", "{1:\"a\"}", "{\"a\":\"b\",}"})
    breaks(7, safetensors("{\"__metadata__\":" + std::string(v) + "}"));
  breaks(7, safetensors("{\"__metadata__\":{\"k\":\"" + std::string(1'000'001, 'x') + "\"}}"));
  breaks(7, safetensors("{\"__metadata__\":{\"" + std::string(1'000'001, 'x') + "\":\"\"}}"));
  std::string many;
  for (int i = 0; many.size() < 1'000'100; ++i) many += (i ? ",\"" : "\"") + std::to_string(i) + "\":\"\"";
  breaks(7, safetensors("{\"__metadata__\":{" + many + "}}"));
  opens(safetensors("{\"__metadata__\":{\"k\":\"" + std::string(900'000, 'x') + "\"}}"), 0);
  opens(safetensors("{" + kGood.substr(1, kGood.size() - 2) + ",\"__metadata__\":{\"format\":\"pt\"}}", 8), 1);
}

BOOST_AUTO_TEST_CASE(rule_8_only_known_dtypes) {
  for (const char* d : {"\"F33\"", "\"f32\"", "\"FLOAT\"", "\"\"", "\"BF 16\"", "\"I128\"", "\"F32 \"", "\" F32\"", "\"F32\\u0000\"", "\"float32\"",
                        "\"F8\"", "\"F8_E4M4\"", "\"Q4_0\"", "\"F128\"", "\"U4\"", "\"BOOL8\"", "\"C128\"", "\"F\"", "\"32\"", "\"BF16x2\"",
                        "1", "null", "true", "[\"F32\"]", "{}", "F32"})
    breaks(8, safetensors("{" + entry("a", d, "[2]", "[0,8]") + "}", 8), std::string(d).substr(0, 1));
  breaks(8, safetensors("{" + entry("a", "\"" + std::string(5000, 'F') + "\"", "[2]", "[0,8]") + "}", 8));
  breaks(8, safetensors("{" + entry("a", "\"F32\x01\"", "[2]", "[0,8]") + "}", 8), "\x01");
  breaks(8, safetensors(R"({"a":{"shape":[0],"data_offsets":[0,0]}})"));
  BOOST_TEST(says(error(safetensors("{" + entry("a", "\"BF61\"", "[2]", "[0,4]") + "}", 4)), "did you mean 'BF16'"));
}

BOOST_AUTO_TEST_CASE(rule_9_shapes_are_whole_numbers_written_as_such) {
  for (const char* d : {"4.0", "1e3", "-1", "-0", "01", "00", "\"4\"", "null", "true", "[]", "{}", "+1", ".5", "4.", "0x10", "NaN", "Infinity",
                        "1E2", "2e0", "9223372036854775808", "18446744073709551615", "18446744073709551616", "18446744073709551618",
                        "99999999999999999999999999999999999999", "1_000", "1e", "0.0", "4e-1"})
    breaks(9, safetensors("{" + entry("a", "\"F32\"", "[2," + std::string(d) + "]", "[0,8]") + "}", 8));
  for (const char* s : {"4", "null", "\"[2]\"", "{}", "true", "[2", "[,2]", "[2,]", "[2 2]", "(2)", "[2,,2]", "[[2]]"})
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

BOOST_AUTO_TEST_CASE(rule_10_a_product_of_dimensions_never_wraps) {
  for (int bit = 1; bit < 63; ++bit) {  // 2^bit * 2^(64-bit) is 0 in 64 bits, and + 1 is 2^bit
    std::string a = std::to_string(1ull << bit), b = std::to_string(1ull << std::min(62, 64 - bit));
    breaks(10, safetensors("{" + entry("a", "\"U8\"", "[" + a + "," + b + ",2]", "[0,0]") + "}"));
  }
  breaks(10, safetensors("{" + entry("a", "\"F32\"", "[4398046511105,4398046511104]", "[0,4]") + "}", 4));
  breaks(10, safetensors("{" + entry("a", "\"F32\"", "[4294967296,4294967296]", "[0,0]") + "}"));
  breaks(10, safetensors("{" + entry("a", "\"F32\"", "[9223372036854775807,2]", "[0,0]") + "}"));
  for (const char* s : {"[0,9223372036854775807,9223372036854775807]", "[9223372036854775807,0,9223372036854775807]",
                        "[9223372036854775807,9223372036854775807,0]"})  // a zero wins, wherever it stands
    opens(safetensors("{" + entry("a", "\"F64\"", s, "[0,0]") + "}"), 1);
}

BOOST_AUTO_TEST_CASE(rule_11_a_size_in_bytes_never_wraps_and_is_whole) {
  for (const char* d : {"F32", "I32", "U32", "F64", "I64", "U64", "C64"})
    for (std::uint64_t n : {1ull << 61, (1ull << 62), (1ull << 62) + 1, (1ull << 63) - 1})
      breaks(11, safetensors("{" + entry("a", "\"" + std::string(d) + "\"", "[" + std::to_string(n) + "]", "[0,0]") + "}"));
  for (std::uint64_t n : {1, 3, 5, 7, 9, 11, 13}) {
    breaks(11, safetensors("{" + entry("a", "\"F4\"", "[" + std::to_string(n) + "]", "[0," + std::to_string(n / 2) + "]") + "}", n / 2));
    breaks(11, safetensors("{" + entry("a", "\"F6_E2M3\"", "[" + std::to_string(n) + "]", "[0," + std::to_string(n * 6 / 8) + "]") + "}", n * 6 / 8));
  }
}

BOOST_AUTO_TEST_CASE(rule_12_two_offsets_in_order) {
  for (const char* o : {"[]", "[0]", "[0,8,8]", "[0,8,16,24]", "[8,0]", "[1,0]", "[9223372036854775807,0]", "\"0,8\"", "null", "{}", "8",
                        "[-8,0]", "[0,-8]", "[0.0,8]", "[0,8.0]", "[0,8e0]", "[\"0\",\"8\"]", "[null,8]", "[[0,8]]", "[0,9223372036854775808]",
                        "[0,18446744073709551624]", "[0,08]", "[0 8]", "[0,8", "[0,]", "[,8]"})
    breaks(12, safetensors("{" + entry("a", "\"F32\"", "[2]", o) + "}", 8));
  breaks(12, safetensors(R"({"a":{"dtype":"F32","shape":[0]}})"));
  breaks(12, safetensors("{" + entry("a", "\"F32\"", "[2]", "[8,0]") + "}", 8), "[8,0]");
}

BOOST_AUTO_TEST_CASE(rule_13_offsets_hold_what_shape_and_dtype_need) {
  for (std::uint64_t n = 0; n < 24; ++n)
    if (n != 8) breaks(13, safetensors("{" + entry("a", "\"F32\"", "[2]", "[0," + std::to_string(n) + "]") + "}", n));
  breaks(13, safetensors("{" + entry("a", "\"F16\"", "[2]", "[0,8]") + "}", 8));
  breaks(13, safetensors("{" + entry("a", "\"F4\"", "[2]", "[0,2]") + "}", 2));
  breaks(13, safetensors("{" + entry("a", "\"F32\"", "[0]", "[0,4]") + "}", 4));
  breaks(13, safetensors("{" + entry("a", "\"F32\"", "[]", "[0,0]") + "}"));
}

BOOST_AUTO_TEST_CASE(rule_14_tensors_tile_the_data_without_hole_or_overlap) {
  auto two = [](std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d, bool swap) {
    auto e = [](const char* name, std::uint64_t from, std::uint64_t to) {
      return entry(name, "\"U8\"", "[" + std::to_string(to - from) + "]", "[" + std::to_string(from) + "," + std::to_string(to) + "]");
    };
    std::string x = e("a", a, b), y = e("b", c, d);
    return "{" + (swap ? y + "," + x : x + "," + y) + "}";
  };
  for (bool swap : {false, true}) {
    for (std::uint64_t gap = 1; gap < 8; ++gap) {
      breaks(14, safetensors(two(0, 8, 8 + gap, 16 + gap, swap), 16 + gap));  // a hole
      breaks(14, safetensors(two(0, 8, 8 - gap, 16, swap), 16));              // an overlap
    }
    breaks(14, safetensors(two(0, 8, 0, 8, swap), 8));    // twice the same bytes
    breaks(14, safetensors(two(1, 8, 8, 16, swap), 16));  // nothing at the front
    breaks(14, safetensors(two(0, 16, 4, 4, swap), 16));  // an empty one inside another
    opens(safetensors(two(0, 8, 8, 8, swap), 8), 2);      // empty ones where others begin or end are fine
    opens(safetensors(two(0, 0, 0, 8, swap), 8), 2);
  }
}

BOOST_AUTO_TEST_CASE(rule_15_the_data_end_with_the_file) {
  for (std::size_t more = 1; more <= 16; ++more) breaks(15, safetensors(kGood, 8) + std::string(more, '\0'));
  for (std::size_t less = 1; less <= 8; ++less) breaks(15, safetensors(kGood, 8 - less));
  breaks(15, safetensors("{}") + "x");
  breaks(15, safetensors("{" + entry("a", "\"U8\"", "[9223372036854775807]", "[0,9223372036854775807]") + "}", 8));
  opens(safetensors("{}"), 0);
}

BOOST_AUTO_TEST_CASE(rule_16_names_are_short_and_printable_and_not_too_many) {
  const std::string e = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  const char* hex = "0123456789abcdef";
  for (int c = 0; c < 0x20; ++c)
    breaks(16, safetensors(std::string("{\"a\\u00") + hex[c >> 4] + hex[c & 15] + "b\":" + e + "}"));
  for (const char* s : {"\x7f", "\xC2\x80", "\xC2\x9B", "\\u0085", "\\u007f", "\\n", "\\t", "\\r", "\\b", "\\f"})
    breaks(16, safetensors("{\"a" + std::string(s) + "\":" + e + "}"));
  breaks(16, safetensors("{\"" + std::string(4097, 'n') + "\":" + e + "}"));
  breaks(16, safetensors("{\"" + std::string(1'000'000, 'n') + "\":" + e + "}"));
  opens(safetensors("{\"" + std::string(4096, 'n') + "\":" + e + "}"), 1);
  std::string many = "{";
  for (int i = 0; i <= 1'000'000; ++i) many += (i ? ",\"" : "\"") + std::to_string(i) + "\":" + e;
  breaks(16, safetensors(many + "}"));
}

BOOST_AUTO_TEST_CASE(rule_17_types_below_a_byte_are_read_whole_or_not_at_all) {
  for (const char* d : {"F4", "F6_E2M3", "F6_E3M2"}) {
    std::size_t bytes = std::string(d) == "F4" ? 4 : 6;
    put(file, safetensors("{" + entry("a", "\"" + std::string(d) + "\"", "[8]", "[0," + std::to_string(bytes) + "]") + "}", bytes));
    SafetensorsFile f(file);
    std::vector<std::byte> out(bytes);
    f.read(f.tensors()[0], 0, out);
    for (std::size_t first = 0; first < bytes; ++first)
      for (std::size_t n = 0; n < bytes - first; ++n)
        BOOST_TEST(says(message_of([&] { f.read(f.tensors()[0], first, std::span(out).first(n)); }), "rule 17"));
  }
}

BOOST_AUTO_TEST_CASE(rule_21_a_file_that_changes_while_open_is_noticed) {
  auto when = [&](const std::function<void()>& change) {
    put(file, safetensors(kGood, 8));
    SafetensorsFile f(file);
    f.verify_unchanged();
    change();
    ++g_files;
    BOOST_TEST(says(message_of([&] { f.verify_unchanged(); }), "rule 21"));
  };
  when([&] { std::ofstream(file, std::ios::app) << "x"; });
  when([&] { fs::resize_file(file, 8); });
  when([&] { fs::resize_file(file, 0); });
  when([&] { fs::last_write_time(file, fs::file_time_type::clock::now() + std::chrono::seconds(5)); });
  when([&] { fs::remove(file); });
  when([&] {
    put(dir / "new", safetensors(kGood, 8));
    fs::rename(dir / "new", file);
  });
  put(file, safetensors(kGood, 8));
  SafetensorsFile f(file);
  fs::resize_file(file, safetensors(kGood).size() + 4);
  std::vector<std::byte> out(8);
  BOOST_TEST(says(message_of([&] { f.read(f.tensors()[0], 0, out); }), "rule 21"));
}

BOOST_AUTO_TEST_CASE(rule_22_data_at_any_alignment_are_read_right) {
  for (std::size_t pad = 0; pad < 64; ++pad) {
    std::string bytes = safetensors(kGood + std::string(pad, ' '), 8);
    put(file, bytes);
    SafetensorsFile f(file);
    std::string out(8, '\0');
    f.read(f.tensors()[0], 0, std::as_writable_bytes(std::span(out)));
    BOOST_TEST(out == bytes.substr(bytes.size() - 8));
  }
}

BOOST_AUTO_TEST_CASE(rule_24_a_pickle_under_any_name_gets_a_hint_and_is_not_read) {
  using namespace std::string_literals;
  for (const std::string& head : {"PK\x03\x04"s, "\x80\x02"s, "\x80\x03"s, "\x80\x04\x95"s, "\x80\x05\x95"s})
    for (std::size_t size : {4, 7, 8, 64, 4096}) {
      std::string bytes = head + std::string(size, '\xAA');
      bytes.resize(std::max(size, head.size()), 'A');
      BOOST_TEST(says(error(bytes), "pickle"));
    }
  BOOST_TEST(says(error("GGUF\x03\0\0\0\0\0\0\0"s), "GGUF"));
  BOOST_TEST(says(error("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"));
  BOOST_TEST(says(error("<!DOCTYPE html>"), "web page"));
}

BOOST_AUTO_TEST_CASE(rule_25_memory_is_bounded_by_the_file_whatever_its_header_says) {
  auto largest = [&](const std::string& bytes) {
    put(file, bytes);
    largest_allocation() = 0;
    message_of([&] { SafetensorsFile f(file); });
    return largest_allocation().load();
  };
  const std::string huge = "9223372036854775807";
  BOOST_TEST(largest(safetensors("{" + entry("a", "\"U8\"", "[" + huge + "]", "[0," + huge + "]") + "}", 8)) < 4096u);
  BOOST_TEST(largest(safetensors("{" + entry("a", "\"F64\"", "[" + huge + "," + huge + "]", "[0," + huge + "]") + "}", 8)) < 4096u);
  std::string claims = "{\"";  // many mentions of the key that the entries are counted by
  for (int i = 0; i < 50'000; ++i) claims += "\\\"data_offsets\\\"";
  BOOST_TEST(largest(safetensors(claims + "\":{}}")) <= 4 * claims.size() + (64u << 20));
  std::string mentions = "{";
  for (int i = 0; i < 50'000; ++i) mentions += "\"data_offsets\"";
  BOOST_TEST(largest(safetensors(mentions)) <= 16 * mentions.size());
}

BOOST_AUTO_TEST_CASE(a_file_cut_anywhere_is_refused) {  // every byte of the header, every 4 KiB of the data
  std::string header = "{" + entry("a", "\"F32\"", "[5000]", "[0,20000]") + "," + entry("b", "\"F32\"", "[5000]", "[20000,40000]") + "}";
  std::string whole = safetensors(header, 40000);
  opens(whole, 2);
  for (std::size_t n = 0; n < whole.size(); n += n < 8 + header.size() + 16 ? 1 : 4096)
    BOOST_TEST(says(error(whole.substr(0, n)), "rule"), "cut at " << n);
  BOOST_TEST(says(error(whole.substr(0, whole.size() - 1)), "rule 15"));
}

BOOST_AUTO_TEST_CASE(mutated_files_are_refused_or_read_within_bounds_never_worse) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + entry("a", "\"F32\"", "[2,3]", "[0,24]") + "," +
                       entry("b", "\"BF16\"", "[4]", "[24,32]") + "}";
  const std::string whole = safetensors(header, 32);
  std::mt19937 random(25);
  const std::string tokens[] = {"0", "-1", "1e9", "[", "]", "{", "}", "\"", ",", ":", "9223372036854775807", "null", "\\u0000", "\xff"};
  for (int i = 0; i < 6000; ++i) {
    std::string bytes = whole;
    for (unsigned k = 1 + random() % 3; k-- > 0;) {
      std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes[at] ^= static_cast<char>(1 << random() % 8); break;
        case 2: bytes.insert(at, tokens[random() % std::size(tokens)]); break;
        default: bytes.erase(at, 1 + random() % 3); break;
      }
      if (random() % 2 && bytes.size() > 40) bytes.replace(0, 8, le64(bytes.size() - 8 - 32));  // keeps the length plausible
      if (bytes.empty()) bytes = "x";
    }
    put(file, bytes);
    message_of([&] {
      SafetensorsFile f(file);
      for (const TensorEntry& t : f.tensors()) {
        BOOST_REQUIRE(t.begin <= t.end && t.end <= bytes.size());
        std::vector<std::byte> out(t.end - t.begin);
        f.read(t, 0, out);
      }
    });
  }
}

BOOST_AUTO_TEST_CASE(reading_outside_a_tensor_is_refused) {
  put(file, safetensors(kGood, 8));
  SafetensorsFile f(file);
  std::vector<std::byte> out(9);
  const TensorEntry& t = f.tensors()[0];
  for (auto [first, n] : {std::pair<std::uint64_t, std::size_t>{0, 9}, {8, 1}, {9, 0}, {1, 8}, {~0ull, 1}, {~0ull - 3, 8}})
    BOOST_TEST(says(message_of([&] { f.read(t, first, std::span(out).first(n)); }), "asked for"));
  TensorEntry forged = t;
  forged.end = 1ull << 40;
  BOOST_TEST(says(message_of([&] { f.read(forged, 4096, out); }), "asked for"));
}

BOOST_AUTO_TEST_CASE(what_is_not_a_file_is_refused_without_waiting) {
  BOOST_TEST(says(message_of([&] { SafetensorsFile f(dir / "absent"); }), "no such file"));
  BOOST_TEST(says(message_of([&] { SafetensorsFile f(dir.path()); }), "not a regular file"));
  BOOST_REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  BOOST_TEST(says(message_of([&] { SafetensorsFile f(dir / "pipe"); }), "not a regular file"));
  BOOST_TEST(says(message_of([&] { SafetensorsFile f("/dev/zero"); }), "not a regular file"));
}

BOOST_AUTO_TEST_CASE(hostile_names_reach_a_message_escaped) {
  std::string m = error(safetensors("{\"\\u001b[31m\":{}}"));
  BOOST_TEST(says(m, "\\x1b[31m"));
  BOOST_TEST(!says(m, "\x1b"));
}

BOOST_AUTO_TEST_CASE(many_files_were_broken_in_many_ways) {
  BOOST_TEST(g_files >= 300);
  BOOST_TEST_MESSAGE("rule-breaking files: " << g_files);
}

BOOST_AUTO_TEST_SUITE_END()
