// A run file is read while every allocation from the n-th on fails, for every n: the error is the missing
// memory or the mistake in the file, a valid file is never called wrong, and the process does not end.
#include <boost/test/unit_test.hpp>
#include <new>

#include "core/base/error.hpp"
#include "core/runfile/run_config.hpp"
#include "tests/core/runfile/folder.hpp"
#include "tests/support/replaced_new.hpp"

using namespace trainhost;
using namespace trainhost::runfile;
using trainhost::testing::Folder;

namespace {

enum class Result { kRead, kNoMemory, kMistake };

Result read_after(long allocations, const std::string& toml, const std::vector<Override>& overrides,
                  const std::filesystem::path& folder) {
  trainhost::test::fail_allocations_after(allocations);
  Result result = Result::kRead;
  try {
    parse_run(toml, "run.toml", folder, overrides);
  } catch (const std::bad_alloc&) {
    result = Result::kNoMemory;
  } catch (const Error&) {
    result = Result::kMistake;
  }
  trainhost::test::fail_allocations_after(-1);
  return result;
}

/// Result of the first n that leaves enough memory, after all smaller n.
Result result_with_memory(const std::string& toml, const std::vector<Override>& overrides,
                          const std::filesystem::path& folder, bool valid) {
  for (long n = 0; n < 100'000; ++n) {
    const Result r = read_after(n, toml, overrides, folder);
    if (r == Result::kRead) return r;
    if (r == Result::kMistake) {
      BOOST_TEST(!valid, "called wrong when allocation " << n << " fails");
      return r;
    }
  }
  return Result::kNoMemory;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(no_memory, Folder)

BOOST_AUTO_TEST_CASE(a_valid_run_file_is_read_or_there_is_no_memory) {
  // An unquoted text after --set is read as TOML first, which is a syntax error.
  BOOST_CHECK(result_with_memory("[optimizer]\nlr = 3.5e-4\n", {{"model.model_type", "llama"}}, path(),
                                 true) == Result::kRead);
}

BOOST_AUTO_TEST_CASE(a_mistake_is_reported_or_there_is_no_memory) {
  for (const char* toml : {"[train\n", "x = \n", "x = 1.5.5\n", "a = 1\na = 2\n", "s = \"\\q\"\n"})
    BOOST_CHECK(result_with_memory(toml, {}, path(), false) == Result::kMistake);
}

BOOST_AUTO_TEST_SUITE_END()
