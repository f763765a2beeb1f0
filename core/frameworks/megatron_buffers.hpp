// What Megatron Core keeps of the parameters of one rank: a buffer of gradients, the f32 weights that the
// optimizer updates, and with the distributed optimizer a buffer of weights, of which each of several ranks
// updates a part.
#pragma once
#include <cstdint>
#include <vector>

#include "core/frameworks/tape.hpp"

namespace trainhost::frameworks {

struct MegatronPolicy {
  bool shares_tokens = false;    // --sequence-parallel
  bool exchanges_heads = false;  // --cp-comm-type a2a
  bool in_place_loss = true;     // --cross-entropy-fusion-impl te
  bool distributed = false;      // --use-distributed-optimizer
  std::uint32_t ranks = 1;       // data- and context-parallel, which share the gradients
  std::uint32_t expert = 1;      // expert-parallel, a part of these; alltoall, grouped products
  Element gradients = Element::kF32;
  bool operator==(const MegatronPolicy&) const = default;
};

class MegatronBuffers {
 public:
  /// Replaces the memory of the parameters by the buffers. ranks: that share them. parameters: in the order
  /// of the model.
  MegatronBuffers(Tape& tape, const MegatronPolicy& policy, std::uint32_t ranks,
                  std::vector<Tensor> parameters);

  /// f32 weights that the optimizer updates.
  const std::vector<Tensor>& main_weights() const { return main_; }
  /// Gives each of them its gradient, which is a part of the buffer, or a copy where that is narrower.
  void before_update();

 private:
  Tensor buffer(std::uint64_t elements, Element type, Purpose purpose, const char* name);
  void add_main_weights(std::uint64_t elements);

  Tape& t_;
  const MegatronPolicy& policy_;
  std::uint32_t ranks_;
  std::vector<Tensor> parameters_;  // in the order of the buffers
  std::vector<std::uint64_t> offsets_;
  Tensor weights_, gradients_;
  std::vector<Tensor> main_;
};

}  // namespace trainhost::frameworks
