// The bound of the reduced program against the whole program: the same number, and never above a placement.
#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/placement/least_arena.hpp"
#include "core/placement/pack.hpp"
#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

namespace {

constexpr const char* kTransformModes[] = {"", "resident", "hybrid", "streamed"};

Case with_layers(std::uint64_t seed, std::uint32_t layers, const char* mode) {
  Case c = random_case(seed);
  c.model.layers = layers, c.run.recompute_layers = {};
  return *mode ? on_device(c, seed, mode) : c;
}

/// Live bytes at every operation, summed one buffer at a time: the expected result, without the arithmetic of
/// least_arena().
std::uint64_t largest_live_bytes(const Program& p) {
  const std::vector<Lifetime> lifetime = lifetimes(p);
  const auto padded = [&](const Buffer& b) {
    return (b.bytes() + p.traits.alignment - 1) / p.traits.alignment * p.traits.alignment;
  };
  std::uint64_t most = 0;
  for (BufferId b = 0; b < p.buffers.size(); ++b)
    if (p[b].tier == p.traits.tier && p[b].storage != Storage::kExternal && p[b].persistent)
      most += padded(p[b]);
  for (std::uint32_t i = 0; i < p.ops.size(); ++i) {
    std::uint64_t sum = 0;
    for (BufferId b = 0; b < p.buffers.size(); ++b)
      if (p[b].tier == p.traits.tier && p[b].storage != Storage::kExternal && lifetime[b].overlaps({i, i}))
        sum += padded(p[b]);
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(least_arena_of_a_run)

BOOST_AUTO_TEST_CASE(the_bound_of_a_program_is_its_maximum_of_live_bytes) {
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    for (const char* mode : kTransformModes) {
      const Program p = with_layers(seed, 1 + seed % 6, mode).build();
      BOOST_REQUIRE_EQUAL(least_arena(p), largest_live_bytes(p));
    }
}

BOOST_AUTO_TEST_CASE(a_reduced_program_gives_the_bound_of_the_whole_one) {
  std::size_t folded = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed)
    for (const char* mode : kTransformModes)
      for (const std::uint32_t layers : {1u, 3u, 4u, 5u, 6u, 7u, 9u, 12u, 18u}) {
        const Case c = with_layers(seed, layers, mode);
        BOOST_REQUIRE_EQUAL(least_arena(c.model, c.run, c.traits), least_arena(c.build()));
        folded += layers > 4;
      }
  BOOST_CHECK_GT(folded, 100u);
}

// The rules name layers that the reduced program does not have, or make its layers unlike the others.
BOOST_AUTO_TEST_CASE(rules_for_single_layers_give_the_bound_of_the_whole_program) {
  for (const char* mode : kTransformModes) {
    Case c = with_layers(1, 12, mode);
    c.run.mode = RunMode::kFull, c.run.trainable = "-*\n+model.layers.1*.mlp.down_proj.weight";
    BOOST_TEST(least_arena(c.model, c.run, c.traits) == least_arena(c.build()), mode);
    c.run.trainable.clear(), c.run.mode = RunMode::kLora, c.run.lora_rank = 4, c.run.lora_alpha = 8;
    c.run.lora_targets = 1;  // q_proj
    c.run.lora_rules = "model.layers.9.self_attn.q_proj 64 8";
    BOOST_TEST(least_arena(c.model, c.run, c.traits) == least_arena(c.build()), mode);
  }
}

BOOST_AUTO_TEST_CASE(every_split_of_the_layers_gives_the_bound_of_the_whole_program) {
  for (const char* mode : kTransformModes)
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      Case c = with_layers(seed, 13, mode);
      c.run.mode = RunMode::kFull;
      for (std::uint32_t full = 0; full <= 13; ++full)
        for (std::uint32_t mlp = 0; full + mlp <= 13; mlp += 1 + seed)
          for (std::uint32_t selective = 0; full + mlp + selective <= 13; selective += 1 + seed) {
            const RecomputeLayers n{full, mlp, selective};
            c.run.recompute = (full + mlp) % 2 ? Recompute::kLayers : Recompute::kNone;
            (c.run.recompute == Recompute::kLayers ? c.run.recompute_layers : c.traits.recompute_layers) = n;
            (c.run.recompute == Recompute::kLayers ? c.traits.recompute_layers : c.run.recompute_layers) = {};
            const std::uint64_t bytes = least_arena(c.model, c.run, c.traits);
            BOOST_REQUIRE_MESSAGE(bytes == least_arena(c.build()), mode << " seed " << seed << ": " << full
                                                                        << " full, " << mlp << " mlp, "
                                                                        << selective << " selective");
          }
    }
}

BOOST_AUTO_TEST_CASE(no_placement_is_below_the_bound) {
  for (std::uint64_t seed = 0; seed < 30; ++seed)
    for (const char* mode : kTransformModes) {
      const Case c = with_layers(seed, 1 + seed % 9, mode);
      BOOST_CHECK_LE(least_arena(c.model, c.run, c.traits), place(c.build()).arena_bytes);
    }
}

BOOST_AUTO_TEST_CASE(unsupported_runs_are_rejected_like_by_build_program) {
  Case c = small_case();
  c.traits.recompute_layers = {2, 1, 0};
  BOOST_CHECK_THROW(least_arena(c.model, c.run, c.traits), Error);
  c = small_case();
  c.model.layers = 4000000000u, c.model.vocab = 1u << 30, c.model.hidden = 1u << 30;
  BOOST_CHECK_THROW(least_arena(c.model, c.run, c.traits), Error);
}

BOOST_AUTO_TEST_SUITE_END()
