// WeightSource::require(): checks that the files contain exactly the tensors of the model (rule 19). Counts
// every difference and prints the first kMaxListed of each kind.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>

#include "core/base/text.hpp"
#include "core/checkpoint/dtypes.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/safetensors_header.hpp"

namespace trainhost::checkpoint {
namespace {

constexpr std::size_t kMaxListed = 50;

struct Difference {
  const char* kind;
  std::vector<std::string> lines;
};

std::vector<std::uint64_t> shape_of(const TensorInfo& t) { return {t.dim.begin(), t.dim.begin() + t.rank}; }

std::string message(const std::string& source, const std::vector<Difference>& differences) {
  std::string counts, list;
  for (const Difference& k : differences) {
    if (k.lines.empty()) continue;
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", k.lines.size(), k.kind);
    for (std::size_t i = 0; i < k.lines.size() && i < kMaxListed; ++i)
      list += fmt::format("\n  {}: {}", k.kind, k.lines[i]);
    if (k.lines.size() > kMaxListed)
      list += fmt::format("\n  ... and {} more {}", k.lines.size() - kMaxListed, k.kind);
  }
  return fmt::format("{} does not match the model: {}{}", escaped(source, 4096), counts, list);
}

/// Old LLaMA checkpoints store the rotary frequencies, which are computed from the config.
bool is_derived(const std::string& name) { return name.ends_with(".rotary_emb.inv_freq"); }

/// A hint for the most common reasons why names do not match: the first missing tensor is looked up under the
/// names that other tools would give it. "" if none matches.
std::string hint_for(const std::vector<std::string>& missing, const std::set<std::string>& extra) {
  if (missing.empty()) return {};
  if (std::ranges::any_of(extra, [](const std::string& n) { return n.ends_with(".qweight"); }))
    return "the weights are quantized by GPTQ or AWQ (.qweight): use the model that they were made from, "
           "which `trainhost finetune --qlora` quantizes itself";
  auto present_as = [&](auto rename) { return !extra.empty() && extra.contains(rename(missing.front())); };
  if (present_as([](const std::string& n) { return n.starts_with("model.") ? n.substr(6) : n; }))
    return "the names in the file lack the prefix 'model.'";
  if (present_as([](const std::string& n) { return "model." + n; }))
    return "the names in the file have an additional prefix 'model.'";
  if (missing.size() == 1 && missing.front() == "lm_head.weight")
    return "set tie_word_embeddings = true in the config for a model without lm_head.weight";
  return {};
}

}  // namespace

/// Names are compared in both directions. All differences are collected before the error, since a wrong model
/// usually differs in hundreds of tensors and the pattern shows the cause.
void WeightSource::require(const std::vector<TensorInfo>& wanted, bool tied) {
  std::vector<std::string> missing, shape, dtype;
  std::set<std::string> names;
  const TensorInfo* embed = nullptr;
  for (const TensorInfo& t : wanted) {
    names.insert(t.name);
    if (t.role == TensorRole::kEmbed) embed = &t;
    auto it = locations_.find(t.name);
    if (it == locations_.end()) {
      missing.push_back(t.name);
      continue;
    }
    const TensorEntry& e = entry(it->second);
    if (e.shape != shape_of(t))
      shape.push_back(fmt::format("{} is [{}], expected [{}]", t.name, fmt::join(e.shape, ", "),
                                  fmt::join(shape_of(t), ", ")));
    if (!loads_as_f32(e.dtype))
      dtype.push_back(fmt::format("{} is {}; F32, BF16, F16 or F64 can be loaded", t.name, e.dtype));
  }

  // Tensors of the file that the model does not have. Names come from the file, so they are escaped for
  // output.
  ignored_.clear();
  std::set<std::string> extra;
  for (const auto& [name, location] : locations_) {
    if (names.contains(name)) continue;
    const std::string safe = escaped(name, kMaxNameBytes);
    if (is_derived(name)) {
      ignored_.push_back(safe + ": computed from the config");
    } else if (tied && name == "lm_head.weight" && embed && entry(location).shape == shape_of(*embed)) {
      ignored_.push_back(safe + ": the LM head is tied to the embedding");
    } else {
      extra.insert(safe);
    }
  }
  if (missing.empty() && extra.empty() && shape.empty() && dtype.empty()) return;
  std::string hint = hint_for(missing, extra);
  throw RejectedFile(19,
                     message(source_.string(), {{"missing", std::move(missing)},
                                                {"not part of the model", {extra.begin(), extra.end()}},
                                                {"with a different shape", std::move(shape)},
                                                {"with a type that cannot be loaded", std::move(dtype)}}),
                     hint);
}

}  // namespace trainhost::checkpoint
