// A copy of all weights of a session, taken through save() alone, and how two of them differ: bit for bit
// where the contract says so, by size of the change otherwise.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/model/tensors.hpp"
#include "core/plugin/plugin.hpp"

namespace trainhost::verify {

struct Snapshot {
  std::vector<TensorInfo> tensors;   // of the model, in the checkpoint's order
  std::vector<std::uint64_t> first;  // of each tensor in `values`
  std::vector<float> values;
  std::map<std::string, std::vector<float>> copies;  // what save() gave beyond them: the head of a tied model

  std::span<const float> of(std::size_t tensor) const {
    return {values.data() + first[tensor], tensors[tensor].elements()};
  }
};

/// Saves the weights of `s`. Throws PluginError("internal") when save() leaves elements out, gives one twice,
/// or a tensor that the model does not have.
Snapshot snapshot(plugin::Session& s, const ModelSpec& m);

/// Loads every tensor into a session that was created and not initialised yet.
void load(plugin::Session& s, const Snapshot& from);

/// Elements whose bits differ (equal NaNs are equal).
std::uint64_t different_bits(std::span<const float> a, std::span<const float> b);
std::uint64_t different_bits(const Snapshot& a, const Snapshot& b);

/// Names of tensors that have the same bits in both, or of those that do not.
std::vector<std::string> equal_tensors(const Snapshot& a, const Snapshot& b);

double max_abs_difference(std::span<const float> a, std::span<const float> b);
double squared_distance(std::span<const float> a, std::span<const float> b);
std::uint64_t not_finite(const Snapshot& s);

/// "a, b and 3 more": a list that stays readable.
std::string shortened(const std::vector<std::string>& names);

}  // namespace trainhost::verify
