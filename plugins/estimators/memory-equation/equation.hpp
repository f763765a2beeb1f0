// The memory equation (docs/memory-model.md): bytes of a training step by a rule of thumb, as the source
// writes it. Pure arithmetic without ModelSpec; breakdown.hpp applies it to a run. Symbols: Psi parameters, L
// layers, B sequences, S tokens, H hidden, A heads, N data-parallel ranks.
#pragma once
#include <cstdint>
#include <string_view>

#include "core/base/types.hpp"

namespace trainhost::memory_equation {

using Bytes = std::uint64_t;
/// share() of millionths, rounded down as in the code of the source.
inline constexpr std::uint32_t kMillion = 1'000'000, kTenPerCent = 100'000;
Bytes share(Bytes of, std::uint32_t millionths);

/// Bytes of model state per parameter. bf16 or fp16: AdamW 2+2+4+8 = 16, SGD with momentum 12, SGD 8; f32: no
/// master copy. Gradients have the type of the parameters. For optimizers that the source does not cover:
/// Lion and Muon one f32 number, 8-bit Adam two bytes, Adafactor 0.
struct StateBytes {
  std::uint32_t parameters = 2, gradients = 2, master = 4, moments = 8;
  std::uint32_t total() const { return parameters + gradients + master + moments; }
};
StateBytes state_bytes(Optimizer o, std::uint32_t parameter_bytes);

/// The two terms of a layer, which differ within the source: kEquation 11*B*S*H and B*A*S^2 numbers;
/// kExercise 34*B*S*H and B*A*S^2 numbers; kPaper (the paper it cites) 34*B*S*H and 5*B*A*S^2 bytes of 16-bit
/// training.
enum class Terms { kEquation, kExercise, kPaper };

/// Everything that the equation depends on.
struct Inputs {
  std::uint64_t psi = 0, layers = 0, hidden = 0, heads = 0, batch = 1, seq = 1;
  std::uint32_t parameter_bytes = 2;   // b_p; below 4: with an f32 master copy
  std::uint32_t activation_bytes = 2;  // b_a
  Optimizer optimizer = Optimizer::kAdamW;
  Terms terms = Terms::kEquation;
  bool flash = false;                         // no A*S*S scores
  std::uint32_t checkpoint_every = 0;         // layers recomputed together from one kept input; 0: none
  std::uint32_t zero = 0;                     // stage, 0 to 3
  std::uint64_t ranks = 1;                    // N
  Bytes chunk = 0;                            // of a collective; 0: kBucket / N
  std::uint32_t temporary = kTenPerCent;      // millionths of the activations
  std::uint32_t fragmentation = kTenPerCent;  // millionths of everything else
};
inline constexpr Bytes kBucket = 25ull << 20;  // usual gradient bucket of data-parallel trainers

/// Activations of one layer: linear 11*B*S*H*b_a, scores B*A*S*S*b_a (0 with flash), or by in.terms. All
/// functions throw Error if a size exceeds 63 bits.
Bytes linear_layer(const Inputs& in);
Bytes scores_layer(const Inputs& in);
Bytes layer_activations(const Inputs& in);
/// All layers; with checkpoints: ceil(L/n) inputs of B*S*H*b_a and n layers.
Bytes activations(const Inputs& in);

/// Bytes of one rank by term, and the total.
struct Parts {
  Bytes parameters = 0, gradients = 0, master = 0, moments = 0, activations = 0, temporary = 0;
  Bytes all_reduce = 0, reduce_scatter = 0, all_gather = 0;  // buffers: 2 chunks; N-1 chunks each
  Bytes fragmentation = 0;
  Bytes state() const { return parameters + gradients + master + moments; }
  Bytes communication() const { return all_reduce + reduce_scatter + all_gather; }
  Bytes total = 0;
};
Parts equation(const Inputs& in);

/// Bytes in memory during a step, without fragmentation. The peak (all terms) is in the backward pass.
struct Timeline {
  Bytes before_forward = 0, after_forward = 0, peak = 0, after_backward = 0, after_optimizer = 0;
};
Timeline timeline(const Parts& p);

/// budget - needed; negative if it does not fit.
std::int64_t spare_bytes(Bytes budget, Bytes needed);
/// Largest B with a total of at most `budget`; 0: none.
std::uint64_t largest_batch(Inputs in, Bytes budget);
/// ceil(needed / each): devices of `each` bytes that hold `needed` bytes.
std::uint64_t devices_for(Bytes needed, Bytes each);
/// Fewest ranks with which the state of a rank fits in `each` bytes under in.zero; 0: no number of ranks.
std::uint64_t ranks_for_state(Inputs in, Bytes each);

/// Parameter bytes / total bytes: 0.125 for AdamW.
double efficiency(Bytes parameters, Bytes total);
/// (allocated - used) / allocated, and allocated / used - 1.
double fragmentation_ratio(Bytes allocated, Bytes used);
double overhead_ratio(Bytes allocated, Bytes used);
/// "normal" below 5 %, "moderate" below 15 %, "high" up to 25 %, "critical".
std::string_view severity(double ratio);
/// |actual - estimated| / actual in percent.
double error_percent(Bytes estimated, Bytes actual);

/// Sequence length from which the scores are larger than the other activations of a layer: by the equation
/// (11H/A), by the exercise of the source (34H/A), by the paper that it cites (34h/5a, in bytes).
double crossover(std::uint64_t hidden, std::uint64_t heads);
double crossover_of_exercise(std::uint64_t hidden, std::uint64_t heads);
double crossover_of_paper(std::uint64_t hidden, std::uint64_t heads);
/// The two terms of the exercise for all layers: 34*B*S*H*b_a and B*A*S*S*b_a.
Bytes exercise_linear(const Inputs& in);
Bytes exercise_scores(const Inputs& in);

}  // namespace trainhost::memory_equation
