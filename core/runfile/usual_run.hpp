// The values with which people train, for keys that a run does not give. Defaults of the schema are those of
// the built-in run.
#pragma once
#include <cstdint>
#include <vector>

#include "core/model/model_spec.hpp"
#include "core/runfile/run_config.hpp"
#include "core/runfile/settings.hpp"

namespace trainhost::runfile {

/// Gives keys that decide the memory of a run, and that were not given, the values with which people train.
/// The defaults of the run file are those of the built-in run, which is much smaller. Returns the keys.
/// Adapters are trained in bf16; FSDP shards weights, gradients and optimizer state; transformers,
/// axolotl and litgpt train whole models in bf16 without f32 weights; a run that is only named by its model
/// (`usual`) has one sequence of 2,048 tokens, or of as many as the model is designed for; a run that goes on
/// from the weights of model.path has the values of fine-tuning.
std::vector<RunConfig::Assumed> assume_usual_run(Settings& s, bool usual, const ModelSpec& model);

}  // namespace trainhost::runfile
