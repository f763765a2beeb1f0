// WeightSource::require(): do the tensors of the files make exactly the model that is wanted (rule 19)? Every
// difference is counted; of each kind the first kMaxListed are printed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <span>

#include "core/base/text.hpp"
#include "core/checkpoint/convert_dtype.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/safetensors_header.hpp"

namespace trainhost::checkpoint {
namespace {

constexpr std::size_t kMaxListed = 50;

struct Kind {
  const char* what;
  std::vector<std::string> lines;
};

std::vector<std::uint64_t> shape_of(const TensorInfo& t) { return {t.dim.begin(), t.dim.begin() + t.rank}; }

std::string message(const std::string& source, const std::vector<Kind>& kinds) {
  std::string counts, list;
  for (const Kind& k : kinds) {
    if (k.lines.empty()) continue;
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", k.lines.size(), k.what);
    for (std::size_t i = 0; i < k.lines.size() && i < kMaxListed; ++i)
      list += fmt::format("\n  {}: {}", k.what, k.lines[i]);
    if (k.lines.size() > kMaxListed)
      list += fmt::format("\n  ... and {} more {}", k.lines.size() - kMaxListed, k.what);
  }
  return fmt::format("{} does not hold this model: {} (safetensors rule 19){}", escaped(source, 4096), counts,
                     list);
}

/// Old LLaMA checkpoints store the rotary frequencies, which follow from the config.
bool is_derived(const std::string& name) { return name.ends_with(".rotary_emb.inv_freq"); }

/// Why the names do not match, where the reason is one of the usual ones.
std::string hint_for(const std::vector<std::string>& missing, const std::set<std::string>& extra) {
  if (missing.empty()) return {};
  auto with = [&](auto f) { return !extra.empty() && extra.contains(f(missing.front())); };
  if (with([](const std::string& n) { return n.starts_with("model.") ? n.substr(6) : n; }))
    return "the file's names lack the prefix 'model.'";
  if (with([](const std::string& n) { return "model." + n; }))
    return "the file's names have one more prefix 'model.'";
  if (missing.size() == 1 && missing.front() == "lm_head.weight")
    return "a model without lm_head.weight has tie_word_embeddings = true in its config";
  return {};
}

}  // namespace

void WeightSource::require(const std::vector<TensorInfo>& wanted, bool tied) {
  std::vector<std::string> missing, shape, dtype;
  std::set<std::string> names;
  const TensorInfo* embed = nullptr;
  for (const TensorInfo& t : wanted) {
    names.insert(t.name);
    if (t.role == TensorRole::kEmbed) embed = &t;
    auto it = where_.find(t.name);
    if (it == where_.end()) {
      missing.push_back(t.name);
      continue;
    }
    const TensorEntry& e = entry(it->second);
    if (e.shape != shape_of(t))
      shape.push_back(fmt::format("{} is [{}], the model needs [{}]", t.name, fmt::join(e.shape, ", "),
                                  fmt::join(shape_of(t), ", ")));
    if (!loads_as_f32(e.dtype))
      dtype.push_back(fmt::format("{} is {}; F32, BF16, F16 or F64 can be loaded", t.name, e.dtype));
  }

  ignored_.clear();
  std::set<std::string> extra;
  for (const auto& [name, place] : where_) {
    if (names.contains(name)) continue;
    const std::string safe = escaped(name, kMaxNameBytes);
    if (is_derived(name)) {
      ignored_.push_back(safe + ": follows from the config");
    } else if (tied && name == "lm_head.weight" && embed && entry(place).shape == shape_of(*embed)) {
      ignored_.push_back(safe + ": the head of this model is its embedding");
    } else {
      extra.insert(safe);
    }
  }
  if (missing.empty() && extra.empty() && shape.empty() && dtype.empty()) return;
  std::string hint = hint_for(missing, extra);
  throw usage_error(message(source_.string(), {{"missing", std::move(missing)},
                                               {"not of this model", {extra.begin(), extra.end()}},
                                               {"of another shape", std::move(shape)},
                                               {"of a type that cannot be loaded", std::move(dtype)}}),
                    hint);
}

}  // namespace trainhost::checkpoint
