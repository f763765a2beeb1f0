// Every reader of untrusted bytes with ten thousand fixed inputs, slow ones with fewer: finds gross bugs in
// seconds with any compiler. `tools/dev fuzz` searches further. A crash names the target and the number of
// the input; FUZZ_LOOP_INPUTS=N sets the number of inputs, FUZZ_LOOP_SEED=N chooses others.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "tests/fuzz/mutate.hpp"
#include "tests/fuzz/seeds.hpp"
#include "tests/fuzz/targets.hpp"

namespace tf = trainhost::fuzz;

namespace trainhost::fuzz {
std::ostream& operator<<(std::ostream& os, const Target& t) { return os << t.name; }
}  // namespace trainhost::fuzz

namespace {

int setting(const char* name, int otherwise) {
  const char* n = std::getenv(name);
  return n ? std::atoi(n) : otherwise;
}

/// A reader with a bug that the loop must detect.
void buggy_reader(std::string_view input) {
  if (input.size() % 4 != 0) throw std::logic_error("a guarantee is violated");
}

/// The number of the first input that violates a guarantee, or -1.
int first_failure(const tf::Target& t, const char* seeds_of, int count) {
  tf::Mutator mutator(tf::seeds(seeds_of), tf::words(seeds_of),
                      static_cast<std::uint64_t>(setting("FUZZ_LOOP_SEED", 42)));
  for (int i = 0; i < count; ++i) {
    BOOST_TEST_CHECKPOINT("target " << t.name << ", input " << i);
    const std::string input = mutator.next();
    try {
      t.run(input);
    } catch (const std::exception& e) {
      BOOST_TEST_MESSAGE(t.name << ", input " << i << ": " << e.what());
      return i;
    }
  }
  return -1;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fuzz)

BOOST_DATA_TEST_CASE(no_reader_violates_a_guarantee, boost::unit_test::data::make(tf::targets()), target) {
  BOOST_REQUIRE(!tf::seeds(target.name).empty());
  for (const std::string& seed : tf::seeds(target.name)) BOOST_CHECK_NO_THROW(target.run(seed));
  const int inputs = setting("FUZZ_LOOP_INPUTS", 10'000) / target.slowness;
  BOOST_TEST(first_failure(target, target.name, inputs) == -1);
}

BOOST_AUTO_TEST_CASE(a_violated_guarantee_is_detected) {
  const tf::Target buggy{"buggy", "nothing", buggy_reader};
  BOOST_TEST(first_failure(buggy, "manifest", 100) >= 0);
}

BOOST_AUTO_TEST_CASE(the_inputs_are_the_same_in_every_run) {
  tf::Mutator a(tf::seeds("config"), tf::words("config"), 7), b(tf::seeds("config"), tf::words("config"), 7);
  for (int i = 0; i < 100; ++i) BOOST_TEST(a.next() == b.next());
}

BOOST_AUTO_TEST_SUITE_END()
