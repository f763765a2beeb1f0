// The memory report of a PyTorch training step: what is allocated at the peak, what the allocator reserves
// beyond it. Settings of the step: settings.hpp; the replay: core/frameworks.
#pragma once
#include "core/base/memory_report.hpp"
#include "core/model/architecture.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {

/// Throws usage_error as step_settings() and training_step() do.
MemoryReport report(const model::Architecture& architecture, const RunSpec& run, const Options& options);

}  // namespace trainhost::pytorch
