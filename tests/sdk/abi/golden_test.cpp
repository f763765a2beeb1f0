// The frozen interface: the headers are what the golden of their minor says, every golden continues the one
// before, and seeded breaks are caught - by our own comparison, and where it is installed by abidiff on the
// anchor library. That the golden is what compilers do is proved by the build: tests/sdk/abi/CMakeLists.txt
// compiles its assertions.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sdk/abi/layout.hpp"

namespace lay = trainhost::abi;
namespace fs = std::filesystem;
using Headers = std::map<std::string, std::string>;

namespace {

const std::string kSdk = TRAINHOST_SOURCE_DIR "/sdk/";

std::string text_of(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

Headers headers() { return lay::headers_in(kSdk + "include/trainhost"); }
lay::Layout current() { return lay::from_headers(headers()); }
fs::path golden_of(unsigned minor) { return kSdk + "abi/v1." + std::to_string(minor) + ".txt"; }

/// A mistake that an innocent change of a header may make. `seen`: also by abidiff, which knows no
/// macros and holds a new name at an old place for harmless.
struct Break {
  const char *what, *file, *from, *to, *sentence;
  bool seen = true;
};
std::ostream& operator<<(std::ostream& os, const Break& b) { return os << b.what; }

const Break kBreaks[] = {
    {"reorder", "model.h", "double beta1, beta2, eps;", "double eps, beta1, beta2;",
     "th_run.beta1, double at 80 is now th_run.eps, double at 80"},
    {"type change", "trainer.h", "  uint64_t tokens_counted;", "  double tokens_counted;",
     "th_step_out.tokens_counted, uint64_t at 24 is now th_step_out.tokens_counted, double at 24"},
    {"insertion", "memory.h", "  uint64_t bytes_at_peak;", "  uint64_t device; uint64_t bytes_at_peak;",
     "th_mem.bytes_at_peak, uint64_t at 56 is now th_mem.device, uint64_t at 56"},
    {"removal", "trainer.h", "  uint64_t device_ns;", "", "th_step_out.device_ns, uint64_t at 40 is gone"},
    {"renamed slot", "trainer.h", "(*counters)(", "(*statistics)(",
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
     "int32_t "
     "(*)(const "
     "th_host *, const th_model *, const th_run *) at 8"},
};

Headers broken(const Break& b) {
  Headers h = headers();
  std::string& text = h.at(b.file);
  const std::size_t at = text.find(b.from);
  BOOST_REQUIRE_MESSAGE(at != std::string::npos && text.find(b.from, at + 1) == std::string::npos,
                        "the seeded break finds its place no longer: " << b.from);
  text.replace(at, std::string(b.from).size(), b.to);
  return h;
}

bool installed(const char* program) {
  return std::system((std::string("command -v ") + program + " >/dev/null 2>&1").c_str()) == 0;
}

/// The anchor library over these headers, with debug information; its path.
fs::path anchor(const Headers& h, const std::string& name) {
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

BOOST_AUTO_TEST_CASE(the_headers_are_what_the_golden_of_their_minor_says) {
  const lay::Layout now = current();
  BOOST_TEST(now.major == 1u);
  BOOST_REQUIRE_MESSAGE(fs::exists(golden_of(now.minor)),
                        "no " << golden_of(now.minor) << ": trainhost_abi layout writes it");
  const std::string frozen = text_of(golden_of(now.minor));
  BOOST_TEST(lay::to_text(now) == frozen, joined(lay::breaks(lay::from_text(frozen), now)));
  BOOST_TEST(lay::to_text(lay::from_text(frozen)) == frozen);
}

BOOST_AUTO_TEST_CASE(every_golden_continues_the_one_before) {
  for (unsigned minor = 1; minor <= current().minor; ++minor) {
    const auto found =
        lay::breaks(lay::from_text(text_of(golden_of(minor - 1))), lay::from_text(text_of(golden_of(minor))));
    BOOST_TEST(found.empty(), joined(found));
  }
  BOOST_TEST(!fs::exists(golden_of(current().minor + 1)));  // no golden of a minor that nobody speaks
}

BOOST_AUTO_TEST_CASE(nothing_is_padded) {
  for (const lay::Struct& s : current().structs) {
    std::uint32_t end = 0;
    for (const lay::Field& f : s.fields) {
      BOOST_TEST(f.offset == end, s.name + "." + f.name);
      end = f.offset + f.size;
    }
    BOOST_TEST(s.size == end, s.name);
  }
}

BOOST_AUTO_TEST_CASE(the_anchor_names_every_struct) {
  const std::string text = text_of(kSdk + "abi/anchor.c");
  for (const lay::Struct& s : current().structs)
    BOOST_TEST(text.find("ANCHOR(" + s.name + ")") != std::string::npos, s.name);
}

BOOST_DATA_TEST_CASE(a_seeded_break_is_caught, boost::unit_test::data::make(kBreaks), seeded) {
  const auto found = lay::breaks(current(), lay::from_headers(broken(seeded)));
  BOOST_REQUIRE(!found.empty());
  BOOST_TEST(found[0] == seeded.sentence);
}

BOOST_DATA_TEST_CASE(abidiff_catches_what_it_can_see, boost::unit_test::data::make(kBreaks), seeded) {
  if (!installed("abidiff")) {
    BOOST_TEST_MESSAGE("skipped: abidiff is not installed (package abigail-tools)");
    return;
  }
  static const fs::path good = anchor(headers(), "as_it_is");
  BOOST_REQUIRE_EQUAL(abidiff(good, good), 0);
  std::string name = seeded.what;
  std::replace(name.begin(), name.end(), ' ', '_');
  BOOST_TEST((abidiff(good, anchor(broken(seeded), name)) != 0) == seeded.seen);
}

BOOST_AUTO_TEST_CASE(appending_is_a_new_minor_and_no_break) {
  Headers h = headers();
  auto put = [&](const char* file, const std::string& from, const std::string& to) {
    h.at(file).replace(h.at(file).find(from), from.size(), to);
  };
  put("trainer.h", "  uint64_t device_ns;", "  uint64_t device_ns; uint64_t joules;");
  put("memory.h", "#define TH_PH_GENERATE 64u", "#define TH_PH_GENERATE 64u\n#define TH_PH_SHIP 128u");
  BOOST_TEST(joined(lay::breaks(current(), lay::from_headers(h))) ==
             "something was added without a new minor\n");
  put("status.h", "#define TH_ABI_MINOR 0u", "#define TH_ABI_MINOR 1u");
  BOOST_TEST(joined(lay::breaks(current(), lay::from_headers(h))) == "");
  BOOST_TEST(!lay::breaks(lay::from_headers(h), current()).empty());  // and never back
}

BOOST_AUTO_TEST_CASE(what_the_rules_forbid_in_a_struct_is_no_header) {
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
