// Frozen weights on the CPU trainer: the gradients that remain have the bits of a run that trains everything,
// and an update changes the trained weights alone.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "core/model/trainable.hpp"
#include "tests/core/placement/cases.hpp"
#include "tests/support/cpu_model_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using reference::Ids;
using reference::Weights;

const auto kFrozenModels = boost::unit_test::data::make(small_models());

BOOST_AUTO_TEST_SUITE(cpu_frozen)

BOOST_DATA_TEST_CASE(gradients_have_the_bits_of_a_run_that_trains_all_weights, kFrozenModels, z) {
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  const Weights before = random_weights(z.spec, 3);
  RunSpec all;
  all.seq_len = z.seq, all.micro_batch = all.accumulate = 2, all.clip_norm = 0.0;
  CpuModelFixture whole(z.spec, all, cpu::select_kernels(), 2);
  whole.load(before);
  const executor::UpdateResult expected = whole.update(ids, targets, 0.01, 0);
  const Weights gradients = whole.read(&step::Param::grad), after = whole.read();
  std::uint32_t variant = 0;
  for (const char* rules : placement::test::kFreezing) {
    RunSpec r = all;
    r.trainable = rules;
    if (trained_tensors(z.spec, r).empty()) continue;
    constexpr Recompute kPolicies[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
    r.recompute = kPolicies[variant++ % 3];
    const bool separate = variant % 2;  // every buffer by itself, with its lifetime checked
    CpuModelFixture some(z.spec, r, cpu::select_kernels(), 1 + variant % 3, separate);
    some.load(before);
    const executor::UpdateResult out = some.update(ids, targets, 0.01, 0);
    BOOST_TEST_CONTEXT(rules << ", recompute " << name(r.recompute)) {
      BOOST_TEST(out.loss == expected.loss);
      const Weights now = some.read(), part = separate ? Weights() : some.read(&step::Param::grad);
      if (!separate) BOOST_TEST(part.size() == trained_tensors(z.spec, r).size());
      for (const auto& [name, g] : part) BOOST_TEST((g == gradients.at(name)), name);
      for (const auto& [name, w] : now)
        BOOST_TEST((w == (is_trained(r, name) ? after.at(name) : before.at(name))), name);
      BOOST_TEST(some.read(&step::Param::m).size() == trained_tensors(z.spec, r).size());
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
