// A copy of a session's weights and moments in host memory, in f32. Two uses: a checkpoint that is written
// while training goes on (output.async_checkpoints), and a step that is computed again from the same state
// (train.verify_every). The buffer is part of the plan (planning::state_copy_bytes).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/checkpoint/tensor_files.hpp"
#include "core/model/tensors.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/shared_save.hpp"

namespace trainhost::training {

class StateCopy {
 public:
  /// `c` must outlive this object.
  StateCopy(plugin::Ledger& ledger, const runfile::RunConfig& c);

  void take(plugin::Session& s);
  /// Loads the copy into a session of the same run.
  void restore(plugin::Session& s) const;
  /// The tensors of a scope, by its index in state_scopes(), for write_tensors(). Valid while nothing is
  /// taken.
  checkpoint::TensorSource source(std::size_t scope) const;
  /// With planning::copies_own_part(): copies what this rank writes to a checkpoint.
  void take_own_part(plugin::Session& s);
  PartStateSource own_part() const;

 private:
  /// Where the tensors of a scope are in the copy.
  struct ScopeCopy {
    std::vector<TensorInfo> tensors;
    std::vector<std::uint64_t> first;                    // of each tensor within the copy, in elements
    std::unordered_map<std::string, std::size_t> index;  // of each tensor, by name
  };
  std::span<float> values(std::size_t scope, std::size_t tensor) const;

  /// A piece of what take_own_part() has copied.
  struct OwnPiece {
    std::string name;
    TensorPart part;
    std::uint64_t first, count, at;  // elements of the part; where it begins in the copy
  };

  std::vector<ScopeCopy> scopes_;           // without copies_own_part()
  std::vector<std::vector<OwnPiece>> own_;  // by scope
  const runfile::RunConfig& config_;
  planning::HostBlock block_;
};

/// XXH3-128 of every tensor of weights and moments, in checkpoint order.
struct StateHash {
  struct Tensor {
    std::string name;  // "weights of lm_head.weight"
    std::string hash;  // 32 hex digits
  };
  std::vector<Tensor> tensors;

  /// One hash over the hashes of the weights.
  std::string weights;
  /// The first tensor whose hash differs; "" if there is none.
  std::string first_difference(const StateHash& other) const;
};
StateHash hash_state(plugin::Session& s, const runfile::RunConfig& c);

}  // namespace trainhost::training
