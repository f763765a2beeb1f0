// Buffers that the host allocates for a training run, in addition to the trainer's plan. Planned here; the
// training loop allocates them from the ledger in the same sizes for the whole run.
#pragma once
#include <cstdint>
#include <span>

#include "core/base/memory_report.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/plugin/ledger.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

struct HostBuffers {
  // int32 numbers of one optimizer step, ids_per_token each; evaluation reuses the buffer.
  std::uint64_t batch_bytes = 0, ids_per_token = 2;
  std::uint64_t staging_bytes = 0;  // f32 piece of a tensor during a transfer between a file and the trainer
  std::uint64_t data_bytes = 0;     // text in memory; 0 for memory-mapped files
  std::uint64_t profile_bytes = 0;  // timing records of one step, with --profile
  std::uint64_t copy_bytes = 0;     // f32 copy of weights and moments, see state_copy_bytes()
  std::uint64_t total() const {
    return batch_bytes + staging_bytes + data_bytes + profile_bytes + copy_bytes;
  }
};
/// int32 per token of a batch: id, target, and with RunSpec::document_mask the start of its document.
inline std::uint64_t ids_per_token(const RunSpec& r) { return r.document_mask ? 3 : 2; }
HostBuffers plan_host_buffers(const ModelSpec& m, const RunSpec& r, std::uint64_t data_bytes);

/// Bytes of weights and moments in f32: of one checkpoint, without the headers of its files.
std::uint64_t state_bytes(const runfile::RunConfig& c);

/// Whether the copy of the state has only what this rank writes to a checkpoint: checkpoints in the
/// background of several ranks. With train.verify_every it is a copy of everything.
bool copies_own_part(const runfile::RunConfig& c);

/// state_bytes() if the run keeps a copy of its state in host memory (output.async_checkpoints,
/// train.verify_every), else 0. With copies_own_part() the most that a rank can have to write.
std::uint64_t state_copy_bytes(const runfile::RunConfig& c);

/// Adds them to the report of a trainer or an exact estimator: entries host.*, host tier, component
/// workspace.
void add_host_buffers(MemoryReport& report, const HostBuffers& b);

/// A block of ledger memory, released by the destructor. Throws Error(kFailed) where none is available.
class HostBlock {
 public:
  HostBlock(plugin::Ledger& ledger, std::uint64_t bytes, const char* tag);
  ~HostBlock();
  HostBlock(const HostBlock&) = delete;
  template <class T>
  std::span<T> as() const {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  plugin::Ledger& ledger_;
  std::uint64_t bytes_;
  void* data_;
};

}  // namespace trainhost::planning
