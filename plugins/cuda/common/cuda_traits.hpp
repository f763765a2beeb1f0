// What both halves of the CUDA trainer must agree on without a device: the traits of a run, and why it is
// that one. Pure: reads the model, the run (its budgets included) and the option `mode`, nothing else.
#pragma once
#include <string>

#include "core/executor/calls.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::cuda {

inline constexpr const char* kId = "cuda";
inline constexpr const char* kVersion = "0.1.0";

/// The traits, and one sentence for the user where mode "auto" had to decide.
using executor::Choice;
using executor::Placed;
using executor::placed_program;

/// mode_option: auto | resident | hybrid | streamed. threads: of the CPU, for the modes that use them.
Choice choose(const ModelSpec& model, const RunSpec& run, const std::string& mode_option,
              std::uint32_t threads);

/// Throws abi::StatusError (unsupported) when the run asks for what this trainer does not do.
void require_supported(const RunSpec& run);

}  // namespace trainhost::cuda
