// Costs of operations and live bytes by phase, compared with numbers computed by hand.
#include <boost/test/unit_test.hpp>
#include <map>

#include "core/placement/live_bytes.hpp"
#include "core/step/op_cost.hpp"
#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

namespace {

const Op& op_named(const Program& p, const std::string& label, SectionKind section = SectionKind::kMicro) {
  const Section s = p.section(section);
  for (std::uint32_t i = s.begin; i < s.end; ++i)
    if (op_label(p, p.ops[i]) == label) return p.ops[i];
  BOOST_FAIL("no operation " << label);
  return p.ops[0];
}

void is(const Program& p, const std::string& label, std::uint64_t flops, std::uint64_t read,
        std::uint64_t written, bool first = false, SectionKind section = SectionKind::kMicro) {
  const OpCost c = op_cost(p, op_named(p, label, section), first);
  BOOST_CHECK_MESSAGE(c.flops == flops, label << ": " << c.flops << " flops, not " << flops);
  BOOST_CHECK_MESSAGE(c.bytes_read == read, label << ": reads " << c.bytes_read << ", not " << read);
  BOOST_CHECK_MESSAGE(c.bytes_written == written,
                      label << ": writes " << c.bytes_written << ", not " << written);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(costs)

// V 32, H 8, L 2, A 4, K 2, D 2, I 12; B 2, S 6: M = 12 tokens; everything f32.
BOOST_AUTO_TEST_CASE(products_and_operands_of_a_small_model_by_hand) {
  const Program p = small_case().build();
  is(p, "embed", 0, 12 * 8 * 4 + 12 * 4, 12 * 8 * 4);                            // 12 rows of the table, ids
  is(p, "layers.0 rms_norm norm1", 0, 12 * 8 * 4 + 8 * 4, 12 * 8 * 4 + 12 * 4);  // x, w -> y, 1/rms
  is(p, "layers.1 linear qkv", 2 * 12 * 16 * 8, (12 * 8 + 16 * 8) * 4, 12 * 16 * 4);      // (A+2K)D = 16
  is(p, "layers.1 linear o", 2 * 12 * 8 * 8, (12 * 8 + 8 * 8 + 12 * 8) * 4, 12 * 8 * 4);  // and the residual
  is(p, "layers.0 linear gate_up", 2 * 12 * 24 * 8, (12 * 8 + 24 * 8) * 4, 12 * 24 * 4);
  is(p, "layers.0 rope", 0, (12 * 16 + 6 * 2) * 4, 12 * 16 * 4);
  is(p, "layers.0 swiglu", 0, 12 * 24 * 4, 12 * 12 * 4);
  // 2 sequences x 4 heads x 21 pairs x D 2 x 2 FLOPs: 672 per product.
  is(p, "layers.0 attention", 2 * 672, 12 * 16 * 4, (12 * 8 + 12 * 4) * 4);
  is(p, "layers.0 attention_bwd", 5 * 672, (12 * 8 + 12 * 8 + 12 * 4 + 12 * 16) * 4, 12 * 16 * 4);
  is(p, "layers.1 linear_dx down", 2 * 12 * 8 * 12, (12 * 8 + 8 * 12) * 4, 12 * 12 * 4);
  is(p, "layers.1 linear_dw down", 2 * 12 * 8 * 12, (12 * 8 + 12 * 12 + 8 * 12) * 4, 8 * 12 * 4);
  is(p, "layers.1 linear_dw down", 2 * 12 * 8 * 12, (12 * 8 + 12 * 12) * 4, 8 * 12 * 4, true);
  // hf, head, targets, the head's gradient and 16 doubles; logits are scratch.
  is(p, "head_loss head", 3 * 2 * 12 * 32 * 8, 12 * 8 * 4 + 2 * 32 * 8 * 4 + 12 * 4 + 128,
     12 * 8 * 4 + 32 * 8 * 4 + 128);
  is(p, "embed_bwd", 0, 12 * 8 * 4 + 12 * 4 + 12 * 8 * 4, 12 * 8 * 4);
  is(p, "embed_bwd", 0, 12 * 8 * 4 + 12 * 4, 32 * 8 * 4, true);  // the whole table is written once
  is(p, "layers.0 adamw down", 0, 4 * 8 * 12 * 4 + 128, 3 * 8 * 12 * 4, false, SectionKind::kUpdate);
  is(p, "layers.0 grad_squares down", 0, 8 * 12 * 4 + 128, 128, false, SectionKind::kUpdate);
  is(p, "head_eval head", 2 * 12 * 32 * 8, 12 * 8 * 4 + 32 * 8 * 4 + 12 * 4 + 128, 128, false,
     SectionKind::kEval);
  is(p, "head_logits head", 2 * 32 * 8, 8 * 4 + 32 * 8 * 4, 32 * 4, false, SectionKind::kGenerate);
}

// 96 elements on two ranks: 48 each.
BOOST_AUTO_TEST_CASE(a_rank_updates_its_shard_under_zero_and_squares_it_always) {
  for (const std::uint32_t zero : {0u, 1u, 2u, 3u}) {
    const Program p = on_ranks(small_case(), 2, zero).build();
    const std::uint64_t updated = zero ? 48 : 96;
    is(p, "layers.0 adamw down", 0, 4 * updated * 4 + 128, 3 * updated * 4, false, SectionKind::kUpdate);
    is(p, "layers.0 grad_squares down", 0, 48 * 4 + 128, 128, false, SectionKind::kUpdate);
  }
}

BOOST_AUTO_TEST_CASE(attention_pairs_equal_a_count_over_the_mask) {
  for (std::uint32_t seq : {1u, 2u, 7u, 33u})
    for (std::uint32_t window : {0u, 1u, 3u, 7u, 8u, 33u, 50u}) {
      Case c = small_case();
      c.run.seq_len = seq, c.model.sliding_window = window, c.model.first_window_layer = 1;
      const Program p = c.build();
      for (std::int32_t layer : {0, 1}) {
        std::uint64_t pairs = 0;
        for (std::uint32_t q = 0; q < seq; ++q)
          for (std::uint32_t k = 0; k <= q; ++k) pairs += layer == 0 || window == 0 || q - k < window;
        BOOST_CHECK_EQUAL(attention_pairs(p, layer), pairs);
      }
    }
}

/// Every matrix parameter: twice its size per token forward, four times backward.
BOOST_AUTO_TEST_CASE(a_step_without_recompute_is_six_flops_per_matrix_parameter_and_token) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Case c = random_case(seed);
    c.run.mode = RunMode::kFull, c.run.recompute = Recompute::kNone;
    const Program p = c.build();
    const std::uint64_t M = c.run.tokens_per_micro_batch();
    std::uint64_t sum = 0, attention = 0, matrices = c.model.vocab * c.model.hidden;
    const Section s = p.section(SectionKind::kMicro);
    for (std::uint32_t i = s.begin; i < s.end; ++i) sum += op_cost(p, p.ops[i], false).flops;
    for (std::uint32_t l = 0; l < c.model.layers; ++l) {
      attention +=
          14 * c.run.micro_batch * c.model.q_width() * attention_pairs(p, static_cast<std::int32_t>(l));
      matrices += c.model.hidden *
                  (c.model.qkv_width() + c.model.q_width() + 3 * std::uint64_t{c.model.intermediate});
    }
    BOOST_CHECK_EQUAL(sum, 6 * M * matrices + attention);
  }
}

BOOST_AUTO_TEST_CASE(labels_name_the_parameter_and_mark_recomputed_operations) {
  Case c = small_case();
  c.run.recompute = Recompute::kFull;
  const Program p = c.build();
  std::map<std::string, int> seen;
  for (std::uint32_t i = p.section(SectionKind::kMicro).begin; i < p.section(SectionKind::kMicro).end; ++i)
    ++seen[op_label(p, p.ops[i])];
  for (const char* label :
       {"embed", "layers.1 linear gate_up", "layers.1 linear gate_up again", "layers.0 attention again",
        "layers.0 rms_norm_bwd norm2", "rms_norm final_norm", "embed_bwd"})
    BOOST_CHECK_MESSAGE(seen.count(label), "no operation is called " << label);
  for (const auto& [label, times] : seen)
    if (label.find("again") == std::string::npos)
      BOOST_CHECK_MESSAGE(times == 1, label << " is " << times << " operations");
}

BOOST_AUTO_TEST_CASE(live_bytes_by_phase_of_a_small_model_by_hand) {
  Case c = small_case();
  c.run.accumulate = 2;
  const Program p = c.build();
  const PhaseLiveBytes m = live_bytes_by_phase(p, lifetimes(p));
  // Two tables of 32*8; a layer has 16*8 + 8*8 + 24*8 + 8*12 + 2*8 weights; the last norm 8.
  const std::uint64_t parameters = 2 * 256 + 2 * (128 + 64 + 192 + 96 + 16) + 8;
  const std::uint64_t stays = 3 * parameters * 4 + 6 * 2 * 4 + 128;  // weights, m, v; rope table; scalars
  BOOST_CHECK_EQUAL(m.before_forward, stays);
  BOOST_CHECK_EQUAL(m.after_update, stays);
  BOOST_CHECK_EQUAL(m.after_backward, stays + parameters * 4);
  BOOST_CHECK_EQUAL(m.before_later_forward, m.after_backward);
  // README.md: 4H + (A+2K)D + AD + 3I + A + 2 elements per token and layer; after the last, x_out, hf and
  // 1/rms.
  const std::uint64_t acts = 12 * (2 * (4 * 8 + 16 + 8 + 36 + 4 + 2) + 8 + 8 + 1) * 4;
  BOOST_CHECK_EQUAL(m.after_forward, m.after_backward + acts);
  // With one micro-batch gradients are live from the backward pass on.
  const Program once = small_case().build();
  const PhaseLiveBytes n = live_bytes_by_phase(once, lifetimes(once));
  BOOST_CHECK_EQUAL(n.after_forward, stays + acts);
  BOOST_CHECK_EQUAL(n.after_backward, m.after_backward);
}

BOOST_AUTO_TEST_CASE(bytes_by_layer_sum_to_the_live_bytes) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Program p = random_case(seed).build();
    const std::vector<Lifetime> lifetime = lifetimes(p);
    const std::vector<std::uint64_t> live = live_bytes(p, lifetime, p.traits.tier);
    for (std::uint32_t op = 0; op < p.ops.size(); op += 1 + op / 7) {
      std::uint64_t sum = 0;
      for (const LayerShare& s : live_by_layer(p, lifetime, op)) sum += s.bytes;
      BOOST_REQUIRE_EQUAL(sum, live[op]);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
