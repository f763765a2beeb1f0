// See run_curves.hpp.
#include "core/report/run_curves.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace trainhost::report {
namespace {

void merge(RunCurves::Part& into, const RunCurves::Part& other) {
  if (!other.count) return;
  if (!into.count) {
    into = other;
    return;
  }
  into.sum += other.sum, into.count += other.count;
  into.least = std::min(into.least, other.least), into.most = std::max(into.most, other.most);
}

}  // namespace

const char* key_of(Metric m) {
  switch (m) {
    case Metric::kLoss:
      return "loss";
    case Metric::kGradNorm:
      return "grad_norm";
    case Metric::kTokensPerS:
      return "tokens_per_s";
    case Metric::kLr:
      return "lr";
    case Metric::kMemory:
      return "memory_bytes";
  }
  return "";
}

double six_digits(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", v);
  return std::strtod(text, nullptr);
}

void RunCurves::add(std::uint64_t step, const Values& v) {
  if (groups_.empty() || groups_.back().steps == per_group_) {
    if (groups_.size() == points_) {
      // Pairs of neighbours; an odd last group stays alone and is filled up.
      std::size_t kept = 0;
      for (std::size_t i = 0; i < groups_.size(); i += 2, ++kept) {
        Group g = groups_[i];
        if (i + 1 < groups_.size()) {
          const Group& next = groups_[i + 1];
          g.last_step = next.last_step, g.steps += next.steps;
          for (std::size_t m = 0; m < g.parts.size(); ++m) merge(g.parts[m], next.parts[m]);
        }
        groups_[kept] = g;
      }
      groups_.resize(kept);
      per_group_ *= 2;
    }
    if (groups_.empty() || groups_.back().steps == per_group_) groups_.emplace_back();
  }
  Group& g = groups_.back();
  g.last_step = step, ++g.steps;
  for (std::size_t m = 0; m < v.size(); ++m) {
    if (!std::isfinite(v[m])) continue;
    const Part one{v[m], v[m], v[m], 1};
    merge(g.parts[m], one), merge(whole_[m], one);
  }
  last_ = v;
}

JsonValue RunCurves::json() const {
  JsonValue x = JsonValue::array();
  for (const Group& g : groups_) x.push_back(g.last_step);
  JsonValue out = {{"x", std::move(x)}};
  for (const Metric m : kMetrics) {
    const auto at = static_cast<std::size_t>(m);
    if (!whole_[at].count) continue;
    JsonValue y = JsonValue::array(), low = JsonValue::array(), high = JsonValue::array();
    const auto value = [](const Part& p, double v) {
      return p.count ? JsonValue(six_digits(v)) : JsonValue();
    };
    const bool range = per_group_ > 1 && is_noisy(m);
    for (const Group& g : groups_) {
      const Part& p = g.parts[at];
      y.push_back(value(p, p.mean()));
      if (range) low.push_back(value(p, p.least)), high.push_back(value(p, p.most));
    }
    JsonValue curve = {{"y", std::move(y)}};
    if (range) curve["low"] = std::move(low), curve["high"] = std::move(high);
    out[key_of(m)] = std::move(curve);
  }
  return out;
}

}  // namespace trainhost::report
