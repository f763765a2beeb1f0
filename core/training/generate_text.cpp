// See generate_text.hpp. Loads a model directory that this program or Hugging Face software wrote, into a
// session for inference.
#include "core/training/generate_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/process/host_info.hpp"
#include "core/runfile/adapter_config.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/merged_weights.hpp"
#include "core/training/model_state.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;

/// The folder with the weights; for an adapter that of its model, and `merged` reads both.
fs::path model_dir(const fs::path& dir, std::optional<MergedWeights>& merged) {
  // output.dir of a run has the model in model/, or an adapter in adapter/.
  for (const fs::path& d : {dir / "model", dir})
    if (fs::exists(d / "config.json")) return d;
  if (const std::optional<fs::path> adapter = runfile::adapter_folder(dir)) {
    merged.emplace(*adapter, fs::path());
    return merged->folder();
  }
  throw usage_error(
      fmt::format("{} contains no model: config.json and model/config.json are missing",
                  escaped(dir.string())),
      "give the output.dir of a run, a model directory in Hugging Face layout, or an adapter of PEFT");
}

void load_weights(plugin::Session& s, const ModelSpec& m, const fs::path& dir,
                  std::optional<MergedWeights>& merged, std::span<float> scratch) {
  if (!merged) return load_tensors(s, plugin::Scope::kWeights, m, dir, scratch);
  merged->require_weights_of_adapter(scratch);
  merged->stream(scratch, [&](const TensorInfo& t, std::uint64_t first, std::span<const float> values) {
    s.load(plugin::Scope::kWeights,
           {t.name, DType::kF32, t.rank, t.dim, values.data(), first, values.size()});
  });
}

std::string tokenizer_of(const fs::path& dir, const ModelSpec& m) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (fs::exists(dir / name)) return (dir / name).string();
  // A vocabulary of 256 can only be bytes.
  if (m.vocab == 256) return "bytes";
  throw usage_error(
      fmt::format("{} has no tokenizer.json and no tokenizer.model, and a vocabulary of {} is not bytes",
                  escaped(dir.string()), m.vocab),
      "copy the tokenizer.json or the SentencePiece tokenizer.model of the model next to config.json");
}

/// max_length of generation_config.json, which write_model() sets to the training length.
std::uint32_t context_of(const fs::path& dir, const ModelSpec& m) {
  constexpr std::uint64_t kDefaultContext = 1024;
  std::uint64_t context = std::min(kDefaultContext, m.max_positions);
  try {
    const std::string text = checkpoint::read_whole(dir / "generation_config.json", 1 << 20);
    const JsonValue config = parse_json(text);
    const JsonValue* n = config.find("max_length");
    if (n && n->kind == JsonValue::Kind::kInteger && n->integer >= 2)
      context = std::min(static_cast<std::uint64_t>(n->integer), m.max_positions);
  } catch (const Error&) {      // without this file the default applies
  } catch (const JsonError&) {  // also if it is malformed
  }
  return static_cast<std::uint32_t>(context);
}

}  // namespace

void generate(const GenerateRequest& r, plugin::Registry& registry,
              const std::function<void(const std::string&)>& emit) {
  std::optional<MergedWeights> merged;
  const fs::path dir = model_dir(r.dir, merged);
  ModelSpec m = runfile::read_model_config(dir / "config.json");
  if (!trainable_family(m.family))
    throw usage_error(fmt::format("{} has the model family '{}', which no trainer supports",
                                  escaped(dir.string()), escaped(m.family)));
  auto tokenizer = data::make_tokenizer(tokenizer_of(dir, m));
  if (tokenizer->vocab() > m.vocab)
    throw usage_error(
        fmt::format("the tokenizer in {} has {} ids and the model only {}: they do not belong together",
                    escaped(dir.string()), tokenizer->vocab(), m.vocab));
  RunSpec spec;
  // No gradients and no optimizer state; the KV cache has seq_len positions.
  spec.mode = RunMode::kInference;
  spec.seq_len = r.context ? r.context : context_of(dir, m);
  planning::Choice choice = planning::choose_backend(registry, r.backend, true);
  // Free memory is the budget: the trainer refuses a session that does not fit.
  if (auto device = choice.trainer->device_memory()) spec.device_budget = device->free_bytes;
  spec.host_budget = free_host_bytes().value_or(0);
  auto session = choice.trainer->create(m, spec);
  if (!session->can_generate())
    throw Error(Exit::kNoBackend, fmt::format("the backend '{}' cannot generate text", choice.id),
                "try --backend=cpu");
  planning::HostBlock staging(registry.ledger(), planning::plan_host_buffers(m, spec, 0).staging_bytes,
                              "host.staging");
  // The staging buffer is needed for loading, and afterwards holds the logits of one token.
  load_weights(*session, m, dir, merged, staging.as<float>());
  // Nothing is left to initialize; init() makes the session ready.
  session->init(0);
  // As Hugging Face software does: special tokens of the prompt are found, and begin tokens put in front.
  std::vector<std::int32_t> prompt = tokenizer->encode(r.prompt, tokenizer::Names::kSpecial);
  if (prompt.empty()) throw usage_error("the prompt is empty");
  const std::vector<std::int32_t> before = tokenizer->before();
  prompt.insert(prompt.begin(), before.begin(), before.end());
  generate_tokens(*session, *tokenizer, prompt, r.sample, spec.seq_len, staging.as<float>().first(m.vocab),
                  emit);
}

}  // namespace trainhost::training
