// The operands of every operation: which buffer is in which slot, its shape and its meaning. The only
// place where slot numbers are decoded: builders fill Op::in and Op::out in the order below; trainers,
// transforms and checkers write op[linear::kWeight]. One namespace per OpKind, named as in op_info(). Code
// that serves several kinds, such as all optimizers, asks operands_by_kind.hpp.
//
// Shapes are row-major, symbols as in docs/glossary.md: M tokens, V vocabulary, H hidden, I intermediate,
// A query heads, K key/value heads, D head dimension, S sequence length, C rows of a chunk of logits.
// Element type: the type in which the run stores weights and activations, unless one is given.
// An operand that is changed in place has an input slot and an output slot with the same buffer.
#pragma once
#include <cstdint>

#include "core/step/program.hpp"

namespace trainhost::step::operand {

/// x = table[ids]. Of a TP rank: 0 for ids of other ranks. The table is the embedding, or A of its adapter,
/// of which H is the rank.
namespace embed {
inline constexpr In kTable{0};  // [V,H] weight
inline constexpr In kIds{1};    // [M] token ids, i32
inline constexpr Out kX{0};     // [M,H]
}  // namespace embed

/// y = x * rstd * weight, over each row.
namespace rms_norm {
inline constexpr In kX{0};       // [M,H]
inline constexpr In kWeight{1};  // [H]
inline constexpr Out kY{0};      // [M,H]
inline constexpr Out kRstd{1};   // [M] 1/rms of each row, f32; kept for the backward pass
}  // namespace rms_norm

/// y = x weight^T (+ bias) (+ residual).
namespace linear {
inline constexpr In kX{0};         // [M,k]
inline constexpr In kWeight{1};    // [n,k]
inline constexpr In kBias{2};      // [n], optional
inline constexpr In kResidual{3};  // [M,n], optional
inline constexpr Out kY{0};        // [M,n]
}  // namespace linear

/// RMSNorm of each q and k head over its own D elements, in place.
namespace qk_norm {
inline constexpr In kQkv{0};      // [M,(A+2K)D], changed in place
inline constexpr In kQWeight{1};  // [D]
inline constexpr In kKWeight{2};  // [D]
inline constexpr Out kQkvOut{0};  // the same buffer as kQkv
inline constexpr Out kPre{1};     // [M,(A+K)D] q and k before the norm
inline constexpr Out kRstd{2};    // [M,A+K] 1/rms of each head, f32
}  // namespace qk_norm

/// Rotary position embedding of the q and k heads, in place. kRopeBwd has the same operands, with d qkv in
/// kQkv.
namespace rope {
inline constexpr In kQkv{0};      // [M,(A+2K)D], changed in place
inline constexpr In kTable{1};    // [S,D] cosines and sines, f32
inline constexpr Out kQkvOut{0};  // the same buffer as kQkv
}  // namespace rope
namespace rope_bwd = rope;

/// Causal attention inside each sequence, and with kStarts inside each document of a sequence. Rotary
/// positions do not restart with a document: scores depend only on the distance of two positions.
namespace attention {
inline constexpr In kQkv{0};      // [M,(A+2K)D] rotated
inline constexpr In kScratch{1};  // f32[threads,attention_scratch_floats()]; absent on a device
// [M] i32: index in the sequence of the first token of the token's document. Only in runs with document_mask;
// other runs have operations without this slot, as before it existed, so that their digests are the same.
inline constexpr In kStarts{2};
inline constexpr Out kO{0};    // [M,A*D]
inline constexpr Out kLse{1};  // [M,A] log of the sum of exponentials, f32
}  // namespace attention

/// act = silu(gate) * up.
namespace swiglu {
inline constexpr In kGateUp{0};  // [M,2I] gate | up
inline constexpr Out kAct{0};    // [M,I]
}  // namespace swiglu

/// Logits, loss and gradients of the head, a chunk of C tokens at a time; scaled by 1/counted targets.
namespace head_loss {
inline constexpr In kHf{0};        // [M,H], becomes d hf
inline constexpr In kHead{1};      // [V,H] weight
inline constexpr In kTargets{2};   // [M] i32
inline constexpr In kGradHead{3};  // [V,H] f32, += d logits^T hf; absent if the head is frozen
inline constexpr In kLogits{4};    // [C,V] scratch
inline constexpr In kScalars{5};   // f64[16], kLossSum += loss
inline constexpr In kLosses{6};    // [C] f32 scratch, one loss per token; on a device only
// f32[T*M,3] of the T TP ranks, from kHeadStats; V is then the rank's part of the vocabulary, and d hf its
// part of the sum over it. Other runs have operations without this slot.
inline constexpr In kStats{7};
// Of a head with an adapter, which is frozen: logits += scale * u B^T, and d hf lacks the part of A. Other
// runs have operations without these slots.
inline constexpr In kU{8};       // [M,r] hf A^T, becomes its gradient
inline constexpr In kB{9};       // [V,r]
inline constexpr In kGradB{10};  // [V,r] f32, +=
// With DoRA: the logits are factor * unscaled, with unscaled = hf W^T + scale * u B^T; grad_m += column sums
// of d logits * unscaled / n. With dropout, as kDora has it: unscaled is that of the dropped input.
inline constexpr In kScale{11};             // f32[2,V] of kDoraScale
inline constexpr In kUnscaled{12};          // [C,V] scratch
inline constexpr In kGradMagnitude{13};     // [V] f32, +=
inline constexpr In kDropped{14};           // [M,H] with dropout only; becomes its gradient without A
inline constexpr Out kDHf{0};               // the same buffer as kHf
inline constexpr Out kGradHeadOut{1};       // the same buffer as kGradHead, if present
inline constexpr Out kScalarsOut{2};        // the same buffer as kScalars; 1 without a gradient of the head
inline constexpr Out kDU{2};                // of a head with an adapter: the same buffer as kU
inline constexpr Out kGradBOut{3};          // likewise: the same buffer as kGradB
inline constexpr Out kGradMagnitudeOut{4};  // with DoRA: the same buffer as kGradMagnitude
inline constexpr Out kDDropped{5};          // with dropout: the same buffer as kDropped
}  // namespace head_loss

/// Logits and loss, a chunk of C tokens at a time.
namespace head_eval {
inline constexpr In kHf{0};           // [M,H]
inline constexpr In kHead{1};         // [V,H] weight
inline constexpr In kTargets{2};      // [M] i32
inline constexpr In kLogits{3};       // [C,V] scratch
inline constexpr In kScalars{4};      // f64[16], kEvalLossSum += loss
inline constexpr In kLosses{5};       // [C] f32 scratch; on a device only
inline constexpr In kStats{6};        // as kHeadLoss
inline constexpr In kU{7};            // likewise
inline constexpr In kB{8};            // likewise
inline constexpr In kScale{9};        // likewise; the logits are scaled in place
inline constexpr Out kScalarsOut{0};  // the same buffer as kScalars
}  // namespace head_eval

/// Of each token, over the TP rank's part of the vocabulary: the largest logit, the sum of exponentials of
/// the logits minus that, and the logit of the target, 0 if another rank has it.
namespace head_stats {
inline constexpr In kHf{0};        // [M,H]
inline constexpr In kHead{1};      // [V,H] weight
inline constexpr In kTargets{2};   // [M] i32
inline constexpr In kLogits{3};    // [C,V] scratch
inline constexpr In kU{4};         // as kHeadLoss
inline constexpr In kB{5};         // likewise
inline constexpr In kScale{6};     // likewise
inline constexpr In kUnscaled{7};  // likewise; with dropout only, as kDropped
inline constexpr In kDropped{8};   // [M,H]
inline constexpr Out kStats{0};    // f32[T*M,3], rows of this rank: those from (its number) * M on
}  // namespace head_stats

/// logits = hf head^T. Of a TP rank: of its part of the vocabulary, at its place among the logits of all.
namespace head_logits {
inline constexpr In kHf{0};        // [M,H]
inline constexpr In kHead{1};      // [V,H] weight
inline constexpr In kU{2};         // as kHeadLoss
inline constexpr In kB{3};         // likewise
inline constexpr In kScale{4};     // likewise
inline constexpr In kUnscaled{5};  // [C,V] scratch; with dropout only, as kDropped
inline constexpr In kDropped{6};   // [M,H]
inline constexpr Out kLogits{0};   // [M,V of all TP ranks]
}  // namespace head_logits

/// Gradients of kRmsNorm. dx is written with flag kFreshDx, else added to.
namespace rms_norm_bwd {
inline constexpr In kDy{0};          // [M,H]
inline constexpr In kX{1};           // [M,H] input of the norm
inline constexpr In kRstd{2};        // [M] f32
inline constexpr In kWeight{3};      // [H]
inline constexpr In kDxIn{4};        // [M,H], the same buffer as kDx; absent with kFreshDx
inline constexpr In kGradWeight{5};  // [H] f32, +=; absent if the weight is frozen
inline constexpr In kPartials{6};    // f32[slots,H] scratch, one partial sum per slot; also if it is frozen
inline constexpr Out kDx{0};         // [M,H]
inline constexpr Out kGradWeightOut{1};  // the same buffer as kGradWeight
}  // namespace rms_norm_bwd

/// dx = dy weight.
namespace linear_dx {
inline constexpr In kDy{0};      // [M,n]
inline constexpr In kWeight{1};  // [n,k]
inline constexpr Out kDx{0};     // [M,k]
}  // namespace linear_dx

/// grad_weight += dy^T x; grad_bias += column sums of dy.
namespace linear_dw {
inline constexpr In kDy{0};              // [M,n]
inline constexpr In kX{1};               // [M,k]
inline constexpr In kGradWeight{2};      // [n,k] f32, +=
inline constexpr In kGradBias{3};        // [n] f32, +=; absent without a bias
inline constexpr In kPartials{4};        // f32[slots,n] scratch; on a device with a bias only
inline constexpr Out kGradWeightOut{0};  // the same buffer as kGradWeight
inline constexpr Out kGradBiasOut{1};    // the same buffer as kGradBias, if present
}  // namespace linear_dw

/// Gradients of kSwiGlu: gate_up becomes d gate_up.
namespace swiglu_bwd {
inline constexpr In kDAct{0};      // [M,I]
inline constexpr In kGateUp{1};    // [M,2I], becomes its own gradient
inline constexpr Out kDGateUp{0};  // the same buffer as kGateUp
}  // namespace swiglu_bwd

/// Gradients of kAttention; scores are recomputed from qkv and lse.
namespace attention_bwd {
inline constexpr In kDO{0};       // [M,A*D]
inline constexpr In kO{1};        // [M,A*D]
inline constexpr In kLse{2};      // [M,A] f32
inline constexpr In kQkv{3};      // [M,(A+2K)D] rotated
inline constexpr In kScratch{4};  // as kAttention; on a device f32[M,A]
inline constexpr In kStarts{5};   // as kAttention
inline constexpr Out kDQkv{0};    // [M,(A+2K)D]
}  // namespace attention_bwd

/// Gradients of kQkNorm, in place.
namespace qk_norm_bwd {
inline constexpr In kDQkv{0};             // [M,(A+2K)D], changed in place
inline constexpr In kPre{1};              // [M,(A+K)D] q and k before the norm
inline constexpr In kRstd{2};             // [M,A+K] f32
inline constexpr In kQWeight{3};          // [D]
inline constexpr In kKWeight{4};          // [D]
inline constexpr In kGradQWeight{5};      // [D] f32, +=; absent if the weights are frozen
inline constexpr In kGradKWeight{6};      // [D] f32, +=; likewise
inline constexpr In kPartials{7};         // f32[slots,2D] scratch, q | k
inline constexpr Out kDQkvOut{0};         // the same buffer as kDQkv
inline constexpr Out kGradQWeightOut{1};  // the same buffer as kGradQWeight
inline constexpr Out kGradKWeightOut{2};  // the same buffer as kGradKWeight
}  // namespace qk_norm_bwd

/// grad_table[ids] += dx. The table is the embedding, or A of its adapter, of which H is the rank.
namespace embed_bwd {
inline constexpr In kDx{0};             // [M,H]
inline constexpr In kIds{1};            // [M] i32
inline constexpr In kGradTable{2};      // [V,H] f32, +=
inline constexpr In kOrder{3};          // [M] rows sorted by id, i32; on a device only
inline constexpr Out kGradTableOut{0};  // the same buffer as kGradTable
}  // namespace embed_bwd

/// scalars[kNorm2] += sum of grad^2, in double.
namespace grad_squares {
inline constexpr In kGrad{0};         // f32, any shape
inline constexpr In kScalars{1};      // f64[16]
inline constexpr In kPartials{2};     // f64[slots] scratch; absent where the host runs it
inline constexpr Out kScalarsOut{0};  // the same buffer as kScalars
}  // namespace grad_squares

/// One AdamW update of a parameter; reads the clip factor in scalars. All shapes are those of the gradient.
namespace adamw {
inline constexpr In kGrad{0};     // f32
inline constexpr In kWeight{1};   // changed in place
inline constexpr In kM{2};        // first moment, f32, changed in place
inline constexpr In kV{3};        // second moment, f32, changed in place
inline constexpr In kScalars{4};  // f64[16]
inline constexpr In kMaster{
    5};  // f32 copy of the weight, changed in place; only where the weight is stored in a lower precision
inline constexpr Out kWeightOut{0};  // the same buffer as kWeight
inline constexpr Out kMOut{1};       // as kM
inline constexpr Out kVOut{2};       // as kV
inline constexpr Out kMasterOut{3};  // as kMaster, if present
}  // namespace adamw

/// One SGD update of a parameter.
namespace sgd {
inline constexpr In kGrad{0};        // f32
inline constexpr In kWeight{1};      // changed in place
inline constexpr In kScalars{2};     // f64[16]
inline constexpr In kMaster{3};      // as for kAdamW
inline constexpr Out kWeightOut{0};  // the same buffer as kWeight
inline constexpr Out kMasterOut{1};  // as kMaster, if present
}  // namespace sgd

/// One update of a parameter by SGD with momentum.
namespace sgd_momentum {
inline constexpr In kGrad{0};        // f32
inline constexpr In kWeight{1};      // changed in place
inline constexpr In kM{2};           // momentum, f32, changed in place
inline constexpr In kScalars{3};     // f64[16]
inline constexpr In kMaster{4};      // as for kAdamW
inline constexpr Out kWeightOut{0};  // the same buffer as kWeight
inline constexpr Out kMOut{1};       // as kM
inline constexpr Out kMasterOut{2};  // as kMaster, if present
}  // namespace sgd_momentum

/// Attention of one token at position p of kGenerate; appends its key and value to the caches.
namespace attention_step {
inline constexpr In kQkv{0};         // [1,(A+2K)D] rotated
inline constexpr In kCacheK{1};      // [S,K*D], row p is written
inline constexpr In kCacheV{2};      // [S,K*D], row p is written
inline constexpr In kScratch{3};     // f32[A,S] scores
inline constexpr Out kO{0};          // [1,A*D]
inline constexpr Out kCacheKOut{1};  // the same buffer as kCacheK
inline constexpr Out kCacheVOut{2};  // the same buffer as kCacheV
}  // namespace attention_step

/// to = from, between memory tiers. Asynchronous: see kHold.
namespace copy {
inline constexpr In kFrom{0};  // any shape
inline constexpr Out kTo{0};   // the shape of kFrom
}  // namespace copy

/// No work: keeps both buffers live up to here, because a copy between them may still be running.
namespace hold {
inline constexpr In kFirst{0};
inline constexpr In kSecond{1};  // optional
}  // namespace hold

/// logits become their own gradient; loss += .
namespace cross_entropy {
inline constexpr In kLogits{0};       // [M,V], changed in place
inline constexpr In kTargets{1};      // [M] i32
inline constexpr In kScalars{2};      // f64[16], kLossSum += loss
inline constexpr Out kDLogits{0};     // the same buffer as kLogits
inline constexpr Out kScalarsOut{1};  // the same buffer as kScalars
}  // namespace cross_entropy

/// Gradients of the head from those of the logits.
namespace head_bwd {
inline constexpr In kDLogits{0};   // [M,V]
inline constexpr In kHf{1};        // [M,H], becomes d hf
inline constexpr In kHead{2};      // [V,H] weight
inline constexpr In kGradHead{3};  // [V,H] f32, +=; absent if the head is frozen
inline constexpr In kU{4};         // as kHeadLoss
inline constexpr In kB{5};         // likewise
inline constexpr In kGradB{6};     // likewise
// With DoRA: unscaled is recomputed, a chunk of C rows at a time.
inline constexpr In kScale{7};              // as kHeadLoss
inline constexpr In kUnscaled{8};           // likewise
inline constexpr In kGradMagnitude{9};      // likewise
inline constexpr In kDropped{10};           // likewise
inline constexpr Out kDHf{0};               // the same buffer as kHf
inline constexpr Out kGradHeadOut{1};       // the same buffer as kGradHead, if present
inline constexpr Out kDU{1};                // of a head with an adapter: the same buffer as kU
inline constexpr Out kGradBOut{2};          // likewise: the same buffer as kGradB
inline constexpr Out kGradMagnitudeOut{3};  // with DoRA: the same buffer as kGradMagnitude
inline constexpr Out kDDropped{4};          // with dropout: the same buffer as kDropped
}  // namespace head_bwd

/// grad += part; overwritten on its first write. If kGrad is a shard (Buffer::whole) and kPart is not, the
/// elements of the shard are added.
namespace add_grad {
inline constexpr In kPart{0};      // f32, gradient of one micro-batch
inline constexpr In kGrad{1};      // f32, changed in place; the shape of kPart, or the rank's shard of it
inline constexpr Out kGradOut{0};  // the same buffer as kGrad
}  // namespace add_grad

/// y += scale * u B^T, block by block. The adapters of a product lie side by side: with n adapted matrices of
/// outputs o_1 .. o_n, u has n*r columns (r = lora.rank), B has o_1 + .. + o_n rows, and block i adds to the
/// columns of its matrix in y. Blocks and scale: core/model/adapters.hpp.
namespace lora_b {
inline constexpr In kU{0};       // [M,n*r]
inline constexpr In kWeight{1};  // [o_1+..+o_n,r] B
inline constexpr In kY{2};       // [M,outputs of the product], changed in place
inline constexpr Out kYOut{0};   // the same buffer as kY
}  // namespace lora_b

/// du = scale * dy B, block by block.
namespace lora_b_dx {
inline constexpr In kDy{0};      // [M,outputs of the product]
inline constexpr In kWeight{1};  // [o_1+..+o_n,r] B
inline constexpr Out kDu{0};     // [M,n*r]
}  // namespace lora_b_dx

/// grad_B += scale * dy^T u, block by block.
namespace lora_b_dw {
inline constexpr In kDy{0};              // [M,outputs of the product]
inline constexpr In kU{1};               // [M,n*r]
inline constexpr In kGradWeight{2};      // [o_1+..+o_n,r] f32, +=
inline constexpr Out kGradWeightOut{0};  // the same buffer as kGradWeight
}  // namespace lora_b_dw

/// dx += dy weight.
namespace linear_dx_add {
inline constexpr In kDy{0};      // [M,n]
inline constexpr In kWeight{1};  // [n,k]
inline constexpr In kDx{2};      // [M,k], changed in place
inline constexpr Out kDxOut{0};  // the same buffer as kDx
}  // namespace linear_dx_add

/// The matrices of a parameter in NF4 as one matrix.
namespace dequantize {
inline constexpr In kQuantized{0};  // u8[bytes] weight: quantized_param()
inline constexpr Out kMatrix{0};    // [n,k] the value of every element
}  // namespace dequantize

/// Per output of a product, with v = W + lora_scale * B A and the norm n of its row of v: factor = m / n, and
/// 1 / n for the gradient of m. Outputs without an adapter: 1, and 0. A row of zeros has no direction: both
/// are 0. Of an embedding the outputs are the columns: W is [k,outputs] and A [k,r].
namespace dora_scale {
inline constexpr In kWeight{0};     // [outputs,k] W
inline constexpr In kA{1};          // [n*r,k], as kLoraB for n and r
inline constexpr In kB{2};          // [o_1+..+o_n,r]
inline constexpr In kMagnitude{3};  // [o_1+..+o_n] m
inline constexpr Out kScale{0};     // f32[2,outputs]: factors, then 1 / n
}  // namespace dora_scale

/// Squared norms of the rows of this TP rank's columns of W + lora_scale * B A, of a product whose inputs the
/// TP ranks divide. Such a product has one matrix, which has an adapter. Of an embedding as kDoraScale.
namespace dora_squares {
inline constexpr In kWeight{0};    // [outputs,k] W
inline constexpr In kA{1};         // [r,k]
inline constexpr In kB{2};         // [outputs,r]
inline constexpr Out kSquares{0};  // f32[1,outputs]
}  // namespace dora_squares

/// The result of kDoraScale, computed from the squared norms of whole rows.
namespace dora_factors {
inline constexpr In kSquares{0};    // f32[1,outputs], the sum over the TP ranks
inline constexpr In kMagnitude{1};  // [outputs] m
inline constexpr Out kScale{0};     // f32[2,outputs]: factors, then 1 / n
}  // namespace dora_factors

/// y = factor * unscaled (+ bias) (+ residual), per output. With dropout instead y += (factor - 1) *
/// unscaled: y has the product of the input without dropout and the output of the adapters, unscaled the
/// product of the dropped input and the output of the adapters, as in PEFT.
namespace dora {
inline constexpr In kUnscaled{0};  // [M,outputs]
inline constexpr In kScale{1};     // f32[2,outputs] of kDoraScale
inline constexpr In kBias{2};      // [outputs], optional; not with kAdded
inline constexpr In kResidual{3};  // [M,outputs], optional; not with kAdded
inline constexpr In kAdded{4};     // [M,outputs], changed in place; with dropout only
inline constexpr Out kY{0};        // [M,outputs]; the same buffer as kAdded, if present
}  // namespace dora

/// grad_m += column sums of dy * unscaled / n; unscaled becomes its own gradient, factor * dy. With dropout
/// also the gradient of the product of the dropped input, (factor - 1) * dy.
namespace dora_bwd {
inline constexpr In kDy{0};                 // [M,outputs]
inline constexpr In kUnscaled{1};           // [M,outputs], becomes its own gradient
inline constexpr In kScale{2};              // f32[2,outputs] of kDoraScale
inline constexpr In kGradMagnitude{3};      // [o_1+..+o_n] f32, +=
inline constexpr Out kDUnscaled{0};         // the same buffer as kUnscaled
inline constexpr Out kGradMagnitudeOut{1};  // the same buffer as kGradMagnitude
inline constexpr Out kDProduct{2};          // [M,outputs]; with dropout only
}  // namespace dora_bwd

/// One Lion update of a parameter: w = decay w - lr sign(beta1 m + (1-beta1) g), then m = beta2 m + (1-beta2)
/// g.
namespace lion = sgd_momentum;

/// y = x with elements set to 0 and the others divided by 1 - rate (core/step/dropout.hpp); k of the product.
namespace dropout {
inline constexpr In kX{0};  // [M,k]
// i32[2]: lower and upper half of the number of the micro-batch, counted from the first one of the run. On a
// device only; elsewhere operations do not have this slot.
inline constexpr In kMicroBatch{1};
inline constexpr Out kY{0};  // [M,k]
}  // namespace dropout

/// dx += dy under the mask of the forward pass.
namespace dropout_add {
inline constexpr In kDy{0};          // [M,k]
inline constexpr In kDx{1};          // [M,k], changed in place
inline constexpr In kMicroBatch{2};  // as kDropout
inline constexpr Out kDxOut{0};      // the same buffer as kDx
}  // namespace dropout_add

/// As kAdamW, with moments of 8 bits: u8[bytes,1], in the form of state_layout.hpp.
namespace adamw_8bit = adamw;

/// One Adafactor update of a parameter, tensor by tensor. A matrix [R,k] of T tensors (q, k and v: 3) has the
/// means of squared gradients over each row and each column; a vector has one second moment per element.
namespace adafactor {
inline constexpr In kGrad{0};     // f32
inline constexpr In kWeight{1};   // changed in place
inline constexpr In kRows{2};     // f32[R,1] row means, or the second moment of a vector; changed in place
inline constexpr In kColumns{3};  // f32[T,k] column means, changed in place; absent for a vector
inline constexpr In kScalars{4};  // f64[16]
inline constexpr In kSums{5};     // f64[slots,c+2] scratch, c the most columns of a parameter: sums of a slot
inline constexpr In kMaster{6};   // as for kAdamW
// Of a parameter that TP ranks divide, the sums over them, with which the means have been computed; last
// slots, which others do not have.
inline constexpr In kOfRanks{7};  // f32[T,n+2] of kAdafactorSums
inline constexpr In kChange{8};   // f32[T,1] of kAdafactorChange
inline constexpr Out kWeightOut{
    0};  // the same buffer as kWeight; then kRows, kColumns and kMaster, if present
}  // namespace adafactor

/// Of a parameter of T tensors that TP ranks divide: computes the means of which this rank has all elements,
/// and its part of the sums of the others. Per tensor: squares of the weights, sum of the row means (if the
/// ranks divide rows), and n sums of squared gradients: of every column if the ranks divide rows, of every
/// row if they divide columns; n = 0 of a vector.
namespace adafactor_sums {
inline constexpr In kGrad{0};     // f32
inline constexpr In kWeight{1};   // read alone
inline constexpr In kOwn{2};      // row means, column means if the ranks divide columns; changed in place
inline constexpr In kScalars{3};  // f64[16]
inline constexpr In kSums{4};     // as kAdafactor
inline constexpr In kMaster{5};   // as for kAdamW; read alone
inline constexpr Out kOwnOut{0};  // the same buffer as kOwn
inline constexpr Out kX{1};       // f32[T,n+2]
}  // namespace adafactor_sums

/// Computes the other means from the sums over the ranks, and this rank's part of the sum of squares of the
/// change of every tensor.
namespace adafactor_change {
inline constexpr In kGrad{0};       // f32
inline constexpr In kOwn{1};        // as kAdafactorSums
inline constexpr In kOther{2};      // the other means, changed in place; absent for a vector
inline constexpr In kOfRanks{3};    // f32[T,n+2]
inline constexpr In kScalars{4};    // f64[16]
inline constexpr In kSums{5};       // as kAdafactor
inline constexpr Out kOtherOut{0};  // the same buffer as kOther, if present
inline constexpr Out kY{1};         // f32[T,1]; the first output of a vector
}  // namespace adafactor_change

/// Starts the sum of a gradient over the DP ranks, or with kAmongTensorRanks of any buffer over the TP ranks.
namespace all_reduce {
inline constexpr In kBuffer{0};      // changed in place until its kWait
inline constexpr In kScratch{1};     // u8[bytes,1] for what other ranks send; shared by all collectives
inline constexpr Out kBufferOut{0};  // the same buffer as kBuffer
}  // namespace all_reduce
namespace reduce_scatter = all_reduce;

/// Starts the exchange of the ranks' shards of a weight, after which every rank has all of them. With
/// kAmongTensorRanks the buffer has an equal piece of each TP rank, kShard the rows of this one.
namespace all_gather {
inline constexpr In kBuffer{0};   // changed in place until its kWait
inline constexpr In kScratch{1};  // as kAllReduce
// The shard of this rank, which is copied to its elements of kBuffer first. Of weights with ZeRO 3, and of
// activations with sequence parallelism; else operations do not have this slot, and kBuffer has the shard
// already.
inline constexpr In kShard{2};
inline constexpr Out kBufferOut{0};  // the same buffer as kBuffer
}  // namespace all_gather

/// y = the rows of this TP rank of a sum that kReduceScatter has left there (+ residual); M rows of a rank.
namespace take_rows {
inline constexpr In kSum{0};       // [T*M,H] of the T TP ranks
inline constexpr In kResidual{1};  // [M,H], optional
inline constexpr Out kY{0};        // [M,H]
}  // namespace take_rows

/// The end of the collective that was started last on a buffer.
namespace wait {
inline constexpr In kBuffer{0};
inline constexpr Out kBufferOut{0};  // the same buffer as kBuffer
}  // namespace wait

/// Two scalars become their sums over the ranks.
namespace sum_scalars {
inline constexpr In kScalars{0};      // f64[16]
inline constexpr In kScratch{1};      // as kAllReduce
inline constexpr Out kScalarsOut{0};  // the same buffer as kScalars
}  // namespace sum_scalars

/// One Muon update of a parameter, tensor by tensor: the momentum, orthogonalised by five Newton-Schulz
/// steps. With kDirection the orthogonalised direction is given: then the operation has no scratch, changes
/// the weight alone, and kM has been changed by kMuonDirection.
namespace muon {
inline constexpr In kGrad{0};        // f32
inline constexpr In kWeight{1};      // changed in place
inline constexpr In kM{2};           // momentum, f32, changed in place
inline constexpr In kScalars{3};     // f64[16]
inline constexpr In kWork{4};        // f32[muon_work_floats(),1] scratch, of the largest tensor
inline constexpr In kMaster{5};      // as for kAdamW
inline constexpr In kDirection{6};   // of kMuonOrthogonalise, optional; last slot, which others do not have
inline constexpr Out kWeightOut{0};  // the same buffer as kWeight
inline constexpr Out kMOut{1};       // as kM
inline constexpr Out kMasterOut{2};  // as kMaster, if present
}  // namespace muon

/// m = beta m + (1-beta) g, and the direction x = (1-beta) g + beta m, for the elements of this rank. If TP
/// ranks divide the parameter, x has a piece of each of the T ranks, of which this one is written. x has the
/// role of the gradient.
namespace muon_direction {
inline constexpr In kGrad{0};     // f32[R,k]
inline constexpr In kM{1};        // momentum, f32[R,k], changed in place
inline constexpr In kScalars{2};  // f64[16]
inline constexpr Out kMOut{0};    // as kM
inline constexpr Out kX{1};       // f32[T*R,k]
}  // namespace muon_direction

/// x becomes orthogonal, tensor by tensor: every whole tensor is put together from the pieces of the TP
/// ranks, and this rank's piece becomes its part of the result.
namespace muon_orthogonalise {
inline constexpr In kX{0};      // f32[T*R,k], the pieces of all TP ranks; changed in place
inline constexpr In kWork{1};   // as kMuon, of the largest whole tensor
inline constexpr Out kXOut{0};  // the same buffer as kX
}  // namespace muon_orthogonalise

/// y = the transpose of a matrix.
namespace transpose {
inline constexpr In kMatrix{0};  // [n,k]
inline constexpr Out kY{0};      // [k,n]
}  // namespace transpose

}  // namespace trainhost::step::operand
