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

// Calls of MPI without a time limit of their own.
struct Stop {
  const char *before, *call;
};
std::ostream& operator<<(std::ostream& o, const Stop& s) { return o << s.call; }
const Stop kStops[] = {{"init", "MPI_Init_thread"}, {"finalize", "MPI_Finalize"}};

BOOST_DATA_TEST_CASE(a_rank_that_stops_in_a_call_of_mpi_ends_the_job, boost::unit_test::data::make(kStops),
                     stop) {
  RunOptions o = under_mpirun(3);
  o.program = TRAINHOST_RANK_PROGRAM;
  const Outcome r = run_program({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins", "1", "5", stop.before}, o);
  BOOST_TEST(r.code != 0);
  BOOST_TEST(has(r.err, std::string("waited 1 s in ") + stop.call + " for other ranks"), r.err);
  BOOST_TEST(has(r.err, "trainhost: rank 0 on "), r.err);
}

BOOST_AUTO_TEST_SUITE_END()
