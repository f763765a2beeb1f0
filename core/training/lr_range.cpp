// See lr_range.hpp. All indices are steps of the ramp: equal distances on a logarithmic axis of rates.
#include "core/training/lr_range.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/model/adapters.hpp"

namespace trainhost::training {

double LrRange::ratio() const {
  assert(steps > 1 && from > 0);
  return std::exp(std::log(to / from) / static_cast<double>(steps - 1));
}

// The ends are exact.
double LrRange::rate(std::uint64_t step) const {
  assert(step < steps);
  if (step + 1 == steps) return to;
  return from * std::exp(std::log(to / from) * static_cast<double>(step) / static_cast<double>(steps - 1));
}

LrRange default_lr_range(const runfile::RunConfig& c) {
  const bool loaded = c.weights && !trains_adapters(c.run);
  const bool sgd = c.run.optimizer == Optimizer::kSgd || c.run.optimizer == Optimizer::kSgdMomentum;
  const double scale = (loaded ? 0.1 : 1) * (sgd ? 100 : 1);
  return {1e-6 * scale, scale, 100};
}

namespace {

constexpr std::uint64_t kFewestSteps = 20, kMostSteps = 10000;

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Median of losses[begin, end); the lower one of two.
double median(std::span<const double> losses, std::size_t begin, std::size_t end) {
  assert(begin < end && end <= losses.size());
  std::vector<double> sorted(losses.begin() + static_cast<std::ptrdiff_t>(begin),
                             losses.begin() + static_cast<std::ptrdiff_t>(end));
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

constexpr std::size_t kMedian = 5;  // losses

/// The loss above which a run has diverged; infinite before the first median.
double divergence_limit(std::span<const double> losses) {
  if (losses.size() < kMedian) return INFINITY;
  const double first = median(losses, 0, kMedian);
  double lowest = first;
  for (std::size_t end = kMedian + 1; end <= losses.size(); ++end)
    lowest = std::min(lowest, median(losses, end - kMedian, end));
  return std::max(first, 2 * lowest);
}

}  // namespace

LrRange parse_lr_range(const std::string& text, const LrRange& defaults) {
  const auto fail = [&](const std::string& why) {
    return usage_error(fmt::format("--find-lr={}: {}", escaped(text, 60), why),
                       fmt::format("write FROM:TO or FROM:TO:STEPS, for example --find-lr={:g}:{:g}:{}",
                                   defaults.from, defaults.to, defaults.steps));
  };
  const std::string_view all = text;
  const std::size_t colon = all.find(':');
  if (colon == all.npos) throw fail("expected two learning rates");
  const std::size_t second = all.find(':', colon + 1);
  const auto from = parse_number<double>(all.substr(0, colon));
  const auto to =
      parse_number<double>(all.substr(colon + 1, second == all.npos ? second : second - colon - 1));
  const auto steps =
      second == all.npos ? defaults.steps : parse_number<std::uint64_t>(all.substr(second + 1));
  if (!from || !to || !(*from > 0) || !(*to <= 100)) throw fail("a learning rate is above 0 and at most 100");
  if (!(*from < *to)) throw fail("the first rate is not below the second");
  if (!(*to / *from <= 1e15)) throw fail("the rates are more than 15 powers of ten apart");
  if (!steps || *steps < kFewestSteps || *steps > kMostSteps)
    throw fail(fmt::format("STEPS is a whole number from {} to {}", kFewestSteps, format_count(kMostSteps)));
  return {*from, *to, *steps};
}

bool has_diverged(std::span<const double> losses) {
  return losses.size() >= kMedian &&
         median(losses, losses.size() - kMedian, losses.size()) > divergence_limit(losses);
}

namespace {

/// The loss and its slope per step at one step, by a weighted least-squares line.
struct Smoothed {
  double loss = 0, slope = 0;
  double error = 0;  // standard error of `loss` in units of the standard deviation of one loss
};

/// `x0`: the step; weights exp(-(x - x0)^2 / (2 h^2)).
Smoothed fit_line(const std::vector<double>& y, std::size_t x0, double h) {
  double s0 = 0, s1 = 0, s2 = 0, t0 = 0, t1 = 0;
  const auto weight = [&](std::size_t i) {
    const double d = (static_cast<double>(i) - static_cast<double>(x0)) / h;
    return std::exp(-d * d / 2);
  };
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double d = static_cast<double>(i) - static_cast<double>(x0), w = weight(i);
    s0 += w, s1 += w * d, s2 += w * d * d, t0 += w * y[i], t1 += w * d * y[i];
  }
  const double det = s0 * s2 - s1 * s1;
  assert(det > 0);
  Smoothed out{(s2 * t0 - s1 * t1) / det, (s0 * t1 - s1 * t0) / det, 0};
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double d = static_cast<double>(i) - static_cast<double>(x0);
    const double l = weight(i) * (s2 - s1 * d) / det;  // the part of y[i] in the loss
    out.error += l * l;
  }
  out.error = std::sqrt(out.error);
  return out;
}

/// Standard deviation of losses around the smoothed ones, from the median of the differences, so that a few
/// large ones do not count.
double noise_of(const std::vector<double>& losses, const std::vector<Smoothed>& smoothed) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < losses.size(); ++i)
    differences.push_back(std::abs(losses[i] - smoothed[i].loss));
  return 1.4826 * median(differences, 0, differences.size());
}

/// 3.16e-4 as 3.2e-4.
double two_digits(double lr) { return *parse_number<double>(fmt::format("{:.1e}", lr)); }

std::string shown(double lr) { return fmt::format("{:g}", two_digits(lr)); }

}  // namespace

LrSuggestion suggest_lr(const LrRange& range, std::span<const LrPoint> points, RangeEnd end) {
  LrSuggestion out;
  const std::size_t n = points.size();
  constexpr std::size_t kFewest = 10;
  if (n < kFewest) {
    out.reason = fmt::format("the loss {} after {} of {} steps; start the range at a smaller rate",
                             end == RangeEnd::kNonfinite ? "is not finite" : "diverges", n, range.steps);
    for (const LrPoint& p : points) out.smoothed.push_back(p.loss);
    return out;
  }
  std::vector<double> losses;
  for (const LrPoint& p : points) losses.push_back(p.loss);
  // The size of a diverged loss, or of a bad batch, says nothing and would move the lines around it.
  const double limit = divergence_limit(losses);
  for (double& loss : losses) loss = std::min(loss, limit);
  const double bandwidth = std::max(2.0, static_cast<double>(range.steps) / 20);
  std::vector<Smoothed> smoothed;
  for (std::size_t i = 0; i < n; ++i) smoothed.push_back(fit_line(losses, i, bandwidth));
  for (const Smoothed& s : smoothed) out.smoothed.push_back(s.loss);

  const auto lowest = static_cast<std::size_t>(std::min_element(out.smoothed.begin(), out.smoothed.end()) -
                                               out.smoothed.begin());
  const double noise = noise_of(losses, smoothed);
  // A change is more than noise if it is above three standard errors, and above a thousandth of the loss.
  const auto clear = [&](std::size_t a, std::size_t b) {
    const double change = out.smoothed[b] - out.smoothed[a];
    return std::abs(change) > 3 * noise * std::hypot(smoothed[a].error, smoothed[b].error) &&
           std::abs(change) > 1e-3 * std::abs(out.smoothed[a]);
  };
  if (!clear(0, lowest)) {
    out.reason =
        end != RangeEnd::kComplete || (out.smoothed[n - 1] > out.smoothed[0] && clear(0, n - 1))
            ? "the loss rises without having fallen; start the range at a smaller rate"
            : fmt::format(
                  "the loss changes by {:.4f}, no more than between batches ({:.4f}); use "
                  "more steps, a larger batch or larger rates",
                  *std::max_element(out.smoothed.begin(), out.smoothed.end()) - out.smoothed[lowest], noise);
    return out;
  }
  std::size_t steepest = 0;
  for (std::size_t i = 0; i <= lowest; ++i)
    if (smoothed[i].slope < smoothed[steepest].slope) steepest = i;
  out.steepest = points[steepest].lr;
  out.minimum = points[lowest].lr;

  // Of a range that ends before the minimum nothing is known about larger rates.
  const bool still_falls = end == RangeEnd::kComplete && lowest + 1 == n;
  if (still_falls && static_cast<double>(n - 1 - steepest) <= bandwidth) {
    out.reason =
        fmt::format("the loss falls fastest at the largest rate, {}; extend the range", shown(range.to));
    return out;
  }
  if (steepest == 0) {
    out.reason =
        fmt::format("the loss falls fastest at the smallest rate, {}; start the range at a smaller one",
                    shown(range.from));
    return out;
  }
  const double tenth = *out.minimum / 10;
  if (!still_falls && tenth < range.from) {
    out.reason = fmt::format(
        "the loss is lowest at {}, and a tenth of that is outside the range; start it at "
        "a smaller rate",
        shown(*out.minimum));
    return out;
  }
  if (still_falls) {
    out.lr = two_digits(*out.steepest);
    out.reason = fmt::format(
        "the loss falls fastest there; it still falls at {}, so its minimum is not known", shown(range.to));
  } else if (*out.steepest <= tenth) {
    out.lr = two_digits(*out.steepest);
    out.reason = fmt::format("the loss falls fastest there; it is lowest at {}", shown(*out.minimum));
  } else {
    out.lr = two_digits(tenth);
    out.reason = fmt::format(
        "a tenth of {}, where the loss is lowest; it falls fastest at {}, which is closer to divergence",
        shown(*out.minimum), shown(*out.steepest));
  }
  return out;
}

}  // namespace trainhost::training
