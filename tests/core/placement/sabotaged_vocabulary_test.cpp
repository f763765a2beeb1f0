// Programs with adapters of embedding and LM head, with and without magnitudes, and one adapter of both; and
// Adafactor on tensor-parallel ranks: broken ones must be rejected with the right finding.
#include "core/model/adapters.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"
#include "tests/core/placement/sabotage.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;
using namespace trainhost::step::operand;

BOOST_AUTO_TEST_SUITE(sabotaged_vocabulary)

namespace {

/// Adapters of q and of the vocabulary; `tied`: one of embedding and head.
Case vocabulary_case(bool dora, double dropout = 0, bool tied = false) {
  Case c = small_case();
  c.model.tied = true;
  c.run.mode = RunMode::kLora, c.run.lora_rank = 3, c.run.lora_alpha = 6;
  c.run.lora_targets = 1 | (tied ? kTargetEmbedding | kTiedAdapter : kTargetsOutsideLayers);
  c.run.memory.dora = dora, c.run.memory.lora_dropout = dropout;
  return c;
}

Case adafactor_case(std::uint32_t rank) {
  Case c = small_case();
  c.run.optimizer = Optimizer::kAdafactor;
  return on_tensor_ranks(c, 2, rank, 1, 0);
}

void any_operation_matters(const Case& c) {
  const Broken good(c);
  BOOST_REQUIRE(check(good.p, good.plan).empty());
  for (std::uint32_t i = 0; i < good.p.ops.size(); ++i) {
    if (good.p.ops[i].kind == OpKind::kHold) continue;  // only extends lifetimes, which drop() computes again
    Broken b = good;
    b.drop(i);
    BOOST_CHECK_MESSAGE(!check(b.p, b.plan).empty(), "op " << i << " " << op_info(good.p.ops[i].kind).name
                                                           << " can be removed without a finding");
  }
}

/// Changes an operand of an operation outside the layers.
template <class Slot>
auto replaced(OpKind k, Slot slot, const char* role, std::size_t n = 0) {
  return [=](Broken& b) {
    b.p.ops[b.op(k, -1, n)][slot] = b.id(role, -1);
    b.settle();
  };
}

}  // namespace

BOOST_AUTO_TEST_CASE(no_operation_can_be_left_out) {
  for (const bool dora : {false, true})
    for (const bool tied : {false, true}) {
      any_operation_matters(vocabulary_case(dora, 0, tied));
      any_operation_matters(vocabulary_case(dora, 0.25, tied));
      any_operation_matters(on_tensor_ranks(vocabulary_case(dora, 0.25, tied), 2, 2, 1, 0));
      any_operation_matters(
          with_sequence_parallelism(on_tensor_ranks(vocabulary_case(dora, 0, tied), 2, 1, 2, 2)));
      for (const char* mode : {"hybrid", "streamed"})
        any_operation_matters(on_device(vocabulary_case(dora, 0.25, tied), 1, mode));
    }
  any_operation_matters(adafactor_case(1)), any_operation_matters(adafactor_case(2));
}

BOOST_AUTO_TEST_CASE(magnitudes_of_the_vocabulary_in_the_wrong_place) {
  const Case c = vocabulary_case(true), dropout = vocabulary_case(true, 0.25);
  rejected(c, replaced(OpKind::kDoraScale, dora_scale::kMagnitude, "w.head_magnitude"), {"dora_scale"});
  rejected(c, replaced(OpKind::kDoraScale, dora_scale::kA, "w.head_lora_a"), {"dora_scale", "expected f32["});
  rejected(c, replaced(OpKind::kHeadLoss, head_loss::kScale, "embed_dora_scale"), {"head_loss"});
  rejected(c, replaced(OpKind::kHeadLoss, head_loss::kGradMagnitude, "grad.embed_magnitude"), {"head_loss"});
  rejected(c, replaced(OpKind::kHeadLoss, head_loss::kUnscaled, "logits"),
           {"head_loss", "uses logits as scratch and as another operand"});
  rejected(c, [](Broken& b) { --b.p.buffers[b.id("head_unscaled")].rows; },
           {"has fewer rows than the logits"});
  rejected(dropout, replaced(OpKind::kHeadLoss, head_loss::kDropped, "hf"), {"head_loss"});
  rejected(dropout, [](Broken& b) { --b.p.ops[b.op(OpKind::kHeadLoss)].ins; },
           {"has 14 inputs, expected 15"});
  rejected(c, [](Broken& b) { b.p.ops[b.op(OpKind::kDoraBwd)].flags = 0; }, {"before its first write"});
}

BOOST_AUTO_TEST_CASE(an_adapter_of_both_with_the_wrong_factor_or_gradient) {
  const Case c = vocabulary_case(false, 0, true);
  rejected(c, replaced(OpKind::kTranspose, transpose::kMatrix, "w.embed_lora_a"), {"transpose"});
  rejected(c, replaced(OpKind::kHeadLoss, head_loss::kB, "w.embed"), {"head_loss"});
  // Both uses overwrite a gradient, or neither does.
  rejected(c, [](Broken& b) { b.p.ops[b.op(OpKind::kEmbedBwd)].flags |= kFirstWrite; },
           {"is a second first writer of grad.embed_lora_a"});
  rejected(c, [](Broken& b) { b.p.ops[b.op(OpKind::kLoraBDw)].flags |= kFirstWrite; },
           {"is a second first writer of grad.embed_lora_b"});
  rejected(c, [](Broken& b) { b.p.ops[b.op(OpKind::kHeadLoss)].flags &= ~std::uint32_t{kFirstWrite}; },
           {"before its first write"});
  // Adapters of their own have no transpose.
  rejected(vocabulary_case(false),
           [](Broken& b) {
             Op& op = b.p.ops[b.op(OpKind::kLinear)];
             op.kind = OpKind::kTranspose, op[transpose::kMatrix] = b.id("w.embed_lora_b"), op.ins = 1;
             b.settle();
           },
           {"transpose"});
}

BOOST_AUTO_TEST_CASE(sums_of_adafactor_that_are_not_whole_or_of_another_parameter) {
  for (const std::uint32_t rank : {1u, 2u}) {
    const Case c = adafactor_case(rank);
    rejected(c,
             [](Broken& b) {
               const std::uint32_t sums = b.op(OpKind::kAdafactorSums, 0);
               b.drop(sums + 1), b.drop(sums + 1);  // the sum and its wait
             },
             {"adafactor_change of layer 0", "this rank's part of the sums of squared gradients"});
    rejected(c,
             [](Broken& b) {
               const std::uint32_t change = b.op(OpKind::kAdafactorChange, 0);
               b.drop(change + 1), b.drop(change + 1);
             },
             {"adafactor of layer 0", "this rank's part of the sums of squared changes"});
    rejected(c, [](Broken& b) { b.p.ops[b.op(OpKind::kAdafactorSums, 0) + 1].kind = OpKind::kAllGather; },
             {"is not the collective for this rank's part of the sums of squared gradients"});
    rejected(c, [](Broken& b) { b.repeat(b.op(OpKind::kAdafactorSums, 0)); }, {"a second time"});
    rejected(c,
             [](Broken& b) {
               Op& op = b.p.ops[b.op(OpKind::kAdafactorSums, 0)];
               op[adafactor_sums::kWeight] = b.id("w.qkv", 1);
               b.settle();
             },
             {"adafactor_sums of layer 0", "with buffers of another parameter"});
    rejected(c, [](Broken& b) { b.p.ops[b.op(OpKind::kAdafactor, 0, 1)].ins = 7; },
             {"has 7 inputs, expected 9"});
  }
}

BOOST_AUTO_TEST_SUITE_END()
