// Frozen weights on the CUDA trainer: in each mode with some of the models, a step changes the trained
// weights to the bits of a run that trains everything, and no other weight.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "core/model/adapters.hpp"
#include "core/model/trainable.hpp"
#include "tests/core/placement/cases.hpp"
#include "tests/plugins/cuda/engine/engine_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using reference::Ids;
using reference::Vec;
using reference::Weights;

const auto kFrozenModels = boost::unit_test::data::make(small_models());

BOOST_AUTO_TEST_SUITE(cuda_frozen)

BOOST_DATA_TEST_CASE(a_step_changes_trained_weights_alone, kFrozenModels, z) {
  const char* mode = kModes[z.seq % 3];
  emu::reset();
  RunSpec all;
  all.seq_len = z.seq, all.micro_batch = all.accumulate = 2, all.clip_norm = 0;
  const Ids ids = random_tokens(4 * z.seq, z.spec.vocab, 1),
            targets = random_targets(4 * z.seq, z.spec.vocab, 2);
  const Weights weights = random_weights(z.spec, 3);
  const auto after_step = [&](const RunSpec& r) {
    CudaHost host(mode);
    PluginSession s(cuda_engine(), host, z.spec, r);
    for (const TensorInfo& t : tensors(z.spec)) {
      const Vec& v = weights.at(t.name);
      s.load(t, std::vector<float>(v.begin(), v.end()));
    }
    s.init(0);
    s.step(ids, targets, 0.01, 0);
    return s.save();
  };
  const auto expected = after_step(all);
  std::size_t variant = z.seq;
  for (const char* rules : placement::test::kFreezing) {
    if (++variant % 3 != 0) continue;  // each rule with some of the models
    RunSpec r = all;
    r.trainable = rules;
    r.recompute = variant % 2 ? Recompute::kNone : Recompute::kFull;
    if (trained_tensors(z.spec, r).empty()) continue;
    for (const auto& [name, values] : after_step(r)) {
      const Vec& before = weights.at(name);
      BOOST_TEST((values == (is_trained(r, name) ? expected.at(name)
                                                 : std::vector<float>(before.begin(), before.end()))),
                 rules << ": " << name);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
