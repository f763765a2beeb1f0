// How much memory the compute tier has: memory.budget, else the device preset, else what is free.
#pragma once
#include <cstdint>
#include <string>

#include "core/config/run_config.hpp"

namespace trainhost::run {

struct Budget {
  std::uint64_t bytes = 0;
  std::string source;  // "memory.budget", "h100-80gb", "free memory"
};
/// Throws usage_error for an unknown device, with the nearest name.
Budget compute_budget(const config::RunConfig& c);

}  // namespace trainhost::run
