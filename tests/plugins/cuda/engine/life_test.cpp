// The order of calls that the CUDA engine keeps, on the emulated device.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "plugins/common/engine_table.hpp"
#include "tests/plugins/cuda/engine/rig.hpp"
#include "tests/support/life_cycle.hpp"

extern "C" const trainhost::plugins::EngineTable* trainhost_cuda_engine();

namespace trainhost {
namespace {

using namespace test;

struct Rig {
  explicit Rig(const char* mode) : host(mode, 2) { emu::reset(); }
  LifeCycle life() const {
    RunSpec r;
    r.seq_len = 6, r.micro_batch = 1, r.accumulate = 2;
    const plugins::EngineTable& t = *trainhost_cuda_engine();
    return {*t.trainer,
            *t.generate,
            *t.profiler,
            host,
            small_model("llama", 21, 12, 2, 2, 1, 6, 10),
            in_precision(r, "fp32")};
  }
  CudaHost host;
};

BOOST_AUTO_TEST_SUITE(cuda_life)

BOOST_DATA_TEST_CASE(every_call_in_every_state, boost::unit_test::data::make(kModes), mode) {
  const Rig rig(mode);
  rig.life().every_call_in_every_state();
}
BOOST_AUTO_TEST_CASE(nulls_are_arguments) {
  const Rig rig("resident");
  rig.life().nulls_are_arguments();
}
BOOST_AUTO_TEST_CASE(short_structs_are_taken_as_far_as_they_go) {
  const Rig rig("resident");
  rig.life().short_structs_are_taken_as_far_as_they_go();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
