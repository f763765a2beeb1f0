// The order of calls that cpu.so keeps, front and engine together, as a host meets them.
#include <boost/test/unit_test.hpp>

#include "tests/support/life_cycle.hpp"
#include "tests/support/model_zoo.hpp"

namespace trainhost {
namespace {

using namespace test;

struct Rig {
  Plugin plugin{TRAINHOST_BINARY_DIR "/lib/trainhost/plugins/cpu.so"};
  CountingHost host{2};
  LifeCycle life() const {
    RunSpec r;
    r.seq_len = 16, r.micro_batch = 2, r.accumulate = 2;
    const auto* profiler = static_cast<const th_profiler*>(plugin.descriptor->get(TH_PROFILER_ID));
    return {
        *plugin.trainer, *plugin.generate, *profiler, host, small_model("llama", 37, 24, 2, 3, 1, 8, 40), r};
  }
};

BOOST_AUTO_TEST_SUITE(cpu_life)

BOOST_AUTO_TEST_CASE(every_call_in_every_state) {
  const Rig rig;
  rig.life().every_call_in_every_state();
}
BOOST_AUTO_TEST_CASE(nulls_are_arguments) {
  const Rig rig;
  rig.life().nulls_are_arguments();
}
BOOST_AUTO_TEST_CASE(short_structs_are_taken_as_far_as_they_go) {
  const Rig rig;
  rig.life().short_structs_are_taken_as_far_as_they_go();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
