// Kinds of layers compared with simpler implementations: layers counted one by one, runs split into single
// layers, and a decoder with alternating kinds compared with the same layers in two blocks.
#include <boost/test/unit_test.hpp>

#include "core/parallel/layer_kinds.hpp"
#include "core/parallel/memory_model.hpp"
#include "tests/core/parallel/measured_runs.hpp"
#include "tests/core/parallel/random_layouts.hpp"

using namespace trainhost;
using namespace trainhost::parallel;
using test::Draw;
using test::require;

namespace {

/// Alternating layers: local, global, local, ... (`pairs` pairs), one LayerRun each.
model::Architecture alternating(std::uint32_t pairs) {
  model::Architecture a = test::dense(64, 128, 8, 4, 1000, 1);
  model::Layer global = a.layers[0].layer, local = global;
  local.attention.window = 32;
  a.layers.clear();
  for (std::uint32_t i = 0; i < pairs; ++i) a.layers.push_back({local, 1}), a.layers.push_back({global, 1});
  return a;
}

model::Architecture in_single_layers(const model::Architecture& a) {
  model::Architecture out = a;
  out.layers.clear();
  for (const model::LayerRun& run : a.layers)
    for (std::uint32_t i = 0; i < run.count; ++i) out.layers.push_back({run.layer, 1});
  return out;
}

bool same(const Numbers& a, const Numbers& b) { return a.bytes == b.bytes && a.peak_at == b.peak_at; }

}  // namespace

BOOST_AUTO_TEST_SUITE(kinds)

BOOST_AUTO_TEST_CASE(layers_of_a_kind_in_a_range_equal_a_count_one_by_one) {
  test::property("within() against a list of layers", [](const Draw& draw) {
    model::Architecture a = test::random_model(draw);
    const std::vector<model::LayerRun> pattern = a.layers;
    for (std::uint64_t again = draw(0, 4); again > 0; --again)
      a.layers.insert(a.layers.end(), pattern.begin(), pattern.end());
    const LayerKinds kinds(a);
    const model::Architecture single = in_single_layers(a);
    const std::uint64_t n = single.layers.size(), from = draw(0, n), to = draw(from, n);
    require(kinds.layers() == n && kinds.size() <= pattern.size(), "kinds");
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      std::uint64_t here = 0;
      for (std::uint64_t l = from; l < to; ++l) here += single.layers[l].layer == kinds.layer(k);
      require(kinds.within(k, from, to) == here,
              std::to_string(kinds.within(k, from, to)) + ", counted " + std::to_string(here));
    }
  });
}

BOOST_AUTO_TEST_CASE(equal_layers_are_one_kind_however_their_runs_are_split) {
  test::property("runs of single layers", [](const Draw& draw) {
    const test::Case c = test::random_case(draw);
    const model::Architecture single = in_single_layers(c.a);
    for (std::uint32_t stage = 0; stage < c.r.parallel.pipeline; ++stage)
      require(same(stage_numbers(c.a, c.r, stage), stage_numbers(single, c.r, stage)),
              "stage " + std::to_string(stage));
    require(candidate_stages(c.a, LayerKinds(c.a), c.r) == candidate_stages(single, LayerKinds(single), c.r),
            "stages");
    require(trained_parameters(c.a, c.r) == trained_parameters(single, c.r), "parameters");
  });
}

BOOST_AUTO_TEST_CASE(alternating_kinds_need_the_memory_of_two_blocks_of_them) {
  const model::Architecture a = alternating(24);
  model::Architecture blocks = a;
  blocks.layers = {{a.layers[0].layer, 24}, {a.layers[1].layer, 24}};
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
    for (const RunMode mode : {RunMode::kFull, RunMode::kInference})
      for (const std::uint32_t every : {1u, 2u, 5u}) {
        RunSpec r;
        r.mode = mode, r.recompute = recompute;
        if (recompute == Recompute::kFull) r.memory.recompute_every = every;
        BOOST_TEST(same(stage_numbers(a, r, 0), stage_numbers(blocks, r, 0)));
      }
}

// 48 layers in groups of 5: ten inputs are kept, also if kinds change inside a group.
BOOST_AUTO_TEST_CASE(groups_recomputed_together_may_have_several_kinds) {
  const model::Architecture a = alternating(24);
  RunSpec r;
  r.recompute = Recompute::kFull, r.memory.recompute_every = 5;
  std::uint64_t keeping = 0, layers = 0;
  const LayerKinds kinds(a);
  Stage(a, kinds, r, 0).segments([&](const Segment& g) { keeping += g.keeping, layers += g.count; });
  BOOST_TEST(keeping == 10u);
  BOOST_TEST(layers == 48u);
}

BOOST_AUTO_TEST_CASE(more_alternating_layers_add_no_entries_and_no_stages) {
  RunSpec r;
  r.parallel.pipeline = 4, r.accumulate = 8, r.parallel.virtual_stages = 2;
  const model::Architecture shallow = alternating(32), deep = alternating(3200);
  const LayerKinds kinds(deep);
  BOOST_TEST(kinds.size() == 2u);
  BOOST_TEST(candidate_stages(deep, kinds, r) == (std::vector<std::uint32_t>{0, 3}),
             boost::test_tools::per_element());
  std::size_t segments = 0;
  Stage(deep, kinds, r, 1).segments([&](const Segment&) { ++segments; });
  BOOST_TEST(segments == 4u);  // two chunks of two kinds
  BOOST_TEST(report(deep, r).entries.size() == report(shallow, r).entries.size());
}

BOOST_AUTO_TEST_SUITE_END()
