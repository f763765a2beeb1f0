// The choice of recomputation compared with exhaustive search: it fits, no cheaper one fits, and few
// placements are needed.
#include "core/step/choose_recompute.hpp"

#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/placement/least_arena.hpp"
#include "core/step/operands.hpp"
#include "core/step/recompute.hpp"
#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

namespace {

Program with(Case c, const RecomputeLayers& n) {
  c.run.recompute = Recompute::kLayers, c.run.recompute_layers = n;
  return c.build();
}

/// FLOPs of the recomputed operations of a micro-batch, with elementwise operations at 32 per element: a
/// memory-bound operation takes about as long as 32 FLOPs per element of a matrix product.
double recompute_cost(const Program& p) {
  double cost = 0;
  for (const Op& op : p.ops) {
    if (!(op.flags & kRecomputed)) continue;
    const double rows = static_cast<double>(op.rows);
    if (op.kind == OpKind::kLinear) {
      const Buffer& w = p[op[step::operand::linear::kWeight]];
      cost += 2.0 * rows * static_cast<double>(w.rows) * static_cast<double>(w.cols);
    } else if (op.kind == OpKind::kAttention)
      cost += 2.0 * rows * static_cast<double>(p.run.seq_len) * static_cast<double>(p.model.q_width());
    else
      for (BufferId b : op.outputs())
        cost += b == kNoBuffer ? 0 : 32.0 * rows * static_cast<double>(p[b].cols);
  }
  return cost;
}

std::vector<RecomputeLayers> every_choice(std::uint32_t layers) {
  std::vector<RecomputeLayers> all;
  for (std::uint32_t f = 0; f <= layers; ++f)
    for (std::uint32_t m = 0; f + m <= layers; ++m)
      for (std::uint32_t s = 0; f + m + s <= layers; ++s) all.push_back({f, m, s});
  return all;
}

/// Shapes of a real model: wide MLP, more tokens than vocabulary rows in a chunk.
Case usual_case(std::uint32_t layers) {
  Case c;
  c.model.family = "llama", c.model.vocab = 96, c.model.hidden = 32, c.model.layers = layers,
  c.model.heads = 4;
  c.model.kv_heads = 2, c.model.head_dim = 8, c.model.intermediate = 88, c.model.max_positions = 4096;
  c.run.micro_batch = 2, c.run.seq_len = 64;
  c.traits.trainer = "test", c.traits.head_chunk_tokens = 32,
  c.traits.attention_tile_q = c.traits.attention_tile_k = 16;
  return c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(choose_recompute_suite)

// Gradients of one micro-batch use bytes of activations, so the need does not fall evenly along the ladder of
// choices: the chosen one may recompute up to a tenth more than the cheapest.
BOOST_DATA_TEST_CASE(no_cheaper_choice_fits, boost::unit_test::data::make({2u, 1u}), accumulate) {
  const double slack = accumulate == 2 ? 1.0 : 1.1;
  for (std::uint32_t layers : {1u, 2u, 5u}) {
    Case c = usual_case(layers);
    c.run.accumulate = accumulate;
    struct Tried {
      RecomputeLayers n;
      std::uint64_t bytes;
      double cost;
    };
    std::vector<Tried> tried;
    for (const RecomputeLayers& n : every_choice(layers)) {
      const Program p = with(c, n);
      tried.push_back({n, place(p).arena_bytes, recompute_cost(p)});
    }
    for (const Tried& budget : tried) {  // every memory need that there is, as the budget, and a byte less
      for (std::uint64_t bytes : {budget.bytes, budget.bytes - 1}) {
        const RecomputeLayers chosen = choose_recompute(
            layers, [&](const RecomputeLayers& n) { return place(with(c, n)).arena_bytes <= bytes; });
        const Tried* cheapest = nullptr;
        for (const Tried& t : tried)
          if (t.bytes <= bytes && (!cheapest || t.cost < cheapest->cost)) cheapest = &t;
        if (!cheapest) {
          BOOST_TEST((chosen == RecomputeLayers{layers, 0, 0}));
          continue;
        }
        const Program p = with(c, chosen);
        BOOST_TEST(place(p).arena_bytes <= bytes);
        BOOST_TEST(recompute_cost(p) <= slack * cheapest->cost,
                   layers << " layers, " << bytes << " bytes: " << chosen.full << "/" << chosen.mlp << "/"
                          << chosen.selective << " costs " << recompute_cost(p) << ", " << cheapest->n.full
                          << "/" << cheapest->n.mlp << "/" << cheapest->n.selective << " would cost "
                          << cheapest->cost);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(choices_for_random_models_fit_and_are_nearly_optimal) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Case c = random_case(seed);
    c.run.mode = RunMode::kFull, c.model.layers = std::min(c.model.layers, 4u);
    const std::uint64_t none = place(with(c, {})).arena_bytes,
                        full = place(with(c, {c.model.layers, 0, 0})).arena_bytes;
    for (int part = 0; part <= 4; ++part) {
      const std::uint64_t bytes = full + (none - full) * static_cast<std::uint64_t>(part) / 4;
      if (none < full) continue;
      const RecomputeLayers n = choose_recompute(
          c.model.layers, [&](const RecomputeLayers& r) { return place(with(c, r)).arena_bytes <= bytes; });
      BOOST_TEST(place(with(c, n)).arena_bytes <= bytes, "seed " << seed << " part " << part);
      if (part == 4) BOOST_TEST(n.total() == 0u);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_deep_model_needs_few_placements) {
  for (std::uint32_t saving = 0; saving <= 126 * 3; saving += 7) {
    int asked = 0;
    const RecomputeLayers n = choose_recompute(126, [&](const RecomputeLayers& r) {
      ++asked;
      return 3 * r.full + 2 * r.mlp + r.selective >= saving;
    });
    BOOST_TEST(3 * n.full + 2 * n.mlp + n.selective >= saving);
    BOOST_TEST(asked <= 28);
  }
}

BOOST_AUTO_TEST_CASE(a_policy_of_all_layers_is_the_policy_of_each) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Case c = random_case(seed);
    c.run.mode = RunMode::kFull;
    auto uniform = [&](Recompute r) {
      Case u = c;
      u.run.recompute = r;
      return digest(u.build());
    };
    const std::uint32_t all = c.model.layers;
    BOOST_TEST(uniform(Recompute::kNone) == digest(with(c, {})));
    BOOST_TEST(uniform(Recompute::kSelective) == digest(with(c, {0, 0, all})));
    BOOST_TEST(uniform(Recompute::kFull) == digest(with(c, {all, 0, 0})));
  }
}

// Each policy recomputes more and keeps less than the one before; mlp recomputes one product per layer.
BOOST_AUTO_TEST_CASE(the_first_layers_are_the_ones_that_recompute) {
  const Program p = with(usual_case(6), {1, 2, 2});
  int products[6] = {}, others[6] = {};
  for (const Op& op : p.ops)
    if (op.flags & kRecomputed) ++(op.kind == OpKind::kLinear ? products : others)[op.layer];
  for (int l = 0; l < 6; ++l) {
    BOOST_TEST(products[l] == (l == 0 ? 3 : l < 3 ? 1 : 0), "layer " << l);
    BOOST_TEST((others[l] > 0) == (l < 5), "layer " << l);
  }
  BOOST_CHECK_THROW(with(usual_case(6), {3, 2, 2}), Error);
}

// Every assignment of the same policies to other layers: none needs less memory than the first layers.
BOOST_AUTO_TEST_CASE(recomputing_other_layers_than_the_first_saves_no_more) {
  std::size_t strictly = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Case c = random_case(seed);
    const std::uint32_t layers = c.model.layers = 2 + c.model.layers % 3;
    c.run.mode = RunMode::kFull, c.run.recompute = Recompute::kNone;
    for (const RecomputeLayers& n : every_choice(layers)) {
      const std::uint64_t first = place(with(c, n)).peak_tensor_bytes;
      RunSpec chosen;
      chosen.recompute = Recompute::kLayers, chosen.recompute_layers = n;
      const RecomputePolicy policy = recompute_policy(chosen);
      std::vector<std::uint32_t> at(layers);  // layer l is treated as layer at[l] is by n
      for (std::uint32_t l = 0; l < layers; ++l) at[l] = l;
      do {
        auto dropped = [&](const Buffer& b) {
          Buffer moved = b;
          if (b.layer >= 0) moved.layer = static_cast<std::int32_t>(at[static_cast<std::size_t>(b.layer)]);
          return policy.dropped && policy.dropped(moved);
        };
        Program p = c.build();
        apply_recompute(p, {dropped, policy.cheap});
        const std::uint64_t elsewhere = place(p).peak_tensor_bytes;
        strictly += first < elsewhere;
        BOOST_REQUIRE_MESSAGE(first <= elsewhere, "seed " << seed << ": " << n.full << "/" << n.mlp << "/"
                                                          << n.selective << " takes " << first
                                                          << ", elsewhere " << elsewhere);
      } while (std::next_permutation(at.begin(), at.end()));
    }
  }
  BOOST_TEST(strictly > 100u);
}

BOOST_AUTO_TEST_CASE(memory_grows_linearly_with_the_sequence) {
  for (const RecomputeLayers& n :
       {RecomputeLayers{}, RecomputeLayers{0, 0, 4}, RecomputeLayers{4, 0, 0}, RecomputeLayers{1, 1, 1}}) {
    auto peak = [&](std::uint32_t seq) {
      Case c = usual_case(4);
      c.run.seq_len = seq;
      return place(with(c, n)).peak_tensor_bytes;
    };
    for (std::uint32_t seq = 512; seq <= 4096; seq *= 2)
      BOOST_TEST(peak(4 * seq) - peak(2 * seq) == 2 * (peak(2 * seq) - peak(seq)), seq << " tokens");
  }
}

BOOST_AUTO_TEST_CASE(the_bound_gives_the_same_choice_with_few_placements) {
  const Case c = usual_case(6);
  const auto arena = [&](const RecomputeLayers& n) { return place(with(c, n)).arena_bytes; };
  const auto bound = [&](const RecomputeLayers& n) {
    Case x = c;
    x.run.recompute = Recompute::kLayers, x.run.recompute_layers = n;
    return least_arena(x.model, x.run, x.traits);
  };
  const std::uint64_t none = arena({}), full = arena({6, 0, 0});
  for (std::uint64_t budget = full - 1000; budget < none + 1000; budget += (none - full) / 40) {
    std::size_t placed = 0;
    const RecomputeLayers chosen =
        choose_recompute(6, budget, bound, [&](const RecomputeLayers& n) { return ++placed, arena(n); });
    BOOST_CHECK_EQUAL(arena(chosen) <= budget, full <= budget);
    BOOST_CHECK_LE(placed, 4u);
    if (arena(chosen) == bound(chosen))  // without gaps
      BOOST_CHECK(chosen ==
                  choose_recompute(6, [&](const RecomputeLayers& n) { return arena(n) <= budget; }));
  }
}

// Placements with arbitrary gaps: the choice fits whenever anything fits.
BOOST_AUTO_TEST_CASE(gaps_above_the_bound_never_lead_to_a_choice_that_does_not_fit) {
  constexpr std::uint32_t kLayers = 40;
  const auto bound = [](const RecomputeLayers& n) {
    return 100000 - 1200ull * n.full - 700ull * n.mlp - 200ull * n.selective;
  };
  for (std::uint64_t seed = 1; seed < 60; ++seed) {
    const auto placed = [&](const RecomputeLayers& n) {
      return bound(n) + (n.full * 7919u + n.mlp * 104729u + n.selective * 1299709u) * seed % 9000;
    };
    for (std::uint64_t budget = 40000; budget < 120000; budget += 1777) {
      const RecomputeLayers n = choose_recompute(kLayers, budget, bound, placed);
      BOOST_CHECK(placed(n) <= budget || placed({kLayers, 0, 0}) > budget);
      if (bound({kLayers, 0, 0}) > budget) BOOST_CHECK(n == (RecomputeLayers{kLayers, 0, 0}));
      if (placed({}) <= budget) BOOST_CHECK_EQUAL(n.total(), 0u);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
