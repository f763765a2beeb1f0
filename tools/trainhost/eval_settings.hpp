// What `trainhost eval` evaluates and how: the options, then what the run file of a run says, then defaults.
#pragma once
#include <cstdint>
#include <string>

#include "core/evaluation/evaluation_data.hpp"
#include "core/training/inference_model.hpp"
#include "tools/trainhost/arguments.hpp"

namespace trainhost::cli {

struct EvalSettings {
  evaluation::EvaluationOptions options;  // window, stride: 0 where no option gives them
  std::uint32_t default_window = 2048;    // at most; the sequences of the run, where there is one
  std::string note;                       // what was taken from a run file; "" = nothing
};

/// The run file is that of the first run among DIR, --adapter and --compare: loss and window are then those
/// of its training. One that cannot be read is only noted. Throws usage_error for wrong options.
EvalSettings eval_settings(const EvalArguments& a);

/// The model of DIR and --adapter, and that of --compare. An adapter belongs to the model that its config
/// names; where that is no folder here, for example a name of the Hugging Face hub, it is added to the model
/// in DIR.
training::InferenceRequest first_request(const EvalArguments& a);
training::InferenceRequest second_request(const EvalArguments& a);

}  // namespace trainhost::cli
