// The order of calls that core/executor enforces for every trainer, compared with the tags of the interface.
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

struct LifeCycleFixture {
  GoldenRun g = read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/mha");
  CountingHost host{2};
  LifeCycle life{*Tables::trainer(), *Tables::generate(), *Tables::profiler(), host, g.model, g.run};
};

BOOST_AUTO_TEST_SUITE(executor_life)

BOOST_AUTO_TEST_CASE(every_call_in_every_state) { LifeCycleFixture().life.every_call_in_every_state(); }
BOOST_AUTO_TEST_CASE(null_arguments_are_rejected) { LifeCycleFixture().life.null_arguments_are_rejected(); }
BOOST_AUTO_TEST_CASE(short_structs_are_read_up_to_their_size) {
  LifeCycleFixture().life.short_structs_are_read_up_to_their_size();
}

BOOST_AUTO_TEST_CASE(only_fatal_errors_lose_the_instance) {
  using executor::InstanceState;
  for (th_status s = TH_OK; s >= TH_E_ABSENT; --s) {
    InstanceState life;
    life.reached(InstanceState::kReady);
    BOOST_TEST(life.ended("step()", s) == s);
    const bool lost = s == TH_E_DEVICE_OOM || s == TH_E_HOST_OOM || s == TH_E_DEVICE_LOST || s == TH_E_IO ||
                      s == TH_E_INTERNAL;
    BOOST_CHECK_EXCEPTION(
        lost ? life.require(InstanceState::kReadyOn, "save()") : throw abi::StatusError(TH_E_STATE, ""),
        abi::StatusError, [](const abi::StatusError& e) { return e.code == TH_E_STATE; });
    if (!lost) BOOST_CHECK_NO_THROW(life.require(InstanceState::kReadyOn, "save()"));
  }
}

BOOST_AUTO_TEST_CASE(the_first_failure_is_reported) {
  executor::InstanceState life;
  life.ended("step()", TH_E_DEVICE_LOST);
  life.ended("save()", TH_E_STATE);
  life.ended("counters()", TH_E_INTERNAL);
  BOOST_CHECK_EXCEPTION(life.require(executor::InstanceState::kReadyOn, "save()"), abi::StatusError,
                        [](const abi::StatusError& e) {
                          return std::string(e.what()) ==
                                     "save() of a lost instance: step() failed before (device_lost)" &&
                                 e.hint != "";
                        });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
