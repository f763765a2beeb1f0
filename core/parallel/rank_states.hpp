// Exact bytes of weights, optimizer state and adapters, tensor by tensor: types, block scales, factored and
// 8-bit state, low-rank adapters. Sharding over data ranks: state_entries.hpp.
#pragma once
#include "core/model/run_spec.hpp"
#include "core/parallel/rank_weights.hpp"

namespace trainhost::parallel {

/// Bytes of n elements of type t without scales; 4-bit types have two elements per byte.
constexpr Size plain_bytes(DType t, Size n) {
  switch (t) {
    case DType::kNone:
      return 0;
    case DType::kF64:
      return n * 8;
    case DType::kF32:
    case DType::kTF32:
    case DType::kI32:
      return n * 4;
    case DType::kF16:
    case DType::kBF16:
      return n * 2;
    case DType::kNF4:
    case DType::kI4:
      return share(n, 2);
    default:
      return n;
  }
}

constexpr bool quantized(DType t) { return t == DType::kNF4 || t == DType::kI4 || t == DType::kI8; }

/// Bytes of the scales of a quantized matrix: f32 per row in 8 bits, else one per 64 elements, in f32 or
/// doubly quantized.
inline Size scale_bytes(const Weight& w, DType t, bool double_quantized) {
  if (t == DType::kI8) return Size(w.rows) * 4 * w.copies;
  const Size blocks = share(w.each(), 64);
  const Size scales = t == DType::kNF4 && double_quantized ? blocks + share(blocks, 256) * 4 + 4 : blocks * 4;
  return scales * w.copies;
}

/// Bytes of stored weights. Only matrices of layers are quantized: blocks of 64 with an f32 scale each; nf4
/// with double quantization has 8-bit scales, one f32 scale per 256 of them and one f32 mean per tensor
/// (Dettmers et al. 2023); i8 has one f32 scale per row. Embeddings, head and vectors have type `plain`.
inline Size stored_bytes(const Weight& w, DType t, DType plain, bool double_quantized) {
  if (!quantized(t) || w.kind != Kind::kMatrix) return plain_bytes(quantized(t) ? plain : t, w.elements());
  return (share(w.each(), t == DType::kI8 ? 1 : 2)) * w.copies + scale_bytes(w, t, double_quantized);
}

/// Of these, what ZeRO 3 and FSDP leave whole on each rank.
inline Size unsharded_bytes(const Weight& w, DType t, const MemoryPolicy& memory) {
  if (!quantized(t) || w.kind != Kind::kMatrix || memory.packed == PackedWeights::kSharded) return 0;
  if (memory.packed == PackedWeights::kScalesWhole) return scale_bytes(w, t, memory.double_quantized);
  return stored_bytes(w, t, DType::kNone, memory.double_quantized);
}

/// Bytes of optimizer state of one tensor. Adafactor: row and column sums in f32; vectors one f32 per
/// element. Muon: momentum for matrices of layers, two moments for the rest. 8-bit Adam: one byte per moment
/// and an f32 per 256, tensors under 4096 elements in f32.
inline Size state_bytes(const Weight& w, Optimizer o, DType moment) {
  switch (o) {
    case Optimizer::kSgd:
      return 0;
    case Optimizer::kSgdMomentum:
    case Optimizer::kLion:
      return plain_bytes(moment, w.elements());
    case Optimizer::kMuon:
      return plain_bytes(moment, w.elements()) * (w.kind == Kind::kMatrix ? 1 : 2);
    case Optimizer::kAdafactor:
      return w.kind == Kind::kVector ? w.elements() * 4 : (w.rows + w.cols) * w.copies * 4;
    case Optimizer::kAdamW8bit: {
      const Size n = w.each();
      return (n < 4096 ? n * 4 : n + share(n, 256) * 4) * w.copies * 2;
    }
    case Optimizer::kAdamW:
      break;
  }
  return plain_bytes(moment, w.elements()) * 2;
}

/// Elements of the adapter of one matrix: A [rank][in], B [out][rank], and with DoRA one magnitude per
/// output.
inline Size adapter_elements(const Weight& w, std::uint32_t rank, bool dora) {
  return (Size(rank) * (w.rows + w.cols) + (dora ? w.rows : Size())) * w.copies;
}

struct Trained {
  Size elements, state;  // state: bytes of moments
  Trained& operator+=(const Trained& b) { return elements += b.elements, state += b.state, *this; }
  friend Trained operator*(const Trained& a, std::uint64_t n) { return {a.elements * n, a.state * n}; }
};

/// Sums of a set of tensors on one rank; experts separately, because they are sharded over other ranks.
struct Held {
  Trained dense, expert;           // trained by the optimizer: weights or adapters
  Trained saved;                   // copies of modules that are trained whole beside adapters
  Size frozen, frozen_expert;      // bytes of frozen base weights, or of the weights in inference
  Size whole;                      // of the frozen bytes, those that are not sharded, without the others
  Size elements, expert_elements;  // of the weights without adapters
  Held& operator+=(const Held& b) {
    dense += b.dense, expert += b.expert, saved += b.saved, frozen += b.frozen,
        frozen_expert += b.frozen_expert, whole += b.whole;
    elements += b.elements, expert_elements += b.expert_elements;
    return *this;
  }
  friend Held operator*(const Held& a, std::uint64_t n) {
    return {a.dense * n,         a.expert * n, a.saved * n,    a.frozen * n,
            a.frozen_expert * n, a.whole * n,  a.elements * n, a.expert_elements * n};
  }
};

constexpr bool adapts(const RunSpec& r) { return r.mode == RunMode::kLora || r.mode == RunMode::kQlora; }
constexpr bool infers(const RunSpec& r) { return r.mode == RunMode::kInference; }
/// Type of frozen weights.
constexpr DType frozen_type(const RunSpec& r) {
  if (infers(r)) return r.weight;
  if (r.memory.frozen != DType::kNone) return r.memory.frozen;
  return r.mode == RunMode::kQlora ? DType::kNF4 : r.weight;
}

/// Type of the frozen weights of experts.
constexpr DType frozen_expert_type(const RunSpec& r) {
  const bool own = adapts(r) && quantized(frozen_type(r)) && r.memory.frozen_experts != DType::kNone;
  return own ? r.memory.frozen_experts : frozen_type(r);
}

/// Type of the copies of modules that are trained whole: that of the frozen modules, which no type quantizes.
constexpr DType saved_type(const RunSpec& r) {
  return quantized(frozen_type(r)) ? r.compute : frozen_type(r);
}

/// Adds up tensors; call operator() with every weight of the set.
class StateSums {
 public:
  StateSums(const RunSpec& r)
      : r_(r),
        full_(!adapts(r) && !infers(r)),
        frozen_type_(frozen_type(r)),
        frozen_expert_type_(frozen_expert_type(r)) {}
  void operator()(const Weight& w) {
    (w.expert ? held_.expert_elements : held_.elements) += w.elements();
    Trained& t = w.expert ? held_.expert : held_.dense;
    if (full_) {
      t += {w.elements(), state_bytes(w, r_.optimizer, r_.moment)};
      return;
    }
    const DType type = w.expert ? frozen_expert_type_ : frozen_type_;
    const Size whole = r_.parallel.zero >= 3 ? unsharded_bytes(w, type, r_.memory) : Size();
    held_.whole += whole;
    (w.expert ? held_.frozen_expert : held_.frozen) +=
        stored_bytes(w, type, r_.compute, r_.memory.double_quantized).without(whole);
    if (quantized(type) && w.kind == Kind::kMatrix && r_.memory.dequantizes &&
        !(w.expert && r_.memory.stacks_quantized_experts))
      dequantized_ = std::max(dequantized_, w.elements() * size_of(r_.compute));
    if (adapts(r_) && w.target != kNever && (r_.lora_targets >> w.target & 1)) adapter(w, t);
  }
  /// Adds the adapter of the LM head, whose weight `w` may be the embedding's.
  void adapter_outside_layers(const Weight& w) { adapter(w, held_.dense); }
  /// Adds the magnitudes of the rows of `w`, which has the factors of another adapter.
  void magnitudes_outside_layers(const Weight& w) {
    const Weight m{w.rows, 1, w.copies, Kind::kVector};
    held_.dense += {m.elements(), state_bytes(m, r_.optimizer, r_.moment)};
  }
  /// Adds the trained copy of a module. Its moments have its type, as the frameworks' optimizers keep them.
  void saved_module(const Weight& w) {
    held_.saved += {w.elements(), state_bytes(w, r_.optimizer, saved_type(r_))};
  }
  const Held& held() const { return held_; }
  /// Bytes of the largest matrix that a product dequantizes; experts are activations, because autograd keeps
  /// theirs.
  Size dequantized() const { return dequantized_; }

 private:
  /// Adds the adapter of `w`: two matrices, and with DoRA a vector.
  void adapter(const Weight& w, Trained& t) const {
    const Weight a{r_.lora_rank, w.cols, w.copies}, b{w.rows, r_.lora_rank, w.copies};
    const Weight m{w.rows, 1, w.copies, Kind::kVector};
    t += {adapter_elements(w, r_.lora_rank, r_.memory.dora),
          state_bytes(a, r_.optimizer, r_.moment) + state_bytes(b, r_.optimizer, r_.moment) +
              (r_.memory.dora ? state_bytes(m, r_.optimizer, r_.moment) : Size())};
  }
  const RunSpec& r_;
  bool full_;
  DType frozen_type_, frozen_expert_type_;
  Held held_;
  Size dequantized_;
};

}  // namespace trainhost::parallel
