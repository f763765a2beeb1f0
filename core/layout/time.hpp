// How long one update takes under a layout, by roofline: for every kind of work the larger of its arithmetic at the device's
// peak and its bytes at the memory's bandwidth, plus what the network adds that nothing hides. A model to rank layouts by,
// with its terms stated (README.md), never a promise.
#pragma once
#include "core/arch/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::layout {

/// What the model assumes of a machine. Bandwidths in bytes a second, one direction; flops a second for the run's type.
struct Machine {
  double flops = 0, memory_bytes_s = 0;
  double link_bytes_s = 0;      // between devices of one node
  double network_bytes_s = 0;   // between nodes, per device
  double host_bytes_s = 0;      // device to host memory, for offload
  std::uint32_t node = 8;       // devices of a node
  double matrix_efficiency = 0; // of the peak that large products reach
  std::uint64_t memory_bytes = 0;
};
Machine machine_of(const DevicePreset& d, const RunSpec& r);

/// Seconds of one update of accumulate micro-batches a data-parallel rank. step = the slowest stage's time with the bubble.
struct Times {
  double compute = 0, memory = 0, recompute = 0, tensor = 0, context = 0, expert = 0, pipeline = 0, data = 0, bubble = 0,
         optimizer = 0, offload = 0;  // exposed, each
  double step = 0;
  double tokens_per_second = 0;       // of the whole job
  double model_flops_utilization = 0;
};
Times step_time(const arch::Architecture& a, const RunSpec& r, const Machine& m);

}  // namespace trainhost::layout
