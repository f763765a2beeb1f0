// The equation, in the order of the source: state, activations, other terms, derived values. The formulas
// are those of docs/memory-model.md ("memory-equation"). Knows no model and no run: breakdown.cpp fills the
// inputs. Products are checked, so a size beyond 63 bits is an error and never a small number.
#include "plugins/estimators/memory-equation/equation.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/checked.hpp"

namespace trainhost::memory_equation {
namespace {

// Rounded up: of a sharded buffer, the largest shard.
Bytes divide_up(Bytes bytes, std::uint64_t over) { return bytes / over + (bytes % over != 0); }

// AdamW has two f32 moments; momentum, Lion and Muon have one; 8-bit AdamW two of one byte.
std::uint32_t moment_bytes(Optimizer o) {
  switch (o) {
    case Optimizer::kAdamW:
      return 8;
    case Optimizer::kSgdMomentum:
    case Optimizer::kLion:
    case Optimizer::kMuon:
      return 4;
    case Optimizer::kAdamW8bit:
      return 2;
    case Optimizer::kSgd:
    case Optimizer::kAdafactor:
      return 0;
  }
  return 8;
}

// The unit of the linear term: one tensor [B, S, H].
Bytes hidden_states(const Inputs& in) {
  return checked_mul(in.batch, in.seq, in.hidden, in.activation_bytes);
}

// The quadratic term: one number per head and pair of tokens.
Bytes scores_of_layer(const Inputs& in) {
  return checked_mul(in.batch, in.heads, in.seq, in.seq, in.activation_bytes);
}

void add_state(const Inputs& in, Parts& p) {
  // Stage 1 divides what only the optimizer reads, stage 2 gradients too, stage 3 parameters too.
  const StateBytes b = state_bytes(in.optimizer, in.parameter_bytes);
  auto part = [&](std::uint32_t bytes, std::uint32_t from_stage) {
    return divide_up(checked_mul(in.psi, bytes), in.zero >= from_stage ? in.ranks : 1);
  };
  p.parameters = part(b.parameters, 3);
  p.gradients = part(b.gradients, 2);
  p.master = part(b.master, 1);
  p.moments = part(b.moments, 1);
}

/// ZeRO 0 sums gradients by an all-reduce. ZeRO 1 to 3 reduce-scatter them; parameters are gathered before
/// the next forward pass (ZeRO 1 and 2, not at the peak) or per layer (ZeRO 3, at the peak).
void add_communication(const Inputs& in, Parts& p) {
  if (in.ranks < 2) return;
  // Without an option: one bucket, of which each rank has a part.
  const Bytes chunk = in.chunk ? in.chunk : divide_up(kBucket, in.ranks);
  if (in.zero == 0) p.all_reduce = checked_mul(2, chunk);
  if (in.zero >= 1) p.reduce_scatter = checked_mul(in.ranks - 1, chunk);
  if (in.zero == 3) p.all_gather = checked_mul(in.ranks - 1, chunk);
}

// The largest value in [1, limit] for which `fits` holds, 0 if there is none. `fits` must hold up to some
// value and fail beyond it. Doubling keeps the search short for small answers.
template <class Fits>
std::uint64_t find_largest(Fits fits, std::uint64_t limit) {
  // low always fits, or is 0.
  std::uint64_t low = 0, high = 1;
  while (high <= limit && fits(high)) low = high, high *= 2;
  high = std::min(high, limit + 1);
  // From here on high is a value that does not fit, or limit + 1.
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

Bytes share(Bytes of, std::uint32_t millionths) {
  const unsigned __int128 part = static_cast<unsigned __int128>(of) * millionths / kMillion;
  if (part > kMaxBytes) throw_too_large("a share of a size");
  return static_cast<Bytes>(part);
}

StateBytes state_bytes(Optimizer o, std::uint32_t parameter_bytes) {
  return {parameter_bytes, parameter_bytes, parameter_bytes < 4 ? 4u : 0u, moment_bytes(o)};
}

Bytes linear_layer(const Inputs& in) {
  // The paper counts bytes of 16-bit training, so its terms have no b_a.
  if (in.terms == Terms::kPaper) return checked_mul(34, in.batch, in.seq, in.hidden);
  return checked_mul(in.terms == Terms::kEquation ? 11 : 34, hidden_states(in));
}
Bytes scores_layer(const Inputs& in) {
  if (in.flash) return 0;
  return in.terms == Terms::kPaper ? checked_mul(5, in.batch, in.heads, in.seq, in.seq) : scores_of_layer(in);
}
Bytes layer_activations(const Inputs& in) {
  return checked_add(linear_layer(in), scores_layer(in), "one layer");
}

Bytes activations(const Inputs& in) {
  if (!in.checkpoint_every) return checked_mul(in.layers, layer_activations(in));
  // Between two kept inputs, in.checkpoint_every layers are recomputed together and are in memory at the same
  // time.
  const std::uint64_t live = std::min<std::uint64_t>(in.checkpoint_every, in.layers);
  const Bytes kept = checked_mul(divide_up(in.layers, in.checkpoint_every), hidden_states(in));
  return checked_add(kept, checked_mul(live, layer_activations(in)), "checkpointed activations");
}

Parts equation(const Inputs& in) {
  Parts p;
  add_state(in, p);
  p.activations = activations(in);
  p.temporary = share(p.activations, in.temporary);
  add_communication(in, p);
  Bytes rest = 0;
  for (Bytes b : {p.parameters, p.gradients, p.master, p.moments, p.activations, p.temporary, p.all_reduce,
                  p.reduce_scatter, p.all_gather})
    rest = checked_add(rest, b, "the memory equation's total");
  // Last, because it is a share of everything else.
  p.fragmentation = share(rest, in.fragmentation);
  p.total = checked_add(rest, p.fragmentation, "the memory equation's total");
  return p;
}

Timeline timeline(const Parts& p) {
  // Gradients exist from the backward pass to the update, activations from the forward to the backward pass.
  // At the peak, the end of the forward and the start of the backward pass, all of them are counted.
  const Bytes resident = p.parameters + p.master + p.moments;
  return {resident, resident + p.activations, p.total - p.fragmentation, resident + p.gradients, resident};
}

std::int64_t spare_bytes(Bytes budget, Bytes needed) {
  // Both are at most 2^63 - 1 then, so the difference cannot overflow.
  return static_cast<std::int64_t>(std::min(budget, kMaxBytes)) -
         static_cast<std::int64_t>(std::min(needed, kMaxBytes));
}

std::uint64_t largest_batch(Inputs in, Bytes budget) {
  auto fits = [&](std::uint64_t batch) {
    in.batch = batch;
    try {
      return equation(in).total <= budget;
    } catch (const Error&) {  // more than 63 bits: larger than any budget
      return false;
    }
  };
  return find_largest(fits, std::uint64_t{1} << 40);
}

std::uint64_t devices_for(Bytes needed, Bytes each) { return each ? divide_up(needed, each) : 0; }

std::uint64_t ranks_for_state(Inputs in, Bytes each) {
  auto too_few = [&](std::uint64_t ranks) {
    in.ranks = ranks;
    Parts p;
    add_state(in, p);
    return p.state() > each;
  };
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  // If even 2^40 ranks are too few, a part that the stage does not divide exceeds the device.
  return too_few(kMost) ? 0 : find_largest(too_few, kMost) + 1;
}

double efficiency(Bytes parameters, Bytes total) { return total ? double(parameters) / double(total) : 0; }
double fragmentation_ratio(Bytes allocated, Bytes used) {
  return allocated ? (double(allocated) - double(used)) / double(allocated) : 0;
}
double overhead_ratio(Bytes allocated, Bytes used) { return used ? double(allocated) / double(used) - 1 : 0; }

std::string_view severity(double ratio) {
  // Limits of the source.
  return ratio < 0.05 ? "normal" : ratio < 0.15 ? "moderate" : ratio <= 0.25 ? "high" : "critical";
}

double error_percent(Bytes estimated, Bytes actual) {
  return actual ? 100 * std::abs(double(actual) - double(estimated)) / double(actual) : 0;
}

// B*S*H and b_a cancel: 11*B*S*H = B*A*S^2 for S = 11H/A, and 34*B*S*H = 5*B*A*S^2 for S = 34H/5A.
double crossover(std::uint64_t hidden, std::uint64_t heads) { return 11.0 * double(hidden) / double(heads); }
double crossover_of_exercise(std::uint64_t hidden, std::uint64_t heads) {
  return 34.0 * double(hidden) / double(heads);
}
double crossover_of_paper(std::uint64_t hidden, std::uint64_t heads) {
  return 34.0 * double(hidden) / (5.0 * double(heads));
}

Bytes exercise_linear(const Inputs& in) { return checked_mul(34, in.layers, hidden_states(in)); }
Bytes exercise_scores(const Inputs& in) { return checked_mul(in.layers, scores_of_layer(in)); }

}  // namespace trainhost::memory_equation
