// How a run is spread over devices and what is kept where: everything that planners reason about and that no
// step program of core/plan carries out. Part of RunSpec; the defaults are what a trainer on one rank does.
#pragma once
#include <cstdint>
#include <string>

#include "core/base/types.hpp"

namespace trainhost {

enum class AttentionMemory : std::uint32_t {
  kFlash = 1,
  kMaterialised = 2
};  // kMaterialised: A*S*S scores are kept
/// kFused: logits a chunk of tokens at a time; kPlain: logits and their gradient stand whole; kInPlace: they
/// stand whole once, in f32, and the gradient overwrites them (the fused kernel of Megatron-LM).
enum class CrossEntropy : std::uint32_t { kFused = 1, kPlain = 2, kInPlace = 3 };

struct Layout {
  bool sequence_parallel =
      false;  // between the tensor-parallel parts, each rank keeps its share of the tokens
  std::uint32_t context_parallel = 1;  // ranks that share each sequence's tokens throughout
  std::uint32_t expert_parallel = 1;   // ranks of the data-parallel group that share the experts of a layer
  std::uint32_t interleave = 1;  // chunks of layers a pipeline rank holds (virtual stages); 1 = plain 1F1B
  std::uint32_t vocab_multiple =
      1;  // the vocabulary is padded to a multiple of this times the tensor-parallel ranks
  std::uint32_t recompute_every = 1;  // with recompute full: layers made again together from one kept input
  AttentionMemory attention = AttentionMemory::kFlash;
  CrossEntropy cross_entropy = CrossEntropy::kFused;
  Tier weights_in = Tier::kDevice, optimizer_in = Tier::kDevice,
       activations_in = Tier::kDevice;  // or kHost, kDisk
  DType frozen = DType::kNone;          // of the base weights under [lora]; kNone: as the run's weights
  bool double_quantized = false;        // nf4: the block scales are themselves 8-bit (QLoRA)
  bool dora = false;                    // a magnitude vector beside each adapter
  DType kv_cache = DType::kNone;        // of an inference run; kNone: as the run's weights
  std::uint32_t kv_page = 1;            // tokens of a page of the cache: a sequence takes whole pages
  bool operator==(const Layout&) const = default;
};

struct ModelSpec;
struct RunSpec;

/// The run-file key of the first setting that no step program carries out ("parallel.tensor",
/// "plan.attention", ...), with its value; "" when the run is one that a trainer on one rank can be asked
/// for. Optimizer, number types and [lora] count. Not beyond: inference, which trainers also have; "auto"
/// recompute, which the host resolves.
struct Beyond {
  std::string key, value;
  explicit operator bool() const { return !key.empty(); }
};
Beyond beyond_one_rank(const RunSpec& r);

/// Whether a step program of core/plan trains this model in this run: a trainable family, all of it, on one
/// rank.
bool trains_by_program(const ModelSpec& m, const RunSpec& r);

}  // namespace trainhost
