// Copies weights and optimizer moments between a session and files: initial weights and checkpoints. The
// trained model: write_model.hpp.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/base/phase_sink.hpp"
#include "core/checkpoint/store.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "core/checkpoint/xxh3.hpp"
#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::training {

/// Reads model.weights once, where a text is to be tokenized, which may take long, before they are loaded.
/// Throws Error(kUsage) with file, tensor and element if a value is not finite. Does nothing for a folder
/// that this process has read before. Loading checks again.
void require_finite_weights(const runfile::RunConfig& c, const PhaseSink& progress = {});

/// Loads a scope of the session from safetensors, one piece at a time. `scratch` is the buffer of a piece.
/// Throws Error(kUsage) with the list of all tensors that do not match.
void load_tensors(plugin::Session& s, plugin::Scope scope, const ModelSpec& m,
                  const std::filesystem::path& file_or_dir, std::span<float> scratch,
                  const PhaseSink& progress = {});
/// The same for these tensors. `hash`, if not null, gets the values as f32 in the order of `wanted`.
void load_tensors(plugin::Session& s, plugin::Scope scope, const std::vector<TensorInfo>& wanted, bool tied,
                  const std::filesystem::path& file_or_dir, std::span<float> scratch,
                  checkpoint::Xxh3* hash = nullptr, const PhaseSink& progress = {});

/// Sets the weights that the run does not train, in a run that trains adapters; the other weights follow from
/// init() or a checkpoint. Returns what identifies them: the XXH3-128 of their values, or the seed of random
/// ones. "" and nothing loaded if the run trains all weights.
std::string load_frozen_weights(plugin::Session& s, const runfile::RunConfig& c, std::span<float> scratch,
                                const PhaseSink& progress = {});

/// Throws usage_error if the text would be split into bytes although the model was made for another
/// tokenizer: model.weights is given, or the folder of model.config contains tokenizer files. A run file that
/// sets data.tokenizer = "bytes" itself is accepted.
void require_tokenizer_of_model(const runfile::RunConfig& c);

/// What a checkpoint contains: the trained weights, then the moments of the optimizer. Of a run that trains
/// adapters it contains neither the frozen weights nor a copy of them, but what identifies them
/// (load_frozen_weights()): they do not change, and would make each checkpoint hundreds of times larger.
std::span<const plugin::Scope> state_scopes(const runfile::RunConfig& c);

/// The tensors of a scope, by its index in state_scopes(): frozen weights have no moments.
std::vector<TensorInfo> state_tensors(const runfile::RunConfig& c, std::size_t scope);

/// The name of its file in a checkpoint: "weights.safetensors".
const char* state_file(std::size_t scope);

/// What a run has reached; part of every checkpoint.
struct Progress {
  std::uint64_t step = 0;                 // optimizer steps that are done
  std::uint64_t batch_offset = 0;         // step t reads batch t + batch_offset: rollbacks left some out
  std::string recent_losses;              // SpikeDetector::text()
  std::optional<double> validation_loss;  // measured after `step`
  std::string validation_content;         // of the text that it was measured on: data::Source::valid_content
  std::string early_stopping;             // EarlyStopping::text()
};
Progress progress_of(const checkpoint::Meta& meta);

/// The first tensor of the trained weights with a value that is not finite; "" if there is none. Reads all of
/// them.
std::string first_nonfinite_weight(plugin::Session& s, const runfile::RunConfig& c);

/// The tensors of a scope, by its index in state_scopes().
using StateSource = std::function<checkpoint::TensorSource(std::size_t scope)>;
StateSource state_of(plugin::Session& s, const runfile::RunConfig& c);

/// The metadata of a checkpoint of `s`; `data_content` as for resume_identity() (run_identity.hpp).
checkpoint::Meta checkpoint_meta(plugin::Session& s, const runfile::RunConfig& c, const std::string& backend,
                                 const std::string& data_content, const Progress& progress,
                                 const std::string& frozen_content = "");

/// Writes the checkpoint step-N; returns its directory.
std::filesystem::path save_checkpoint(checkpoint::Store& store, const checkpoint::Meta& meta,
                                      const runfile::RunConfig& c, const StateSource& state);

/// Loads the newest intact checkpoint. Throws usage_error with the keys that differ from the run that wrote
/// it, or if there is none. train.steps may differ; then optimizer.warmup_steps of `c` is set to that of the
/// run before, unless it was given. Calls `say` for that, for skipped checkpoints, and for a different kernel
/// set or other options of the trainer. `frozen_content`: of load_frozen_weights(); another one than that of
/// the checkpoint is a usage_error.
Progress resume_checkpoint(plugin::Session& s, runfile::RunConfig& c, const std::string& data_content,
                           const checkpoint::Store& store, std::span<float> scratch,
                           const std::function<void(const std::string&)>& say,
                           const std::string& frozen_content = "", const PhaseSink& progress = {});

/// Sets the trained weights from the checkpoint in this directory; moments stay as they are.
void load_checkpoint_weights(plugin::Session& s, const runfile::RunConfig& c,
                             const std::filesystem::path& checkpoint, std::span<float> scratch);

}  // namespace trainhost::training
