// See merged_weights.hpp.
#include "core/training/merged_weights.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/checkpoint/xxh3.hpp"
#include "core/model/adapters.hpp"
#include "core/runfile/adapter_config.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/adapter_files.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;

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

fs::path folder_of_model(const fs::path& model, const std::string& base) {
  if (!model.empty()) return model;
  if (!base.empty() && fs::is_directory(base)) return base;
  throw usage_error(
      base.empty() ? "the adapter does not name its model"
                   : fmt::format("base_model_name_or_path = \"{}\" is no folder here", escaped(base, 4096)),
      "`trainhost merge ADAPTER --model DIR -o NEW` names the folder of the model");
}

ModelSpec read_model(const fs::path& folder) {
  ModelSpec m = runfile::read_model_config(folder / "config.json");
  if (!trainable_family(m.family))
    throw usage_error(fmt::format("{} has the model family '{}', whose adapters cannot be merged",
                                  escaped(folder.string(), 4096), escaped(m.family, 80)));
  return m;
}

}  // namespace

MergedWeights::MergedWeights(const fs::path& adapter, const fs::path& model)
    : folder_(folder_of_model(model, runfile::read_adapter_config(adapter / "adapter_config.json").base)),
      model_(read_model(folder_)),
      infos_(tensors(model_)),
      weights_(folder_) {
  const runfile::AdapterConfig config = runfile::read_adapter_config(adapter / "adapter_config.json");
  scale_ = config.scale();
  checkpoint::WeightSource source(adapter / kAdapterTensors);
  frozen_weights_ = frozen_weights_of(source);
  read_factors(source, config.rank);
  weights_.require(infos_, model_.tied);
}

/// The tensors of the adapter file, by the matrix that they adapt. An A without its B is reported as missing.
void MergedWeights::read_factors(checkpoint::WeightSource& source, std::uint32_t rank) {
  RunSpec every;  // adapters of every matrix, of which the file may have some
  every.mode = RunMode::kLora, every.lora_rank = rank, every.lora_targets = 0x7f;
  std::map<std::string, std::pair<TensorInfo, TensorInfo>> pairs;
  for (TensorInfo& t : adapter_tensors(model_, every)) {
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
  for (std::size_t i = 0; i < wanted.size(); i += 2)
    factors_[adapted_weight(wanted[i].name)] = {read_tensor(source, wanted[i]),
                                                read_tensor(source, wanted[i + 1])};
}

/// piece = elements [first, first + n) of W, which become those of W + scale * B A.
void MergedWeights::add_product(const Factors& f, const TensorInfo& w, std::uint64_t first,
                                std::span<float> piece) const {
  const std::uint64_t cols = w.dim[1], rank = f.b.size() / w.dim[0];
  std::vector<double> sum;
  for (std::uint64_t done = 0; done < piece.size();) {
    const std::uint64_t row = (first + done) / cols, col = (first + done) % cols,
                        n = std::min<std::uint64_t>(cols - col, piece.size() - done);
    sum.assign(n, 0.0);
    for (std::uint64_t k = 0; k < rank; ++k) {
      const double b = scale_ * f.b[row * rank + k];
      const float* a = f.a.data() + k * cols + col;
      for (std::uint64_t i = 0; i < n; ++i) sum[i] += b * a[i];
    }
    for (std::uint64_t i = 0; i < n; ++i) piece[done + i] = static_cast<float>(piece[done + i] + sum[i]);
    done += n;
  }
}

void MergedWeights::require_weights_of_adapter(std::span<float> scratch) {
  if (frozen_weights_.empty()) return;  // of PEFT, which does not state them
  std::string now;
  if (frozen_weights_.starts_with("xxh3 ")) {
    checkpoint::Xxh3 hash;
    for (const TensorInfo& t : infos_)
      weights_.stream(t, scratch,
                      [&](std::uint64_t, std::span<const float> v) { hash.update(std::as_bytes(v)); });
    now = "xxh3 " + hash.hex();
  }
  if (now != frozen_weights_)
    throw usage_error(fmt::format("the adapter was trained on other weights than those of {}: on '{}'",
                                  escaped(folder_.string(), 4096), escaped(frozen_weights_, 200)),
                      "--model names the folder of the weights that it was trained on");
}

void MergedWeights::stream(std::span<float> scratch, const Sink& sink) {
  std::vector<float> piece;
  for (const TensorInfo& t : infos_) {
    const auto f = factors_.find(t.name);
    weights_.stream(t, scratch, [&](std::uint64_t first, std::span<const float> values) {
      piece.assign(values.begin(), values.end());
      if (f != factors_.end()) add_product(f->second, t, first, piece);
      sink(t, first, piece);
    });
  }
}

}  // namespace trainhost::training
