// What weights, optimizer state and adapters take, tensor by tensor: types, block scales, factored and 8-bit
// state, low-rank adapters. Everything here is counted, nothing estimated. Sums over tensors; sharding over
// data ranks is rank_breakdown.hpp's.
#pragma once
#include "core/model/run_spec.hpp"
#include "core/parallel/rank_weights.hpp"

namespace trainhost::parallel {

/// Bytes of n elements stored in t without scales; two to a byte where t is 4 bits wide.
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

constexpr bool quantised(DType t) { return t == DType::kNF4 || t == DType::kI4 || t == DType::kI8; }

/// Weights at rest. Quantised types hold the layers' matrices alone (blocks of 64 with an f32 scale each; nf4
/// with double quantisation: 8-bit scales, and for 256 of them one f32 scale, one f32 mean a tensor: Dettmers
/// et al. 2023); embeddings, the head and vectors stay in `plain`. i8 has one f32 scale a row.
inline Size stored_bytes(const Weight& w, DType t, DType plain, bool double_quantised) {
  if (!quantised(t) || w.kind != Kind::kMatrix) return plain_bytes(quantised(t) ? plain : t, w.elements());
  const Size n = w.each();
  if (t == DType::kI8) return (n + w.rows * 4) * w.copies;
  const Size blocks = share(n, 64);
  const Size scales = t == DType::kNF4 && double_quantised ? blocks + share(blocks, 256) * 4 + 4 : blocks * 4;
  return (share(n, 2) + scales) * w.copies;
}

/// State of one tensor. Adafactor: row and column sums in f32, of a vector one number each. Muon: momentum of
/// the layers' matrices, AdamW's pair for the rest. 8-bit Adam: a byte each and an f32 per 2048, tensors
/// under 4096 elements in f32.
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
      return (n < 4096 ? n * 4 : n + share(n, 2048) * 4) * w.copies * 2;
    }
    case Optimizer::kAdamW:
      break;
  }
  return plain_bytes(moment, w.elements()) * 2;
}

/// Elements of the adapter on one matrix: A rank x in, B out x rank, a magnitude for each output under DoRA.
inline Size adapter_elements(const Weight& w, std::uint32_t rank, bool dora) {
  return (Size(rank) * (w.rows + w.cols) + (dora ? w.rows : Size())) * w.copies;
}

struct Trained {
  Size elements, state;  // state: bytes of moments
  Trained& operator+=(const Trained& b) { return elements += b.elements, state += b.state, *this; }
  friend Trained operator*(const Trained& a, std::uint64_t n) { return {a.elements * n, a.state * n}; }
};

/// Sums of a set of tensors on one rank. Experts apart: other ranks share them.
struct Held {
  Trained dense, expert;           // what the optimizer moves: weights, or adapters
  Size frozen, frozen_expert;      // bytes of a base that is not trained, or of an inference run's weights
  Size elements, expert_elements;  // of the weights, adapters apart
  Held& operator+=(const Held& b) {
    dense += b.dense, expert += b.expert, frozen += b.frozen, frozen_expert += b.frozen_expert;
    elements += b.elements, expert_elements += b.expert_elements;
    return *this;
  }
  friend Held operator*(const Held& a, std::uint64_t n) {
    return {a.dense * n,         a.expert * n,   a.frozen * n,
            a.frozen_expert * n, a.elements * n, a.expert_elements * n};
  }
};

constexpr bool adapts(const RunSpec& r) { return r.mode == RunMode::kLora || r.mode == RunMode::kQlora; }
constexpr bool infers(const RunSpec& r) { return r.mode == RunMode::kInference; }
/// Type of the weights that are not trained.
constexpr DType resting(const RunSpec& r) {
  if (infers(r)) return r.weight;
  if (r.memory.frozen != DType::kNone) return r.memory.frozen;
  return r.mode == RunMode::kQlora ? DType::kNF4 : r.weight;
}

/// Adds tensors up; call it with every weight of the set.
class Tally {
 public:
  Tally(const RunSpec& r) : r_(r), full_(!adapts(r) && !infers(r)), resting_(resting(r)) {}
  void operator()(const Weight& w) {
    (w.expert ? held_.expert_elements : held_.elements) += w.elements();
    Trained& t = w.expert ? held_.expert : held_.dense;
    if (full_) {
      t += {w.elements(), state_bytes(w, r_.optimizer, r_.moment)};
      return;
    }
    (w.expert ? held_.frozen_expert : held_.frozen) +=
        stored_bytes(w, resting_, r_.compute, r_.memory.double_quantized);
    if (adapts(r_) && w.target != kNever && (r_.lora_targets >> w.target & 1)) adapter(w, t);
  }
  const Held& held() const { return held_; }

 private:
  /// Two small matrices for the optimizer's eyes, and a vector.
  void adapter(const Weight& w, Trained& t) const {
    const Weight a{r_.lora_rank, w.cols, w.copies}, b{w.rows, r_.lora_rank, w.copies};
    const Weight m{w.rows, 1, w.copies, Kind::kVector};
    t += {adapter_elements(w, r_.lora_rank, r_.memory.dora),
          state_bytes(a, r_.optimizer, r_.moment) + state_bytes(b, r_.optimizer, r_.moment) +
              (r_.memory.dora ? state_bytes(m, r_.optimizer, r_.moment) : Size())};
  }
  const RunSpec& r_;
  bool full_;
  DType resting_;
  Held held_;
};

}  // namespace trainhost::parallel
