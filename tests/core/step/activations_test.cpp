// Activations of a plan, operation by operation: what full recomputation keeps, and that activations grow
// linearly with the sequence length.
#include <boost/test/unit_test.hpp>

#include "core/step/buffer_names.hpp"
#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

namespace {

bool activation(const Buffer& b) { return !b.persistent && b.component == Component::kActivations; }

/// Maximum over operations of live activation bytes.
std::uint64_t most_activations(const Program& p) {
  const std::vector<Lifetime> lifetime = lifetimes(p);
  std::vector<std::uint64_t> live(p.ops.size(), 0);
  for (BufferId b = 0; b < p.buffers.size(); ++b)
    if (activation(p[b]) && lifetime[b].used())
      for (std::uint32_t i = lifetime[b].first; i <= lifetime[b].last; ++i) live[i] += p[b].bytes();
  return *std::max_element(live.begin(), live.end());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(activations)

// At every operation of the micro section: the inputs of layers, and activations of at most one layer, which
// do not exceed the activations and gradients of one layer.
BOOST_AUTO_TEST_CASE(with_full_only_layer_inputs_and_one_layers_working_set_are_live) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    Case c = random_case(seed);
    c.run.mode = RunMode::kFull, c.run.recompute = Recompute::kFull;
    const Program p = c.build();
    const ModelSpec& m = c.model;
    const std::vector<Lifetime> lifetime = lifetimes(p);
    const std::uint64_t M = c.run.tokens_per_micro_batch(), H = m.hidden, A = m.heads, K = m.kv_heads,
                        D = m.head_dim, I = m.intermediate;
    // All activations of a layer, with q/k norms if present, and its largest gradients (d_qkv, d_attn_out).
    const std::uint64_t one_layer =
        4 * M *
        (4 * H + 2 + 2 * (A + 2 * K) * D + (m.qk_norm ? (A + K) * (D + 1) : 0) + 2 * A * D + A + 4 * I);
    const Section micro = p.section(SectionKind::kMicro);
    for (std::uint32_t i = micro.begin; i < micro.end; ++i) {
      std::uint64_t inputs = 0, inside = 0;
      std::int32_t layer = -1;
      for (BufferId b = 0; b < p.buffers.size(); ++b) {
        if (!activation(p[b]) || p[b].layer < 0 || !lifetime[b].overlaps({i, i})) continue;
        if (p[b].role == std::string_view(role::kX)) {
          inputs += p[b].bytes();
          continue;
        }
        BOOST_REQUIRE_MESSAGE(layer == -1 || layer == p[b].layer, "seed " << seed << ", op " << i
                                                                          << ": activations of layers "
                                                                          << layer << " and " << p[b].layer);
        layer = p[b].layer, inside += p[b].bytes();
      }
      BOOST_REQUIRE_LE(inputs, 4 * M * m.layers * H);
      BOOST_REQUIRE_LE(inside, one_layer);
    }
  }
}

BOOST_AUTO_TEST_CASE(activations_grow_with_the_sequence_and_not_with_its_square) {
  for (Recompute r : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    std::uint64_t at_512 = 0;
    for (std::uint32_t S = 512; S <= 16384; S *= 2) {
      Case c = small_case();
      ModelSpec& m = c.model;
      m.vocab = 256, m.hidden = 256, m.layers = 4, m.heads = m.kv_heads = 8, m.head_dim = 32,
      m.intermediate = 688;
      m.max_positions = 16384;
      c.traits.attention_tile_q = 32, c.traits.attention_tile_k = 128;
      c.run.micro_batch = 1, c.run.seq_len = S, c.run.recompute = r;
      const Program p = c.build();
      const std::uint64_t n = most_activations(p);
      if (S == 512) at_512 = n;
      BOOST_TEST_MESSAGE("S " << S << ", recompute " << name(r) << ": " << n << " bytes of activations");
      BOOST_CHECK_EQUAL(n, at_512 / 512 * S);
      // A matrix of scores, S x S per head, does not occur.
      for (const Buffer& b : p.buffers)
        BOOST_CHECK_LT(
            b.bytes(),
            std::uint64_t{S} * 4 * std::max<std::uint64_t>(2 * m.intermediate, m.qkv_width()) + (4u << 20));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
