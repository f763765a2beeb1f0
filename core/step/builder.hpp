// What all builders share: a program under construction, with the parameters and activations by name.
// Adds buffers and operations and knows no model structure; that is in build_forward, build_backward,
// build_update.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/step/buffer_names.hpp"
#include "core/step/program.hpp"

namespace trainhost::step {

/// A parameter's weight and, where the program trains, its gradient; kNoBuffer where the model has no such
/// parameter.
struct Weight {
  BufferId w = kNoBuffer, grad = kNoBuffer;
};
struct LayerWeights {
  Weight norm1, qkv, qkv_bias, q_norm, k_norm, o, o_bias, norm2, gate_up, gate_up_bias, down, down_bias;
};
struct Weights {
  Weight embed, final_norm, head;  // head == embed where tied
  std::vector<LayerWeights> layers;
};

/// What one layer's forward pass leaves behind.
struct LayerActs {
  BufferId x, h1, rstd1, qkv, qk_pre = kNoBuffer, qk_rstd = kNoBuffer, attn_out, lse, x_mid, h2, rstd2,
                              gate_up, act;
};
struct ForwardActs {
  std::vector<LayerActs> layers;
  BufferId x_out, hf, rstd_f;
};

struct Builder {
  Program p;
  Weights weights;
  BufferId ids = kNoBuffer, targets = kNoBuffer, order = kNoBuffer,
           token = kNoBuffer;  // external or fed; order: on a device alone; token: the one of a generate step
  BufferId rope_table = kNoBuffer, scalars = kNoBuffer;

  // Of the section under construction.
  Phase phase = kForward;
  std::uint32_t copy = kOriginal;
  std::uint64_t rows = 0;  // M

  std::uint64_t tokens() const { return p.run.tokens_per_micro_batch(); }
  bool trains() const { return p.run.mode != RunMode::kInference; }
  bool on_device() const { return p.traits.tier == Tier::kDevice; }
  /// What weights and activations are stored as.
  DType real() const { return p.traits.f32_storage ? DType::kF32 : p.run.weight; }

  /// A buffer of the section's copy. Throws when its bytes leave 63 bits.
  BufferId add(const char* role, std::int32_t layer, Component c, std::uint64_t buffer_rows,
               std::uint64_t cols, DType t = DType::kF32);
  BufferId add_persistent(const char* role, std::int32_t layer, Component c, std::uint64_t buffer_rows,
                          std::uint64_t cols, DType t = DType::kF32);
  /// Token ids or targets: the host's own, or on a device a copy that is fed.
  BufferId add_handed_in(const char* role, std::uint64_t buffer_rows, std::uint32_t of_copy = kOriginal);
  /// Page-locked memory of the host, for the whole run; no operation of the program names it.
  BufferId add_pinned(const char* role, std::uint64_t bytes);
  /// An activation [M, cols] of the section.
  BufferId act(const char* role, std::int32_t layer, std::uint64_t cols) {
    return add(role, layer, Component::kActivations, rows, cols, real());
  }
  /// A figure a token [M, cols], f32 whatever the precision: 1/rms, log of a sum.
  BufferId stat(const char* role, std::int32_t layer, std::uint64_t cols) {
    return add(role, layer, Component::kActivations, rows, cols);
  }
  BufferId scratch(const char* role, std::int32_t layer, std::uint64_t buffer_rows, std::uint64_t cols,
                   DType t = DType::kF32) {
    return add(role, layer, Component::kWorkspace, buffer_rows, cols, t);
  }

  /// Absent optional inputs are kNoBuffer; absent outputs are left out.
  void op(OpKind kind, std::int32_t layer, std::initializer_list<BufferId> in,
          std::initializer_list<BufferId> out, std::uint32_t flags = 0);

  void begin(SectionKind kind, Phase first_phase, std::uint32_t section_copy, std::uint64_t section_rows);
  void end();
};

/// Weights, gradients, optimizer state, tables, scalars, external buffers; fills b.p.params and b.weights.
void build_params(Builder& b);
/// Embedding, layers, final norm of the section begun; attention through the caches where the section is
/// generate.
ForwardActs build_forward(Builder& b);
/// Logits of a chunk of tokens, and on a device the loss of each.
struct HeadScratch {
  BufferId logits = kNoBuffer, losses = kNoBuffer;
};
HeadScratch head_scratch(Builder& b);
void build_micro(Builder& b);  // forward, head loss, backward
void build_update(Builder& b);
void build_eval(Builder& b);
void build_generate(Builder& b);

}  // namespace trainhost::step
