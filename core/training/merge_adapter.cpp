// Folds adapters in the layout of PEFT into the weights of their model: merge_adapter() of adapter_files.hpp.
// The files are untrusted: every key that changes the arithmetic is checked, and every tensor against the
// model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "core/checkpoint/xxh3.hpp"
#include "core/model/adapters.hpp"
#include "core/training/adapter_files.hpp"
#include "core/training/model_folder.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kConfigBytes = 16u << 20, kPieceElements = 1u << 20;

struct AdapterConfig {
  std::uint32_t rank = 0;
  double scale = 0;
  std::string base;  // base_model_name_or_path
};

/// Null, false, "", "none", 0, [] and {}: the key has no effect.
bool is_neutral(const JsonValue& v) {
  switch (v.kind) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBool:
      return !v.boolean;
    case JsonValue::Kind::kInteger:
    case JsonValue::Kind::kNumber:
      return v.number == 0;
    case JsonValue::Kind::kString:
      return v.string.empty() || v.string == "none";
    case JsonValue::Kind::kArray:
      return v.elements.empty();
    case JsonValue::Kind::kObject:
      return v.members.empty();
  }
  return false;
}

AdapterConfig read_adapter_config(const fs::path& file) {
  const std::string text = checkpoint::read_whole(file, kConfigBytes);
  const std::string name = file.string();
  JsonPositions positions(text, name);
  JsonValue j;
  try {
    j = parse_json(text);
  } catch (const JsonError& e) {
    throw usage_error(fmt::format("{}: {}", escaped(name, 4096), e.what()), "PEFT writes this file");
  }
  const auto fail = [&](const JsonValue* at, const std::string& message, const std::string& hint) {
    throw usage_error(message, hint, at ? positions.where(at->begin) : Where{name});
  };
  if (j.text_of("peft_type") != "LORA")
    fail(j.find("peft_type"),
         fmt::format("peft_type = \"{}\": only LORA can be merged", escaped(j.text_of("peft_type"), 80)),
         "merge it with PEFT: merge_and_unload()");
  // Keys that change what an adapter computes, or that name trained tensors besides A and B.
  for (const char* key :
       {"use_dora", "use_qalora", "use_bdlora", "fan_in_fan_out", "lora_bias", "bias", "modules_to_save",
        "rank_pattern", "alpha_pattern", "layer_replication", "trainable_token_indices", "target_parameters",
        "alora_invocation_tokens", "arrow_config", "velora_config", "kasa_config", "monteclora_config"})
    if (const JsonValue* v = j.find(key); v && !is_neutral(*v))
      fail(v, fmt::format("{} is set: such an adapter cannot be merged", key),
           "merge it with PEFT: merge_and_unload()");
  // These replace the weights of the model before training.
  if (const JsonValue* init = j.find("init_lora_weights"); init && init->is_string())
    for (const char* kind : {"pissa", "olora", "loftq", "corda", "lora_ga"})
      if (init->string.starts_with(kind))
        fail(init,
             fmt::format("init_lora_weights = \"{}\" changes the weights of the model",
                         escaped(init->string, 80)),
             "merge it with PEFT: merge_and_unload()");
  const JsonValue *r = j.find("r"), *alpha = j.find("lora_alpha"), *rslora = j.find("use_rslora");
  if (!r || r->kind != JsonValue::Kind::kInteger || r->integer < 1 || r->integer > 65536)
    fail(r, "r: expected a whole number from 1 to 65536", "");
  if (!alpha || !std::isfinite(alpha->number) || alpha->number <= 0)
    fail(alpha, "lora_alpha: expected a positive number", "");
  AdapterConfig c;
  c.rank = static_cast<std::uint32_t>(r->integer);
  c.scale = alpha->number / (rslora && rslora->boolean ? std::sqrt(static_cast<double>(c.rank)) : c.rank);
  c.base = std::string(j.text_of("base_model_name_or_path"));
  return c;
}

/// A and B of one matrix, as f32.
struct Factors {
  std::vector<float> a, b;
};

std::vector<float> read_tensor(checkpoint::WeightSource& source, const TensorInfo& t) {
  std::vector<float> out(t.elements());
  source.stream(t, out, [](std::uint64_t, std::span<const float>) {});  // one piece, read into `out`
  return out;
}

/// "model.layers.0.self_attn.q_proj.weight" of
/// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
std::string adapted_weight(const std::string& name) {
  constexpr std::string_view kPrefix = "base_model.model.", kSuffix = "lora_A.weight";
  return name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()) + "weight";
}

/// The tensors of the adapter file, by the matrix that they adapt. An A without its B is reported as missing.
std::map<std::string, Factors> read_factors(checkpoint::WeightSource& source, const ModelSpec& m,
                                            std::uint32_t rank) {
  RunSpec every;  // adapters of every matrix, of which the file may have some
  every.mode = RunMode::kLora, every.lora_rank = rank, every.lora_targets = 0x7f;
  std::map<std::string, std::pair<TensorInfo, TensorInfo>> pairs;
  for (TensorInfo& t : adapter_tensors(m, every)) {
    std::string a_name = t.name;
    if (t.part == AdapterPart::kB) a_name.replace(a_name.rfind("lora_B"), 6, "lora_A");
    auto& pair = pairs[adapted_weight(a_name)];
    (t.part == AdapterPart::kA ? pair.first : pair.second) = std::move(t);
  }
  std::vector<TensorInfo> wanted;
  for (const auto& [weight, pair] : pairs) {
    const auto& present = source.files().front().tensors();
    const bool any = std::ranges::any_of(present, [&](const checkpoint::TensorEntry& e) {
      return e.name == pair.first.name || e.name == pair.second.name;
    });
    if (any) wanted.push_back(pair.first), wanted.push_back(pair.second);
  }
  source.require(wanted, false);
  if (wanted.empty()) throw usage_error("the adapter has no tensors");
  std::map<std::string, Factors> out;
  for (std::size_t i = 0; i < wanted.size(); i += 2)
    out[adapted_weight(wanted[i].name)] = {read_tensor(source, wanted[i]),
                                           read_tensor(source, wanted[i + 1])};
  return out;
}

/// piece = elements [first, first + n) of W, which become those of W + scale * B A. Sums in double.
void add_product(const Factors& f, const TensorInfo& w, double scale, std::uint64_t first,
                 std::span<float> piece) {
  const std::uint64_t cols = w.dim[1], rank = f.b.size() / w.dim[0];
  std::vector<double> sum;
  for (std::uint64_t done = 0; done < piece.size();) {
    const std::uint64_t row = (first + done) / cols, col = (first + done) % cols,
                        n = std::min<std::uint64_t>(cols - col, piece.size() - done);
    sum.assign(n, 0.0);
    for (std::uint64_t k = 0; k < rank; ++k) {
      const double b = scale * f.b[row * rank + k];
      const float* a = f.a.data() + k * cols + col;
      for (std::uint64_t i = 0; i < n; ++i) sum[i] += b * a[i];
    }
    for (std::uint64_t i = 0; i < n; ++i) piece[done + i] = static_cast<float>(piece[done + i] + sum[i]);
    done += n;
  }
}

/// Throws if the adapter names other weights than those of `source`.
void require_same_weights(const checkpoint::WeightSource& adapter, checkpoint::WeightSource& source,
                          const std::vector<TensorInfo>& infos, std::span<float> scratch,
                          const fs::path& model) {
  const auto& metadata = adapter.files().front().metadata();
  const auto stated = metadata.find("frozen_weights");
  if (stated == metadata.end()) return;  // of PEFT, which does not state them
  std::string now;
  if (stated->second.starts_with("xxh3 ")) {
    checkpoint::Xxh3 hash;
    for (const TensorInfo& t : infos)
      source.stream(t, scratch,
                    [&](std::uint64_t, std::span<const float> v) { hash.update(std::as_bytes(v)); });
    now = "xxh3 " + hash.hex();
  }
  if (now == stated->second) return;
  throw usage_error(fmt::format("the adapter was trained on other weights than those of {}: on '{}'",
                                escaped(model.string(), 4096), escaped(stated->second, 200)),
                    "--model names the folder of the weights that it was trained on");
}

fs::path model_folder(const MergeRequest& r, const AdapterConfig& c) {
  if (!r.model.empty()) return r.model;
  if (!c.base.empty() && fs::is_directory(c.base)) return c.base;
  throw usage_error(c.base.empty() ? "the adapter does not name its model"
                                   : fmt::format("base_model_name_or_path = \"{}\" is no folder here",
                                                 escaped(c.base, 4096)),
                    "--model DIR names the folder of the model");
}

}  // namespace

std::size_t merge_adapter(const MergeRequest& r) {
  const fs::path config_file = r.adapter / "adapter_config.json";
  const AdapterConfig config = read_adapter_config(config_file);
  const fs::path folder = model_folder(r, config);
  if (checkpoint::file_type_of(r.output) != fs::file_type::not_found)
    throw usage_error(fmt::format("{} exists", escaped(r.output.string(), 4096)), "-o names a new folder");
  const ModelSpec m = runfile::read_model_config(folder / "config.json");
  if (!trainable_family(m.family))
    throw usage_error(fmt::format("{} has the model family '{}', whose adapters cannot be merged",
                                  escaped(folder.string(), 4096), escaped(m.family, 80)));
  checkpoint::WeightSource adapter(r.adapter / "adapter_model.safetensors");
  const std::map<std::string, Factors> factors = read_factors(adapter, m, config.rank);
  const std::vector<TensorInfo> infos = tensors(m);
  checkpoint::WeightSource weights(folder);
  weights.require(infos, m.tied);
  std::vector<float> scratch(kPieceElements), piece;
  require_same_weights(adapter, weights, infos, scratch, folder);
  const checkpoint::TensorSource merged = [&](const checkpoint::TensorSink& sink) {
    for (const TensorInfo& t : infos) {
      const auto f = factors.find(t.name);
      weights.stream(t, scratch, [&](std::uint64_t first, std::span<const float> values) {
        piece.assign(values.begin(), values.end());
        if (f != factors.end()) add_product(f->second, t, config.scale, first, piece);
        sink(t.name, first, piece);
      });
    }
  };
  // In f32: the type of the model's weights, bf16 with its 8 bits, would round away a part of the adapter.
  checkpoint::write_model_dir(r.output, runfile::model_config_json(m), infos, merged,
                              files_beside_weights(folder));
  return factors.size();
}

}  // namespace trainhost::training
