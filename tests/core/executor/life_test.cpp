// The order of calls that every trainer of the skeleton keeps, against the tags of the interface.
#include <boost/test/unit_test.hpp>

#include "core/executor/trainer.hpp"
#include "tests/support/golden_run.hpp"
#include "tests/support/life_cycle.hpp"

namespace trainhost {
namespace {

using namespace test;

struct Plain : executor::ReferenceKernels {
  static constexpr const char *id = "plain", *version = "0.1";
};
using Tables = executor::KernelTrainer<Plain>;

struct Rig {
  GoldenRun g = read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/mha");
  CountingHost host{2};
  LifeCycle life{*Tables::trainer(), *Tables::generate(), *Tables::profiler(), host, g.model, g.run};
};

BOOST_AUTO_TEST_SUITE(executor_life)

BOOST_AUTO_TEST_CASE(every_call_in_every_state) { Rig().life.every_call_in_every_state(); }
BOOST_AUTO_TEST_CASE(nulls_are_arguments) { Rig().life.nulls_are_arguments(); }
BOOST_AUTO_TEST_CASE(short_structs_are_taken_as_far_as_they_go) {
  Rig().life.short_structs_are_taken_as_far_as_they_go();
}

BOOST_AUTO_TEST_CASE(only_what_breaks_a_run_loses_it) {
  using executor::Life;
  for (th_status s = TH_OK; s >= TH_E_ABSENT; --s) {
    Life life;
    life.reached(Life::kReady);
    BOOST_TEST(life.ended("step()", s) == s);
    const bool lost = s == TH_E_DEVICE_OOM || s == TH_E_HOST_OOM || s == TH_E_DEVICE_LOST || s == TH_E_IO ||
                      s == TH_E_INTERNAL;
    BOOST_CHECK_EXCEPTION(
        lost ? life.require(Life::kReadyOn, "save()") : throw abi::StatusError(TH_E_STATE, ""),
        abi::StatusError, [](const abi::StatusError& e) { return e.code == TH_E_STATE; });
    if (!lost) BOOST_CHECK_NO_THROW(life.require(Life::kReadyOn, "save()"));
  }
}

BOOST_AUTO_TEST_CASE(the_first_failure_is_the_one_that_is_told) {
  executor::Life life;
  life.ended("step()", TH_E_DEVICE_LOST);
  life.ended("save()", TH_E_STATE);
  life.ended("counters()", TH_E_INTERNAL);
  BOOST_CHECK_EXCEPTION(
      life.require(executor::Life::kReadyOn, "save()"), abi::StatusError, [](const abi::StatusError& e) {
        return std::string(e.what()) == "save() of a lost instance: step() failed before (device_lost)" &&
               e.hint != "";
      });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
