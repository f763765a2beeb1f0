// Weights and optimizer moments between a session and files: loading, checkpoints, the finished model
// directory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/checkpoint/store.hpp"
#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::training {

/// Streams a scope of the session from safetensors into it. Throws Error(kUsage) with the list of all tensors
/// that do not match. `scratch`: the piece buffer.
void load_tensors(plugin::Session& s, plugin::Scope scope, const ModelSpec& m,
                  const std::filesystem::path& file_or_dir, std::span<float> scratch);

/// Writes a scope of the session as one safetensors file, f32, in the checkpoint's tensor order.
void save_tensors(plugin::Session& s, plugin::Scope scope, const ModelSpec& m,
                  const std::filesystem::path& file);

/// How many moments the optimizer keeps a weight: 2 AdamW, 1 SGD with momentum, 0 SGD.
int moment_count(Optimizer o);

/// The lines of the run file that decide what a step computes, for comparison at resume: "train.micro_batch =
/// 8\n..." With threads, output and evaluation left out: they change no bits.
std::string resume_identity(const runfile::RunConfig& c);

/// Publishes checkpoint step-N of the session; returns its directory.
std::filesystem::path save_checkpoint(plugin::Session& s, const runfile::RunConfig& c,
                                      const std::string& backend, std::uint64_t step,
                                      checkpoint::Store& store);

/// Loads the newest checkpoint that verifies; returns the step it was made after. Throws usage_error naming
/// the keys that differ from the run that made it. Announces a different kernel set and skipped checkpoints
/// through `say`.
std::uint64_t resume_checkpoint(plugin::Session& s, const runfile::RunConfig& c,
                                const checkpoint::Store& store, std::span<float> scratch,
                                const std::function<void(const std::string&)>& say);

/// model/ in Hugging Face layout: config.json, generation_config.json (max_length = seq_len),
/// model.safetensors, and tokenizer.model where the run had one.
void write_model(plugin::Session& s, const runfile::RunConfig& c, const std::filesystem::path& dir);

}  // namespace trainhost::training
