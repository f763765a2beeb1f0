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

struct CallOrderFixture {
  GoldenRun g = read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/mha");
  CountingHost host{2};
  LifeCycle calls{*Tables::trainer(), *Tables::generate(), *Tables::profiler(), host, g.model, g.run};
};

BOOST_AUTO_TEST_SUITE(executor_call_order)

BOOST_AUTO_TEST_CASE(every_call_in_every_state) { CallOrderFixture().calls.every_call_in_every_state(); }
BOOST_AUTO_TEST_CASE(null_arguments_are_rejected) { CallOrderFixture().calls.null_arguments_are_rejected(); }
BOOST_AUTO_TEST_CASE(short_structs_are_read_up_to_their_size) {
  CallOrderFixture().calls.short_structs_are_read_up_to_their_size();
}

BOOST_AUTO_TEST_CASE(only_fatal_errors_lose_the_instance) {
  using executor::InstanceState;
  for (th_status s = TH_OK; s >= TH_E_ABSENT; --s) {
    InstanceState state;
    state.reached(InstanceState::kReady);
    BOOST_TEST(state.ended("step()", s) == s);
    const bool lost = s == TH_E_DEVICE_OOM || s == TH_E_HOST_OOM || s == TH_E_DEVICE_LOST || s == TH_E_IO ||
                      s == TH_E_INTERNAL;
    BOOST_CHECK_EXCEPTION(
        lost ? state.require(InstanceState::kReadyOn, "save()") : throw abi::StatusError(TH_E_STATE, ""),
        abi::StatusError, [](const abi::StatusError& e) { return e.code == TH_E_STATE; });
    if (!lost) BOOST_CHECK_NO_THROW(state.require(InstanceState::kReadyOn, "save()"));
  }
}

BOOST_AUTO_TEST_CASE(the_first_failure_is_reported) {
  executor::InstanceState state;
  state.ended("step()", TH_E_DEVICE_LOST);
  state.ended("save()", TH_E_STATE);
  state.ended("counters()", TH_E_INTERNAL);
  BOOST_CHECK_EXCEPTION(state.require(executor::InstanceState::kReadyOn, "save()"), abi::StatusError,
                        [](const abi::StatusError& e) {
                          return std::string(e.what()) ==
                                     "save() of a lost instance: step() failed before (device_lost)" &&
                                 e.hint != "";
                        });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
