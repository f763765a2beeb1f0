// The collectives of the communicator "mpi" among 1 to 4 processes (rank_program.cpp).
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/support/mpirun.hpp"

using namespace trainhost::test;

BOOST_AUTO_TEST_SUITE(collectives, *boost::unit_test::precondition(has_mpirun))

BOOST_DATA_TEST_CASE(every_element_is_that_of_a_plain_loop, boost::unit_test::data::make({1, 2, 3, 4}),
                     ranks) {
  for (int seed = 1; seed <= 3; ++seed) {
    RunOptions o = under_mpirun(ranks);
    o.program = TRAINHOST_RANK_PROGRAM;
    const Outcome r =
        run_program({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins", std::to_string(seed), "120"}, o);
    BOOST_TEST(r.code == 0, r.err);
    BOOST_TEST(has(r.out, "operations: ok"), r.out);
  }
}

BOOST_AUTO_TEST_SUITE_END()
