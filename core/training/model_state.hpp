// Copies weights and optimizer moments between a session and files: initial weights, checkpoints, the trained
// model.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/checkpoint/store.hpp"
#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::training {

/// Loads a scope of the session from safetensors, one piece at a time. `scratch` is the buffer of a piece.
/// Throws Error(kUsage) with the list of all tensors that do not match.
void load_tensors(plugin::Session& s, plugin::Scope scope, const ModelSpec& m,
                  const std::filesystem::path& file_or_dir, std::span<float> scratch);

/// Writes a scope of the session to one safetensors file, in f32 and in checkpoint order.
void save_tensors(plugin::Session& s, plugin::Scope scope, const ModelSpec& m,
                  const std::filesystem::path& file);

/// Throws usage_error if the text would be split into bytes although the model was made for another
/// tokenizer: model.weights is given, or the folder of model.config contains tokenizer files. A run file that
/// sets data.tokenizer = "bytes" itself is accepted.
void require_tokenizer_of_model(const runfile::RunConfig& c);

/// Moments per weight: 2 for AdamW, 1 for SGD with momentum, 0 for SGD.
int moment_count(Optimizer o);

/// The keys of the run file that affect the trained bits, for comparison at resume: "train.micro_batch =
/// 8\n...". Threads, output and evaluation are omitted, because they do not. `data_content`:
/// data::Source::content.
std::string resume_identity(const runfile::RunConfig& c, const std::string& data_content);

/// The first tensor of the weights with a value that is not finite; "" if there is none. Reads all weights.
std::string first_nonfinite_weight(plugin::Session& s);

/// Bytes of one checkpoint, without the headers of its files.
std::uint64_t checkpoint_bytes(const runfile::RunConfig& c);

/// Writes the checkpoint step-N of the session; returns its directory.
std::filesystem::path save_checkpoint(plugin::Session& s, const runfile::RunConfig& c,
                                      const std::string& backend, std::uint64_t step,
                                      const std::string& data_content, checkpoint::Store& store);

/// Loads the newest intact checkpoint; returns its step. Throws usage_error with the keys that differ from
/// the run that wrote it, or if there is none. Calls `say` for skipped checkpoints and for a different kernel
/// set.
std::uint64_t resume_checkpoint(plugin::Session& s, const runfile::RunConfig& c,
                                const std::string& data_content, const checkpoint::Store& store,
                                std::span<float> scratch, const std::function<void(const std::string&)>& say);

/// Writes model/ in Hugging Face layout: config.json, generation_config.json (max_length = seq_len),
/// model.safetensors, and the tokenizer.model of the run, if any.
void write_model(plugin::Session& s, const runfile::RunConfig& c, const std::filesystem::path& dir);

}  // namespace trainhost::training
