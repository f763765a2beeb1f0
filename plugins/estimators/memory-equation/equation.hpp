// The memory equation (CONTRACTS section 3) as functions of its own symbols: bytes of a training step by rule
// of thumb, as the source writes it. Pure arithmetic; it knows neither a ModelSpec nor what a real trainer
// keeps: see account.hpp. Symbols: Psi parameters, L layers, B sequences, S tokens, H hidden, A heads, N
// data-parallel ranks.
#pragma once
#include <cstdint>
#include <string_view>

#include "core/base/types.hpp"

namespace trainhost::memory_equation {

using Bytes = std::uint64_t;
/// A share in millionths, so that "10 %" of a size is a whole number, cut off as the source's code cuts it.
inline constexpr std::uint32_t kMillion = 1'000'000, kTenPerCent = 100'000;
Bytes share(Bytes of, std::uint32_t millionths);

/// Bytes of model state a parameter. bf16 or fp16: AdamW 2+2+4+8 = 16, SGD with momentum 12, SGD 8; f32: no
/// master copy. Gradients have the type of the parameters. Optimizers that the source does not name, by its
/// own reckoning: Lion and Muon keep one f32 state, 8-bit Adam two bytes, Adafactor nothing to speak of.
struct StateBytes {
  std::uint32_t parameters = 2, gradients = 2, master = 4, moments = 8;
  std::uint32_t total() const { return parameters + gradients + master + moments; }
};
StateBytes state_bytes(Optimizer o, std::uint32_t parameter_bytes);

/// A layer's two terms as three places of the source have them: kEquation 11*B*S*H and B*A*S^2 numbers;
/// kExercise 34*B*S*H and B*A*S^2 numbers; kPaper, the one it cites, 34*B*S*H and 5*B*A*S^2 bytes of 16-bit
/// training.
enum class Terms { kEquation, kExercise, kPaper };

/// Everything that the equation depends on.
struct Inputs {
  std::uint64_t psi = 0, layers = 0, hidden = 0, heads = 0, batch = 1, seq = 1;
  std::uint32_t parameter_bytes = 2;   // b_p; below 4: a master copy in f32 is kept
  std::uint32_t activation_bytes = 2;  // b_a
  Optimizer optimizer = Optimizer::kAdamW;
  Terms terms = Terms::kEquation;
  bool flash = false;  // no A*S*S scores
  std::uint32_t checkpoint_every =
      0;                    // layers made again together from one kept input; 0: everything is kept
  std::uint32_t zero = 0;   // stage, 0 to 3
  std::uint64_t ranks = 1;  // N
  Bytes chunk = 0;          // of a collective; 0: kBucket / N
  std::uint32_t temporary = kTenPerCent,
                fragmentation = kTenPerCent;  // millionths of the activations; of all the rest
};
inline constexpr Bytes kBucket = 25ull << 20;  // what data-parallel trainers usually gather before they send

/// One layer of activations: linear 11*B*S*H*b_a, scores B*A*S*S*b_a (0 with flash), or as in.terms. Throws
/// Error beyond 63 bits, as all do.
Bytes linear_layer(const Inputs& in);
Bytes scores_layer(const Inputs& in);
Bytes layer_activations(const Inputs& in);
/// All layers; with checkpoints ceil(L/n) inputs of B*S*H*b_a and n whole layers.
Bytes activations(const Inputs& in);

/// One rank's bytes by component, and the whole.
struct Parts {
  Bytes parameters = 0, gradients = 0, master = 0, moments = 0, activations = 0, temporary = 0;
  Bytes all_reduce = 0, reduce_scatter = 0, all_gather = 0;  // buffers: 2 chunks; N-1 chunks each
  Bytes fragmentation = 0;
  Bytes state() const { return parameters + gradients + master + moments; }
  Bytes communication() const { return all_reduce + reduce_scatter + all_gather; }
  Bytes total = 0;
};
Parts equation(const Inputs& in);

/// Bytes alive through one step, without fragmentation. The peak is in the backward pass: everything at once.
struct Timeline {
  Bytes before_forward = 0, after_forward = 0, peak = 0, after_backward = 0, after_optimizer = 0;
};
Timeline timeline(const Parts& p);

/// budget - needed: negative where it does not fit.
std::int64_t room(Bytes budget, Bytes needed);
/// The largest B whose total is at most `budget`; 0: none.
std::uint64_t largest_batch(Inputs in, Bytes budget);
/// Devices of `each` bytes over which `needed` can be spread: ceil(needed / each).
std::uint64_t devices_for(Bytes needed, Bytes each);
/// The fewest ranks on which the state of one rank fits `each` under the run's ZeRO stage; 0: no number of
/// them does.
std::uint64_t ranks_for_state(Inputs in, Bytes each);

/// Parameter bytes over total bytes: 0.125 for plain AdamW.
double efficiency(Bytes parameters, Bytes total);
/// (allocated - used) / allocated, and allocated / used - 1.
double fragmentation_ratio(Bytes allocated, Bytes used);
double overhead_ratio(Bytes allocated, Bytes used);
/// "normal" below 5 %, "moderate" below 15 %, "high" up to 25 %, "critical".
std::string_view severity(double ratio);
/// |actual - estimated| / actual, in per cent.
double error_percent(Bytes estimated, Bytes actual);

/// Sequence lengths from which the scores outweigh the rest of a layer: by the equation (11H/A), by the
/// source's exercise (34H/A), by the paper that it cites (34h/5a, bytes against bytes).
double crossover(std::uint64_t hidden, std::uint64_t heads);
double crossover_of_exercise(std::uint64_t hidden, std::uint64_t heads);
double crossover_of_paper(std::uint64_t hidden, std::uint64_t heads);
/// The exercise's two terms for all layers: 34*B*S*H*b_a and B*A*S*S*b_a.
Bytes exercise_linear(const Inputs& in);
Bytes exercise_scores(const Inputs& in);

}  // namespace trainhost::memory_equation
