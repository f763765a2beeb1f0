// Programs with wrong operations, operands or parameters: the checker must reject each with the right
// finding. Operations among ranks: sabotaged_ranks_test.cpp; buffers in wrong places:
// sabotaged_offsets_test.cpp.
#include "tests/core/placement/sabotage.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

BOOST_AUTO_TEST_SUITE(sabotage)

namespace {
Case lora_case() {
  Case c = small_case();
  c.run.mode = RunMode::kLora, c.run.lora_rank = 3, c.run.lora_targets = 0x7f, c.run.lora_alpha = 6;
  return c;
}
}  // namespace

BOOST_AUTO_TEST_CASE(any_operation_left_out) {
  for (const Case& c : {everything_case(), full_case(), on_ranks(small_case(), 2, 0),
                        on_ranks(everything_case(), 3, 1), on_ranks(small_case(), 2, 2),
                        on_ranks(small_case(), 3, 3), on_tensor_ranks(everything_case(), 2, 1, 2, 3),
                        with_sequence_parallelism(on_tensor_ranks(everything_case(), 2, 1, 1, 0)),
                        with_sequence_parallelism(on_tensor_ranks(full_case(), 2, 2, 2, 2)),
                        on_tensor_ranks(lora_case(), 2, 1, 1, 0)}) {
    const Broken good(c);
    for (std::uint32_t i = 0; i < good.p.ops.size(); ++i) {
      Broken b = good;
      b.drop(i);
      BOOST_CHECK_MESSAGE(!check(b.p, b.plan).empty(), "op " << i << " " << op_info(good.p.ops[i].kind).name
                                                             << " can be removed without a finding");
    }
  }
}

BOOST_AUTO_TEST_CASE(any_two_neighbours_that_depend_on_each_other_swapped) {
  for (const Case& c : {everything_case(), full_case(), on_ranks(full_case(), 2, 3)}) {
    const Broken good(c);
    const auto touches = [&](const Op& writer, const Op& other) {
      for (BufferId w : writer.outputs())
        for (std::span<const BufferId> side : {other.inputs(), other.outputs()})
          for (BufferId b : side)
            if (b == w && !good.p[b].persistent) return true;
      return false;
    };
    for (const Section& s : good.p.sections)
      for (std::uint32_t i = s.begin; i + 1 < s.end; ++i) {
        const Op &x = good.p.ops[i], &y = good.p.ops[i + 1];
        if (!touches(x, y) && !touches(y, x)) continue;
        Broken b = good;
        b.move(i + 1, i);
        BOOST_CHECK_MESSAGE(!check(b.p, b.plan).empty(),
                            "ops " << i << " and " << i + 1 << " can be swapped without a finding");
      }
  }
}

BOOST_AUTO_TEST_CASE(a_read_before_the_write) {
  rejected(small_case(), [](Broken& b) { b.drop(b.op(OpKind::kRmsNorm, 1, 0)); },
           {"linear of layer 1", "reads layers.1.h1 before anything has written it"});
  rejected(small_case(), [](Broken& b) { b.drop(b.op(OpKind::kEmbed)); }, {"reads layers.0.x before"});
  rejected(small_case(), [](Broken& b) { b.drop(b.op(OpKind::kAttentionBwd, 0)); },
           {"rope_bwd of layer 0", "before anything has written it"});
}

BOOST_AUTO_TEST_CASE(a_buffer_read_after_its_change_in_place) {
  rejected(small_case(),
           [](Broken& b) { b.move(b.op(OpKind::kSwiGluBwd, 1), b.op(OpKind::kLinearDw, 1, 0)); },
           {"swiglu_bwd of layer 1", "before anything has written it"});
  rejected(small_case(),
           [](Broken& b) { b.move(b.op(OpKind::kLinearDw, 1, 1), b.op(OpKind::kSwiGluBwd, 1)); },
           {"needs the gradient of gate and up of layer 1", "which holds gate and up of layer 1"});
}

BOOST_AUTO_TEST_CASE(rope_left_out_or_done_twice) {
  rejected(small_case(), [](Broken& b) { b.drop(b.op(OpKind::kRope, 0)); },
           {"needs rotated qkv of layer 0", "raw qkv"});
  rejected(small_case(), [](Broken& b) { b.repeat(b.op(OpKind::kRope, 0)); },
           {"needs raw qkv of layer 0", "rotated qkv"});
  rejected(small_case(), [](Broken& b) { b.drop(b.op(OpKind::kRopeBwd, 1)); },
           {"linear_dw of layer 1", "the gradient of rotated qkv"});
}

BOOST_AUTO_TEST_CASE(q_and_k_norm_left_out) {
  rejected(everything_case(), [](Broken& b) { b.drop(b.op(OpKind::kQkNorm, 0)); },
           {"rope of layer 0", "needs normed qkv"});
  rejected(everything_case(), [](Broken& b) { b.drop(b.op(OpKind::kQkNormBwd, 0)); },
           {"grad.q_norm has no first writer"});
}

BOOST_AUTO_TEST_CASE(a_layer_that_reads_the_residual_of_another) {
  rejected(small_case(),
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kRmsNorm, 1, 0)][operand::rms_norm::kX] = b.id(role::kX, 0);
             b.settle();
           },
           {"rms_norm of layer 1", "needs the residual stream before layer 1", "before layer 0"});
  rejected(small_case(),
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kLinear, 1, 1)][operand::linear::kResidual] = b.id(role::kXMid, 0);
             b.settle();
           },
           {"linear of layer 1", "needs the residual stream"});
  rejected(small_case(),
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kLinear, 1, 1)][operand::linear::kResidual] = kNoBuffer;
             b.settle();
           },
           {"omits the residual"});
}

BOOST_AUTO_TEST_CASE(a_bias_left_out) {
  rejected(everything_case(),
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kLinear, 0, 2)][operand::linear::kBias] = kNoBuffer;
             b.settle();
           },
           {"linear of layer 0", "omits the bias"});
}

BOOST_AUTO_TEST_CASE(a_weight_of_another_layer) {
  rejected(small_case(),
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kLinear, 0, 0)][operand::linear::kWeight] = b.id("w.qkv", 1);
             b.settle();
           },
           {"of layer 1"});
  rejected(small_case(),
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kHeadLoss)][operand::head_loss::kHead] = b.id("w.embed");
             b.settle();
           },
           {"head_loss", "another parameter"});
}

BOOST_AUTO_TEST_CASE(a_recomputed_operation_that_reads_what_was_dropped) {
  rejected(full_case(),
           [](Broken& b) {
             std::uint32_t i = b.op(OpKind::kSwiGlu, 0, 1);
             BOOST_REQUIRE(b.p.ops[i].flags & kRecomputed);
             b.p.ops[i][operand::swiglu::kGateUp] = b.id(role::kGateUp, 0);
             b.settle();
           },
           {"swiglu of layer 0", "has overwritten"});
  rejected(full_case(), [](Broken& b) { b.drop(b.op(OpKind::kAttention, 1, 1)); },
           {"attn_out'", "before anything has written it"});
}

BOOST_AUTO_TEST_CASE(an_input_changed_in_place_that_should_be_another_buffer) {
  rejected(small_case(),
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kRope, 0)][operand::rope::kQkvOut] = b.id(role::kH1, 0);
             b.settle();
           },
           {"rope of layer 0", "in place"});
  rejected(small_case(),
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kSwiGlu, 0)][operand::swiglu::kAct] = b.id(role::kGateUp, 0);
             b.settle();
           },
           {"swiglu of layer 0", "while it reads it"});
}

BOOST_AUTO_TEST_CASE(a_missing_or_unknown_operand) {
  rejected(small_case(),
           [](Broken& b) { b.p.ops[b.op(OpKind::kRmsNorm, 0)][operand::rms_norm::kWeight] = kNoBuffer; },
           {"has no input 1"});
  rejected(small_case(),
           [](Broken& b) { b.p.ops[b.op(OpKind::kRmsNorm, 0)][operand::rms_norm::kWeight] = 100000; },
           {"does not exist"});
  rejected(small_case(), [](Broken& b) { b.p.ops[b.op(OpKind::kRmsNorm, 0)].ins = 1; },
           {"has 1 inputs, expected 2"});
  rejected(small_case(), [](Broken& b) { b.p.ops[b.op(OpKind::kRmsNorm, 0)].outs = 1; }, {"has 1 outputs"});
  rejected(small_case(), [](Broken& b) { b.p.ops[0].kind = OpKind::kCount_; }, {"no such kind"});
  rejected(small_case(),
           [](Broken& b) { b.p.ops[b.op(OpKind::kRmsNormBwd)].flags &= ~std::uint32_t{kFreshDx}; },
           {"adds to dx"});
}

BOOST_AUTO_TEST_CASE(attention_that_does_not_know_the_documents) {
  for (const Case& c : {with_documents(small_case()), on_device(with_documents(small_case()), 0)}) {
    rejected(c, [](Broken& b) { --b.p.ops[b.op(OpKind::kAttention, 0)].ins; }, {"has 2 inputs, expected 3"});
    rejected(c,
             [](Broken& b) {
               b.p.ops[b.op(OpKind::kAttention, 1)][operand::attention::kStarts] = kNoBuffer;
               b.settle();
             },
             {"does not know the starts"});
    rejected(c,
             [](Broken& b) {
               b.p.ops[b.op(OpKind::kAttentionBwd, 1)][operand::attention_bwd::kStarts] = b.id(role::kIds);
               b.settle();
             },
             {"attention_bwd of layer 1", "starts"});
  }
  rejected(small_case(), [](Broken& b) { ++b.p.ops[b.op(OpKind::kAttention, 0)].ins; },
           {"has 3 inputs, expected 2"});
}

BOOST_AUTO_TEST_CASE(sections_with_gaps_or_missing) {
  rejected(small_case(), [](Broken& b) { b.p.sections[1].begin += 1; }, {"not contiguous"});
  rejected(small_case(), [](Broken& b) { b.p.sections.back().end -= 1; }, {"do not cover"});
  rejected(small_case(), [](Broken& b) { b.p.sections[1].kind = SectionKind::kEval; }, {"0 update sections"});
}

// ---- gradients and the update

BOOST_AUTO_TEST_CASE(a_first_write_forgotten) {
  rejected(small_case(),
           [](Broken& b) { b.p.ops[b.op(OpKind::kLinearDw, 1, 0)].flags &= ~std::uint32_t{kFirstWrite}; },
           {"linear_dw of layer 1", "adds to layers.1.grad.down before its first write"});
  rejected(small_case(),
           [](Broken& b) { b.p.ops[b.op(OpKind::kRmsNormBwd, 0, 1)].flags &= ~std::uint32_t{kFirstWrite}; },
           {"layers.0.grad.norm1 has no first writer"});
}

BOOST_AUTO_TEST_CASE(a_first_write_too_many) {
  Case tied = small_case();
  tied.model.tied = true;
  rejected(tied, [](Broken& b) { b.p.ops[b.op(OpKind::kEmbedBwd)].flags |= kFirstWrite; },
           {"embed_bwd", "a second first writer"});
  rejected(tied,
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kEmbedBwd)].flags |= kFirstWrite;
             b.p.ops[b.op(OpKind::kHeadLoss)].flags &= ~std::uint32_t{kFirstWrite};
           },
           {"embed_bwd", "overwrites grad.embed after another operation added to it"});
}

BOOST_AUTO_TEST_CASE(a_gradient_that_gets_too_little_or_too_much) {
  Case tied = small_case();
  tied.model.tied = true;
  rejected(tied, [](Broken& b) { b.drop(b.op(OpKind::kEmbedBwd)); },
           {"grad.embed gets 1 contributions", "expected 2"});
  rejected(small_case(), [](Broken& b) { b.drop(b.op(OpKind::kEmbedBwd)); },
           {"grad.embed has no first writer"});
  rejected(small_case(), [](Broken& b) { b.repeat(b.op(OpKind::kLinearDw, 0, 1)); },
           {"grad.gate_up gets 2 contributions"});
}

BOOST_AUTO_TEST_CASE(a_residual_gradient_that_misses_a_branch) {
  rejected(small_case(), [](Broken& b) { b.drop(b.op(OpKind::kRmsNormBwd, 1, 0)); },
           {"needs the gradient of the residual stream before the MLP of layer 1"});
  rejected(small_case(),
           [](Broken& b) { b.move(b.op(OpKind::kRmsNormBwd, 1, 1), b.op(OpKind::kLinearDx, 0, 0) + 1); },
           {"linear_dw of layer 0", "needs the gradient of the residual stream before layer 1"});
}

BOOST_AUTO_TEST_CASE(a_parameter_updated_never_or_twice) {
  rejected(small_case(), [](Broken& b) { b.drop(b.op(OpKind::kAdamW, 1, 2)); }, {"w.o is updated 0 times"});
  rejected(small_case(), [](Broken& b) { b.repeat(b.op(OpKind::kAdamW, 1, 2)); }, {"w.o is updated 2 times"});
  rejected(small_case(), [](Broken& b) { b.p.ops[b.op(OpKind::kAdamW, 1, 2)].flags ^= kDecay; },
           {"weight decay"});
  rejected(small_case(),
           [](Broken& b) {
             std::swap(b.p.ops[b.op(OpKind::kAdamW, 1, 2)][operand::adamw::kGrad],
                       b.p.ops[b.op(OpKind::kAdamW, 0, 2)][operand::adamw::kGrad]);
           },
           {"with buffers of another parameter"});
  rejected(small_case(),
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kAdamW, 0, 1)][operand::adamw::kM] = b.id("m.qkv", 1);
             b.p.ops[b.op(OpKind::kAdamW, 0, 1)][operand::adamw::kMOut] = b.id("m.qkv", 1);
           },
           {"with buffers of another parameter"});
}

BOOST_AUTO_TEST_CASE(state_or_scratch_of_another_size_or_optimizer) {
  const auto with = [](Optimizer o) {
    Case c = small_case();
    c.model.vocab = 600, c.run.optimizer = o;  // an embedding with 4,800 elements
    return c;
  };
  for (const Optimizer o : {Optimizer::kAdamW8bit, Optimizer::kAdafactor, Optimizer::kMuon})
    rejected(with(o), [](Broken& b) { ++b.p.buffers[b.id("m.embed")].rows; }, {"have another shape"});
  rejected(with(Optimizer::kAdafactor), [](Broken& b) { ++b.p.buffers[b.id("v.qkv", 0)].rows; },
           {"have another shape"});
  rejected(with(Optimizer::kAdafactor), [](Broken& b) { ++b.p.buffers[b.id("adafactor_sums")].rows; },
           {"adafactor_sums is f64[4,"});
  rejected(with(Optimizer::kMuon), [](Broken& b) { --b.p.buffers[b.id("muon_work")].rows; },
           {"muon_work is f32["});
  rejected(with(Optimizer::kMuon), [](Broken& b) { b.p.ops[b.op(OpKind::kMuon, 1)].kind = OpKind::kAdamW; },
           {"has 2 outputs, expected more"});
  rejected(with(Optimizer::kAdamW8bit),
           [](Broken& b) { b.p.ops[b.op(OpKind::kAdamW8bit)].kind = OpKind::kAdamW; },
           {"m.embed is u8[4876,1], expected f32[600,8]"});
}

BOOST_AUTO_TEST_CASE(a_gradient_left_out_of_the_norm_or_squared_too_late) {
  rejected(small_case(), [](Broken& b) { b.drop(b.op(OpKind::kGradSquares, 0, 0)); },
           {"grad.norm1 enters the norm 0 times"});
  rejected(small_case(), [](Broken& b) { b.repeat(b.op(OpKind::kGradSquares, 0, 0)); },
           {"grad.norm1 enters the norm 2 times"});
  rejected(small_case(),
           [](Broken& b) { b.move(b.op(OpKind::kGradSquares, 1, 5), b.op(OpKind::kAdamW) + 1); },
           {"after a parameter was updated"});
}

BOOST_AUTO_TEST_CASE(an_optimizer_that_the_run_did_not_ask_for) {
  rejected(small_case(), [](Broken& b) { b.p.run.optimizer = Optimizer::kSgd; },
           {"other optimizer state than its optimizer needs"});
}

// ---- shapes and parameters

BOOST_AUTO_TEST_CASE(operands_of_the_wrong_shape) {
  const auto shape = [](const char* role, std::int32_t layer, auto change,
                        std::initializer_list<const char*> words) {
    rejected(
        small_case(), [&](Broken& b) { change(b.p.buffers[b.id(role, layer)]); }, words);
  };
  shape(role::kX, 1, [](Buffer& x) { x.cols -= 1; }, {"layers.1.x", "expected f32[12,8]"});
  shape(role::kQkv, 0, [](Buffer& x) { x.rows += 1; }, {"layers.0.qkv is f32[13,16]"});
  shape(role::kLse, 0, [](Buffer& x) { x.cols = 1; }, {"layers.0.lse"});
  shape(role::kLogits, -1, [](Buffer& x) { x.rows = 13; }, {"logits", "13 rows for 12 tokens"});
  shape(role::kAttnScratch, 1, [](Buffer& x) { x.rows = 1; }, {"attn_scratch"});
  shape(role::kScalars, -1, [](Buffer& x) { x.dtype = DType::kF32; }, {"scalars is f32[1,16]"});
  shape(role::kNorm1Partials, 0, [](Buffer& x) { x.rows = 2; }, {"norm1_partials"});
  shape(role::kDAct, 0, [](Buffer& x) { x.dtype = DType::kBF16; }, {"d_act is bf16"});
  shape(role::kRopeTable, -1, [](Buffer& x) { x.rows = 5; }, {"rope_table"});
  shape(role::kIds, -1, [](Buffer& x) { x.storage = Storage::kArena; },
        {"ids must be an input from the host"});
}

BOOST_AUTO_TEST_CASE(an_operation_over_too_few_rows) {
  rejected(small_case(), [](Broken& b) { b.p.ops[b.op(OpKind::kSwiGlu, 0)].rows = 6; },
           {"swiglu of layer 0", "over 6 rows"});
}

BOOST_AUTO_TEST_CASE(parameters_that_do_not_contain_the_tensors) {
  rejected(small_case(), [](Broken& b) { b.p.buffers[b.id("w.qkv", 0)].rows += 1; },
           {"w.qkv has another size than its tensors"});
  rejected(small_case(), [](Broken& b) { b.p.buffers[b.id("v.o", 1)].cols += 1; }, {"w.o", "another shape"});
  rejected(small_case(), [](Broken& b) { b.p.params[2].slices.pop_back(); },
           {"v_proj", "is in 0 parameters"});
  rejected(small_case(), [](Broken& b) { b.p.params[2].slices[1].tensor = b.p.params[2].slices[0].tensor; },
           {"is in 2 parameters"});
  rejected(small_case(), [](Broken& b) { b.p.params[2].slices[1].first_element += 1; }, {"not contiguous"});
  rejected(small_case(), [](Broken& b) { b.p.params[1].decay = true; }, {"weight decay"});
  rejected(small_case(), [](Broken& b) { b.p.params[1].grad = kNoBuffer; }, {"has no gradient"});
  rejected(small_case(), [](Broken& b) { b.p.params[1].v = kNoBuffer; },
           {"other optimizer state than its optimizer needs"});
}

BOOST_AUTO_TEST_CASE(an_adapter_that_is_not_added_or_added_twice) {
  rejected(lora_case(), [](Broken& b) { b.drop(b.op(OpKind::kLoraB, 1)); }, {"part without adapters"});
  rejected(lora_case(), [](Broken& b) { b.repeat(b.op(OpKind::kLoraB, 1)); }, {"lora_b", "needs the part"});
  Case dropout = lora_case();
  dropout.run.memory.lora_dropout = 0.25;
  rejected(dropout, [](Broken& b) { b.drop(b.op(OpKind::kDropoutAdd, 1)); }, {"part without adapters"});
  rejected(dropout,
           [](Broken& b) {  // A multiplies the input of the product itself
             const std::uint32_t i = b.op(OpKind::kDropout, 1);
             b.p.ops[i + 1][operand::linear::kX] = b.p.ops[i][operand::dropout::kX];
             b.settle();
           },
           {"the dropped input of the adapters"});
  rejected(lora_case(), [](Broken& b) { b.drop(b.op(OpKind::kLinearDxAdd, 1)); }, {"part without adapters"});
}

BOOST_AUTO_TEST_CASE(adapters_of_another_product_or_layer) {
  // In the first such operation of layer 0: q, k, v in the forward pass, down in the backward pass.
  const auto swap = [](OpKind k, In weight, std::size_t product, std::int32_t layer) {
    return [=](Broken& b) {
      b.p.ops[b.op(k, 0)][weight] = b.id(role::kLoraB[product].weight, layer);
      b.settle();
    };
  };
  rejected(lora_case(), swap(OpKind::kLoraB, operand::lora_b::kWeight, 0, 1), {"lora_b", "of layer 1"});
  rejected(lora_case(), swap(OpKind::kLoraB, operand::lora_b::kWeight, 2, 0),
           {"lora_b", "expected f32[12,6]"});
  rejected(lora_case(), swap(OpKind::kLoraBDx, operand::lora_b_dx::kWeight, 1, 0), {"lora_b_dx"});
}

namespace {
Case dora_case(double dropout = 0) {
  Case c = lora_case();
  c.run.memory.dora = true, c.run.memory.lora_dropout = dropout;
  return c;
}
/// Changes an operand of the first such operation of layer 0.
template <class Slot>
auto replaced(OpKind k, Slot slot, const char* role, std::int32_t layer = 0) {
  return [=](Broken& b) {
    b.p.ops[b.op(k, 0)][slot] = b.id(role, layer);
    b.settle();
  };
}
}  // namespace

BOOST_AUTO_TEST_CASE(magnitudes_that_are_not_applied_or_of_another_product) {
  using namespace operand;
  rejected(dora_case(), [](Broken& b) { b.drop(b.op(OpKind::kDora, 1)); },
           {"before anything has written it"});
  rejected(dora_case(), [](Broken& b) { b.drop(b.op(OpKind::kDoraScale, 1)); }, {"qkv_dora_scale"});
  rejected(dora_case(), [](Broken& b) { b.drop(b.op(OpKind::kDoraBwd, 1)); }, {"grad.", "0 contributions"});
  rejected(dora_case(), [](Broken& b) { b.drop(b.op(OpKind::kDoraBwd, 1)); },
           {"needs the gradient of the unscaled output"});
  rejected(dora_case(), [](Broken& b) { b.drop(b.op(OpKind::kLoraB, 1)); }, {"part without adapters"});
  rejected(dora_case(), replaced(OpKind::kDoraScale, dora_scale::kMagnitude, "w.qkv_magnitude", 1),
           {"dora_scale", "another parameter"});
  rejected(dora_case(), replaced(OpKind::kDoraScale, dora_scale::kMagnitude, "w.o_magnitude"),
           {"dora_scale", "expected f32[8,"});
  rejected(dora_case(), replaced(OpKind::kDoraScale, dora_scale::kB, "w.qkv_lora_b", 1),
           {"dora_scale", "another parameter"});
  rejected(dora_case(), replaced(OpKind::kDoraScale, dora_scale::kA, "w.qkv_lora_a", 1),
           {"dora_scale", "another parameter"});
  rejected(dora_case(), replaced(OpKind::kDoraScale, dora_scale::kWeight, "w.qkv", 1),
           {"dora_scale", "another parameter"});
  rejected(dora_case(), replaced(OpKind::kDoraScale, dora_scale::kMagnitude, "w.qkv_lora_b"),
           {"dora_scale", "expected f32[0,1]"});
  rejected(dora_case(), replaced(OpKind::kDora, dora::kScale, "o_dora_scale"),
           {"dora", "expected f32[12,8]"});
  // The first kDora of layer 0 is of q, k and v, the second one of o, with a residual.
  rejected(dora_case(),
           [](Broken& b) {
             std::uint32_t i = b.op(OpKind::kDora, 0) + 1;
             while (b.p.ops[i].kind != OpKind::kDora) ++i;
             b.p.ops[i][dora::kResidual] = kNoBuffer;
             b.settle();
           },
           {"omits the residual"});
  rejected(dora_case(), replaced(OpKind::kDoraBwd, dora_bwd::kUnscaled, "gate_up_unscaled"), {"dora_bwd"});
  rejected(dora_case(), [](Broken& b) { b.p.ops[b.op(OpKind::kDoraBwd, 0)].flags = 0; },
           {"before its first write"});
  // The gradient of y itself instead of that of the unscaled output.
  rejected(dora_case(),
           [](Broken& b) {
             const Op& bwd = b.p.ops[b.op(OpKind::kDoraBwd, 0)];
             b.p.ops[b.op(OpKind::kLoraBDw, 0)][lora_b_dw::kDy] = bwd[dora_bwd::kDy];
             b.settle();
           },
           {"lora_b_dw", "the unscaled output"});
}

// Products whose inputs the ranks divide: the squares of a row are a sum over the ranks.
BOOST_AUTO_TEST_CASE(norms_of_a_part_of_a_row) {
  const Case first = on_tensor_ranks(dora_case(), 2, 1, 1, 0),
             second = on_tensor_ranks(dora_case(), 2, 2, 1, 0);
  rejected(first,
           [](Broken& b) {
             const std::uint32_t squares = b.op(OpKind::kDoraSquares, 0);
             b.drop(squares + 1), b.drop(squares + 1);  // the sum and its wait
           },
           {"dora_factors of layer 0", "this rank's part of the squared norms of rows"});
  rejected(first, [](Broken& b) { b.p.ops[b.op(OpKind::kDoraSquares, 0) + 1].kind = OpKind::kReduceScatter; },
           {"is not the collective for this rank's part of the squared norms of rows"});
  rejected(first, replaced(OpKind::kDoraFactors, operand::dora_factors::kMagnitude, "w.o_magnitude", 1),
           {"dora_factors", "squared norms of rows of product 1 of layer 1"});
  rejected(first, replaced(OpKind::kDoraSquares, operand::dora_squares::kA, "w.o_lora_a", 1),
           {"dora_squares", "another parameter"});
  rejected(second,
           [](Broken& b) {
             std::uint32_t i = b.op(OpKind::kDoraFactors, 0);
             while (b.p.ops[i].kind != OpKind::kDora) ++i;
             b.p.ops[i][operand::dora::kResidual] = b.id(role::kX, 0);
             b.settle();
           },
           {"dora of layer 0", "adds a residual"});
}

// Of a divided parameter: direction, all-gather, wait, orthogonalise, update.
BOOST_AUTO_TEST_CASE(directions_of_muon_that_are_not_whole_or_of_another_parameter) {
  using namespace operand;
  Case muon = small_case();
  muon.run.optimizer = Optimizer::kMuon;
  const Case ranks = on_tensor_ranks(muon, 2, 2, 1, 0), streamed = on_device(muon, 0, "streamed");
  rejected(ranks,
           [](Broken& b) {
             const std::uint32_t direction = b.op(OpKind::kMuonDirection, 0);
             b.drop(direction + 1), b.drop(direction + 1);
           },
           {"muon_orthogonalise of layer 0", "this rank's part of the direction of parameter"});
  rejected(ranks, [](Broken& b) { b.p.ops[b.op(OpKind::kMuonDirection, 0) + 1].kind = OpKind::kAllReduce; },
           {"is not the collective for this rank's part of the direction"});
  for (const Case& c : {ranks, streamed}) {
    rejected(c,
             [](Broken& b) {
               Op& op = b.p.ops[b.op(OpKind::kMuonDirection, 0)];
               op[muon_direction::kM] = op[muon_direction::kMOut] = b.id("m.qkv", 1);
               b.settle();
             },
             {"muon_direction of layer 0", "where the momentum of"});
    rejected(c, replaced(OpKind::kMuonDirection, muon_direction::kGrad, "grad.qkv", 1),
             {"muon_direction of layer 0", "where the momentum of"});
    rejected(c, [](Broken& b) { b.drop(b.op(OpKind::kMuonOrthogonalise, 0)); },
             {"needs the orthogonalised direction of parameter"});
    rejected(c, [](Broken& b) { b.drop(b.op(OpKind::kMuonDirection, 0)); },
             {"before anything has written it"});
    rejected(c, [](Broken& b) { b.repeat(b.op(OpKind::kMuonDirection, 0)); }, {"a second time"});
    rejected(c,
             [](Broken& b) {
               b.p.ops[b.op(OpKind::kMuon, 0)][muon::kDirection] =
                   b.p.ops[b.op(OpKind::kMuon, 1)][muon::kDirection];
               b.settle();
             },
             {"muon of layer 0"});
    rejected(c, [](Broken& b) { --b.p.ops[b.op(OpKind::kMuon, 0)].ins; }, {"has 6 inputs, expected 7"});
    rejected(c, [](Broken& b) { --b.p.buffers[b.id("muon_work")].rows; }, {"muon_work is f32["});
  }
  rejected(muon, [](Broken& b) { ++b.p.ops[b.op(OpKind::kMuon, 0)].ins; }, {"has 7 inputs, expected 6"});
}

BOOST_AUTO_TEST_CASE(magnitudes_with_dropout_that_leave_out_a_part) {
  using namespace operand;
  const Case c = dora_case(0.25);
  rejected(c, [](Broken& b) { b.drop(b.op(OpKind::kDora, 1)); }, {"part without magnitudes"});
  rejected(c, [](Broken& b) { b.drop(b.op(OpKind::kLinearDxAdd, 1)); }, {"part without adapters"});
  rejected(c,
           [](Broken& b) {  // the product of the input itself instead of the dropped one
             std::uint32_t i = b.op(OpKind::kDropout, 0) + 1;  // the product of the input, then this one
             const BufferId x = b.p.ops[i][linear::kX];
             b.p.ops[i + 1][linear::kX] = x;
             b.settle();
           },
           {"is not the unscaled output of a product"});
  rejected(c,
           [](Broken& b) {  // both parts of the gradient from dy
             const Op& bwd = b.p.ops[b.op(OpKind::kDoraBwd, 1)];
             for (Op& op : b.p.ops)
               if (op.kind == OpKind::kLinearDx && op[linear_dx::kDy] == bwd[dora_bwd::kDProduct])
                 op[linear_dx::kDy] = bwd[dora_bwd::kDy];
             b.settle();
           },
           {"linear_dx_add"});
}

BOOST_AUTO_TEST_CASE(a_quantized_weight_that_is_not_dequantized_or_is_another_one) {
  Case c = lora_case();
  c.run.mode = RunMode::kQlora, c.run.memory.double_quantized = true;
  rejected(c, [](Broken& b) { b.drop(b.op(OpKind::kDequantize, 1)); },
           {"is not the weight of a linear layer"});
  rejected(c,
           [](Broken& b) {
             b.p.ops[b.op(OpKind::kLinear, 0)][operand::linear::kWeight] = b.id("w.qkv", 0);
             b.settle();
           },
           {"linear", "expected f32[12,91]"});
  // Of layer 1 in layer 0, of another product, and something that is not quantized.
  const auto from = [](const char* role, std::int32_t layer) {
    return [=](Broken& b) {
      b.p.ops[b.op(OpKind::kDequantize, 0)][operand::dequantize::kQuantized] = b.id(role, layer);
      b.settle();
    };
  };
  rejected(c, from("w.qkv", 1), {"needs the norm's output before layer 1"});
  rejected(c, from("w.o", 0), {"deq.qkv is f32"});
  rejected(c, from("w.norm1", 0), {"w.norm1 is f32[8,1], expected u8"});
  // A byte more or less than codes and scales have.
  rejected(c, [](Broken& b) { b.p.buffers[b.id("w.o", 1)].rows += 1; }, {"w.o has another size"});
  rejected(c, [](Broken& b) { b.p.run.memory.double_quantized = false; }, {"w.qkv has another size"});
  rejected(c, [](Broken& b) { b.p.params.front().grad = b.id("grad.qkv_lora_a", 0); }, {"has a gradient"});
}

BOOST_AUTO_TEST_CASE(a_frozen_weight_with_a_gradient_and_an_adapter_without_one) {
  rejected(lora_case(), [](Broken& b) { b.p.params.front().grad = b.id("grad.qkv_lora_a", 0); },
           {"w.embed", "has a gradient"});
  rejected(lora_case(), [](Broken& b) { b.drop(b.op(OpKind::kLoraBDw, 0)); }, {"grad.", "0 contributions"});
  rejected(lora_case(), [](Broken& b) { b.drop(b.op(OpKind::kAdamW, 0)); }, {"is updated 0 times"});
}

BOOST_AUTO_TEST_SUITE_END()
