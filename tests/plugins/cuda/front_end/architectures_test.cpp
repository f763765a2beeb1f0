// Compute capabilities that an engine has code for, by the architectures that it was compiled for
// (has_code_for).
#include <boost/test/unit_test.hpp>

#include "plugins/cuda/front_end/device_checks.hpp"

using trainhost::cuda::has_code_for;

BOOST_AUTO_TEST_SUITE(cuda_architectures)

BOOST_AUTO_TEST_CASE(machine_code_runs_only_within_its_major_version) {
  BOOST_TEST(has_code_for("80-real", 8, 0));
  BOOST_TEST(has_code_for("80-real", 8, 6));
  BOOST_TEST(!has_code_for("86-real", 8, 0));
  BOOST_TEST(!has_code_for("80-real", 9, 0));
  BOOST_TEST(has_code_for("80-real,89-real,90-real", 9, 0));
  BOOST_TEST(!has_code_for("90-real", 10, 0));
  BOOST_TEST(!has_code_for("", 9, 0));
}

BOOST_AUTO_TEST_CASE(ptx_runs_on_every_later_device) {
  BOOST_TEST(has_code_for("100-virtual", 12, 0));
  BOOST_TEST(has_code_for("90-real,100-virtual", 10, 3));
  BOOST_TEST(!has_code_for("100-virtual", 9, 0));
  BOOST_TEST(has_code_for("80", 8, 9));  // both kinds
  BOOST_TEST(has_code_for("80", 9, 0));
}

BOOST_AUTO_TEST_CASE(architecture_specific_code_runs_on_that_architecture_only) {
  BOOST_TEST(has_code_for("90a-real", 9, 0));
  BOOST_TEST(!has_code_for("90a-real", 9, 1));
  BOOST_TEST(!has_code_for("90a", 10, 0));
  BOOST_TEST(!has_code_for("native", 9, 0));
}

BOOST_AUTO_TEST_SUITE_END()
