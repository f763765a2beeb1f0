// The measured hybrid run that GPU-004 and GPU-005 share: 100 updates of a 350M model, its counters, and the
// wall time. Kept by the Context, so that 100 updates of that size are paid for once.
#pragma once
#include <optional>
#include <string>

#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::verify {

struct HybridFigures {
  runfile::RunConfig run;  // what was measured
  bool is_350m = true;     // false: the run's own model (Context::small)
  std::uint64_t updates = 0, micro_batches = 0, wall_ns = 0;
  plugin::Counters counted;           // over the measured updates alone
  std::optional<double> transfer_ns;  // in all, exposed or not, where the trainer says so

  double utilization() const {
    return wall_ns ? static_cast<double>(counted.compute_ns) / static_cast<double>(wall_ns) : 0;
  }
  std::string words() const;  // "100 updates of 4 x 1 sequences of 2048 tokens, 341.9M parameters, bf16"
};

}  // namespace trainhost::verify
