// From the block (block.cpp) to the memory of a rank: checks, the bytes of each kind of data in both tiers,
// their sums, and the embedding terms of the note. Formulas and rounding are Calculon's; what they leave out
// is in the notes (notes.cpp). docs/memory-model.md has a summary ("calculon").
#include "plugins/estimators/calculon/closed_form.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "core/base/checked.hpp"

namespace trainhost::calculon {
namespace {

__extension__ using Wide = unsigned __int128;  // 63-bit factors: the product never overflows

std::string decimal(std::uint64_t v) { return std::to_string(v); }

// Sums of checked sizes: beyond 63 bits an error.
std::uint64_t add3(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return checked_add(checked_add(a, b), c);
}

/// tensor_par must divide `value`.
void divides(const Execution& e, const char* what, std::uint64_t value) {
  if (value % e.tensor_par != 0)
    throw usage_error("parallel.tensor = " + decimal(e.tensor_par) + " does not divide " + std::string(what) +
                          " " + decimal(value) + ", which calculon needs",
                      "set parallel.tensor to a divisor of " + decimal(value));
}

// Rounded up: the rank with most blocks.
std::uint64_t blocks_per_rank(const Application& a, const Execution& e) {
  return a.num_blocks / e.pipeline_par + (a.num_blocks % e.pipeline_par != 0);
}

void check_pipeline(const Application& a, const Execution& e) {
  // The conditions of the source, in terms of the run file. A setting that it cannot express is an error and
  // not an approximation.
  const std::uint64_t blocks = blocks_per_rank(a, e), chunks = e.pipeline_interleaving;
  if (e.pipeline_par > a.num_blocks)
    throw usage_error("parallel.pipeline = " + decimal(e.pipeline_par) + ": the model has " +
                          decimal(a.num_blocks) + " layers",
                      "set parallel.pipeline to at most " + decimal(a.num_blocks));
  if (e.pipeline_par == 1 && chunks > 1)
    throw usage_error("parallel.interleave = " + decimal(chunks) + " needs parallel.pipeline above 1");
  if (chunks > blocks || blocks % chunks != 0)
    throw usage_error("parallel.interleave = " + decimal(chunks) + " does not divide the " + decimal(blocks) +
                      " layers of a pipeline rank");
  // Offloading keeps two blocks in tier 1, so with two blocks or fewer nothing would be offloaded.
  const bool offload = e.weight_offload || e.activations_offload || e.optimizer_offload;
  if (offload && blocks <= 2)
    throw usage_error("calculon needs at least 3 layers per pipeline rank for offloading; this run has " +
                      decimal(blocks));
}

void check_options(const Execution& e) {
  if (!e.training && e.recompute != Activation::kNone)
    throw usage_error("train.recompute: inference has no backward pass to recompute for");
  if (!e.training && e.optimizer_offload)
    throw usage_error("plan.offload_optimizer: inference has no optimizer");
  if (e.optimizer_sharding && e.data_par == 1)
    throw usage_error("a sharded optimizer needs parallel.data above 1");
  if (e.overlap != Overlap::kNone && e.tensor_par == 1)
    throw usage_error("plugin.calculon.tensor_par_overlap needs parallel.tensor above 1");
  // Gathering again saves what sequence parallelism gathers, unless everything is recomputed anyway.
  if (!e.seq_par_ag_redo) return;
  if (e.comm != Comm::kRsAg)
    throw usage_error("plugin.calculon.seq_par_ag_redo needs sequence parallelism",
                      "set parallel.sequence = true, or tensor_par_comm_type = \"rs_ag\"");
  if (e.recompute == Activation::kFull)
    throw usage_error("plugin.calculon.seq_par_ag_redo has no effect with train.recompute = \"full\"");
}

/// `bytes` per unsharded block, for `blocks` blocks. With offload two blocks stay in tier 1.
Space per_block(std::uint64_t bytes, std::uint64_t blocks, std::uint64_t shards, bool offload) {
  Space s;
  s.all = share(bytes, blocks, shards);
  s.tier1 = offload ? share(bytes, 2, shards) : s.all;
  s.tier2 = offload ? s.all : 0;
  return s;
}

/// Gradients of the current block are unsharded, in f32; those of the others are in the type of the weights,
/// sharded like the optimizer state.
Space gradient_space(const Sizes& s, const Execution& e) {
  // Per block: 4 bytes per element for the current one, b bytes for each other one.
  const std::uint64_t whole = checked_mul(s.block.weights, 4),
                      narrow = weight_bytes(s.block.weights, e.bytes_per_element);
  const std::uint64_t shards = e.optimizer_shards();
  Space g;
  g.all = g.tier1 = checked_add(whole, share(narrow, s.blocks - 1, shards));
  // Tier 1 has the current block and one that is transferred; tier 2 all of them in the narrow type.
  if (!e.optimizer_offload) return g;
  g.tier1 = checked_add(whole, share(narrow, 1, shards));
  g.tier2 = share(narrow, s.blocks, shards);
  return g;
}

/// Master copy and moments are rounded up together, so that their sum is Calculon's number.
void optimizer_space(Sizes& s, const Execution& e) {
  const std::uint64_t b = e.bytes_per_element, shards = e.optimizer_shards();
  const Space both = per_block(optimizer_bytes(s.block.weights, b), s.blocks, shards, e.optimizer_offload);
  s.master = per_block(master_bytes(s.block.weights, b), s.blocks, shards, e.optimizer_offload);
  s.moments = {both.all - s.master.all, both.tier1 - s.master.tier1, both.tier2 - s.master.tier2};
}

InFlight in_flight(const Execution& e) {
  const std::uint64_t micro = std::min(e.microbatches, e.pipeline_par), i = e.pipeline_interleaving,
                      p = e.pipeline_par;
  // 1F1B: a rank starts at most p forward passes before its first backward pass.
  if (i == 1) return {micro, 1};
  // Interleaved: min(m, p) * (1 + (p-1)/(i*p)) = min(m, p) * (i*p + p - 1) / (i*p), kept as a fraction.
  const std::uint64_t ip = checked_mul(i, p);
  return {checked_mul(micro, ip + p - 1), ip};
}

/// stored * (blocks * in flight - 1) plus the working set of the current block.
Space activation_space(const Sizes& s, const Execution& e) {
  const InFlight f = s.in_flight;
  Space a;
  a.all = s.block.working;
  assert(s.blocks > 0 && f.numerator >= f.denominator);  // at least the current block
  if (e.training)
    a.all = checked_add(
        a.all, share(s.block.stored, checked_mul(s.blocks, f.numerator) - f.denominator, f.denominator));
  a.tier1 = a.all;
  if (!e.activations_offload) return a;
  const bool full = e.recompute == Activation::kFull;  // then the checkpoints are offloaded instead
  a.tier1 = full ? s.block.working : checked_add(s.block.working, s.block.stored);
  a.tier2 = full ? 0 : a.all;
  return a;
}

Space checkpoint_space(const Sizes& s, const Execution& e) {
  Space c;
  // 0 unless everything is recomputed; then the input of every block in flight is kept.
  c.all = share(s.block.checkpoint, checked_mul(s.blocks, s.in_flight.numerator), s.in_flight.denominator);
  c.tier1 = e.activations_offload ? checked_mul(2, s.block.checkpoint) : c.all;
  c.tier2 = e.activations_offload ? c.all : 0;
  return c;
}

}  // namespace

std::uint64_t share(std::uint64_t bytes, std::uint64_t numerator, std::uint64_t denominator) {
  // 128 bits, so that only the rounded result is compared with the limit.
  const Wide exact = Wide{bytes} * numerator;
  const Wide rounded = (exact + denominator - 1) / denominator;
  if (rounded > kMaxBytes) throw_too_large("a share of a size");
  return static_cast<std::uint64_t>(rounded);
}

void check(const Application& a, const Execution& e) {
  // Each matrix is divided evenly; only sequence parallelism also divides the tokens.
  divides(e, "the hidden size", a.hidden);
  divides(e, "the MLP width", a.feedforward);
  divides(e, "the attention heads", a.attn_heads);
  if (e.comm != Comm::kAr)
    divides(e, "the tokens of a micro-batch", checked_mul(e.microbatch_size, a.seq_size));
  check_pipeline(a, e);
  check_options(e);
}

Sizes sizes(const Application& a, const Execution& e) {
  check(a, e);
  Sizes s;
  s.block = block(a, e);
  s.blocks = blocks_per_rank(a, e);
  s.in_flight = in_flight(e);
  s.weights = per_block(weight_bytes(s.block.weights, e.bytes_per_element), s.blocks, 1, e.weight_offload);
  s.activations = activation_space(s, e);
  // Inference has no gradients, optimizer state or recomputation.
  if (!e.training) return s;
  s.checkpoints = checkpoint_space(s, e);
  s.activation_gradients = s.block.gradients;
  s.gradients = gradient_space(s, e);
  optimizer_space(s, e);
  return s;
}

std::uint64_t Sizes::optimizer_space() const { return checked_add(master.all, moments.all); }

std::uint64_t Sizes::tier1() const {
  const std::uint64_t of_weights =
      checked_add(add3(weights.tier1, gradients.tier1, master.tier1), moments.tier1);
  return checked_add(of_weights, add3(activations.tier1, checkpoints.tier1, activation_gradients));
}

std::uint64_t Sizes::tier2() const {
  const std::uint64_t of_weights =
      checked_add(add3(weights.tier2, gradients.tier2, master.tier2), moments.tier2);
  return add3(of_weights, activations.tier2, checkpoints.tier2);
}

std::uint64_t Embedding::elements() const { return checked_mul(rows, hidden, matrices); }

EmbeddingSizes embedding_sizes(const Embedding& m, const Execution& e) {
  const std::uint64_t b = e.bytes_per_element, shards = e.optimizer_shards(), elements = m.elements();
  // The note does not divide the embedding into blocks, so offloaded it is in tier 2 as a whole.
  const auto placed = [](std::uint64_t bytes, bool offload) {
    return Space{bytes, offload ? 0 : bytes, offload ? bytes : 0};
  };
  EmbeddingSizes s;
  s.weights = placed(weight_bytes(elements, b), e.weight_offload);
  if (!e.training) return s;
  s.master = placed(share(master_bytes(elements, b), 1, shards), e.optimizer_offload);
  s.moments = placed(share(moment_bytes(elements), 1, shards), e.optimizer_offload);
  return s;
}

std::uint64_t EmbeddingSizes::tier1() const { return add3(weights.tier1, master.tier1, moments.tier1); }
std::uint64_t EmbeddingSizes::tier2() const { return add3(weights.tier2, master.tier2, moments.tier2); }

}  // namespace trainhost::calculon
