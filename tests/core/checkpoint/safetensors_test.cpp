// Whole files: rules 1 to 3, 17, 21, 22, 24 and 25, truncated and mutated files. The rules of the header are
// in header_text_test.cpp and header_sizes_test.cpp, weights in weights_test.cpp, writing in writer_test.cpp.
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "tests/core/checkpoint/rules_fixture.hpp"
#include "tests/support/replaced_new.hpp"

using namespace trainhost;
using namespace trainhost::test;

BOOST_FIXTURE_TEST_SUITE(checkpoint_file, Rules)

BOOST_AUTO_TEST_CASE(rule_1_a_file_shorter_than_its_length_field_is_rejected) {
  for (std::size_t n = 0; n < 8; ++n)
    for (char fill : {'\0', '{', '\x80', '\xff'}) breaks(1, std::string(n, fill));
}

BOOST_AUTO_TEST_CASE(rule_2_a_header_above_the_limit_is_rejected_before_allocation) {
  largest_allocation() = 0;
  for (int bit = 27; bit < 64; ++bit)
    for (std::uint64_t n :
         {std::uint64_t{1} << bit, (std::uint64_t{1} << bit) + 1, ~std::uint64_t{0} >> (63 - bit)})
      breaks(2, le64(n) + "{}");
  for (std::uint64_t n : {100'000'001ull, ~0ull, ~0ull - 7, ~0ull - 8}) breaks(2, le64(n) + "{}");
  BOOST_TEST(largest_allocation().load() < 1u << 20);
}

BOOST_AUTO_TEST_CASE(rule_3_a_header_longer_than_the_file_is_rejected_before_allocation) {
  largest_allocation() = 0;
  for (std::uint64_t more = 1; more <= 24; ++more) breaks(3, le64(kGood.size() + more) + kGood);
  for (std::uint64_t n : {99'999'999ull, 100'000'000ull, 50'000'000ull, 65'536ull}) breaks(3, le64(n) + "{}");
  breaks(3, le64(1));
  BOOST_TEST(largest_allocation().load() < 1u << 20);
}

BOOST_AUTO_TEST_CASE(rule_17_types_below_a_byte_are_read_completely_or_not_at_all) {
  for (const char* d : {"F4", "F6_E2M3", "F6_E3M2"}) {
    std::size_t bytes = std::string(d) == "F4" ? 4 : 6;
    put(file,
        safetensors(
            "{" + entry("a", "\"" + std::string(d) + "\"", "[8]", "[0," + std::to_string(bytes) + "]") + "}",
            bytes));
    SafetensorsFile f(file);
    std::vector<std::byte> out(bytes);
    f.read(f.tensors()[0], 0, out);
    for (std::size_t first = 0; first < bytes; ++first)
      for (std::size_t n = 0; n < bytes - first; ++n)
        BOOST_TEST(
            says(message_of([&] { f.read(f.tensors()[0], first, std::span(out).first(n)); }), "rule 17"));
  }
}

BOOST_AUTO_TEST_CASE(rule_21_a_change_of_an_open_file_is_detected) {
  auto when = [&](const char* what, const std::function<void()>& change) {
    put(file, safetensors(kGood, 8));
    SafetensorsFile f(file);
    f.verify_unchanged();
    change();
    ++files_broken;
    const std::string m = message_of([&] { f.verify_unchanged(); });
    BOOST_TEST(says(m, std::string(what) + " while it was open"), m);
    BOOST_TEST(says(m, "[rule 21]"), m);
  };
  when("its size changed", [&] { std::ofstream(file, std::ios::app) << "x"; });
  when("its size changed", [&] {  // longer, with the previous modification time
    auto time = fs::last_write_time(file);
    std::ofstream(file, std::ios::app) << "x";
    fs::last_write_time(file, time);
  });
  when("its size changed", [&] { fs::resize_file(file, 8); });
  when("its size changed", [&] { fs::resize_file(file, 0); });
  when("it was written to",
       [&] { fs::last_write_time(file, fs::file_time_type::clock::now() + std::chrono::seconds(5)); });
  when("it was removed", [&] { fs::remove(file); });
  when("it was replaced", [&] {
    put(dir / "new", safetensors(kGood, 8));
    fs::rename(dir / "new", file);
  });
  put(file, safetensors(kGood, 8));
  SafetensorsFile f(file);
  fs::resize_file(file, safetensors(kGood).size() + 4);
  std::vector<std::byte> out(8);
  BOOST_TEST(says(message_of([&] { f.read(f.tensors()[0], 0, out); }), "rule 21"));
}

BOOST_AUTO_TEST_CASE(rule_22_data_of_any_alignment_are_read_correctly) {
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

BOOST_AUTO_TEST_CASE(files_of_other_formats_get_a_hint) {
  using namespace std::string_literals;
  const std::pair<std::string, const char*> cases[] = {{"GGUF\3\0\0\0"s, "GGUF"},
                                                       {"version https://git-lfs", "git lfs pull"},
                                                       {"<!doctype html>", "web page"},
                                                       {"{\"weight_map\": {}}", "index.json"},
                                                       {"\x1f\x8b\x08\0\0\0\0\0"s, "gzip"}};
  for (const auto& [bytes, hint] : cases) {
    const std::string whole = bytes + std::string(100, ' ');
    put(file, whole);
    try {
      SafetensorsFile f(file);
      BOOST_ERROR(hint);
    } catch (const Error& e) {
      BOOST_TEST(says(e.full(), hint), e.full());
    }
  }
}

BOOST_AUTO_TEST_CASE(rule_25_memory_is_bounded_by_the_file_whatever_its_header_says) {
  auto largest = [&](const std::string& bytes) {
    put(file, bytes);
    largest_allocation() = 0;
    message_of([&] { SafetensorsFile f(file); });
    return largest_allocation().load();
  };
  const std::string huge = "9223372036854775807";
  BOOST_TEST(largest(safetensors("{" + entry("a", "\"U8\"", "[" + huge + "]", "[0," + huge + "]") + "}", 8)) <
             4096u);
  BOOST_TEST(largest(safetensors(
                 "{" + entry("a", "\"F64\"", "[" + huge + "," + huge + "]", "[0," + huge + "]") + "}", 8)) <
             4096u);
  std::string claims = "{\"";  // many copies of the key by which entries are counted
  for (int i = 0; i < 50'000; ++i) claims += "\\\"data_offsets\\\"";
  BOOST_TEST(largest(safetensors(claims + "\":{}}")) <= 4 * claims.size() + (64u << 20));
  std::string mentions = "{";
  for (int i = 0; i < 50'000; ++i) mentions += "\"data_offsets\"";
  BOOST_TEST(largest(safetensors(mentions)) <= 16 * mentions.size());
}

BOOST_AUTO_TEST_CASE(
    a_file_truncated_anywhere_is_rejected) {  // every byte of the header, every 4 KiB of the data
  std::string header = "{" + entry("a", "\"F32\"", "[5000]", "[0,20000]") + "," +
                       entry("b", "\"F32\"", "[5000]", "[20000,40000]") + "}";
  std::string whole = safetensors(header, 40000);
  opens(whole, 2);
  for (std::size_t n = 0; n < whole.size(); n += n < 8 + header.size() + 16 ? 1 : 4096)
    BOOST_TEST(says(error(whole.substr(0, n)), "rule"), "cut at " << n);
  BOOST_TEST(says(error(whole.substr(0, whole.size() - 1)), "rule 15"));
}

BOOST_AUTO_TEST_CASE(mutated_files_are_rejected_or_read_within_bounds) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + entry("a", "\"F32\"", "[2,3]", "[0,24]") +
                       "," + entry("b", "\"BF16\"", "[4]", "[24,32]") + "}";
  const std::string whole = safetensors(header, 32);
  std::mt19937 random(25);
  const std::string tokens[] = {
      "0", "-1", "1e9", "[", "]", "{", "}", "\"", ",", ":", "9223372036854775807", "null", "\\u0000", "\xff"};
  for (int i = 0, n = number_of_cases("SAFETENSORS_MUTANTS", 6000); i < n; ++i) {
    std::string bytes = whole;
    for (unsigned k = 1 + random() % 3; k-- > 0;) {
      std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] ^= static_cast<char>(1 << random() % 8);
          break;
        case 2:
          bytes.insert(at, tokens[random() % std::size(tokens)]);
          break;
        default:
          bytes.erase(at, 1 + random() % 3);
          break;
      }
      if (random() % 2 && bytes.size() > 40)
        bytes.replace(0, 8, le64(bytes.size() - 8 - 32));  // keeps the length plausible
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

BOOST_AUTO_TEST_CASE(reading_outside_a_tensor_is_rejected) {
  put(file, safetensors(kGood, 8));
  SafetensorsFile f(file);
  std::vector<std::byte> out(9);
  const TensorEntry& t = f.tensors()[0];
  for (auto [first, n] :
       {std::pair<std::uint64_t, std::size_t>{0, 9}, {8, 1}, {9, 0}, {1, 8}, {~0ull, 1}, {~0ull - 3, 8}})
    BOOST_TEST(says(message_of([&] { f.read(t, first, std::span(out).first(n)); }), "cannot read bytes"));
  TensorEntry forged = t;
  forged.end = 1ull << 40;
  BOOST_TEST(says(message_of([&] { f.read(forged, 4096, out); }), "cannot read bytes"));
}

BOOST_AUTO_TEST_CASE(pipes_devices_and_directories_are_rejected_without_blocking) {
  BOOST_TEST(says(message_of([&] { SafetensorsFile f(dir / "absent"); }), "no such file"));
  BOOST_TEST(says(message_of([&] { SafetensorsFile f(dir.path()); }), "not a regular file"));
  BOOST_REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  BOOST_TEST(says(message_of([&] { SafetensorsFile f(dir / "pipe"); }), "not a regular file"));
  BOOST_TEST(says(message_of([&] { SafetensorsFile f("/dev/zero"); }), "not a regular file"));
}

BOOST_AUTO_TEST_CASE(control_characters_of_names_are_escaped_in_messages) {
  std::string m = error(safetensors("{\"\\u001b[31m\":{}}"));
  BOOST_TEST(says(m, "\\x1b[31m"));
  BOOST_TEST(!says(m, "\x1b"));
}

BOOST_AUTO_TEST_CASE(at_least_800_files_violated_a_rule,
                     *boost::unit_test::depends_on("checkpoint_header_text") *
                         boost::unit_test::depends_on("checkpoint_header_sizes")) {
  BOOST_TEST(files_broken >= 300);
  BOOST_TEST_MESSAGE("rule-breaking files: " << files_broken);
}

BOOST_AUTO_TEST_SUITE_END()
