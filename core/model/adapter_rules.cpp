// See adapter_rules.hpp. RunSpec::lora_rules has one line per matrix: its name, rank and alpha.
#include "core/model/adapter_rules.hpp"

#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/model/adapters.hpp"

namespace trainhost {
namespace {

struct Rule {
  std::string_view module;
  std::optional<AdapterSize> size;  // absent: the line is malformed
};

Rule parse_rule(std::string_view line) {
  const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
  Rule rule{line.substr(0, first), std::nullopt};
  if (first == line.npos || second == line.npos) return rule;
  AdapterSize size;
  const char *rank = line.data() + first + 1, *alpha = line.data() + second + 1,
             *end = line.data() + line.size();
  const auto read_rank = std::from_chars(rank, alpha - 1, size.rank);
  const auto read_alpha = std::from_chars(alpha, end, size.alpha);
  if (read_rank.ec == std::errc() && read_rank.ptr == alpha - 1 && read_alpha.ec == std::errc() &&
      read_alpha.ptr == end)
    rule.size = size;
  return rule;
}

/// Calls f(line) until it returns true; `rules` may end with or without a line break.
template <class F>
void for_each_line(std::string_view rules, F&& f) {
  while (!rules.empty()) {
    const std::size_t end = std::min(rules.find('\n'), rules.size());
    if (f(rules.substr(0, end))) return;
    rules.remove_prefix(std::min(end + 1, rules.size()));
  }
}

/// The shortest text that gives the same number.
std::string text_of(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

AdapterSize size_of_adapter(const RunSpec& r, std::string_view module) {
  AdapterSize size{r.lora_rank, r.lora_alpha};
  for_each_line(r.lora_rules, [&](std::string_view line) {
    if (!line.starts_with(module) || line.size() == module.size() || line[module.size()] != ' ') return false;
    size = parse_rule(line).size.value_or(AdapterSize{});
    return true;
  });
  return size;
}

void set_adapters(const ModelSpec& m, const std::function<AdapterSize(const AdaptableMatrix&)>& size,
                  RunSpec& r) {
  const std::vector<AdaptableMatrix> all = adaptable_matrices(m);
  std::vector<AdapterSize> sizes;
  r.lora_targets = 0;
  for (const AdaptableMatrix& x : all) {
    sizes.push_back(size(x));
    if (sizes.back().rank > 0) r.lora_targets |= x.target;
  }
  r.lora_rules.clear();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const AdapterSize s = sizes[i];
    if (!(r.lora_targets & all[i].target) || s == AdapterSize{r.lora_rank, r.lora_alpha}) continue;
    r.lora_rules += (r.lora_rules.empty() ? "" : "\n") + all[i].module + ' ' + std::to_string(s.rank) + ' ' +
                    text_of(s.rank > 0 ? s.alpha : 0);
  }
}

void require_valid_adapters(const ModelSpec& m, const RunSpec& r) {
  if (!trains_adapters(r) || r.lora_rules.empty()) return;
  std::map<std::string, std::uint32_t, std::less<>> known;
  for (AdaptableMatrix& x : adaptable_matrices(m)) known.emplace(std::move(x.module), x.target);
  for_each_line(r.lora_rules, [&](std::string_view line) {
    const Rule rule = parse_rule(line);
    if (!known.contains(rule.module))
      throw usage_error("the rules of the adapters name " + escaped(std::string(rule.module), 200) +
                        ", which is no matrix that can have an adapter");
    const double alpha = rule.size ? rule.size->alpha : -1;
    if (!rule.size || rule.size->rank > 65536 ||
        !(rule.size->rank > 0 ? alpha > 0 && alpha <= 1e9 : alpha == 0))
      throw usage_error("the rules of the adapters have no valid rank and alpha: " +
                        escaped(std::string(line), 200));
    return false;
  });
  bool any = false;
  std::map<std::pair<std::int32_t, AdapterGroup>, std::pair<std::string, AdapterSize>> first;
  for (const TensorInfo& t : tensors(m)) {
    if (t.layer < 0 || t.rank != 2) continue;  // those outside the layers have a product of their own
    const std::string module = adapted_module(t.role, t.layer);
    const AdapterSize size = r.lora_targets & known.at(module) ? size_of_adapter(r, module) : AdapterSize{};
    if (size.rank == 0) continue;
    any = true;
    const auto& [other, of_other] =
        first.try_emplace({t.layer, adapter_group(t.role)}, module, size).first->second;
    if (of_other != size)
      throw usage_error("the adapters of " + other + " and " + module + " have ranks " +
                            std::to_string(of_other.rank) + " and " + std::to_string(size.rank) +
                            " and alphas " + text_of(of_other.alpha) + " and " + text_of(size.alpha) +
                            ", but a trainer computes both in one product",
                        "give q_proj, k_proj and v_proj of a layer the same, and gate_proj and up_proj");
  }
  for (const AdapterGroup g : {AdapterGroup::kEmbed, AdapterGroup::kHead})
    any = any || adapter_blocks(m, r, g, -1).count > 0;
  if (!any) throw usage_error("lora.targets: no matrix of the model has an adapter");
}

}  // namespace trainhost
