// Runs on several data-parallel ranks: which rank needs most memory, and that the closed form of
// core/parallel, which plans layouts that no program has, divides the same states among the same ranks.
#include <boost/test/unit_test.hpp>

#include "core/model/architecture.hpp"
#include "core/parallel/rank_memory.hpp"
#include "core/step/state_layout.hpp"
#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

namespace {

/// ZeRO works with optimizers that update every element by itself.
bool can_be_divided(Optimizer o) {
  return o != Optimizer::kMuon && o != Optimizer::kAdafactor && o != Optimizer::kAdamW8bit;
}

/// Bytes of what a rank keeps from step to step.
std::uint64_t states(const Program& p, Component component) {
  std::uint64_t bytes = 0;
  for (const Buffer& b : p.buffers)
    if (b.persistent && b.component == component) bytes += b.bytes();
  return bytes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(several_ranks)

// `plan` without a rank relies on it.
BOOST_AUTO_TEST_CASE(no_rank_needs_more_than_the_first) {
  std::uint64_t smaller = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Case c = seed % 4 == 0 ? with_adapters(random_case(seed), seed) : random_case(seed);
    if (seed % 3 == 0) c = on_device(c, seed);
    if (!can_be_divided(c.run.optimizer)) continue;
    c = on_ranks(c, 2 + seed % 7, 1 + seed % 3);
    const std::uint64_t first = place(c.build()).arena_bytes;
    for (std::uint32_t rank = 2; rank <= c.run.parallel.data; ++rank) {
      c.run.parallel.data_rank = rank;
      const std::uint64_t bytes = place(c.build()).arena_bytes;
      BOOST_TEST(bytes <= first, c.model.name << ", rank " << rank << ", seed " << seed);
      smaller += bytes < first;
    }
  }
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Case c = random_case(seed);
    if (!can_be_divided(c.run.optimizer) || c.run.mode == RunMode::kInference) continue;
    const auto bytes = [&](std::uint32_t tensor_rank, std::uint32_t data_rank) {
      Case on = on_tensor_ranks(c, 3, tensor_rank, 2, seed % 4);
      on.run.parallel.data_rank = data_rank;
      return place(on.build()).arena_bytes;
    };
    const std::uint64_t first = bytes(1, 1);
    for (std::uint32_t tensor_rank = 1; tensor_rank <= 3; ++tensor_rank)
      for (std::uint32_t data_rank = 1; data_rank <= 2; ++data_rank)
        BOOST_TEST(bytes(tensor_rank, data_rank) <= first,
                   "TP rank " << tensor_rank << ", DP rank " << data_rank << ", seed " << seed);
  }
  BOOST_TEST(smaller > 0u);  // of some runs the last ranks need less
}

// The closed form divides the elements of all tensors together and rounds up; the program divides each
// parameter, in multiples of 16 elements. So a rank has at most 15 elements of each parameter more, and the
// ranks together have every element once.
BOOST_AUTO_TEST_CASE(the_closed_form_divides_the_same_states) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Case c = on_device(random_case(seed), seed);
    if (!can_be_divided(c.run.optimizer) || c.run.mode == RunMode::kInference) continue;
    for (const std::uint32_t zero : {0u, 1u, 2u, 3u}) {
      c = on_ranks(c, 2 + seed % 5, zero);
      const std::uint32_t ranks = c.run.parallel.data;
      const parallel::Numbers closed = parallel::stage_numbers(model::from_model(c.model), c.run, 0);
      for (const Component component :
           {Component::kWeights, Component::kGradients, Component::kOptimizerState}) {
        const std::uint64_t each =
            closed.bytes[static_cast<std::size_t>(Tier::kDevice)][static_cast<std::size_t>(component)];
        std::uint64_t sum = 0;
        for (std::uint32_t rank = 1; rank <= ranks; ++rank) {
          c.run.parallel.data_rank = rank;
          const Program p = c.build();
          const std::uint64_t bytes = states(p, component), rounding = 3 * 4 * 16 * p.params.size();
          BOOST_TEST(bytes <= each + rounding, c.model.name << ", " << name(component) << ", rank " << rank
                                                            << ": " << bytes << ", closed form " << each);
          sum += bytes;
        }
        BOOST_TEST(sum + 64 * ranks >= each * ranks - each * ranks / 64,
                   c.model.name << ", " << name(component));
        BOOST_TEST(sum <= (each + 64) * ranks, c.model.name << ", " << name(component));
        ++compared;
      }
    }
  }
  BOOST_TEST(compared > 100);
}

// Norms, and biases that are added after the sum over the ranks, are whole on every tensor-parallel rank.
BOOST_AUTO_TEST_CASE(the_closed_form_divides_matrices_among_tensor_parallel_ranks_alike) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Case one = random_case(seed);
    if (!can_be_divided(one.run.optimizer) || one.run.mode == RunMode::kInference) continue;
    for (const std::uint32_t tensor : {2u, 3u})
      for (std::uint32_t rank = 1; rank <= tensor; ++rank) {
        const Case c = on_tensor_ranks(one, tensor, rank, 1, 0);
        const Program p = c.build();
        const parallel::Numbers closed = parallel::stage_numbers(model::from_model(c.model), c.run, 0);
        for (const Component component :
             {Component::kWeights, Component::kGradients, Component::kOptimizerState}) {
          BOOST_TEST(
              states(p, component) ==
                  closed.bytes[static_cast<std::size_t>(Tier::kDevice)][static_cast<std::size_t>(component)],
              c.model.name << ", " << name(component));
          ++compared;
        }
      }
  }
  BOOST_TEST(compared > 100);
}

BOOST_AUTO_TEST_SUITE_END()
