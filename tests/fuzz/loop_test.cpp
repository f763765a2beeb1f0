// Every reader of hostile bytes against some ten thousand inputs, always the same ones: what is broken
// grossly shows here, with any compiler, in seconds. The rest is for `tools/dev fuzz`. A crash names the
// target and the number of its input; FUZZ_LOOP_INPUTS=N tries more of them.
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

int inputs() {
  const char* n = std::getenv("FUZZ_LOOP_INPUTS");
  return n ? std::atoi(n) : 10'000;
}

/// What a reader that forgets to look at the end of its input would do; the loop must notice.
void careless(std::string_view input) {
  if (input.size() % 4 != 0) throw std::logic_error("a promise is broken");
}

/// The number of the first input that breaks a promise, or -1.
int first_failure(const tf::Target& t, const char* seeds_of, int count) {
  tf::Mutator mutator(tf::seeds(seeds_of), tf::words(seeds_of), 42);
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

BOOST_DATA_TEST_CASE(no_reader_breaks_a_promise, boost::unit_test::data::make(tf::targets()), target) {
  BOOST_REQUIRE(!tf::seeds(target.name).empty());
  for (const std::string& seed : tf::seeds(target.name)) BOOST_CHECK_NO_THROW(target.run(seed));
  BOOST_TEST(first_failure(target, target.name, inputs()) == -1);
}

BOOST_AUTO_TEST_CASE(a_broken_promise_is_noticed) {
  const tf::Target broken{"careless", "nothing", careless};
  BOOST_TEST(first_failure(broken, "manifest", 100) >= 0);
}

BOOST_AUTO_TEST_CASE(the_same_inputs_every_time) {
  tf::Mutator a(tf::seeds("config"), tf::words("config"), 7), b(tf::seeds("config"), tf::words("config"), 7);
  for (int i = 0; i < 100; ++i) BOOST_TEST(a.next() == b.next());
}

BOOST_AUTO_TEST_SUITE_END()
