// Plans whose buffers are in wrong places: the checker must reject each with the right finding. Programs with
// wrong operations: sabotage_test.cpp.
#include "core/base/checked.hpp"
#include "tests/core/placement/sabotage.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

BOOST_AUTO_TEST_SUITE(sabotage)

BOOST_AUTO_TEST_CASE(a_kept_activation_overlapping_a_later_one) {
  rejected(small_case(),
           [](Broken& b) { b.plan.offset[b.id(role::kH1, 0)] = b.plan.offset[b.id(role::kGateUp, 1)]; },
           {"linear_dw of layer 0", "layers.0.h1", "has overwritten"});
}

BOOST_AUTO_TEST_CASE(a_buffer_shifted_by_one_alignment_into_its_neighbour) {
  rejected(small_case(), [](Broken& b) { b.plan.offset[b.id(role::kX, 1)] -= b.p.traits.alignment; },
           {"overwritten"});
}

BOOST_AUTO_TEST_CASE(a_gradient_overlapping_a_weight) {
  rejected(small_case(), [](Broken& b) { b.plan.offset[b.id("grad.o", 1)] = b.plan.offset[b.id("w.o", 0)]; },
           {"w.o", "has overwritten"});
}

BOOST_AUTO_TEST_CASE(two_moments_at_one_offset) {
  rejected(small_case(),
           [](Broken& b) { b.plan.offset[b.id("m.down", 1)] = b.plan.offset[b.id("v.down", 1)]; },
           {"adamw", "overlaps"});
}

BOOST_AUTO_TEST_CASE(moments_of_two_layers_at_one_offset) {
  rejected(small_case(),
           [](Broken& b) { b.plan.offset[b.id("m.down", 1)] = b.plan.offset[b.id("m.down", 0)]; },
           {"m.down", "has overwritten"});
}

BOOST_AUTO_TEST_CASE(the_rope_table_overlapped_by_an_activation) {
  rejected(small_case(),
           [](Broken& b) { b.plan.offset[b.id(role::kX, 0)] = b.plan.offset[b.id(role::kRopeTable)]; },
           {"rope", "rope_table", "overwritten"});
}

BOOST_AUTO_TEST_CASE(scratch_overlapping_an_operand_of_its_operation) {
  rejected(small_case(),
           [](Broken& b) { b.plan.offset[b.id(role::kAttnScratch, 0)] = b.plan.offset[b.id(role::kQkv, 0)]; },
           {"attention", "attn_scratch overlaps"});
}

BOOST_AUTO_TEST_CASE(scratch_overlapping_a_kept_buffer) {
  rejected(
      small_case(),
      [](Broken& b) { b.plan.offset[b.id(role::kAttnBwdScratch, 1)] = b.plan.offset[b.id(role::kX, 0)]; },
      {"layers.0.x", "attention_bwd of layer 1 has overwritten"});
}

BOOST_AUTO_TEST_CASE(logits_overlapping_their_hidden_states) {
  rejected(small_case(),
           [](Broken& b) { b.plan.offset[b.id(role::kLogits)] = b.plan.offset[b.id(role::kHf)]; },
           {"head_loss", "overlaps"});
}

BOOST_AUTO_TEST_CASE(an_output_overlapping_its_input) {
  rejected(small_case(),
           [](Broken& b) {
             b.plan.offset[b.id(role::kAct, 0, kOfEval)] = b.plan.offset[b.id(role::kGateUp, 0, kOfEval)];
           },
           {"swiglu of layer 0", "overlaps"});
}

BOOST_AUTO_TEST_CASE(a_cache_overwritten_by_the_next_token) {
  rejected(small_case(),
           [](Broken& b) {
             b.plan.offset[b.id(role::kCacheK, 0, kOfGenerate)] =
                 b.plan.offset[b.id(role::kGateUp, 1, kOfGenerate)];
           },
           {"cache_k"});
}

BOOST_AUTO_TEST_CASE(caches_of_two_layers_at_one_offset) {
  rejected(small_case(),
           [](Broken& b) {
             b.plan.offset[b.id(role::kCacheV, 1, kOfGenerate)] =
                 b.plan.offset[b.id(role::kCacheV, 0, kOfGenerate)];
           },
           {"attention_step", "cache_v", "has overwritten"});
}

BOOST_AUTO_TEST_CASE(evaluation_that_overwrites_a_weight) {
  rejected(small_case(),
           [](Broken& b) { b.plan.offset[b.id(role::kX, 0, kOfEval)] = b.plan.offset[b.id("w.gate_up", 0)]; },
           {"w.gate_up", "has overwritten"});
}

BOOST_AUTO_TEST_CASE(a_gradient_overwritten_by_the_next_micro_batch) {
  Case two = small_case();
  two.run.accumulate = 2;
  rejected(two, [](Broken& b) { b.plan.offset[b.id(role::kX, 0)] = b.plan.offset[b.id("grad.embed")]; },
           {"grad.embed", "overwritten"});
}

// With one micro-batch gradients use bytes of activations, but not of those that are still needed.
BOOST_AUTO_TEST_CASE(an_activation_overwritten_by_a_gradient) {
  rejected(small_case(),
           [](Broken& b) { b.plan.offset[b.id("grad.qkv", 1)] = b.plan.offset[b.id(role::kGateUp, 0)]; },
           {"gate_up", "overwritten"});
}

BOOST_AUTO_TEST_CASE(a_buffer_outside_the_arena) {
  rejected(small_case(), [](Broken& b) { b.plan.offset[b.id(role::kDx)] = b.plan.arena_bytes; },
           {"dx", "inside the arena"});
  rejected(small_case(), [](Broken& b) { b.plan.offset[b.id(role::kDx)] = UINT64_MAX - 63; },
           {"dx", "inside the arena"});
  rejected(small_case(), [](Broken& b) { b.plan.arena_bytes -= 64; }, {"inside the arena"});
}

BOOST_AUTO_TEST_CASE(a_misaligned_buffer) {
  rejected(small_case(), [](Broken& b) { b.plan.offset[b.id(role::kQkv, 1)] += 4; },
           {"layers.1.qkv", "not aligned"});
}

BOOST_AUTO_TEST_CASE(an_offset_for_an_external_buffer) {
  rejected(small_case(), [](Broken& b) { b.plan.offset[b.id(role::kIds)] = 0; },
           {"ids", "is external but has an offset"});
}

BOOST_AUTO_TEST_CASE(a_plan_for_another_program) {
  rejected(small_case(), [](Broken& b) { b.plan.offset.pop_back(); }, {"another program"});
  rejected(small_case(), [](Broken& b) { b.plan.persistent_bytes += 4; }, {"persistent_bytes"});
  rejected(small_case(), [](Broken& b) { b.plan.peak_tensor_bytes = b.plan.arena_bytes + 1; }, {"peak"});
  Broken b(small_case());
  b.plan.digest ^= 1;
  BOOST_REQUIRE_EQUAL(check(b.p, b.plan).size(), 1u);
  BOOST_CHECK(check(b.p, b.plan)[0].find("digest") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_lifetime_that_ends_too_early) {
  rejected(small_case(), [](Broken& b) { b.plan.lifetime[b.id(role::kX, 0)].last -= 1; },
           {"layers.0.x", "outside its lifetime"});
}

BOOST_AUTO_TEST_CASE(offsets_of_two_buffers_swapped) {
  rejected(
      small_case(),
      [](Broken& b) { std::swap(b.plan.offset[b.id(role::kQkv, 0)], b.plan.offset[b.id(role::kRstd1, 0)]); },
      {"overwritten"});
  rejected(small_case(),
           [](Broken& b) { std::swap(b.plan.offset[b.id("w.embed")], b.plan.offset[b.id("w.norm1", 0)]); },
           {"w."});
}

// Any two buffers that are live at the same time and overlap in the arena: the checker finds it without
// lifetimes.
BOOST_AUTO_TEST_CASE(every_overlapping_pair_of_transient_buffers_is_rejected_or_correct) {
  Case c = small_case();
  c.model.layers = 1;
  const Broken good(c);
  std::size_t rejections = 0, wrongly_kept = 0, wrongly_rejected = 0;
  for (BufferId a = 0; a < good.p.buffers.size(); ++a)
    for (BufferId o = 0; o < good.p.buffers.size(); ++o) {
      const Buffer &x = good.p[a], &y = good.p[o];
      if (a == o || x.persistent || y.persistent || x.storage != y.storage || x.storage == Storage::kExternal)
        continue;
      Program isolated = good.p;  // no other buffer interferes: a is above the arena, o overlaps a
      MemoryPlan plan = good.plan;
      const std::uint64_t top = plan.arena_bytes;
      plan.offset[a] = plan.offset[o] = top;
      plan.arena_bytes = top + align_up(std::max(x.bytes(), y.bytes()), 64);
      plan.digest = digest(isolated, plan.offset);
      const bool together = plan.lifetime[a].overlaps(plan.lifetime[o]),
                 rejected = !check(isolated, plan).empty();
      rejections += rejected;
      wrongly_kept += together && !rejected;
      wrongly_rejected += !together && rejected;
    }
  BOOST_CHECK_GT(rejections, 500u);
  BOOST_CHECK_EQUAL(wrongly_kept, 0u);
  BOOST_CHECK_EQUAL(wrongly_rejected, 0u);
}

BOOST_AUTO_TEST_SUITE_END()
