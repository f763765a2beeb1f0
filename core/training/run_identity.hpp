// The settings of a run that affect the trained bits, as a text in every checkpoint, and their comparison
// when a run is resumed.
#pragma once
#include <cstdint>
#include <string>

#include "core/runfile/run_config.hpp"

namespace trainhost::training {

/// The keys of the run file that affect the trained bits, for comparison at resume: "train.micro_batch =
/// 8\n...". Threads, output and evaluation are omitted, because they do not. `data_content`:
/// data::Source::content.
std::string resume_identity(const runfile::RunConfig& c, const std::string& data_content);

/// Compares `c` with the identity in a checkpoint of this step. Throws usage_error with every key that
/// differs. train.steps may differ, down to `step`: then optimizer.warmup_steps of `c` is set to that of the
/// run before, unless it was given, and the result says what changes; "" if nothing does.
std::string compare_with_identity(const std::string& saved, std::uint64_t step,
                                  const std::string& data_content, runfile::RunConfig& c);

}  // namespace trainhost::training
