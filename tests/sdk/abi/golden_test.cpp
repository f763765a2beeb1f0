// The frozen interface: the headers equal the golden file of their minor version, every golden file continues
// the one before, and deliberate breaks are detected by sdk/abi/compare.cpp and, if installed, by abidiff on
// the anchor library. The build proves that compilers agree with the golden file:
// tests/sdk/abi/CMakeLists.txt compiles its assertions.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sdk/abi/struct_layout.hpp"
#include "tests/support/files.hpp"

namespace lay = trainhost::abi;
namespace fs = std::filesystem;
using Headers = std::map<std::string, std::string>;

namespace {

const std::string kSdk = TRAINHOST_SOURCE_DIR "/sdk/";

using trainhost::test::read_file;

Headers headers() { return lay::headers_in(kSdk + "include/trainhost"); }
lay::StructLayout current() { return lay::from_headers(headers()); }
fs::path golden_of(unsigned minor) { return kSdk + "abi/v1." + std::to_string(minor) + ".txt"; }

/// An incompatible change of a header. `found_by_abidiff`: abidiff does not see macros, and accepts a new
/// name at an old offset.
struct Break {
  const char *what, *file, *from, *to, *sentence;
  bool found_by_abidiff = true;
};
std::ostream& operator<<(std::ostream& os, const Break& b) { return os << b.what; }

const Break kBreaks[] = {
    {"reorder", "model.h", "double beta1, beta2, eps;", "double eps, beta1, beta2;",
     "th_run.beta1, double at 80 is now th_run.eps, double at 80"},
    {"type change", "trainer.h", "  uint64_t tokens_counted;", "  double tokens_counted;",
     "th_step_out.tokens_counted, uint64_t at 24 is now th_step_out.tokens_counted, double at 24"},
    {"insertion", "memory.h", "  uint64_t bytes_at_peak;", "  uint64_t device; uint64_t bytes_at_peak;",
     "th_mem.bytes_at_peak, uint64_t at 56 is now th_mem.device, uint64_t at 56"},
    {"removal", "trainer.h", "  uint64_t device_ns;", "", "th_step_out.device_ns, uint64_t at 40 is missing"},
    {"renamed function", "trainer.h", "(*counters)(", "(*statistics)(",
     "th_trainer.counters, th_status (*)(th_trainer_inst *, th_counters *, th_error *) at 72 is now "
     "th_trainer.statistics, "
     "th_status (*)(th_trainer_inst *, th_counters *, th_error *) at 72",
     false},
    {"changed constant", "memory.h", "#define TH_PH_EVAL 16u", "#define TH_PH_EVAL 128u",
     "the constant TH_PH_EVAL was 16 and is 128", false},
    {"shrunk array", "status.h", "char message[320]", "char message[300]",
     "th_error.message, char[320] at 40 is now th_error.message, char[300] at 40"},
    {"changed signature", "estimator.h", "int32_t (*match)(const th_model*, const th_run*);",
     "int32_t (*match)(const th_host*, const th_model*, const th_run*);",
     "th_estimator.match, int32_t (*)(const th_model *, const th_run *) at 8 is now th_estimator.match, "
     "int32_t (*)(const th_host *, const th_model *, const th_run *) at 8"},
};

Headers broken(const Break& b) {
  Headers h = headers();
  std::string& text = h.at(b.file);
  const std::size_t at = text.find(b.from);
  BOOST_REQUIRE_MESSAGE(at != std::string::npos && text.find(b.from, at + 1) == std::string::npos,
                        "the header does not contain the text to replace: " << b.from);
  text.replace(at, std::string(b.from).size(), b.to);
  return h;
}

bool installed(const char* program) {
  return std::system((std::string("command -v ") + program + " >/dev/null 2>&1").c_str()) == 0;
}

/// Builds the anchor library with these headers and debug information; returns its path.
fs::path build_anchor(const Headers& h, const std::string& name) {
  const fs::path dir = fs::path(TRAINHOST_BINARY_DIR) / "tests/sdk/abi" / name;
  fs::create_directories(dir / "include/trainhost");
  for (const auto& [file, text] : h) std::ofstream(dir / "include/trainhost" / file) << text;
  const fs::path library = dir / "anchor.so";
  const std::string command = std::string(TRAINHOST_CC) + " -std=c11 -g -O0 -shared -fPIC -I" +
                              (dir / "include").string() + " " + kSdk + "abi/anchor.c -o " + library.string();
  BOOST_REQUIRE_EQUAL(std::system(command.c_str()), 0);
  return library;
}

int abidiff(const fs::path& a, const fs::path& b) {
  const int rc = std::system(("abidiff " + a.string() + " " + b.string() + " >/dev/null 2>&1").c_str());
  return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& l : lines) out += l + "\n";
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(abi_golden)

BOOST_AUTO_TEST_CASE(the_headers_equal_the_golden_file_of_their_minor) {
  const lay::StructLayout now = current();
  BOOST_TEST(now.major == 1u);
  BOOST_REQUIRE_MESSAGE(fs::exists(golden_of(now.minor)),
                        golden_of(now.minor) << " is missing: create it with trainhost_abi layout");
  const std::string frozen = read_file(golden_of(now.minor));
  BOOST_TEST(lay::to_text(now) == frozen, joined(lay::incompatibilities(lay::from_text(frozen), now)));
  BOOST_TEST(lay::to_text(lay::from_text(frozen)) == frozen);
}

BOOST_AUTO_TEST_CASE(every_golden_file_continues_the_one_before) {
  for (unsigned minor = 1; minor <= current().minor; ++minor) {
    const auto found = lay::incompatibilities(lay::from_text(read_file(golden_of(minor - 1))),
                                              lay::from_text(read_file(golden_of(minor))));
    BOOST_TEST(found.empty(), joined(found));
  }
  BOOST_TEST(!fs::exists(golden_of(current().minor + 1)));  // no golden file of a later minor version
}

BOOST_AUTO_TEST_CASE(no_struct_has_padding) {
  for (const lay::Struct& s : current().structs) {
    std::uint32_t end = 0;
    for (const lay::Field& f : s.fields) {
      BOOST_TEST(f.offset == end, s.name + "." + f.name);
      end = f.offset + f.size;
    }
    BOOST_TEST(s.size == end, s.name);
  }
}

BOOST_AUTO_TEST_CASE(the_anchor_library_uses_every_struct) {
  const std::string text = read_file(kSdk + "abi/anchor.c");
  for (const lay::Struct& s : current().structs)
    BOOST_TEST(text.find("ANCHOR(" + s.name + ")") != std::string::npos, s.name);
}

BOOST_DATA_TEST_CASE(a_deliberate_break_is_detected, boost::unit_test::data::make(kBreaks), seeded) {
  const auto found = lay::incompatibilities(current(), lay::from_headers(broken(seeded)));
  BOOST_REQUIRE(!found.empty());
  BOOST_TEST(found[0] == seeded.sentence);
}

BOOST_DATA_TEST_CASE(abidiff_detects_breaks_of_layout, boost::unit_test::data::make(kBreaks), seeded) {
  if (!installed("abidiff")) {
    BOOST_TEST_MESSAGE("skipped: abidiff is not installed (package abigail-tools)");
    return;
  }
  static const fs::path good = build_anchor(headers(), "unchanged");
  BOOST_REQUIRE_EQUAL(abidiff(good, good), 0);
  std::string name = seeded.what;
  std::replace(name.begin(), name.end(), ' ', '_');
  BOOST_TEST((abidiff(good, build_anchor(broken(seeded), name)) != 0) == seeded.found_by_abidiff);
}

BOOST_AUTO_TEST_CASE(appending_requires_a_new_minor_and_is_compatible) {
  Headers h = headers();
  auto put = [&](const char* file, const std::string& from, const std::string& to) {
    h.at(file).replace(h.at(file).find(from), from.size(), to);
  };
  put("trainer.h", "  uint64_t device_ns;", "  uint64_t device_ns; uint64_t joules;");
  put("memory.h", "#define TH_PH_GENERATE 64u", "#define TH_PH_GENERATE 64u\n#define TH_PH_SHIP 128u");
  BOOST_TEST(joined(lay::incompatibilities(current(), lay::from_headers(h))) ==
             "something was added without a new minor version\n");
  put("status.h", "#define TH_ABI_MINOR 1u", "#define TH_ABI_MINOR 2u");
  BOOST_TEST(joined(lay::incompatibilities(current(), lay::from_headers(h))) == "");
  BOOST_TEST(!lay::incompatibilities(lay::from_headers(h), current()).empty());  // removing is incompatible
}

BOOST_AUTO_TEST_CASE(structs_that_break_the_rules_are_rejected) {
  auto read = [](const std::string& field) {
    return lay::from_headers({{"x.h", "typedef struct th_x { uint32_t struct_size; " + field + " } th_x;"}});
  };
  BOOST_CHECK_NO_THROW(read("uint32_t a;"));
  for (const char* field : {"int a;", "size_t a;", "bool a;", "uint32_t a : 3;", "long a;", "th_y a;"})
    BOOST_CHECK_THROW(read(field), std::runtime_error);
  BOOST_CHECK_THROW(lay::from_headers({{"x.h", "typedef struct th_x { uint32_t a; } th_x;"}}),
                    std::runtime_error);
  BOOST_CHECK_THROW(lay::from_text("field th_x 0 4 a uint32_t\n"), std::runtime_error);
  BOOST_CHECK_THROW(lay::from_text("abi one\n"), std::runtime_error);
}

BOOST_AUTO_TEST_SUITE_END()
