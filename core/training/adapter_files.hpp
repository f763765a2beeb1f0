// Adapters as files of the PEFT library: adapter_config.json (read by core/runfile/adapter_config.hpp) and
// adapter_model.safetensors. Written at the end of a run that trains adapters, read to train them further and
// to fold them into the weights of their model.
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/run_history.hpp"

namespace trainhost::training {

inline constexpr const char* kAdapterTensors = "adapter_model.safetensors";
/// The second name of a trained embedding that is the LM head too (trains_tied_embedding()).
inline constexpr const char* kTiedHead = "base_model.model.lm_head.weight";

/// A tensor that PEFT writes beside an adapter of the embedding or of the LM head: their frozen values, which
/// are those of the model. nullopt for other names.
std::optional<TensorInfo> copy_of_base(const ModelSpec& m, std::string_view name);

/// What the adapter states about the weights that it was trained on, as load_frozen_weights() returns it; ""
/// if it states nothing, as PEFT does.
std::string frozen_weights_of(const checkpoint::WeightSource& adapter);

/// Throws usage_error if the tensors of model.adapter are not those of the run's adapters: other names,
/// shapes or types. Reads no values.
void require_adapter(const runfile::RunConfig& c);

/// Loads model.adapter into the session. `frozen_content`: of load_frozen_weights(); throws usage_error if
/// the adapter was trained on other weights.
void load_adapter(plugin::Session& s, const runfile::RunConfig& c, const std::string& frozen_content,
                  std::span<float> scratch);

/// Passes the tensors of adapter_model.safetensors to the sink. With ranks that have parts of them, every
/// rank must call it at the same time.
void stream_adapter(plugin::Session& s, const runfile::RunConfig& c, const checkpoint::TensorSink& sink);

/// Writes the adapters of the session to the folder `dir`, completely or not at all. `frozen_content`
/// (load_frozen_weights()) is kept in the metadata of the tensors, so that merging into other weights can be
/// refused. trainer_state.json says which step of `history` they are from.
void write_adapter(plugin::Session& s, const runfile::RunConfig& c, const std::string& frozen_content,
                   const std::filesystem::path& dir, const RunHistory& history);

/// The text of adapter_config.json. PEFT reads it with PeftModel.from_pretrained().
std::string adapter_config_json(const runfile::RunConfig& c);

struct MergeRequest {
  std::filesystem::path adapter;  // folder with adapter_config.json, or of the run that wrote it
  std::filesystem::path model;    // folder of the model; "" = base_model_name_or_path of the adapter
  std::filesystem::path output;   // folder of the merged model; must not exist
};

/// Writes a model directory with W + scale * B A in place of every adapted matrix W, with DoRA its rows in
/// the norms of the magnitudes, in f32, and the other files of the model's folder (tokenizer,
/// generation_config.json). Products are summed in double. Needs the memory of the largest matrix's adapter
/// and a piece of the matrix. Where embedding and LM head are one tensor and one of them has an adapter of
/// its own, the merged model has both. Returns the number of adapted matrices. Throws usage_error for an
/// adapter that PEFT would apply in another way (trained biases), for tensors that do not belong to the
/// model, and for weights other than those that the adapter was trained on, where the adapter says which.
std::size_t merge_adapter(const MergeRequest& r);

}  // namespace trainhost::training
