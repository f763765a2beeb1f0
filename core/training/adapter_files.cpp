// See adapter_files.hpp.
#include "core/training/adapter_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "core/model/adapters.hpp"
#include "core/model/trainable.hpp"
#include "core/runfile/adapter_config.hpp"
#include "core/training/model_state.hpp"

namespace trainhost::training {

namespace fs = std::filesystem;

namespace {
constexpr const char* kFrozenWeights = "frozen_weights";  // in the metadata of the tensors
constexpr std::string_view kPeftPrefix = "base_model.model.";

/// The name in the file of a tensor of saved_tensors(): adapters have it already.
std::string name_in_file(std::string_view name) {
  return std::string(name.starts_with(kPeftPrefix) ? "" : kPeftPrefix) + std::string(name);
}

/// [columns, rows] of a matrix [rows, columns].
std::vector<float> transposed(std::span<const float> values, std::uint64_t rows) {
  const std::uint64_t columns = values.size() / rows;
  std::vector<float> out(values.size());
  for (std::uint64_t r = 0; r < rows; ++r)
    for (std::uint64_t c = 0; c < columns; ++c) out[c * rows + r] = values[r * columns + c];
  return out;
}

/// A tensor of saved_tensors() as it is in the file.
TensorInfo in_file(TensorInfo t) {
  t.name = name_in_file(t.name);
  if (is_transposed_in_files(t)) std::swap(t.dim[0], t.dim[1]);
  return t;
}

/// The factors of the LM head if it has the adapter of the embedding: PEFT has both in its files. A is B of
/// the embedding transposed, B is A transposed, as it is in memory.
std::vector<TensorInfo> factors_of_tied_head(const runfile::RunConfig& c) {
  if (!ties_adapter(c.run)) return {};
  RunSpec of_head = c.run;
  of_head.lora_targets = kTargetHead, of_head.memory.dora = false;
  const AdapterSize size = size_of_adapter(c.run, adapted_module(TensorRole::kEmbed, -1));
  of_head.lora_rank = size.rank, of_head.lora_rules.clear();
  return adapter_tensors(c.model, of_head);
}

/// saved_tensors() with the names of the file. PEFT reads a tied embedding, or the adapter of one, under the
/// name of the head too.
std::vector<TensorInfo> tensors_of_file(const runfile::RunConfig& c) {
  std::vector<TensorInfo> all = saved_tensors(c.model, c.run);
  for (TensorInfo& t : all) t = in_file(std::move(t));
  for (TensorInfo& t : factors_of_tied_head(c)) all.push_back(std::move(t));
  if (trains_tied_embedding(c.model, c.run)) {
    all.push_back(*std::ranges::find(all, TensorRole::kEmbed, &TensorInfo::role));
    all.back().name = kTiedHead;
  }
  return all;
}

/// The tensors of an adapter file: those of a run, and copies of the embedding and the LM head that PEFT
/// writes beside their adapters, which have the shapes of the model.
std::vector<TensorInfo> expected_tensors(const runfile::RunConfig& c,
                                         const checkpoint::WeightSource& source) {
  std::vector<TensorInfo> all = tensors_of_file(c);
  for (const checkpoint::TensorEntry& e : source.files().front().tensors())
    if (std::optional<TensorInfo> copy = copy_of_base(c.model, e.name)) all.push_back(std::move(*copy));
  return all;
}

}  // namespace

std::optional<TensorInfo> copy_of_base(const ModelSpec& m, std::string_view name) {
  for (const auto& [module, role] :
       {std::pair("model.embed_tokens", TensorRole::kEmbed), std::pair("lm_head", TensorRole::kHead)}) {
    if (name != fmt::format("{}{}.base_layer.weight", kPeftPrefix, module)) continue;
    TensorInfo t;
    t.name = name, t.role = role, t.rank = 2, t.dim = {m.vocab, m.hidden};
    return t;
  }
  return std::nullopt;
}

std::string frozen_weights_of(const checkpoint::WeightSource& adapter) {
  const auto& metadata = adapter.files().front().metadata();
  const auto stated = metadata.find(kFrozenWeights);
  return stated == metadata.end() ? std::string() : stated->second;
}

void require_adapter(const runfile::RunConfig& c) {
  if (trains_tied_embedding(c.model, c.run) &&
      !runfile::read_adapter_config(*c.adapter / "adapter_config.json").tied)
    throw usage_error(
        fmt::format(
            "the adapter in {} has an embedding of its own beside the LM head, and in the model both are "
            "one tensor",
            escaped(c.adapter->string(), 4096)),
        "train it with ensure_weight_tying = true in PEFT");
  checkpoint::WeightSource source(*c.adapter / kAdapterTensors);
  source.require(expected_tensors(c, source), false);
}

void load_adapter(plugin::Session& s, const runfile::RunConfig& c, const std::string& frozen_content,
                  std::span<float> scratch) {
  const fs::path file = *c.adapter / kAdapterTensors;
  const std::string trained_on = frozen_weights_of(checkpoint::WeightSource(file));
  if (trained_on.empty() && !c.weights)
    throw usage_error(fmt::format("the adapter in {} would be trained over random weights",
                                  escaped(c.adapter->string(), 4096)),
                      "set model.path to the folder of its model");
  if (!trained_on.empty() && trained_on != frozen_content)
    throw usage_error(
        fmt::format("the adapter in {} was trained on other weights: on '{}', and those of the run are '{}'",
                    escaped(c.adapter->string(), 4096), escaped(trained_on, 200), frozen_content),
        "set model.path to the folder of the weights that it was trained on");
  checkpoint::WeightSource source(file);
  source.require(expected_tensors(c, source), false);
  for (const TensorInfo& t : saved_tensors(c.model, c.run)) {
    const TensorInfo stored = in_file(t);
    if (is_transposed_in_files(t)) {
      std::vector<float> whole(t.elements());
      source.stream(stored, whole,
                    [](std::uint64_t, std::span<const float>) {});  // one piece, read into `whole`
      whole = transposed(whole, stored.dim[0]);
      s.load(plugin::Scope::kAdapter, {t.name, DType::kF32, t.rank, t.dim, whole.data(), 0, whole.size()});
      continue;
    }
    source.stream(stored, scratch, [&](std::uint64_t first, std::span<const float> values) {
      s.load(plugin::Scope::kAdapter,
             {t.name, DType::kF32, t.rank, t.dim, values.data(), first, values.size()});
    });
  }
}

namespace {

/// A number without the rounding errors of alpha * sqrt(rank) / sqrt(rank): a whole one where it is one.
JsonValue number_of(double value) {
  const double rounded = std::strtod(fmt::format("{:.12g}", value).c_str(), nullptr);
  const auto whole = static_cast<std::int64_t>(rounded);
  return static_cast<double>(whole) == rounded ? JsonValue(whole) : JsonValue(rounded);
}

/// target_modules: kinds of matrices that are adapted in every layer by their ends, others by their names.
/// Ranks and alphas that differ by name; PEFT reads a name as a regular expression, which matches that name
/// alone.
void add_matrices(const runfile::RunConfig& c, JsonValue& j) {
  JsonValue targets = JsonValue::array(), ranks = JsonValue::object(), alphas = JsonValue::object();
  const std::vector<AdaptableMatrix> all = adaptable_matrices(c.model);
  const std::vector<std::string> kinds = runfile::names_of_targets(UINT32_MAX);
  const auto size_of = [&](const AdaptableMatrix& x) {
    return c.run.lora_targets & x.target ? size_of_adapter(c.run, x.module) : AdapterSize{};
  };
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const std::uint32_t target = 1u << i;
    if (!(c.run.lora_targets & target)) continue;
    if (std::ranges::all_of(
            all, [&](const AdaptableMatrix& x) { return x.target != target || size_of(x).rank > 0; })) {
      targets.push_back(kinds[i]);
      continue;
    }
    for (const AdaptableMatrix& x : all)
      if (x.target == target && size_of(x).rank > 0) targets.push_back(x.module);
  }
  for (const AdaptableMatrix& x : all) {
    const AdapterSize size = size_of(x);
    if (size.rank == 0 || c.run.lora_rules.empty()) continue;
    if (size.rank != c.run.lora_rank) ranks[x.module] = static_cast<std::int64_t>(size.rank);
    const double alpha = c.lora.rslora ? size.alpha / std::sqrt(size.rank) : size.alpha;
    if (std::abs(alpha - c.lora.alpha) > 1e-9 * alpha) alphas[x.module] = number_of(alpha);
  }
  j["alpha_pattern"] = std::move(alphas);
  j["rank_pattern"] = std::move(ranks);
  j["target_modules"] = std::move(targets);
}

}  // namespace

std::string adapter_config_json(const runfile::RunConfig& c) {
  JsonValue j = JsonValue::object();
  // A path is what PEFT passes to from_pretrained(); random weights have none.
  const fs::path weights = c.weights.value_or("");
  const fs::path folder = fs::is_directory(weights) ? weights : weights.parent_path();
  j["base_model_name_or_path"] = folder.string();
  j["bias"] = "none";
  j["fan_in_fan_out"] = false;
  j["inference_mode"] = true;
  j["init_lora_weights"] = true;
  // PEFT states a whole number; another one is a float in its files too.
  j["lora_alpha"] = number_of(c.lora.alpha);
  j["lora_dropout"] = c.run.memory.lora_dropout;
  if (ties_adapter(c.run)) j["ensure_weight_tying"] = true;
  std::vector<std::string> modules = saved_modules(c.run);
  if (trains_tied_embedding(c.model, c.run)) {
    j["ensure_weight_tying"] = true;
    // PEFT before 0.18 does not know the key, and reads both tensors if both are named.
    if (std::ranges::find(modules, "lm_head") == modules.end()) modules.push_back("lm_head");
  }
  j["modules_to_save"] = modules.empty() ? JsonValue() : JsonValue(modules);
  j["peft_type"] = "LORA";
  j["r"] = static_cast<std::int64_t>(c.run.lora_rank);
  add_matrices(c, j);
  j["task_type"] = "CAUSAL_LM";
  j["use_dora"] = c.run.memory.dora;
  j["use_rslora"] = c.lora.rslora;
  return j.dump(2) + "\n";
}

void stream_adapter(plugin::Session& s, const runfile::RunConfig& c, const checkpoint::TensorSink& sink) {
  const checkpoint::TensorSource state = state_of(s, c)(0);
  std::map<std::string, TensorInfo, std::less<>> transposed_ones;
  for (const TensorInfo& t : saved_tensors(c.model, c.run))
    if (is_transposed_in_files(t)) transposed_ones.emplace(t.name, t);
  std::vector<float> whole;  // a tensor that is transposed, until its last piece
  state([&](std::string_view name, std::uint64_t first, std::span<const float> values) {
    const auto t = transposed_ones.find(name);
    if (t == transposed_ones.end()) return sink(name_in_file(name), first, values);
    whole.insert(whole.end(), values.begin(), values.end());
    if (whole.size() < t->second.elements()) return;
    sink(name_in_file(name), 0, transposed(whole, t->second.dim[0]));
    whole.clear();
  });
  const std::vector<TensorInfo> all = saved_tensors(c.model, c.run);
  for (const TensorInfo& t : factors_of_tied_head(c)) {
    const bool a = t.part == AdapterPart::kA;
    const auto source = std::ranges::find_if(all, [&](const TensorInfo& x) {
      return x.role == TensorRole::kEmbed && x.part == (a ? AdapterPart::kB : AdapterPart::kA);
    });
    whole.clear();
    state([&](std::string_view name, std::uint64_t, std::span<const float> values) {
      if (name == source->name) whole.insert(whole.end(), values.begin(), values.end());
    });
    sink(t.name, 0, a ? transposed(whole, source->dim[0]) : whole);
  }
  if (!trains_tied_embedding(c.model, c.run)) return;
  const std::string embedding = std::ranges::find(all, TensorRole::kEmbed, &TensorInfo::role)->name;
  state([&](std::string_view name, std::uint64_t first, std::span<const float> values) {
    if (name == embedding) sink(kTiedHead, first, values);
  });
}

void write_adapter(plugin::Session& s, const runfile::RunConfig& c, const std::string& frozen_content,
                   const fs::path& dir, const RunHistory& history) {
  checkpoint::ModelFiles files{"adapter_config.json", kAdapterTensors, checkpoint::kPyTorchFormat};
  files.metadata[kFrozenWeights] = frozen_content;
  checkpoint::write_model_dir(
      dir, adapter_config_json(c), tensors_of_file(c),
      [&](const checkpoint::TensorSink& sink) { stream_adapter(s, c, sink); },
      {{kTrainerStateName, trainer_state_json(history)}}, files);
}

}  // namespace trainhost::training
