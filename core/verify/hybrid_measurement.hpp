// The measurement that GPU-004 and GPU-005 share: counters and wall time of 100 optimizer steps of a 350M
// model in hybrid mode. The Context keeps it, so that it is made only once.
#pragma once
#include <optional>
#include <string>

#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::verify {

struct HybridMeasurement {
  runfile::RunConfig run;  // the measured run
  bool is_350m = true;     // false: the run's own model (Context::small)
  std::uint64_t steps = 0, micro_batches = 0, wall_ns = 0;
  plugin::Counters counted;           // over the measured steps
  std::optional<double> transfer_ns;  // of all transfers, exposed or not, if the trainer reports it

  double utilization() const {
    return wall_ns ? static_cast<double>(counted.compute_ns) / static_cast<double>(wall_ns) : 0;
  }
  std::string describe() const;  // "100 steps of 4 x 1 sequences of 2048 tokens, 341.9M parameters, bf16"
};

}  // namespace trainhost::verify
