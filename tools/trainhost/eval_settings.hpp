// The settings of `trainhost eval`: options of the command, else settings of the run that is evaluated, else
// defaults.
#pragma once
#include <cstdint>
#include <string>

#include "core/evaluation/evaluation_data.hpp"
#include "core/training/inference_model.hpp"
#include "tools/trainhost/arguments.hpp"

namespace trainhost::cli {

struct EvalSettings {
  evaluation::EvaluationOptions options;  // window, stride: 0 where no option gives them
  std::uint32_t default_window = 2048;    // limited by the model's positions; data.seq_len + 1 for a run
  std::string note;                       // settings taken from a run file, for the user; "" = none
};

/// Uses the run.toml of the first run among DIR, --adapter and --compare, so that loss and window are those
/// of training. If it cannot be read, the note says so. Throws usage_error for wrong options.
EvalSettings eval_settings(const EvalArguments& a);

/// The model of DIR and --adapter, and the model of --compare. If --compare is an adapter, its base is the
/// folder that its adapter_config.json names. If that is not an existing folder (for example a name of the
/// Hugging Face hub), the base is the model in DIR.
training::InferenceRequest first_request(const EvalArguments& a);
training::InferenceRequest second_request(const EvalArguments& a);

}  // namespace trainhost::cli
