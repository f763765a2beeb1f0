// The kinds of parallelism of each framework: searches and advice propose no others. A run file may still set
// them. Which of them are replayed: docs/pytorch-memory.md.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace trainhost::planning {

/// Whether the framework divides layers and tokens over devices (parallel.tensor, pipeline, context, expert),
/// and not only the sequences of a step. framework: plan.framework, "" for trainhost.
inline bool divides_layers(std::string_view framework) {
  return framework.empty() || framework == "megatron" || framework == "torchtitan";
}

/// Values of parallel.zero on several devices.
inline std::vector<std::uint32_t> zero_stages(std::string_view framework) {
  if (framework.empty()) return {0, 1, 2, 3};
  if (framework == "megatron") return {0, 1};
  if (framework == "torchtitan" || framework == "fsdp2") return {2, 3};
  if (framework == "deepspeed") return {1, 2, 3};
  if (framework == "pytorch" || framework == "unsloth") return {0};
  if (framework == "torchtune" || framework == "litgpt") return {3};
  return {0, 2, 3};
}

}  // namespace trainhost::planning
