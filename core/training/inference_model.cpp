// See inference_model.hpp. Matrices stay in bf16 if all of them are bf16 in the file; otherwise all are f32.
#include "core/training/inference_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/data/dataset.hpp"
#include "core/process/host_info.hpp"
#include "core/runfile/adapter_config.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;

/// The folder with the weights; with an adapter that of its model, and `merged` reads both.
fs::path model_dir(const InferenceRequest& r, std::optional<MergedWeights>& merged) {
  // output.dir of a run has the model in model/, or an adapter in adapter/.
  for (const fs::path& d : {r.dir / "model", r.dir})
    if (fs::exists(d / "config.json")) {
      if (!r.adapter.empty()) merged.emplace(runfile::adapter_folder(r.adapter).value_or(r.adapter), d);
      return d;
    }
  if (const std::optional<fs::path> adapter = runfile::adapter_folder(r.dir)) {
    if (!r.adapter.empty())
      throw usage_error(fmt::format("{} is an adapter, and so is --adapter {}", escaped(r.dir.string(), 4096),
                                    escaped(r.adapter.string(), 4096)),
                        "with --adapter, DIR is the folder of the model");
    merged.emplace(*adapter, fs::path());
    return merged->folder();
  }
  throw usage_error(
      fmt::format("{} contains no model: config.json and model/config.json are missing",
                  escaped(r.dir.string(), 4096)),
      "give the output.dir of a run, a model directory in Hugging Face layout, or an adapter of PEFT");
}

std::string tokenizer_of(const fs::path& dir, const ModelSpec& m) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (fs::exists(dir / name)) return (dir / name).string();
  // A vocabulary of 256 can only be bytes.
  if (m.vocab == 256) return "bytes";
  throw usage_error(
      fmt::format("{} has no tokenizer.json and no tokenizer.model, and a vocabulary of {} is not bytes",
                  escaped(dir.string(), 4096), m.vocab),
      "copy the tokenizer.json or the SentencePiece tokenizer.model of the model next to config.json");
}

DType stored_type(const fs::path& dir, const ModelSpec& m) {
  checkpoint::WeightSource source(dir);
  source.require(tensors(m), m.tied);
  for (const checkpoint::SafetensorsFile& f : source.files())
    for (const checkpoint::TensorEntry& e : f.tensors())
      if (e.shape.size() == 2 && e.dtype != "BF16") return DType::kF32;
  return DType::kBF16;
}

/// As many as `rows`, but at least 16, whose logits take up to 64 MiB.
std::uint32_t rows_of_logits(std::uint32_t rows, std::uint64_t vocab) {
  const std::uint64_t fit = (std::uint64_t{64} << 20) / (vocab * sizeof(float));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(rows, std::max<std::uint64_t>(16, fit)));
}

/// The run of a trainer without decoder: no gradients and no optimizer state; its cache has seq_len
/// positions.
RunSpec session_run(const plugin::DecodeSpec& d, plugin::Trainer& trainer) {
  RunSpec run;
  run.mode = RunMode::kInference;
  run.seq_len = d.context;
  // Free memory is the budget: the trainer refuses a session that does not fit.
  if (auto device = trainer.device_memory()) run.device_budget = device->free_bytes;
  run.host_budget = free_host_bytes().value_or(0);
  return run;
}

}  // namespace

void SessionDecoder::forward(std::span<const plugin::DecodeRow> rows, std::span<float> logits) {
  std::uint64_t wanted = 0;
  for (const plugin::DecodeRow& r : rows) {
    assert(r.sequence == 0);
    session_.next_logits(r.token, r.position, logits.subspan(wanted * vocab_, vocab_));
    wanted += r.wants_logits;
  }
}

InferenceModel::InferenceModel(const InferenceRequest& r, plugin::Registry& registry)
    : registry_(registry),
      dir_(model_dir(r, merged_)),
      spec_(merged_ ? merged_->model() : runfile::read_model_config(dir_ / "config.json")) {
  if (!trainable_family(spec_.family))
    throw usage_error(fmt::format("{} has the model family '{}', which no trainer supports",
                                  escaped(dir_.string(), 4096), escaped(spec_.family)));
  settings_ = read_generation_settings(dir_);
  tokenizer_ = data::make_tokenizer(tokenizer_of(dir_, spec_));
  if (tokenizer_->vocab() > spec_.vocab)
    throw usage_error(
        fmt::format("the tokenizer in {} has {} ids and the model only {}: they do not belong together",
                    escaped(dir_.string(), 4096), tokenizer_->vocab(), spec_.vocab));
  const bool scores = r.purpose == InferencePurpose::kScore;
  const std::uint64_t wanted = r.context                         ? r.context
                               : settings_.max_length && !scores ? settings_.max_length
                                                                 : r.default_context;
  decode_.context = static_cast<std::uint32_t>(r.context ? wanted : std::min(wanted, spec_.max_positions));
  if (r.longest)
    decode_.context =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(decode_.context, r.longest(*tokenizer_)));
  decode_.sequences = r.sequences;
  decode_.rows =
      scores ? rows_of_logits(r.rows, spec_.vocab) : std::max(r.sequences, std::min(r.rows, decode_.context));
  choice_ = planning::choose_backend(registry, r.backend, true);
  // Sums of weights and adapters are not values of bf16.
  decode_.weight = merged_ ? DType::kF32 : stored_type(dir_, spec_);
  logit_rows_ = scores ? decode_.rows : decode_.sequences;
  RunSpec run;
  run.mode = RunMode::kInference, run.seq_len = decode_.context;
  memory_.logits = std::max(planning::plan_host_buffers(spec_, run, 0).staging_bytes,
                            checked_mul(logit_rows_, spec_.vocab, sizeof(float)));
  const std::optional<plugin::DecodeMemory> bytes = choice_.trainer->decode_memory(spec_, decode_);
  has_decoder_ = bytes.has_value();
  if (has_decoder_) {
    memory_.decoder = *bytes;
    return;
  }
  decode_.sequences = 1, decode_.weight = DType::kF32;
  const MemoryReport plan = choice_.trainer->plan(spec_, session_run(decode_, *choice_.trainer));
  memory_.decoder.weights = plan.total_bytes();
}

InferenceModel::~InferenceModel() = default;

std::string InferenceModel::memory_text() const {
  const auto& d = memory_.decoder;
  if (!has_decoder_)
    return fmt::format("{} for the {} trainer, {} of logits", format_bytes(d.weights), choice_.id,
                       format_bytes(memory_.logits));
  return fmt::format(
      "{} of weights in {}, {} of keys and values for {} x {} positions, {} of workspace, {} of logits: {}",
      format_bytes(d.weights), decode_.weight == DType::kBF16 ? "bf16" : "f32", format_bytes(d.cache),
      decode_.sequences, decode_.context, format_bytes(d.workspace), format_bytes(memory_.logits),
      format_bytes(memory_.total()));
}

std::uint64_t InferenceModel::step_bytes() const {
  std::uint64_t bytes = 0;
  for (const TensorInfo& t : tensors(spec_))
    if (t.role != TensorRole::kEmbed || spec_.tied)
      bytes += t.elements() * (t.rank == 2 && decode_.weight == DType::kBF16 ? 2 : 4);
  return bytes;
}

std::span<float> InferenceModel::logits() const {
  return staging_->as<float>().first(std::uint64_t{logit_rows_} * spec_.vocab);
}

void InferenceModel::load() {
  assert(!decoder_);
  const auto free = free_host_bytes();
  if (has_decoder_ && free && memory_.total() > *free)
    throw Error(
        Exit::kDoesNotFit,
        fmt::format("{} needs {}; {} are free, {} short", escaped(dir_.string(), 4096), memory_text(),
                    format_bytes(*free), format_bytes(memory_.total() - *free)),
        memory_.decoder.cache > memory_.total() - *free
            ? "a shorter context (--context, of eval --window) or fewer sequences (--batch) need fewer "
              "keys and values"
            : "the weights alone do not fit into the memory of this machine");
  staging_ = std::make_unique<planning::HostBlock>(registry_.ledger(), memory_.logits, "host.logits");
  if (has_decoder_) {
    decoder_ = choice_.trainer->create_decoder(spec_, decode_);
  } else {
    session_ = choice_.trainer->create(spec_, session_run(decode_, *choice_.trainer));
    if (!session_->can_generate())
      throw Error(Exit::kNoBackend, fmt::format("the backend '{}' cannot generate text", choice_.id),
                  "try --backend=cpu");
    decoder_ = std::make_unique<SessionDecoder>(*session_, spec_.vocab);
  }
  const auto take = [&](const TensorInfo& t, std::uint64_t first, std::span<const float> values) {
    decoder_->load({t.name, DType::kF32, t.rank, t.dim, values.data(), first, values.size()});
  };
  const std::span<float> scratch = staging_->as<float>();
  if (merged_) {
    merged_->require_weights_of_adapter(scratch);
    merged_->stream(scratch, take);
  } else {
    checkpoint::WeightSource source(dir_);
    const std::vector<TensorInfo> wanted = tensors(spec_);
    source.require(wanted, spec_.tied);
    for (const TensorInfo& t : wanted)
      source.stream(t, scratch,
                    [&](std::uint64_t first, std::span<const float> values) { take(t, first, values); });
  }
  // Nothing is left to initialize; init() makes the session ready.
  if (session_) session_->init(0);
}

}  // namespace trainhost::training
