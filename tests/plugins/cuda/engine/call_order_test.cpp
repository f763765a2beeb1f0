// The order of calls that the CUDA engine enforces, on the emulated device. The same checks run for the CPU
// trainer (tests/plugins/cpu/call_order_test.cpp).
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "plugins/common/engine_table.hpp"
#include "tests/plugins/cuda/engine/engine_fixture.hpp"
#include "tests/support/life_cycle.hpp"

extern "C" const trainhost::plugins::EngineTable* trainhost_cuda_engine();

namespace trainhost {
namespace {

using namespace test;

struct EngineLifeCycle {
  explicit EngineLifeCycle(const char* mode) : host(mode, 2) { emu::reset(); }
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

BOOST_AUTO_TEST_SUITE(cuda_call_order)

BOOST_DATA_TEST_CASE(every_call_in_every_state, boost::unit_test::data::make(kModes), mode) {
  const EngineLifeCycle engine(mode);
  engine.life().every_call_in_every_state();
}
BOOST_AUTO_TEST_CASE(null_arguments_are_rejected) {
  const EngineLifeCycle engine("resident");
  engine.life().null_arguments_are_rejected();
}
BOOST_AUTO_TEST_CASE(short_structs_are_read_up_to_their_size) {
  const EngineLifeCycle engine("resident");
  engine.life().short_structs_are_read_up_to_their_size();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
