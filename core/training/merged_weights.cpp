// See merged_weights.hpp.
#include "core/training/merged_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

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
      sources_(infos_),
      adapter_(adapter / kAdapterTensors),
      weights_(folder_) {
  const runfile::AdapterConfig config = runfile::read_adapter_config(adapter / "adapter_config.json");
  frozen_weights_ = frozen_weights_of(adapter_);
  const bool tied = model_.tied;
  read_factors(config);
  weights_.require(sources_, tied);
}

namespace {

/// One adapted matrix of an adapter file.
struct AdaptedMatrix {
  std::string weight;  // its name in the model
  std::uint32_t rank = 0;
  double scale = 0;                 // the factor of B A
  std::vector<TensorInfo> factors;  // A, B, and with DoRA the magnitudes
};

TensorInfo matrix_of_file(const std::string& name, TensorRole role, AdapterPart part, std::uint64_t rows,
                          std::uint64_t columns) {
  TensorInfo t;
  t.name = "base_model.model." + name, t.role = role, t.part = part, t.rank = 2, t.dim = {rows, columns};
  return t;
}

/// Every matrix that an adapter can have, with the tensors that it then has.
std::vector<AdaptedMatrix> possible_matrices(const ModelSpec& m, const runfile::AdapterConfig& config) {
  RunSpec every;
  every.mode = RunMode::kLora, every.lora_rank = config.rank, every.lora_targets = 0x7f;
  every.memory.dora = config.dora;
  std::map<std::string, AdaptedMatrix> by_weight;
  for (TensorInfo& t : adapter_tensors(m, every))
    by_weight[adapted_weight(t)].factors.push_back(std::move(t));
  const std::string embedding = "model.embed_tokens", head = "lm_head";
  const auto add_magnitudes = [&](AdaptedMatrix& x, const std::string& module, TensorRole role,
                                  std::uint64_t outputs) {
    if (!config.dora) return;
    x.factors.push_back(
        matrix_of_file(module + ".lora_magnitude_vector", role, AdapterPart::kMagnitude, outputs, 1));
    x.factors.back().rank = 1;
  };
  // PEFT swaps the names of the factors of an embedding.
  AdaptedMatrix& e = by_weight[embedding + ".weight"];
  e.factors = {
      matrix_of_file(embedding + ".lora_embedding_A", TensorRole::kEmbed, AdapterPart::kA, 0, m.vocab),
      matrix_of_file(embedding + ".lora_embedding_B", TensorRole::kEmbed, AdapterPart::kB, m.hidden, 0)};
  add_magnitudes(e, embedding, TensorRole::kEmbed, m.hidden);
  AdaptedMatrix of_head;
  of_head.factors = {matrix_of_file(head + ".lora_A.weight", TensorRole::kHead, AdapterPart::kA, 0, m.hidden),
                     matrix_of_file(head + ".lora_B.weight", TensorRole::kHead, AdapterPart::kB, m.vocab, 0)};
  add_magnitudes(of_head, head, TensorRole::kHead, m.vocab);
  by_weight[head + ".weight"] = std::move(of_head);

  std::vector<AdaptedMatrix> out;
  for (auto& [weight, matrix] : by_weight) {
    matrix.weight = weight;
    const std::string module = weight.substr(0, weight.rfind('.'));
    const AdapterSize size = config.size_of(module);
    matrix.rank = size.rank, matrix.scale = size.alpha / size.rank;
    for (TensorInfo& t : matrix.factors)
      if (t.part != AdapterPart::kMagnitude) t.dim[t.part == AdapterPart::kA ? 0 : 1] = matrix.rank;
    out.push_back(std::move(matrix));
  }
  return out;
}

/// [columns, rows] of a matrix [rows, columns].
std::vector<float> transposed(const std::vector<float>& values, std::uint64_t rows) {
  const std::uint64_t columns = values.size() / rows;
  std::vector<float> out(values.size());
  for (std::uint64_t r = 0; r < rows; ++r)
    for (std::uint64_t c = 0; c < columns; ++c) out[c * rows + r] = values[r * columns + c];
  return out;
}

}  // namespace

/// The tensors of the adapter file, by the matrix that they adapt. A matrix with one of them and without
/// another is reported.
void MergedWeights::read_factors(const runfile::AdapterConfig& config) {
  const auto& present = adapter_.files().front().tensors();
  const auto is_present = [&](const TensorInfo& t) {
    return std::ranges::any_of(present, [&](const checkpoint::TensorEntry& e) { return e.name == t.name; });
  };
  std::vector<AdaptedMatrix> matrices = possible_matrices(model_, config);
  std::erase_if(matrices,
                [&](const AdaptedMatrix& m) { return std::ranges::none_of(m.factors, is_present); });
  if (matrices.empty()) throw usage_error("the adapter has no tensors");
  std::vector<TensorInfo> all;
  const bool tied = model_.tied;
  for (const AdaptedMatrix& m : matrices) {
    const TensorRole role = m.factors.front().role;
    // Embedding and head differ once one of them has changed.
    // With magnitudes, which each has of its own, one adapter of both makes them different too.
    if (model_.tied && (role == TensorRole::kEmbed || role == TensorRole::kHead) &&
        (!config.tied || config.dora))
      model_.tied = false, infos_ = tensors(model_);
    all.insert(all.end(), m.factors.begin(), m.factors.end());
  }
  for (const checkpoint::TensorEntry& e : present)
    if (std::optional<TensorInfo> copy = copy_of_base(model_, e.name)) all.push_back(std::move(*copy));
  RunSpec every;
  every.mode = RunMode::kLora, every.trainable = rules_of_modules(config.modules_to_save);
  for (const TensorInfo& t : infos_) {
    if (!trains_weight(every, t.name)) continue;
    if (tied && (t.role == TensorRole::kEmbed || t.role == TensorRole::kHead) && !config.tied)
      throw usage_error(
          "modules_to_save: the adapter has another embedding or LM head of a model in which both "
          "are one tensor, without ensure_weight_tying",
          "merge it with PEFT: merge_and_unload()");
    TensorInfo& saved = saved_.emplace(t.name, t).first->second;
    saved.name = "base_model.model." + t.name;
    all.push_back(saved);
    if (!model_.tied || t.role != TensorRole::kEmbed) continue;
    all.push_back(saved);  // the same values, which PEFT reads as those of the head
    all.back().name = kTiedHead;
  }
  adapter_.require(all, false);
  for (const AdaptedMatrix& m : matrices) {
    const bool embedding = m.factors.front().role == TensorRole::kEmbed;
    if (model_.tied && m.factors.front().role == TensorRole::kHead) continue;  // copies of the embedding's
    Factors& f = factors_[m.weight];
    f.scale = m.scale;
    f.a = read_tensor(adapter_, m.factors[0]), f.b = read_tensor(adapter_, m.factors[1]);
    if (m.factors.size() > 2) f.magnitude = read_tensor(adapter_, m.factors[2]);
    f.by_columns = embedding;
    if (!embedding) continue;
    // W^T + scale * B A: with A and B exchanged and transposed that is the change of W.
    std::swap(f.a, f.b);
    f.a = transposed(f.a, model_.hidden), f.b = transposed(f.b, m.rank);
  }
}

const TensorInfo& MergedWeights::source_of(const TensorInfo& t) const {
  for (const TensorInfo& s : sources_)
    if (s.name == t.name) return s;
  // The LM head of a model in which it is the embedding.
  return *std::ranges::find(sources_, TensorRole::kEmbed, &TensorInfo::role);
}

AdapterProduct MergedWeights::change_of(const Factors& f, const TensorInfo& w) const {
  return {f.a.data(), f.b.data(), f.b.size() / w.dim[0], w.dim[1], f.scale};
}

/// The factor of each output of W + scale * B A, a row, or of the embedding a column: with DoRA its magnitude
/// divided by its norm. Reads W.
std::vector<double> MergedWeights::factors_of_outputs(const Factors& f, const TensorInfo& w,
                                                      std::span<float> scratch) {
  std::vector<double> squares(w.dim[f.by_columns ? 1 : 0], 0.0);
  if (f.magnitude.empty()) return std::vector<double>(squares.size(), 1.0);
  weights_.stream(source_of(w), scratch, [&](std::uint64_t first, std::span<const float> values) {
    change_of(f, w).for_elements(first, values.size(),
                                 [&](std::uint64_t i, std::uint64_t row, double product) {
                                   const double x = values[i] + product;
                                   squares[f.by_columns ? (first + i) % w.dim[1] : row] += x * x;
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
    for (const TensorInfo& t : sources_)
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
        adapted ? factors_of_outputs(f->second, t, scratch) : std::vector<double>();
    weights_.stream(source_of(t), scratch, [&](std::uint64_t first, std::span<const float> values) {
      piece.assign(values.begin(), values.end());
      if (adapted)
        change_of(f->second, t)
            .for_elements(first, values.size(), [&](std::uint64_t i, std::uint64_t row, double product) {
              const std::uint64_t output = f->second.by_columns ? (first + i) % t.dim[1] : row;
              piece[i] = static_cast<float>((values[i] + product) * factors[output]);
            });
      sink(t, first, piece);
    });
  }
}

}  // namespace trainhost::training
