// Writes the trained model of a session as a folder for Hugging Face software. Adapters: adapter_files.hpp.
#pragma once
#include <filesystem>

#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/ranks.hpp"
#include "core/training/run_history.hpp"

namespace trainhost::training {

/// Writes model/ in Hugging Face layout: config.json, the weights in output.dtype (several files above 5 GB),
/// the tokenizer of the run, and the other files that the folder of model.path has. Without a
/// generation_config.json there, one with max_length = seq_len. trainer_state.json says which step of
/// `history` the weights are from. All ranks call it, and each writes its part of the weights.
void write_model(plugin::Session& s, const runfile::RunConfig& c, const std::filesystem::path& dir,
                 const RunHistory& history, Ranks& ranks);

}  // namespace trainhost::training
