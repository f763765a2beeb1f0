// Programs of several ranks with wrong collective operations or shards: the checker must reject each with the
// right finding. Operations of one rank: sabotage_test.cpp.
#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"
#include "tests/core/placement/sabotage.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

BOOST_AUTO_TEST_SUITE(sabotage)

BOOST_AUTO_TEST_CASE(collectives_in_wrong_places) {
  Case two = small_case();
  two.run.accumulate = 2;
  const Case sum = on_ranks(two, 2, 0), zero = on_ranks(two, 2, 1);
  rejected(sum, [](Broken& b) { b.repeat(b.op(OpKind::kAllReduce, 0)); }, {"all_reduce", "second time"});
  rejected(sum,
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kAllReduce, 1)].flags = 0;
             b.settle();
           },
           {"after the ranks have added up theirs"});
  rejected(sum, [](Broken& b) { b.move(b.op(OpKind::kAllReduce, 1), b.op(OpKind::kSwiGluBwd, 1)); },
           {"before it is complete"});
  rejected(sum, [](Broken& b) { b.move(b.op(OpKind::kGradSquares, 0), b.op(OpKind::kWait, -1)); },
           {"uses layers.0.grad.", "while a collective changes it"});
  rejected(sum, [](Broken& b) { b.p.ops[b.op(OpKind::kAllReduce, 0)].kind = OpKind::kReduceScatter; },
           {"is not the reduction of the run's ZeRO stage"});
  rejected(sum, [](Broken& b) { b.move(b.op(OpKind::kAdamW, 0), b.op(OpKind::kSumScalars, -1, 1)); },
           {"adamw of layer 0", "the norm of this rank alone"});
  rejected(zero, [](Broken& b) { b.move(b.op(OpKind::kAllGather, 0), b.op(OpKind::kAdamW, 0)); },
           {"all_gather", "before its update"});
  rejected(zero,
           [](Broken& b) {
             Op& gather = b.p.ops[b.op(OpKind::kAllGather, 0)];
             gather[operand::all_gather::kBuffer] = gather[operand::all_gather::kBufferOut] =
                 b.id("grad.qkv", 0);
             b.settle();
           },
           {"which is not a weight"});
  rejected(zero, [](Broken& b) { b.p.buffers[b.id("m.qkv", 0)].rows += 16; }, {"have another shape"});
  rejected(small_case(),
           [](Broken& b) {
             b.p.run.parallel.data = 2, b.p.run.parallel.data_rank = 1;
             b.settle();
           },
           {"is added up over the ranks 0 times"});
}

BOOST_AUTO_TEST_CASE(parts_of_tensor_ranks_that_do_not_come_together) {
  const Case first = on_tensor_ranks(everything_case(), 2, 1, 1, 0),
             second = on_tensor_ranks(everything_case(), 2, 2, 1, 0);
  // Sum and wait of the embedding, and of the products of a layer.
  const auto drop_both = [](Broken& b, OpKind kind, std::int32_t layer, std::size_t n) {
    const std::uint32_t i = b.op(kind, layer, n);
    b.drop(i);
    while (b.p.ops[i].kind != OpKind::kWait) b.move(i + 1, i);
    b.drop(i);
  };
  rejected(first, [&](Broken& b) { drop_both(b, OpKind::kAllReduce, -1, 0); },
           {"needs the residual stream before layer 0", "this rank's part of the residual stream"});
  rejected(first, [&](Broken& b) { drop_both(b, OpKind::kAllReduce, 0, 0); },
           {"rms_norm of layer 0", "this rank's part of the residual stream before the MLP of layer 0"});
  rejected(first, [&](Broken& b) { drop_both(b, OpKind::kAllGather, -1, 0); },
           {"head_loss", "this rank's part of the statistics of the logits"});
  rejected(first, [](Broken& b) { b.repeat(b.op(OpKind::kWait, 0)); }, {"collective that was not started"});
  rejected(first, [](Broken& b) { b.p.ops[b.op(OpKind::kAllReduce, 0)].flags = 0; },
           {"which is not a gradient"});
  rejected(second,
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kLinear, 0, 1)][operand::linear::kResidual] = b.id(role::kX, 0);
             b.settle();
           },
           {"linear of layer 0", "adds a residual"});
  // The norms of q and k, the first parameters that the update adds up.
  const auto in_update = [](const Broken& b, OpKind kind) {
    std::uint32_t i = b.p.section(SectionKind::kUpdate).begin;
    while (b.p.ops[i].kind != kind) ++i;
    return i;
  };
  rejected(first, [&](Broken& b) { b.drop(in_update(b, OpKind::kAllReduce)); },
           {"is added up over the TP ranks 0 times"});
  rejected(second,
           [&](Broken& b) {
             const std::uint32_t at = in_update(b, OpKind::kGradSquares);
             b.repeat(at);
             b.p.ops[at][operand::grad_squares::kGrad] = b.id("grad.norm1", 0);
             b.settle();
           },
           {"grad.norm1 enters the norm 1 times"});
}

BOOST_AUTO_TEST_CASE(rows_of_tensor_ranks_in_wrong_places) {
  const Case c = with_sequence_parallelism(on_tensor_ranks(everything_case(), 2, 1, 1, 0));
  rejected(c,
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kLinear, 0)][operand::linear::kX] = b.id(role::kH1, 0);
             b.settle();
           },
           {"layers.0.h1 is f32[12,8], expected f32[24,8]"});
  rejected(c,
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kTakeRows, 0)][operand::take_rows::kResidual] = kNoBuffer;
             b.settle();
           },
           {"take_rows of layer 0", "omits the residual"});
  rejected(c, [](Broken& b) { b.p.ops[b.op(OpKind::kReduceScatter, 0)].kind = OpKind::kAllReduce; },
           {"is not the collective for this rank's part of the residual stream"});
  rejected(c,
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kAllGather, 0)][operand::all_gather::kShard] = b.id(role::kX, 0);
             b.settle();
           },
           {"needs the norm's output before layer 0 in layers.0.h1.all"});
  // A norm whose gradient has the rows of this rank alone.
  rejected(c,
           [](Broken& b) {
             std::uint32_t i = b.p.section(SectionKind::kUpdate).begin;
             while (b.p.ops[i].kind != OpKind::kAllReduce) ++i;
             b.drop(i);
           },
           {"grad.norm1 is added up over"});
}

BOOST_AUTO_TEST_CASE(shards_in_wrong_places) {
  Case grads = on_ranks(small_case(), 2, 2), weights = on_ranks(small_case(), 2, 3);
  grads.model.tied = true;
  const auto whole = [](const Broken& b, const char* role, std::int32_t layer, std::uint32_t n = 0) {
    return b.id(role, layer, kWhole + n);
  };
  rejected(grads,
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kEmbedBwd)].flags |= kFreshGrad;
             b.settle();
           },
           {"reduces grad.embed (whole 1) before it is complete"});
  rejected(grads, [](Broken& b) { b.move(b.op(OpKind::kReduceScatter, 1), b.op(OpKind::kLinearDw, 1)); },
           {"reduce_scatter of layer 1", "before anything has written it"});
  rejected(grads, [](Broken& b) { b.repeat(b.op(OpKind::kReduceScatter, 0)); },
           {"while a collective changes it"});
  rejected(grads, [](Broken& b) { b.repeat(b.op(OpKind::kAddGrad, 0)); },
           {"contributions per micro-batch, expected 1"});
  rejected(grads,
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kAddGrad, 0)].flags = 0;
             b.settle();
           },
           {"before its first write"});
  rejected(grads, [](Broken& b) { b.drop(b.op(OpKind::kReduceScatter, 1)); }, {"that was not started"});
  rejected(grads, [](Broken& b) { b.drop(b.op(OpKind::kAllGather, 1)); }, {"is gathered 0 times"});
  rejected(weights, [](Broken& b) { b.drop(b.op(OpKind::kWait, 1)); }, {"while a collective changes it"});
  rejected(weights,
           [&](Broken& b) {
             const std::uint32_t i = b.op(OpKind::kAllGather, 1);
             b.p.ops[i][operand::all_gather::kShard] = b.id("w.norm1", 0);
             b.settle();
           },
           {"rms_norm of layer 1", "needs"});
  rejected(weights,
           [&](Broken& b) {
             Op& o = b.p.ops[b.op(OpKind::kLinear, 1)];
             o[operand::linear::kWeight] = whole(b, "w.qkv", 0);
             b.settle();
           },
           {"linear of layer 1"});
  rejected(weights, [](Broken& b) { b.p.buffers[b.id("w.qkv", 0)].whole += 16; }, {"marked as a shard"});
  rejected(weights, [](Broken& b) { b.p.buffers[b.id("grad.qkv", 0)].rows += 16; }, {"another shape"});
}

BOOST_AUTO_TEST_SUITE_END()
