// See trainable.hpp.
#include "core/model/trainable.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/model/adapters.hpp"
#include "core/model/nf4.hpp"
#include "core/model/tensors.hpp"

namespace trainhost {
namespace {

/// The tensors of a layer whose gradients are computed together, and the matrix of a bias.
enum class Together : std::uint32_t {
  kAlone,
  kQkv,
  kQkvBias,
  kO,
  kOBias,
  kGateUp,
  kGateUpBias,
  kDown,
  kDownBias,
  kQkNorm
};

Together computed_with(TensorRole role) {
  switch (role) {
    case TensorRole::kQ:
    case TensorRole::kK:
    case TensorRole::kV:
      return Together::kQkv;
    case TensorRole::kQBias:
    case TensorRole::kKBias:
    case TensorRole::kVBias:
      return Together::kQkvBias;
    case TensorRole::kO:
      return Together::kO;
    case TensorRole::kOBias:
      return Together::kOBias;
    case TensorRole::kGate:
    case TensorRole::kUp:
      return Together::kGateUp;
    case TensorRole::kGateBias:
    case TensorRole::kUpBias:
      return Together::kGateUpBias;
    case TensorRole::kDown:
      return Together::kDown;
    case TensorRole::kDownBias:
      return Together::kDownBias;
    case TensorRole::kQNorm:
    case TensorRole::kKNorm:
      return Together::kQkNorm;
    default:
      return Together::kAlone;
  }
}

std::optional<Together> matrix_of_bias(Together t) {
  switch (t) {
    case Together::kQkvBias:
      return Together::kQkv;
    case Together::kOBias:
      return Together::kO;
    case Together::kGateUpBias:
      return Together::kGateUp;
    case Together::kDownBias:
      return Together::kDown;
    default:
      return std::nullopt;
  }
}

}  // namespace

/// One row of the table of edit distances at a time; '*' matches at no cost.
std::size_t glob_distance(std::string_view pattern, std::string_view name) {
  std::vector<std::size_t> before(name.size() + 1), row(name.size() + 1);
  for (std::size_t j = 0; j <= name.size(); ++j) before[j] = j;
  for (const char p : pattern) {
    row[0] = before[0] + (p == '*' ? 0 : 1);
    for (std::size_t j = 1; j <= name.size(); ++j)
      row[j] = p == '*' ? std::min(before[j], row[j - 1])
                        : std::min({before[j - 1] + (p != '?' && p != name[j - 1] ? 1 : 0), before[j] + 1,
                                    row[j - 1] + 1});
    std::swap(row, before);
  }
  return before[name.size()];
}

/// With one position to return to, the last '*': an earlier one cannot match more than it already does.
bool matches_glob(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*')
      star = p++, resume = n;
    else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n]))
      ++p, ++n;
    else if (star != std::string_view::npos)
      p = star + 1, n = ++resume;
    else
      return false;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool is_trained(const RunSpec& r, std::string_view tensor) {
  bool trained = true;
  for (std::string_view rules = r.trainable; !rules.empty();) {
    const std::size_t end = std::min(rules.find('\n'), rules.size());
    const std::string_view rule = rules.substr(0, end);
    rules.remove_prefix(std::min(end + 1, rules.size()));
    if (!rule.empty() && matches_glob(rule.substr(1), tensor)) trained = rule.front() == '+';
  }
  return trained;
}

bool trains_weight(const RunSpec& r, std::string_view tensor) {
  return (!trains_adapters(r) || !r.trainable.empty()) && is_trained(r, tensor);
}

namespace {
constexpr std::string_view kNothing = "-*", kBegin = "\n+*", kWeight = ".weight", kBias = ".bias";
}  // namespace

std::string rules_of_modules(std::span<const std::string> modules) {
  std::string rules(modules.empty() ? "" : kNothing);
  for (const std::string& m : modules)
    for (const std::string_view kind : {kWeight, kBias}) rules.append(kBegin).append(m).append(kind);
  return rules;
}

std::vector<std::string> saved_modules(const RunSpec& r) {
  std::vector<std::string> modules;
  if (!trains_adapters(r) || !r.trainable.starts_with(kNothing)) return modules;
  for (std::size_t at = kNothing.size(); at < r.trainable.size();) {
    const std::size_t end = std::min(r.trainable.find('\n', at + 1), r.trainable.size());
    const std::string_view rule = std::string_view(r.trainable).substr(at, end - at);
    at = end;
    if (rule.starts_with(kBegin) && rule.ends_with(kWeight))
      modules.emplace_back(rule.substr(kBegin.size(), rule.size() - kBegin.size() - kWeight.size()));
  }
  if (rules_of_modules(modules) != r.trainable) modules.clear();  // rules of train.only
  return modules;
}

void require_trainable_modules(const ModelSpec& m, const RunSpec& r) {
  if (!trains_adapters(r)) return;
  const auto refuse = [](const std::string& module, const std::string& why, const std::string& hint = "") {
    throw usage_error("'" + escaped(module, 200) + "' in lora.modules_to_save" + why, hint);
  };
  const std::vector<TensorInfo> all = tensors(m), adapters = adapter_tensors(m, r);
  for (const std::string& module : saved_modules(r)) {
    RunSpec one = r;
    one.trainable = rules_of_modules({&module, 1});
    bool found = false;
    for (const TensorInfo& t : all) {
      if (!is_trained(one, t.name)) continue;
      found = true;
      if (nf4::is_quantized(r, t))
        refuse(module, " is in NF4, and has no gradient", "leave it out, or set lora.base to \"bf16\"");
      for (const TensorInfo& a : adapters)
        if (adapted_weight(a) == t.name ||
            (m.tied && a.role == TensorRole::kHead && t.role == TensorRole::kEmbed))
          refuse(module, " has an adapter too", "leave it out of lora.targets or of lora.modules_to_save");
    }
    // One tensor with the embedding, whose name a run must have.
    if (!found && trains_tied_embedding(m, r) && module == "lm_head") continue;
    if (!found) {
      const auto nearest = std::ranges::min_element(
          all, {}, [&](const TensorInfo& t) { return glob_distance("*" + module + ".weight", t.name); });
      const std::string hint = m.tied && module == "lm_head"
                                   ? "the LM head of this model is its embedding: name embed_tokens"
                                   : "the nearest parameter is " + nearest->name;
      refuse(module, " is no module of the model", hint);
    }
  }
  if (const std::optional<SplitProduct> split = find_split_product(m, r))
    refuse(split->trained, " is trained and " + split->frozen +
                               " is frozen, but a trainer computes their gradients together");
}

bool trains_tied_embedding(const ModelSpec& m, const RunSpec& r) {
  return m.tied && trains_adapters(r) && trains_weight(r, "model.embed_tokens.weight");
}

bool trains_all_weights(const RunSpec& r) { return r.mode == RunMode::kFull && r.trainable.empty(); }

std::optional<SplitProduct> find_split_product(const ModelSpec& m, const RunSpec& r) {
  if (r.trainable.empty()) return std::nullopt;
  std::map<std::pair<std::int32_t, Together>, const TensorInfo*> first;
  const std::vector<TensorInfo> all = tensors(m);
  for (const TensorInfo& t : all) {
    const Together with = computed_with(t.role);
    if (with == Together::kAlone) continue;
    const auto [other, is_first] = first.try_emplace({t.layer, with}, &t);
    const bool trained = is_trained(r, t.name);
    if (!is_first && is_trained(r, other->second->name) != trained)
      return trained ? SplitProduct{t.name, other->second->name} : SplitProduct{other->second->name, t.name};
    const auto matrix = matrix_of_bias(with);
    if (!matrix || !trained) continue;
    if (const TensorInfo* w = first.at({t.layer, *matrix}); !is_trained(r, w->name))
      return SplitProduct{t.name, w->name};
  }
  return std::nullopt;
}

}  // namespace trainhost
