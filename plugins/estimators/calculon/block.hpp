// One transformer block in Calculon's memory model (open source): a list of layers with weights and kept
// activations, and their sums. Also Calculon's inputs, Application and Execution. Only one block of one rank:
// pipeline, micro-batches in flight and tiers are in closed_form.hpp.
#pragma once
#include <cstdint>
#include <string>

namespace trainhost::calculon {

/// A GPT-like model: every block is multi-head attention and a plain MLP of two matrices.
struct Application {
  std::uint64_t hidden = 0, feedforward = 0, seq_size = 0, attn_heads = 0, attn_size = 0, num_blocks = 0;
};

enum class Activation : std::uint32_t { kNone, kAttnOnly, kFull };  // what the backward pass recomputes
/// Collectives between TP ranks: all-reduce, or reduce-scatter and all-gather. kRsAg is sequence parallelism:
/// norms and dropouts run on 1/t of the tokens.
enum class Comm : std::uint32_t { kAr, kP2pRsAg, kRsAg };
/// Whether the collective runs in tiles during the matrix product (kRing, kPipe); its buffers are tiles then.
enum class Overlap : std::uint32_t { kNone, kRing, kPipe };

struct Execution {
  std::uint64_t tensor_par = 1, pipeline_par = 1, data_par = 1;
  std::uint64_t microbatch_size = 1, microbatches = 1;  // microbatches: of one rank in one step
  std::uint64_t pipeline_interleaving = 1;              // chunks of blocks per pipeline rank
  std::uint64_t bytes_per_element = 2;                  // of weights and activations: 1, 2 or 4
  bool fused_activation = false;  // GeLU fused into the previous product; its input is not kept
  bool multiquery = false;        // one KV head, replicated on every TP rank
  Activation recompute = Activation::kNone;
  bool optimizer_sharding = false;  // over data_par; also shards the kept gradients
  Comm comm = Comm::kAr;
  Overlap overlap = Overlap::kNone;
  bool seq_par_ag_redo = false;  // gathered activations are gathered again in the backward pass, not kept
  bool weight_offload = false, activations_offload = false, optimizer_offload = false;
  bool training = true;
  /// Not in Calculon. false: S*S matrices are not counted, as with flash attention.
  bool scores = true;

  std::uint64_t optimizer_shards() const { return optimizer_sharding ? data_par : 1; }
};

/// Static memory in bytes of one layer with e weight elements.
std::uint64_t weight_bytes(std::uint64_t elements, std::uint64_t bytes_per_element);
std::uint64_t moment_bytes(std::uint64_t elements);  // two f32 moments: 2e*4
std::uint64_t master_bytes(std::uint64_t elements,
                           std::uint64_t bytes_per_element);  // f32 copy, e*4; 0 where b is 4
/// Sum of both for the unsharded layer.
std::uint64_t optimizer_bytes(std::uint64_t elements, std::uint64_t bytes_per_element);
/// Elements of a linear layer c_in -> c_out, without a bias.
std::uint64_t linear_elements(std::uint64_t c_in, std::uint64_t c_out);

/// Sums over the layers of one block on one rank.
struct Block {
  std::uint64_t weights = 0;     // elements
  std::uint64_t working = 0;     // bytes of activations while the block runs
  std::uint64_t stored = 0;      // bytes kept until its backward pass; 0 with full recompute
  std::uint64_t gradients = 0;   // bytes of activation gradients while its backward pass runs
  std::uint64_t checkpoint = 0;  // bytes of its kept input with full recompute, else 0
};

/// Formulas of three of the sums, layer by layer, in bytes: "block input 1024 + q,k,v input 4096 + ...".
struct Derivation {
  std::string working, stored, gradients;
};

/// Throws Error (too large) above 63 bits. `a` and `e` have passed check() of closed_form.hpp. Fills
/// `derivation` if it is not null.
Block block(const Application& a, const Execution& e, Derivation* derivation = nullptr);

}  // namespace trainhost::calculon
