// The table of registers and shared memory of kernels belongs to the sources that are compiled, and agrees
// with what the emulation finds in them.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "tests/plugins/cuda/kernels/kernel_resources.hpp"

namespace trainhost {
namespace {

namespace fs = std::filesystem;
using namespace test;

constexpr const char* kHint = ": write the table again with tools/gpu/kernel_resources, which needs nvcc";

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Adds the file and the headers of this repository that it includes, directly or not.
void add_with_includes(std::set<fs::path>& found, const fs::path& file) {
  if (file.filename() == "launch.hpp" || !found.insert(file).second) return;  // host code only
  static const std::regex include("(?:^|\n)#include \"(plugins/[^\"]+)\"");
  const std::string text = text_of(file);
  for (std::sregex_iterator i(text.begin(), text.end(), include), end; i != end; ++i)
    add_with_includes(found, fs::path(TRAINHOST_SOURCE_DIR) / (*i)[1].str());
}

std::uint64_t fingerprint(const fs::path& source) {
  std::set<fs::path> files;
  add_with_includes(files, source);
  std::uint64_t h = 0xcbf29ce484222325;
  for (const fs::path& file : files) {
    const std::string text = text_of(file);
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text.compare(i, 2, "//") == 0) i = std::min(text.find('\n', i), text.size() - 1);
      if (text[i] == ' ' || (text[i] >= '\t' && text[i] <= '\r')) continue;
      h = (h ^ static_cast<unsigned char>(text[i])) * 0x100000001b3;
    }
  }
  return h;
}

BOOST_AUTO_TEST_SUITE(cuda_kernel_resources)

BOOST_AUTO_TEST_CASE(the_table_is_of_these_sources) {
  const fs::path folder = fs::path(TRAINHOST_SOURCE_DIR) / "plugins/cuda/kernels";
  std::size_t sources = 0;
  for (const auto& f : fs::directory_iterator(folder)) sources += f.path().extension() == ".cu";
  BOOST_TEST(sources == kernel_sources().size(), "files were added or removed" << kHint);
  for (const KernelSource& s : kernel_sources()) {
    const bool same = fingerprint(folder / s.file) == s.fingerprint;
#ifdef TRAINHOST_HAVE_NVCC
    BOOST_TEST(same, s.file << " or a header was changed" << kHint);
#else
    BOOST_WARN_MESSAGE(same, s.file << " or a header was changed" << kHint);
#endif
  }
}

// A launch bound keeps the registers of a block below the limit, so no launch can fail for them.
BOOST_AUTO_TEST_CASE(every_kernel_has_a_launch_bound_that_its_registers_permit) {
  for (const emu::KernelResources& k : kernel_resources()) {
    BOOST_TEST(k.max_threads > 0u, k.kernel);
    for (const unsigned registers : k.registers)
      BOOST_TEST((registers + 7) / 8 * 8 * k.max_threads <= 65536u, k.kernel);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
