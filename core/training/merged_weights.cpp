// See merged_weights.hpp.
#include "core/training/merged_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/text.hpp"
#include "core/checkpoint/xxh3.hpp"
#include "core/model/trainable.hpp"
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
      adapter_(adapter / kAdapterTensors),
      weights_(folder_) {
  const runfile::AdapterConfig config = runfile::read_adapter_config(adapter / "adapter_config.json");
  scale_ = config.scale();
  frozen_weights_ = frozen_weights_of(adapter_);
  read_factors(config);
  weights_.require(infos_, model_.tied);
}

/// The tensors of the adapter file, by the matrix that they adapt. A matrix with one of them and without
/// another is reported.
void MergedWeights::read_factors(const runfile::AdapterConfig& config) {
  RunSpec every;  // adapters of every matrix, of which the file may have some
  every.mode = RunMode::kLora, every.lora_rank = config.rank, every.lora_targets = 0x7f;
  every.memory.dora = config.dora;
  std::map<std::string, std::vector<TensorInfo>> tensors_of;  // A, B, magnitudes
  for (TensorInfo& t : adapter_tensors(model_, every)) tensors_of[adapted_weight(t)].push_back(std::move(t));
  const auto& present = adapter_.files().front().tensors();
  const auto is_present = [&](const TensorInfo& t) {
    return std::ranges::any_of(present, [&](const checkpoint::TensorEntry& e) { return e.name == t.name; });
  };
  std::erase_if(tensors_of,
                [&](const auto& entry) { return std::ranges::none_of(entry.second, is_present); });
  std::vector<TensorInfo> wanted;
  for (const auto& [weight, parts] : tensors_of) wanted.insert(wanted.end(), parts.begin(), parts.end());
  if (wanted.empty()) throw usage_error("the adapter has no tensors");
  every.trainable = rules_of_modules(config.modules_to_save);
  std::vector<TensorInfo> all = wanted;
  for (const TensorInfo& t : infos_) {
    if (!trains_weight(every, t.name)) continue;
    if (model_.tied && (t.role == TensorRole::kEmbed || t.role == TensorRole::kHead))
      throw usage_error(
          "modules_to_save: the adapter has another embedding or LM head of a model in which both "
          "are one tensor",
          "merge it with PEFT: merge_and_unload()");
    TensorInfo& saved = saved_.emplace(t.name, t).first->second;
    saved.name = "base_model.model." + t.name;
    all.push_back(saved);
  }
  adapter_.require(all, false);
  for (const TensorInfo& t : wanted) {
    Factors& f = factors_[adapted_weight(t)];
    (t.part == AdapterPart::kA   ? f.a
     : t.part == AdapterPart::kB ? f.b
                                 : f.magnitude) = read_tensor(adapter_, t);
  }
}

AdapterProduct MergedWeights::change_of(const Factors& f, const TensorInfo& w) const {
  return {f.a.data(), f.b.data(), f.b.size() / w.dim[0], w.dim[1], scale_};
}

/// The factor of each row of W + scale * B A: with DoRA its magnitude divided by its norm. Reads W.
std::vector<double> MergedWeights::factors_of_rows(const Factors& f, const TensorInfo& w,
                                                   std::span<float> scratch) {
  if (f.magnitude.empty()) return std::vector<double>(w.dim[0], 1.0);
  std::vector<double> squares(w.dim[0]);
  weights_.stream(w, scratch, [&](std::uint64_t first, std::span<const float> values) {
    change_of(f, w).for_elements(first, values.size(),
                                 [&](std::uint64_t i, std::uint64_t row, double product) {
                                   const double x = values[i] + product;
                                   squares[row] += x * x;
                                 });
  });
  // A row of zeros stays one, as in training (core/step/operands.hpp, dora_scale).
  for (std::size_t r = 0; r < squares.size(); ++r)
    squares[r] = squares[r] > 0 ? f.magnitude[r] / std::sqrt(squares[r]) : 0.0;
  return squares;
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
    if (const auto saved = saved_.find(t.name); saved != saved_.end()) {
      adapter_.stream(saved->second, scratch,
                      [&](std::uint64_t first, std::span<const float> values) { sink(t, first, values); });
      continue;
    }
    const auto f = factors_.find(t.name);
    const bool adapted = f != factors_.end();
    const std::vector<double> factors =
        adapted ? factors_of_rows(f->second, t, scratch) : std::vector<double>();
    weights_.stream(t, scratch, [&](std::uint64_t first, std::span<const float> values) {
      piece.assign(values.begin(), values.end());
      if (adapted)
        change_of(f->second, t)
            .for_elements(first, values.size(), [&](std::uint64_t i, std::uint64_t row, double product) {
              piece[i] = static_cast<float>((values[i] + product) * factors[row]);
            });
      sink(t, first, piece);
    });
  }
}

}  // namespace trainhost::training
