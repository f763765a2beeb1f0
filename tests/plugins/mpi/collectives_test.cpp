// The collectives of the communicator "mpi" among 1 to 4 processes (rank_program.cpp).
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <chrono>

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

// A rank that never calls MPI_Init_thread() cannot be named: until all have called it, ranks have no way to
// ask each other. One that does not come to MPI_Finalize() is named.
struct Stop {
  const char *before, *said;
};
std::ostream& operator<<(std::ostream& o, const Stop& s) { return o << s.before; }
const Stop kStops[] = {{"init", "waited 1 s in MPI_Init_thread for other ranks"},
                       {"finalize", "waited 4 s in MPI_Finalize for rank 1"}};

BOOST_DATA_TEST_CASE(a_rank_that_stops_before_a_call_of_mpi_ends_the_job,
                     boost::unit_test::data::make(kStops), stop) {
  RunOptions o = under_mpirun(3);
  o.program = TRAINHOST_RANK_PROGRAM;
  const Outcome r = run_program({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins", "1", "5", stop.before}, o);
  BOOST_TEST(r.code != 0);
  BOOST_TEST(has(r.err, stop.said), r.err);
  BOOST_TEST(has(r.err, "trainhost: rank 0 on "), r.err);
}

// Their time is over before that of rank 0, which waits for rank 1 and names it.
BOOST_AUTO_TEST_CASE(a_rank_is_not_named_by_those_that_wait_for_one_that_waits) {
  RunOptions o = under_mpirun(4);
  o.program = TRAINHOST_RANK_PROGRAM;
  const Outcome r = run_program({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins", "1", "0", "late"}, o);
  BOOST_TEST(r.code != 0);
  BOOST_TEST(has(r.err, "waited 4 s in all_reduce for rank 1"), r.err);
  BOOST_TEST(!has(r.err, "for rank 0"), r.err);
}

// Its launcher, stopped, cannot end the others: these see themselves that the process is gone.
BOOST_AUTO_TEST_CASE(a_killed_rank_is_noticed_where_the_launcher_hangs) {
  RunOptions o = under_mpirun(2);
  o.program = TRAINHOST_RANK_PROGRAM;
  const auto begin = std::chrono::steady_clock::now();
  const Outcome r = run_program({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins", "1", "0", "lost"}, o);
  BOOST_TEST(r.code != 0);
  BOOST_TEST(has(r.err, "rank 1 on this machine has ended (process "), r.err);
  BOOST_TEST((std::chrono::steady_clock::now() - begin < std::chrono::seconds(15)));  // before the timeout
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(mpich, *boost::unit_test::precondition(has_mpich))

BOOST_AUTO_TEST_CASE(the_same_plugin_connects_processes_of_mpich) {
  RunOptions o = under_mpich(3);
  o.program = TRAINHOST_RANK_PROGRAM;
  const Outcome r = run_program({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins", "1", "120"}, o);
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "3 ranks, 120 operations: ok"), r.out);
}

BOOST_AUTO_TEST_CASE(a_rank_that_stops_is_named_under_mpich) {
  RunOptions o = under_mpich(3);
  o.program = TRAINHOST_RANK_PROGRAM;
  const Outcome r = run_program({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins", "1", "5", "finalize"}, o);
  BOOST_TEST(r.code != 0);
  BOOST_TEST(has(r.err, "waited 4 s in MPI_Finalize for rank 1"), r.err);
}

// The engine that the launcher asks for is the one that is missing.
BOOST_AUTO_TEST_CASE(a_missing_engine_is_named) {
  const TemporaryDirectory tmp;
  std::filesystem::create_directories(tmp / "plugins");
  std::filesystem::copy_file(TRAINHOST_BINARY_DIR "/lib/trainhost/plugins/mpi.so", tmp / "plugins/mpi.so");
  RunOptions o = under_mpich(1);
  o.program = TRAINHOST_RANK_PROGRAM;
  const Outcome r = run_program({(tmp / "plugins").string(), "1", "5"}, o);
  BOOST_TEST(r.code == 1);
  BOOST_TEST(has(r.err, "started by mpirun (MPICH), but trainhost was built without MPICH"), r.err);
}

BOOST_AUTO_TEST_SUITE_END()
