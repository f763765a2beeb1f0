// The collectives of the communicator "nccl" among 1 to 3 processes with an emulated device each
// (tests/plugins/mpi/rank_program.cpp), and what happens if a rank does not come.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/support/torchrun.hpp"

using namespace trainhost::test;

namespace {

RunOptions on_devices(int ranks, std::map<std::string, std::string> more = {}) {
  RunOptions o = under_torchrun(ranks);
  o.program = TRAINHOST_RANK_PROGRAM;
  const std::string fakes = CUDA_FAKES;
  o.environment.merge(std::map<std::string, std::string>{
      {"TRAINHOST_CUDA_DRIVER", fakes + "/libfakedriver.so"},
      {"TRAINHOST_CUDA_NVML", fakes + "/libfakenvml.so"},
      {"TRAINHOST_NCCL", std::string(CUDA_STAGE) + "/engines/cuda-cublas-13.so"},
      {"FAKE_CUDA_DEVICES", "4"}});
  for (const auto& [k, v] : more) o.environment[k] = v;
  return o;
}

const std::string kPlugins = TRAINHOST_BINARY_DIR "/lib/trainhost/plugins";

BOOST_AUTO_TEST_SUITE(nccl_collectives)

BOOST_DATA_TEST_CASE(every_element_is_that_of_a_plain_loop, boost::unit_test::data::make({1, 2, 3}), ranks) {
  const Outcome r = run_program({kPlugins, std::to_string(ranks), "20"}, on_devices(ranks));
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "operations: ok"), r.out);
}

BOOST_AUTO_TEST_CASE(a_failing_operation_ends_the_processes_that_wait) {
  const Outcome r = run_program({kPlugins, "1", "5", "short"},
                                on_devices(2, {{"FAKE_NCCL_FAIL", "0:0"}, {"FAKE_NCCL_STALL", "1:0"}}));
  BOOST_TEST(r.code == 1);
  BOOST_TEST(has(r.err, "NCCL failed while starting an operation"), r.err);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
