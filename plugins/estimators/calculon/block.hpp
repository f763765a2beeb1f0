// One transformer block as Calculon sees it: a list of layers, each with its weights and what it keeps, and
// their sums. What a Calculon user gives it is here too (Application, Execution). Never looks at more than
// one block of one rank: pipeline, in-flight micro-batches and tiers are closed_form.hpp. Source: the
// open-source Calculon's memory model.
#pragma once
#include <cstdint>
#include <string>

namespace trainhost::calculon {

/// A GPT-like model: every block is multi-head attention and a plain MLP of two matrices.
struct Application {
  std::uint64_t hidden = 0, feedforward = 0, seq_size = 0, attn_heads = 0, attn_size = 0, num_blocks = 0;
};

enum class Activation : std::uint32_t { kNone, kAttnOnly, kFull };  // what the backward pass makes again
/// How tensor-parallel ranks exchange activations. kRsAg is sequence parallelism: norms and dropouts see 1/t
/// of the tokens.
enum class Comm : std::uint32_t { kAr, kP2pRsAg, kRsAg };
/// Whether that exchange is split into tiles and done beside the product (kRing, kPipe): the buffers are the
/// tiles then.
enum class Overlap : std::uint32_t { kNone, kRing, kPipe };

struct Execution {
  std::uint64_t tensor_par = 1, pipeline_par = 1, data_par = 1;
  std::uint64_t microbatch_size = 1, microbatches = 1;  // microbatches: of one rank in one step
  std::uint64_t pipeline_interleaving = 1;              // chunks of blocks a pipeline rank holds
  std::uint64_t bytes_per_element = 2;                  // of weights and activations: 1, 2 or 4
  bool fused_activation = false;  // the GeLU runs inside the product before it and keeps nothing
  bool multiquery = false;        // one head of keys and values, whole on every tensor-parallel rank
  Activation recompute = Activation::kNone;
  bool optimizer_sharding = false;  // over data_par; shards the kept gradients too
  Comm comm = Comm::kAr;
  Overlap overlap = Overlap::kNone;
  bool seq_par_ag_redo = false;  // gathered activations are gathered again rather than kept
  bool weight_offload = false, activations_offload = false, optimizer_offload = false;
  bool training = true;
  /// False is ours, not Calculon's: the S*S matrices are left out, as with flash attention.
  bool scores = true;

  std::uint64_t optimizer_shards() const { return optimizer_sharding ? data_par : 1; }
};

/// The static memory of one layer, in elements e of its weights. Bytes.
std::uint64_t weight_bytes(std::uint64_t elements, std::uint64_t bytes_per_element);
std::uint64_t moment_bytes(std::uint64_t elements);  // two f32 moments: 2e*4
std::uint64_t master_bytes(std::uint64_t elements,
                           std::uint64_t bytes_per_element);  // f32 copy, e*4; 0 where b is 4
/// Both, of the whole layer, before any sharding.
std::uint64_t optimizer_bytes(std::uint64_t elements, std::uint64_t bytes_per_element);
/// Elements of a linear layer c_in -> c_out, without a bias.
std::uint64_t linear_elements(std::uint64_t c_in, std::uint64_t c_out);

/// Sums over the layers of one block, on one rank.
struct Block {
  std::uint64_t weights = 0;     // elements
  std::uint64_t working = 0;     // bytes of activations while the block runs
  std::uint64_t stored = 0;      // bytes that stay until its backward pass; 0 under full recompute
  std::uint64_t gradients = 0;   // bytes of activation gradients while its backward pass runs
  std::uint64_t checkpoint = 0;  // bytes of its kept input under full recompute, else 0
};

/// How three of the sums came about, in the order of the layers: "block input 1024 + q,k,v input 4096 + ...".
/// Bytes.
struct Derivation {
  std::string working, stored, gradients;
};

/// Throws Error (too large) where a size leaves 63 bits. `a` and `e` are those that check() of
/// closed_form.hpp lets pass. Fills `words` where it is given.
Block block(const Application& a, const Execution& e, Derivation* words = nullptr);

}  // namespace trainhost::calculon
