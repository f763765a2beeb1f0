// Programs of the device modes: transfers per micro-batch, tiers of buffers, device memory. check_test.cpp
// tests that their plans are correct.
#include "core/step/device_modes.hpp"

#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"
#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

namespace {

struct Transfers {
  std::uint64_t up = 0, down = 0, up_bytes = 0, down_bytes = 0, sync = 0, other = 0;
};
Transfers transfers(const Program& p, SectionKind k) {
  Transfers t;
  const Section s = p.section(k);
  for (std::uint32_t i = s.begin; i < s.end; ++i) {
    const Op& o = p.ops[i];
    if (o.kind != OpKind::kCopy) continue;
    const bool up = p[o[operand::copy::kTo]].tier == Tier::kDevice;
    const std::uint64_t bytes = p[o[operand::copy::kFrom]].instance_bytes();
    if (o.flags & kActivationCopy)
      (up ? t.up : t.down)++, (up ? t.up_bytes : t.down_bytes) += bytes;
    else
      (o.flags & kSyncCopy ? t.sync : t.other)++;
  }
  return t;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(modes)

BOOST_AUTO_TEST_CASE(hybrid_has_three_activation_transfers_per_micro_batch_of_the_documented_bytes) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = on_device(random_case(seed), seed, "hybrid");
    if (c.run.mode == RunMode::kInference) continue;
    const Program p = c.build();
    const Transfers micro = transfers(p, SectionKind::kMicro), update = transfers(p, SectionKind::kUpdate);
    const std::uint64_t M = c.run.tokens_per_micro_batch(), el = size_of(c.run.weight);
    BOOST_TEST(micro.up == 2u);
    BOOST_TEST(micro.down == 1u);
    BOOST_TEST(micro.up_bytes + micro.down_bytes == M * (c.model.hidden + 2 * c.model.vocab) * el);
    BOOST_TEST(micro.sync == (c.model.tied ? 0u : 1u));
    BOOST_TEST(update.sync == (c.model.tied ? 1u : 0u));
    BOOST_TEST(micro.other + update.other + update.up + update.down == 0u);
  }
}

// Frozen weights have nothing to copy back, and a frozen table has no copy to refresh.
BOOST_AUTO_TEST_CASE(frozen_weights_are_copied_to_the_device_alone) {
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    for (const bool nf4 : {false, true}) {
      Case c = nf4 ? with_nf4(random_case(seed), seed) : with_adapters(random_case(seed), seed);
      const Program hybrid = on_device(c, seed, "hybrid").build(),
                    streamed = on_device(c, seed, "streamed").build();
      const Transfers micro = transfers(hybrid, SectionKind::kMicro),
                      update = transfers(hybrid, SectionKind::kUpdate);
      BOOST_TEST((micro.up == 2u && micro.down == 1u));
      BOOST_TEST(micro.sync + micro.other + update.sync + update.other + update.up + update.down == 0u);
      const EmbeddingCopy table = embedding_copy(hybrid);
      BOOST_TEST((table.host != kNoBuffer) == c.model.tied);
      const Section s = streamed.section(SectionKind::kMicro);
      std::size_t gradients = 0;
      for (std::uint32_t i = s.begin; i < s.end; ++i) {
        const Op& o = streamed.ops[i];
        if (o.kind == OpKind::kAddGrad) ++gradients;
        if (o.kind != OpKind::kCopy) continue;
        const Buffer& from = streamed[o[operand::copy::kFrom]];
        const std::string role = from.role;
        if (from.tier == Tier::kDevice)
          BOOST_TEST((role.find("_lora_") != role.npos || role.ends_with("_magnitude")), from.name());
      }
      std::size_t trained = 0;
      for (const Param& q : streamed.params) trained += q.grad != kNoBuffer;
      BOOST_TEST(gradients == trained);
      for (const Param& q : streamed.params)
        BOOST_TEST((streamed[q.weight].tier != Tier::kDevice && (q.grad != kNoBuffer || q.m == kNoBuffer)));
    }
}

BOOST_AUTO_TEST_CASE(the_documented_example_moves_545259520_bytes) {
  Case c = on_device(small_case(), 0, "hybrid");
  c.model.hidden = 1024, c.model.vocab = 32768, c.run.seq_len = 2048, c.run.micro_batch = 1;
  c.model.heads = 16, c.model.kv_heads = 16, c.model.head_dim = 64, c.model.layers = 1,
  c.model.intermediate = 2816;
  const Transfers t = transfers(c.build(), SectionKind::kMicro);
  BOOST_TEST(t.up_bytes + t.down_bytes == 545259520u);
}

BOOST_AUTO_TEST_CASE(resident_copies_nothing) {
  const Program p = on_device(everything_case(), 2).build();
  for (const Op& o : p.ops) BOOST_TEST(static_cast<int>(o.kind) != static_cast<int>(OpKind::kCopy));
}

BOOST_AUTO_TEST_CASE(streamed_keeps_all_state_on_the_host_and_two_layers_of_weights_on_the_device) {
  for (bool tied : {false, true}) {
    Case c = on_device(small_case(), 0, "streamed");
    c.model.layers = 12, c.model.hidden = 64, c.model.intermediate = 200, c.model.heads = 8,
    c.model.head_dim = 8, c.model.kv_heads = 8;
    c.model.vocab = 40, c.model.tied = tied, c.run.recompute = Recompute::kFull;
    const Program p = c.build();
    for (const Param& q : p.params)
      for (BufferId b : {q.weight, q.grad, q.m, q.v}) BOOST_TEST((p[b].tier != Tier::kDevice));
    const MemoryPlan plan = place(p);
    const ModelSpec& m = c.model;
    const std::uint64_t layer = 4ull * (2 * m.hidden + m.hidden * m.qkv_width() + m.q_width() * m.hidden +
                                        3ull * m.hidden * m.intermediate);
    // Inputs of all layers, weights of two, gradients of two, and the working set of one.
    const std::uint64_t inputs = 4ull * c.run.tokens_per_micro_batch() * m.hidden * (m.layers + 1);
    BOOST_TEST(plan.arena_bytes < 4 * layer + inputs +
                                      16ull * c.run.tokens_per_micro_batch() *
                                          (m.qkv_width() + 3ull * m.intermediate + 4ull * m.hidden) +
                                      300000);
    BOOST_TEST(plan.arena_bytes < 12 * layer);
    BOOST_TEST(plan.of(Tier::kPinned).arena_bytes > 12 * layer);
    BOOST_TEST(plan.of(Tier::kHost).arena_bytes > 36 * layer);
  }
}

BOOST_AUTO_TEST_CASE(an_unknown_mode_is_an_error_of_the_trainer) {
  Case c = on_device(small_case(), 0, "residnet");
  BOOST_CHECK_THROW(c.build(), Error);
}

BOOST_AUTO_TEST_SUITE_END()
