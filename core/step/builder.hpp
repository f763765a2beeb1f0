// A program under construction, with its parameters and activations by name. Adds buffers and operations;
// the model structure is in build_forward.cpp, build_backward.cpp and build_update.cpp.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/model/adapters.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/program.hpp"

namespace trainhost::step {

/// Buffers of a parameter's weight and gradient. kNoBuffer: the model has no such parameter, or inference.
struct Weight {
  BufferId w = kNoBuffer, grad = kNoBuffer;
  std::uint64_t rows = 0, cols = 0;  // of the dequantized matrix; 0: the weight is not quantized
};
/// A and B of the adapters of one product, with DoRA also its magnitudes; absent if the run adapts none of
/// its matrices.
struct Adapter {
  Weight a, b, magnitude;
  bool present() const { return b.w != kNoBuffer; }
};
struct LayerWeights {
  Weight norm1, qkv, qkv_bias, q_norm, k_norm, o, o_bias, norm2, gate_up, gate_up_bias, down, down_bias;
  std::array<Adapter, kAdapterGroups> adapters;  // by AdapterGroup
  Adapter& adapter(AdapterGroup g) { return adapters[static_cast<std::size_t>(g)]; }
  const Adapter& adapter(AdapterGroup g) const { return adapters[static_cast<std::size_t>(g)]; }
};
struct Weights {
  Weight embed, final_norm, head;  // head == embed if the embeddings are tied
  // Also of a tied head. If both have one adapter (ties_adapter()), a of the head is absent, and its b is a
  // of the embedding.
  Adapter embed_adapter, head_adapter;
  std::vector<LayerWeights> layers;
};

/// Activations of one layer that its backward pass reads.
struct LayerActs {
  BufferId x, h1, rstd1, qkv, qk_pre = kNoBuffer, qk_rstd = kNoBuffer, attn_out, lse, x_mid, h2, rstd2,
                              gate_up, act;
  // u = x A^T of the adapters of each product; kNoBuffer where there are none.
  std::array<BufferId, kAdapterGroups> lora{kNoBuffer, kNoBuffer, kNoBuffer, kNoBuffer};
  // The input of these adapters: that of the product, or that after dropout.
  std::array<BufferId, kAdapterGroups> lora_input{kNoBuffer, kNoBuffer, kNoBuffer, kNoBuffer};
  // With DoRA: the output of the product before the magnitudes, and the factors per output.
  std::array<BufferId, kAdapterGroups> unscaled{kNoBuffer, kNoBuffer, kNoBuffer, kNoBuffer};
  std::array<BufferId, kAdapterGroups> dora_scale{kNoBuffer, kNoBuffer, kNoBuffer, kNoBuffer};
};
struct ForwardActs {
  std::vector<LayerActs> layers;
  BufferId x_out, hf, rstd_f;
  // u of the adapters outside the layers; kNoBuffer without.
  BufferId embed_lora = kNoBuffer, head_lora = kNoBuffer;
  BufferId head_a = kNoBuffer;  // A of the adapter of the head
  // With DoRA: the output of the embedding before the magnitudes, the factors per output, and with dropout
  // the input of the adapter of the head.
  BufferId embed_unscaled = kNoBuffer, embed_scale = kNoBuffer, head_scale = kNoBuffer,
           head_dropped = kNoBuffer;
};

struct Builder {
  Program p;
  Weights weights;
  BufferId ids = kNoBuffer, targets = kNoBuffer, order = kNoBuffer,
           token = kNoBuffer;   // external or fed; order: on a device only; token: input of a generate step
  BufferId starts = kNoBuffer;  // likewise; of runs with document_mask
  BufferId micro_batch = kNoBuffer;  // fed; of runs with dropout on a device
  BufferId rope_table = kNoBuffer, scalars = kNoBuffer;
  BufferId collective_scratch = kNoBuffer;  // of several ranks

  // The section under construction.
  Phase phase = kForward;
  std::uint32_t copy = kOriginal;
  std::uint64_t rows = 0;  // M

  std::uint64_t tokens() const { return p.run.tokens_per_micro_batch(); }
  bool trains() const { return p.run.mode != RunMode::kInference; }
  /// True if the inputs of adapters are dropped: in training, not in evaluation and generation.
  bool drops() const { return p.run.memory.lora_dropout > 0 && (phase == kForward || phase == kBackward); }
  /// True if several ranks train together; of them, data-parallel ones; tensor-parallel ones.
  bool has_ranks() const { return has_data_ranks() || has_tensor_ranks(); }
  bool has_data_ranks() const { return trains() && p.run.parallel.data > 1; }
  bool has_tensor_ranks() const { return trains() && p.run.parallel.tensor > 1; }
  /// Of several TP ranks the first one adds what all of them have to a sum of which each has a part.
  bool adds_to_tensor_sum() const { return p.run.parallel.tensor_rank <= 1; }
  /// True with sequence parallelism, in training: between the products each TP rank has its rows alone.
  bool divides_rows() const {
    return has_tensor_ranks() && p.run.parallel.sequence && (phase == kForward || phase == kBackward);
  }
  /// Rows between the products, of this rank.
  std::uint64_t own_rows() const { return divides_rows() ? rows / p.run.parallel.tensor : rows; }
  bool on_device() const { return p.traits.tier == Tier::kDevice; }
  /// The type in which weights and activations are stored.
  DType storage_type() const { return p.traits.f32_storage ? DType::kF32 : p.run.weight; }

  /// A transient buffer of this section. Throws usage_error if its size exceeds 63 bits.
  BufferId add(const char* role, std::int32_t layer, Component c, std::uint64_t buffer_rows,
               std::uint64_t cols, DType t = DType::kF32);
  BufferId add_persistent(const char* role, std::int32_t layer, Component c, std::uint64_t buffer_rows,
                          std::uint64_t cols, DType t = DType::kF32);
  /// Token ids or targets: external on the CPU, fed on a device.
  BufferId add_host_input(const char* role, std::uint64_t buffer_rows, std::uint32_t of_copy = kOriginal);
  /// Page-locked host memory for the whole run; no operation uses it as an operand.
  BufferId add_pinned(const char* role, std::uint64_t bytes);
  /// An activation [M, cols] of this section.
  BufferId act(const char* role, std::int32_t layer, std::uint64_t cols) {
    return add(role, layer, Component::kActivations, rows, cols, storage_type());
  }
  /// Per-token statistics [M, cols], always f32: 1/rms, log of a sum of exponentials.
  BufferId stat(const char* role, std::int32_t layer, std::uint64_t cols) {
    return add(role, layer, Component::kActivations, rows, cols);
  }
  /// Likewise, between the products.
  BufferId own_act(const char* role, std::int32_t layer, std::uint64_t cols) {
    return add(role, layer, Component::kActivations, own_rows(), cols, storage_type());
  }
  BufferId own_stat(const char* role, std::int32_t layer) {
    return add(role, layer, Component::kActivations, own_rows(), 1);
  }
  BufferId scratch(const char* role, std::int32_t layer, std::uint64_t buffer_rows, std::uint64_t cols,
                   DType t = DType::kF32) {
    return add(role, layer, Component::kWorkspace, buffer_rows, cols, t);
  }

  /// Appends an operation. `in` has one entry per slot of operands.hpp, kNoBuffer if absent; absent outputs
  /// are omitted, and so are the last slots if a kind got them later.
  void op(OpKind kind, std::int32_t layer, std::initializer_list<BufferId> in,
          std::initializer_list<BufferId> out, std::uint32_t flags = 0);

  /// The buffer with the elements of matrix w of a product: the weight itself, or a buffer of this role into
  /// which it is dequantized now, for the next operation.
  BufferId matrix(const Weight& w, std::int32_t layer, const char* role);

  void begin(SectionKind kind, Phase first_phase, std::uint32_t section_copy, std::uint64_t section_rows);
  void end();
};

/// Adds parameters, gradients, optimizer state, tables, scalars and inputs; fills b.p.params and b.weights.
void build_params(Builder& b);
/// Appends embedding, layers and final norm to the current section. In a generate section attention reads and
/// appends to the key/value caches.
ForwardActs build_forward(Builder& b);
/// hf, or in training with dropout what that leaves of it for the adapter of the head.
BufferId dropped_input_of_head(Builder& b, BufferId hf);
/// Logits of a chunk of tokens and, on a device, the loss of each token; of several TP ranks their
/// statistics, which are computed here; in training with DoRA the logits before the magnitudes.
struct HeadScratch {
  BufferId logits = kNoBuffer, losses = kNoBuffer, stats = kNoBuffer, unscaled = kNoBuffer;
};
HeadScratch head_scratch(Builder& b, const ForwardActs& f);
void build_micro(Builder& b);  // forward, head loss, backward
void build_update(Builder& b);
/// In the micro section: counted targets and wishes to stop of all ranks. In the update: loss and norm.
/// Nothing in a run of one rank.
void sum_scalars_of_ranks(Builder& b);
/// Starts the reductions of complete gradients over the ranks: to the sum on every rank, with ZeRO to the
/// shard of each. Nothing in a run of one rank.
void reduce_gradients(Builder& b, std::int32_t layer);  // those of a layer
void reduce_gradient(Builder& b, BufferId grad);        // kNoBuffer: none
/// Waits for all gradients. Likewise.
void wait_for_gradients(Builder& b);
/// With ZeRO, each rank gets the weights that the others have updated.
void gather_weights(Builder& b);
/// Tensor parallelism (tensor_parallel.cpp). Nothing in a run without it.
void start_tensor_sum(Builder& b, std::int32_t layer, BufferId part);
void wait_for_tensor_ranks(Builder& b, std::int32_t layer, BufferId buffer);
/// The sum of a value that does not have a row per token, complete on every rank.
void sum_over_tensor_ranks(Builder& b, std::int32_t layer, BufferId part);
/// With sequence parallelism: a buffer of this role with the rows of all TP ranks, [M, H].
BufferId add_all_rows(Builder& b, const char* role, std::int32_t layer);
/// The rows of all TP ranks, in a buffer of this role; `own` itself without sequence parallelism.
BufferId gather_rows(Builder& b, std::int32_t layer, BufferId own, const char* role);
/// With sequence parallelism: waits for the sum that start_tensor_sum() has started, and own = its rows of
/// this rank (+ residual).
void take_rows_of_sum(Builder& b, std::int32_t layer, BufferId sum, BufferId residual, BufferId own);
void gather_over_tensor_ranks(Builder& b, BufferId buffer);
/// The statistics of all TP ranks, from which each computes the loss of the whole vocabulary; kNoBuffer
/// without.
BufferId head_stats(Builder& b, const ForwardActs& f, BufferId logits, BufferId unscaled);
void sum_gradients_of_whole_tensors(Builder& b);
/// False on all TP ranks but the first for a parameter that each of them has whole: the norm counts it once.
bool counts_in_norm(const Program& p, const Param& q);
void build_eval(Builder& b);
void build_generate(Builder& b);

}  // namespace trainhost::step
