// The buffers that the host itself holds while a run trains: what it adds to a trainer's own plan.
// Planned here, taken from the ledger in the same sizes by the training loop, held from start to end.
#pragma once
#include <cstdint>
#include <span>

#include "core/base/memory_report.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/plugin/ledger.hpp"

namespace trainhost::planning {

struct HostBuffers {
  std::uint64_t batch_bytes = 0;    // token ids and targets of one update, int32 each; evaluation fits in it
  std::uint64_t staging_bytes = 0;  // f32 piece of a tensor on its way between a file and the trainer
  std::uint64_t data_bytes = 0;     // text held in memory; 0 for mapped files
  std::uint64_t profile_bytes = 0;  // records of one step's operations, under --profile
  std::uint64_t total() const { return batch_bytes + staging_bytes + data_bytes + profile_bytes; }
};
HostBuffers plan_host_buffers(const ModelSpec& m, const RunSpec& r, std::uint64_t data_bytes);

/// Adds them to a trainer's or an exact estimator's report: leaves host.*, tier host, component workspace.
void add_host_buffers(MemoryReport& report, const HostBuffers& b);

/// Memory from the ledger that goes back by itself. Throws Error(kFailed) when there is none.
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
