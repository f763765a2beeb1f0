// Which devices an engine has code for, and which values of [plugin.cuda] are refused: the front's pure
// parts.
#include <boost/test/unit_test.hpp>

#include "plugins/cuda/front/device_checks.hpp"

using trainhost::cuda::has_code_for;

BOOST_AUTO_TEST_SUITE(cuda_architectures)

BOOST_AUTO_TEST_CASE(machine_code_runs_on_later_devices_of_its_major_version_alone) {
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

BOOST_AUTO_TEST_CASE(code_for_one_device_alone_runs_there_alone) {
  BOOST_TEST(has_code_for("90a-real", 9, 0));
  BOOST_TEST(!has_code_for("90a-real", 9, 1));
  BOOST_TEST(!has_code_for("90a", 10, 0));
  BOOST_TEST(!has_code_for("native", 9, 0));
}

BOOST_AUTO_TEST_SUITE_END()
