// A copy of all weights of a session, made through save(), and functions that compare two copies by bits or
// by distance.
#pragma once
#include <cassert>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/model/tensors.hpp"
#include "core/plugin/plugin.hpp"

namespace trainhost::verify {

struct Snapshot {
  std::vector<TensorInfo> tensors;   // of the model, in checkpoint order
  std::vector<std::uint64_t> first;  // index in `values` of the first element of each tensor
  std::vector<float> values;
  std::map<std::string, std::vector<float>>
      copies;  // tensors that save() gave in addition: the head of a tied model

  std::span<const float> values_of(std::size_t tensor) const {
    assert(tensor < tensors.size());
    return {values.data() + first[tensor], tensors[tensor].elements()};
  }
};

/// Copies the weights of `s`. Throws PluginError("internal") if save() omits elements, repeats elements, or
/// gives a tensor that the model does not have.
Snapshot take_snapshot(plugin::Session& s, const ModelSpec& m);

/// Loads every tensor into a session that was created but not initialised.
void load_snapshot(plugin::Session& s, const Snapshot& from);

/// Elements whose bits differ (equal NaNs are equal).
std::uint64_t different_bits(std::span<const float> a, std::span<const float> b);
std::uint64_t different_bits(const Snapshot& a, const Snapshot& b);

/// Names of the tensors that have the same bits in both.
std::vector<std::string> equal_tensors(const Snapshot& a, const Snapshot& b);

double max_abs_difference(std::span<const float> a, std::span<const float> b);
double squared_distance(std::span<const float> a, std::span<const float> b);
std::uint64_t count_not_finite(const Snapshot& s);

/// The first three names: "a, b, c and 3 more".
std::string join_first_names(const std::vector<std::string>& names);

}  // namespace trainhost::verify
