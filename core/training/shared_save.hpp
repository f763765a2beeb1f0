// A checkpoint, or a model, that all ranks of a run write together: each its own part, at the same time, to a
// folder on a file system that all of them share. It gets its name when every part is on disk and intact.
#pragma once
#include <exception>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/checkpoint/store.hpp"
#include "core/checkpoint/tensor_parts_file.hpp"
#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/ranks.hpp"

namespace trainhost::training {

/// What this rank writes of `tensors`, those of a scope of the session.
checkpoint::PartSource own_part_of(plugin::Session& s, plugin::Scope scope, const runfile::RunConfig& c,
                                   const std::vector<TensorInfo>& tensors);

/// The parts of a scope, by its index in state_scopes(). `tensors` are state_tensors() of the scope.
using PartStateSource =
    std::function<checkpoint::PartSource(std::size_t scope, const std::vector<TensorInfo>& tensors)>;
PartStateSource own_state_of(plugin::Session& s, const runfile::RunConfig& c);

/// Ends a save of the run on all ranks: an error of one, named in the message, is one of all.
class SharedSave {
 public:
  /// All ranks: the first one creates the folder of files. `store` is used by the first rank alone. All
  /// arguments but `meta` must outlive it.
  SharedSave(Ranks& ranks, checkpoint::Store& store, checkpoint::Meta meta, const runfile::RunConfig& c);
  /// Removes what was written unless finish() has returned.
  ~SharedSave();
  SharedSave(const SharedSave&) = delete;

  /// Writes the files of this rank. Needs no other rank: it may run on another thread. Never throws: finish()
  /// does.
  void write(const PartStateSource& state) noexcept;
  /// All ranks, after write(): publishes the checkpoint and returns its folder. Throws SharedError if it
  /// failed on one of them; then there is no trace of it.
  std::filesystem::path finish();

 private:
  Ranks& ranks_;
  checkpoint::Store& store_;
  const checkpoint::Meta meta_;
  const runfile::RunConfig& config_;
  std::optional<checkpoint::Store::Staged> staged_;  // of the first rank, until it is complete
  std::filesystem::path dir_;
  std::vector<checkpoint::FileRecord> own_;
  std::exception_ptr failed_;
};

}  // namespace trainhost::training
