// See explain_layouts.hpp.
#include "core/planning/explain_layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/plural.hpp"

namespace trainhost::planning {
namespace {

using parallel::MicroBatchSettings;
using parallel::PipelineSettings;
using parallel::SearchAxes;
using parallel::SearchSpace;

/// A key whose values a search enumerates.
struct SearchedKey {
  const char* key;
  std::vector<std::uint32_t> SearchAxes::*values;
  std::uint32_t (*value)(const MicroBatchSettings&, const PipelineSettings&);
};

constexpr SearchedKey kAxes[] = {
    {"parallel.tensor", &SearchAxes::tensor,
     [](const MicroBatchSettings& m, const PipelineSettings&) { return m.tensor; }},
    {"parallel.pipeline", &SearchAxes::pipeline,
     [](const MicroBatchSettings&, const PipelineSettings& p) { return p.pipeline; }},
    {"parallel.data", &SearchAxes::data,
     [](const MicroBatchSettings&, const PipelineSettings& p) { return p.data; }},
    {"parallel.context", &SearchAxes::context,
     [](const MicroBatchSettings& m, const PipelineSettings&) { return m.context; }},
    {"parallel.expert", &SearchAxes::expert,
     [](const MicroBatchSettings& m, const PipelineSettings&) { return m.expert; }},
    {"parallel.interleave", &SearchAxes::interleave,
     [](const MicroBatchSettings&, const PipelineSettings& p) { return p.interleave; }},
    {"train.micro_batch", &SearchAxes::micro_batch,
     [](const MicroBatchSettings& m, const PipelineSettings&) { return m.micro_batch; }},
};

std::uint32_t value_of(const SearchedKey& axis, const RunSpec& r) {
  const Parallelism& p = r.parallel;
  return axis.value(
      {.tensor = p.tensor, .context = p.context, .expert = p.expert, .micro_batch = r.micro_batch},
      {.pipeline = p.pipeline, .interleave = p.virtual_stages, .data = p.data});
}

/// The value of `axis` nearest to that of the run, by factors, of the layouts of `space`; nullopt without
/// any.
std::optional<std::uint32_t> nearest_value(const model::Architecture& a, const SearchSpace& space,
                                           const SearchedKey& axis) {
  const double wanted = value_of(axis, space.base);
  std::optional<std::uint32_t> nearest;
  for (const MicroBatchSettings& m : micro_batch_settings(a, space))
    for (const PipelineSettings& p : pipeline_settings(a, space, m)) {
      const std::uint32_t v = axis.value(m, p);
      if (!nearest || std::abs(std::log(v / wanted)) < std::abs(std::log(*nearest / wanted))) nearest = v;
    }
  return nearest;
}

}  // namespace

std::string why_no_layout(const model::Architecture& a, const SearchSpace& space,
                          const std::set<std::string>& fixed) {
  std::string keys, remedies;
  for (const SearchedKey& axis : kAxes) {
    if (!fixed.contains(axis.key)) continue;
    SearchSpace opened = space;
    (opened.axes.*axis.values).clear();
    // Recomputation allows and excludes nothing else, and each kind would repeat the same layouts.
    opened.axes.recompute.resize(1);
    const std::optional<std::uint32_t> nearest = nearest_value(a, opened, axis);
    if (!nearest) continue;
    keys += fmt::format("{}{} = {}", keys.empty() ? "" : " and ", axis.key, value_of(axis, space.base));
    remedies += fmt::format("{}{} = {}", remedies.empty() ? "" : ", or ", axis.key, *nearest);
  }
  const std::string where =
      plural(space.devices, "device") + " and " + plural(space.global_batch, "sequence") + " per step";
  if (keys.empty())
    return fmt::format("no layout exists for {}: heads, tokens, layers and sequences must be divisible",
                       where);
  return fmt::format("no layout has {} with {}; use {}", keys, where, remedies);
}

}  // namespace trainhost::planning
