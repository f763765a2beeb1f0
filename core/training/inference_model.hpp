// A model folder that is ready for inference: weights in memory, key/value caches, tokenizer, settings. Used
// by generate, chat and eval. The arithmetic is that of a trainer's decoder, or of a session token by token.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/planning/choose_backend.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/plugin/registry.hpp"
#include "core/tokenizer/tokenizer.hpp"
#include "core/training/generation_settings.hpp"
#include "core/training/merged_weights.hpp"

namespace trainhost::training {

/// kGenerate: logits of one row per sequence; the context is limited by generation_config.json. kScore:
/// logits of every row; generation_config.json is ignored.
enum class InferencePurpose { kGenerate, kScore };

struct InferenceRequest {
  std::filesystem::path
      dir;  // a run's output.dir, a model directory in Hugging Face layout, or an adapter of PEFT
  std::filesystem::path adapter;  // an adapter of the model in `dir`, or the run that wrote it; "" = none
  std::string backend = "auto";
  InferencePurpose purpose = InferencePurpose::kGenerate;
  /// Positions of a sequence; 0: max_length of generation_config.json (kGenerate), else default_context, and
  /// at most those that the model is designed for.
  std::uint32_t context = 0;
  std::uint32_t default_context = 1024;  // where neither the request nor the file states one
  /// Called with the tokenizer of the model: positions that no sequence exceeds. Null: unknown.
  std::function<std::uint64_t(const tokenizer::Tokenizer&)> longest;
  std::uint32_t sequences = 1;  // that are processed at the same time
  std::uint32_t rows = 256;     // most tokens of a forward pass; kScore with a large vocabulary uses fewer
};

/// Runs rows through a session, one token at a time: a decoder for trainers that have none. One sequence.
class SessionDecoder final : public plugin::Decoder {
 public:
  SessionDecoder(plugin::Session& session, std::uint64_t vocab) : session_(session), vocab_(vocab) {}
  void load(const plugin::TensorPiece& piece) override { session_.load(plugin::Scope::kWeights, piece); }
  void forward(std::span<const plugin::DecodeRow> rows, std::span<float> logits) override;

 private:
  plugin::Session& session_;
  std::uint64_t vocab_;
};

/// Memory of an inference in bytes. Of a trainer without decoder, `weights` has all that the trainer
/// allocates.
struct InferenceMemory {
  plugin::DecodeMemory decoder;
  /// Host memory: logits [sequences, vocab], for kScore [rows, vocab]; pieces of tensors during loading.
  std::uint64_t logits = 0;
  std::uint64_t total() const { return decoder.total() + logits; }
};

class InferenceModel {
 public:
  /// Reads config, tokenizer and settings, and decides how much memory the inference needs; load() allocates
  /// it. Throws usage_error if the folder has no model, a model that no trainer supports, or a tokenizer that
  /// does not belong to it; Error(kNoBackend) if the backend cannot generate.
  InferenceModel(const InferenceRequest& r, plugin::Registry& registry);
  ~InferenceModel();

  const ModelSpec& spec() const { return spec_; }
  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  const GenerationSettings& settings() const { return settings_; }
  const std::filesystem::path& dir() const { return dir_; }
  const std::string& backend() const { return choice_.id; }
  DType weight_type() const { return decode_.weight; }
  std::uint32_t context() const { return decode_.context; }
  std::uint32_t rows() const { return decode_.rows; }
  std::uint32_t sequences() const { return decode_.sequences; }

  const InferenceMemory& memory() const { return memory_; }
  /// "256.6 MiB of weights in bf16, 45.0 MiB of keys and values for 1 x 1024 positions, ..."
  std::string memory_text() const;
  /// Bytes of weights that one step reads, however many sequences it has: all but the rows of an embedding
  /// that is not the head.
  std::uint64_t step_bytes() const;

  /// Allocates memory() and loads the weights. Throws Error(kDoesNotFit) with the missing bytes before
  /// anything is allocated, and usage_error for weights that do not match the model.
  void load();
  /// After load().
  plugin::Decoder& decoder() { return *decoder_; }
  /// Buffer for logits [sequences, vocab], for kScore [rows, vocab].
  std::span<float> logits() const;

 private:
  plugin::Registry& registry_;
  std::optional<MergedWeights> merged_;  // with an adapter; dir_ is then the folder of its model
  std::filesystem::path dir_;
  ModelSpec spec_;
  GenerationSettings settings_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  planning::Choice choice_;
  plugin::DecodeSpec decode_;
  InferenceMemory memory_;
  std::uint32_t logit_rows_ = 0;
  bool has_decoder_ = false;
  std::unique_ptr<planning::HostBlock> staging_;
  std::unique_ptr<plugin::Session> session_;  // of a trainer without decoder
  std::unique_ptr<plugin::Decoder> decoder_;  // uses session_
};

}  // namespace trainhost::training
