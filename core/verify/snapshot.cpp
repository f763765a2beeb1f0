// See snapshot.hpp. The output of save() is checked: every element must appear exactly once, in f32. Without
// this check a trainer that saves nothing would pass every comparison of two snapshots.
#include "core/verify/snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::verify {
namespace {

/// A wrong save(), reported as a failure of the trainer.
plugin::PluginError save_error(std::string what) {
  return {Exit::kFailed, "internal", std::move(what), "a bug of the plugin", 0};
}

// All weights are in one array, tensor after tensor in checkpoint order.
Snapshot empty_snapshot(const ModelSpec& m) {
  Snapshot s;
  s.tensors = trainhost::tensors(m);
  std::uint64_t at = 0;
  for (const TensorInfo& t : s.tensors) {
    s.first.push_back(at);
    at += t.elements();
  }
  s.values.resize(at);
  return s;
}

// A tied head may be saved beside the embedding. Checks of synchronization compare the two.
void keep_copy(Snapshot& s, const plugin::TensorPiece& p) {
  if (p.name != "lm_head.weight")
    throw save_error(fmt::format("save() gave '{}', which is not a tensor of the model", p.name));
  std::vector<float>& to = s.copies[p.name];
  to.resize(p.dim[0] * p.dim[1]);
  // Written without a sum of two values of the plugin, which could overflow.
  if (p.first > to.size() || p.count > to.size() - p.first)
    throw save_error(fmt::format("save() gave elements outside '{}'", p.name));
  std::memcpy(to.data() + p.first, p.data, p.count * sizeof(float));
}

}  // namespace

// Within a tensor the elements come in order (sdk/include/trainhost/trainer.h), so one counter per tensor
// finds gaps and repetitions.
Snapshot take_snapshot(plugin::Session& session, const ModelSpec& m) {
  Snapshot s = empty_snapshot(m);
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < s.tensors.size(); ++i) index[s.tensors[i].name] = i;
  std::vector<std::uint64_t> next(s.tensors.size(), 0);
  session.save(plugin::Scope::kWeights, [&](const plugin::TensorPiece& p) {
    if (p.dtype != DType::kF32)
      throw save_error(fmt::format("save() gave '{}' in a type other than f32", p.name));
    const auto found = index.find(p.name);
    if (found == index.end()) return keep_copy(s, p);
    const std::size_t i = found->second;
    if (p.first != next[i] || p.count > s.tensors[i].elements() - next[i])
      throw save_error(fmt::format("save() gave elements {} to {} of '{}' after its first {}", p.first,
                                   p.first + p.count, p.name, next[i]));
    std::memcpy(s.values.data() + s.first[i] + p.first, p.data, p.count * sizeof(float));
    next[i] += p.count;
  });
  for (std::size_t i = 0; i < s.tensors.size(); ++i)
    if (next[i] != s.tensors[i].elements())
      throw save_error(fmt::format("save() gave {} of the {} elements of '{}'", next[i],
                                   s.tensors[i].elements(), s.tensors[i].name));
  return s;
}

// One piece per tensor: trainers must accept any size.
void load_snapshot(plugin::Session& session, const Snapshot& from) {
  for (std::size_t i = 0; i < from.tensors.size(); ++i) {
    const TensorInfo& t = from.tensors[i];
    session.load(plugin::Scope::kWeights,
                 {t.name, DType::kF32, t.rank, t.dim, from.values_of(i).data(), 0, t.elements()});
  }
}

// As bits, not as numbers: 0.0 and -0.0 differ, and equal NaNs do not.
std::uint64_t different_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) n += std::memcmp(&a[i], &b[i], sizeof(float)) != 0;
  return n;
}

std::uint64_t different_bits(const Snapshot& a, const Snapshot& b) {
  return different_bits(a.values, b.values);
}

std::vector<std::string> equal_tensors(const Snapshot& a, const Snapshot& b) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < a.tensors.size(); ++i)
    if (different_bits(a.values_of(i), b.values_of(i)) == 0) out.push_back(a.tensors[i].name);
  return out;
}

/// The spans have equal size: they are the same tensor of two snapshots of one model.
double max_abs_difference(std::span<const float> a, std::span<const float> b) {
  assert(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= most)) most = std::isnan(d) ? INFINITY : d;  // NaN counts as the largest difference
  }
  return most;
}

// In double, in the order of the elements: the result is the same in every build.
double squared_distance(std::span<const float> a, std::span<const float> b) {
  assert(a.size() == b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return sum;
}

std::uint64_t count_not_finite(const Snapshot& s) {
  return static_cast<std::uint64_t>(
      std::count_if(s.values.begin(), s.values.end(), [](float x) { return !std::isfinite(x); }));
}

std::string join_first_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) out += (i ? ", " : "") + names[i];
  if (names.size() > kShown) out += fmt::format(" and {} more", names.size() - kShown);
  return out;
}

}  // namespace trainhost::verify
