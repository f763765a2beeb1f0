// Reduced inputs that revealed bugs, by fuzzing or by reading the code. None may violate a guarantee or be
// slow.
#include <elf.h>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstring>

#include "core/plugin/links.hpp"
#include "core/plugin/plugin_cache_format.hpp"
#include "core/plugin/plugin_manifest.hpp"
#include "tests/fuzz/seeds.hpp"
#include "tests/fuzz/targets.hpp"

namespace tf = trainhost::fuzz;
namespace tp = trainhost::plugin;

namespace {

double seconds_of(const char* target, const std::string& input) {
  const auto begin = std::chrono::steady_clock::now();
  tf::find(target)->run(input);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A plugin library followed by `sections` section headers whose names are in a megabyte without terminator.
std::string many_sections(std::uint16_t sections, std::uint32_t type) {
  std::string elf = tf::seeds("elf").at(0);
  Elf64_Ehdr h;
  std::memcpy(&h, elf.data(), sizeof h);
  Elf64_Shdr s{};
  s.sh_type = SHT_STRTAB, s.sh_offset = elf.size(), s.sh_size = 1 << 20;
  elf.append(s.sh_size, 'x');
  h.e_shoff = elf.size(), h.e_shnum = sections, h.e_shstrndx = 0;
  for (int i = 0; i < sections; ++i) {
    elf.append(reinterpret_cast<const char*>(&s), sizeof s);
    s.sh_type = type;
  }
  std::memcpy(elf.data(), &h, sizeof h);
  return elf;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(found)

// Two files compiled the TOML parser with different assertions. The linker kept one of them, and its
// exception was not caught in the other file.
BOOST_AUTO_TEST_CASE(a_manifest_that_fails_the_parsers_assertions_is_rejected) {
  for (const char* text : {"[[[[[[[^options[", "[", "[a.", "x = [", "x = {"}) {
    BOOST_CHECK_NO_THROW(tf::find("manifest")->run(text));
    BOOST_CHECK_NO_THROW(tf::find("run_file")->run(text));
  }
}

// Undefined behaviour in toml++ 3.3: any letter from U+00A1 to U+0499 where the parser expects spaces. The
// first text is valid TOML.
BOOST_AUTO_TEST_CASE(non_ascii_letters_after_a_line_ending_backslash_are_handled) {
  const std::string id = "id = 'a'\nversion = '1'\nkind = 'trainer'\n";
  for (const char* text : {"summary = \"\"\"a \\\n  \xc3\xa9\"\"\"", "x = \"\"\"\\\xc3\xa9\"\"\"",
                           "x = 0x\"\xcd\x97\"", "x = '\xd0\xb6' # \xd0\xb6"}) {
    BOOST_CHECK_NO_THROW(tf::find("manifest")->run(id + text));
    BOOST_CHECK_NO_THROW(tf::find("run_file")->run(text));
  }
  BOOST_TEST(tp::parse_manifest(id + "summary = \"\"\"a \\\n  \xc3\xa9\"\"\"").summary == "a \xc3\xa9");
}

BOOST_AUTO_TEST_CASE(invalid_times_count_as_fresh_and_do_not_wrap) {
  tp::CacheEntry r;
  r.seen_s = 100, r.id.mtime_s = r.sidecar.mtime_s = 98;
  BOOST_TEST(!r.mtime_too_recent());
  r.id.mtime_s = 100;
  BOOST_TEST(r.mtime_too_recent());
  for (std::int64_t extreme : {INT64_MIN, INT64_MAX}) {
    tp::CacheEntry e = r;
    e.id.mtime_ns = extreme, e.seen_ns = 5;
    BOOST_TEST(e.mtime_too_recent());
    e = r, e.seen_s = extreme, e.id.mtime_s = ~extreme;
    BOOST_TEST(e.mtime_too_recent() == (extreme < 0));
  }
}

BOOST_AUTO_TEST_CASE(unterminated_names_are_not_read_repeatedly) {
  BOOST_TEST(seconds_of("elf", many_sections(65000, SHT_PROGBITS)) < 5);
  std::string cache = tf::seeds("linker_cache").at(0);
  cache += std::string(4 << 20, 'x');
  const std::uint32_t count = 150'000;
  std::memcpy(cache.data() + 20, &count, sizeof count);
  BOOST_TEST(seconds_of("linker_cache", cache) < 5);
}

BOOST_AUTO_TEST_CASE(overlapping_tables_are_counted_once) {
  BOOST_TEST(seconds_of("exports", many_sections(65000, SHT_DYNSYM)) < 20);
}

BOOST_AUTO_TEST_CASE(the_readers_see_the_reduced_library_as_the_full_one) {
  for (const std::string& seed : tf::seeds("elf")) BOOST_TEST(seed.size() < 6000u);
  BOOST_TEST(tf::seeds("elf").size() == 2u);
}

BOOST_AUTO_TEST_SUITE_END()
