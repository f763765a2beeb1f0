// The facts about an estimate that can change between two points of a sweep. See changed_facts() in
// sweep.hpp.
#include <algorithm>
#include <map>

#include "core/planning/sweep.hpp"

namespace trainhost::planning {
namespace {

std::uint64_t state_bytes(const Estimate& e) {
  std::uint64_t sum = 0;
  for (Component c : {Component::kWeights, Component::kMasterWeights, Component::kGradients,
                      Component::kOptimizerState, Component::kAdapters})
    sum += e.report.component_bytes(c);
  return sum;
}

Component largest_component(const Estimate& e) {
  std::map<Component, std::uint64_t> parts;
  for (const MemoryEntry& n : e.report.entries) parts[n.component] += n.at_peak();
  const auto most = std::max_element(parts.begin(), parts.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == parts.end() ? Component::kWeights : most->first;
}

/// The activation that is at least as large as all others together; "" = none is. Of two equal ones the later
/// entry: a faster growing tensor follows the one that it overtakes.
std::string dominant_activation(const Estimate& e) {
  std::vector<std::pair<std::string, std::uint64_t>> parts;
  std::uint64_t all = 0;
  for (const MemoryEntry& n : e.report.entries) {
    if (n.component != Component::kActivations) continue;
    const auto known =
        std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p.first == n.name; });
    if (known == parts.end())
      parts.emplace_back(n.name, n.at_peak());
    else
      known->second += n.at_peak();
    all += n.at_peak();
  }
  std::string found;
  for (const auto& [name, b] : parts)
    if (parts.size() > 1 && b >= all - b) found = name;
  return found;
}

}  // namespace

/// Each fact is a predicate that can be evaluated at any estimate, so the sweep can bisect for the value at
/// which it changes. The sentence is in the direction of rising values: it holds at `b`.
std::vector<Predicate> changed_facts(const Estimate& a, const Estimate& b, bool budget_known) {
  std::vector<Predicate> out;
  const auto add = [&](std::string sentence, std::string opposite,
                       std::function<bool(const Estimate&)> holds) {
    if (holds(a) != holds(b))
      out.push_back({holds(b) ? std::move(sentence) : std::move(opposite), std::move(holds)});
  };
  if (budget_known)
    add("fits the budget", "no longer fits the budget", [](const Estimate& e) { return e.fits; });
  add("activations exceed weights, gradients and optimizer state",
      "weights, gradients and optimizer state exceed activations",
      [](const Estimate& e) { return e.report.component_bytes(Component::kActivations) > state_bytes(e); });
  for (const std::string& tensor : {dominant_activation(a), dominant_activation(b)})
    if (!tensor.empty() && dominant_activation(a) != dominant_activation(b))
      add(tensor + " exceeds all other activations together",
          tensor + " no longer exceeds all other activations together",
          [tensor](const Estimate& e) { return dominant_activation(e) == tensor; });
  if (const Component most = largest_component(b); most != largest_component(a))
    add("the largest component is " + display_name(most), "",
        [most](const Estimate& e) { return largest_component(e) == most; });
  return out;
}

}  // namespace trainhost::planning
