// The order of calls that the CPU plugin enforces, front end and engine together, through its C tables.
#include <boost/test/unit_test.hpp>

#include "tests/support/life_cycle.hpp"
#include "tests/support/small_models.hpp"

namespace trainhost {
namespace {

using namespace test;

struct PluginLifeCycle {
  const Plugin& plugin = cpu_plugin();
  CountingHost host{2};
  LifeCycle life() const {
    RunSpec r;
    r.seq_len = 16, r.micro_batch = 2, r.accumulate = 2;
    const auto* profiler = static_cast<const th_profiler*>(plugin.descriptor->get(TH_PROFILER_ID));
    return {
        *plugin.trainer, *plugin.generate, *profiler, host, small_model("llama", 37, 24, 2, 3, 1, 8, 40), r};
  }
};

BOOST_AUTO_TEST_SUITE(cpu_call_order)

BOOST_AUTO_TEST_CASE(every_call_in_every_state) {
  const PluginLifeCycle cpu;
  cpu.life().every_call_in_every_state();
}
BOOST_AUTO_TEST_CASE(null_arguments_are_rejected) {
  const PluginLifeCycle cpu;
  cpu.life().null_arguments_are_rejected();
}
BOOST_AUTO_TEST_CASE(short_structs_are_read_up_to_their_size) {
  const PluginLifeCycle cpu;
  cpu.life().short_structs_are_read_up_to_their_size();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
