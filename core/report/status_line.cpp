// See status_line.hpp.
#include "core/report/status_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/text.hpp"
#include "core/training/throughput.hpp"

namespace trainhost::report {
namespace {

/// Weight of a step in the smoothed loss: about the last 20 steps, as for tokens per second.
constexpr double kWeight = 0.05;

/// Order in which fields are left out on a narrow terminal, the first one first.
enum Importance { kLr = -3, kNorm, kMfu, kSpark, kMemory, kBar, kRanks, kRate, kEta, kLoss, kStep };

/// The slowest rank is marked from this excess over the mean on.
constexpr double kSlow = 0.2;

}  // namespace

void StatusLine::add(const training::StepProgress& step) {
  last_ = step;
  losses_.add(step.loss);
  // Divided by the sum of the weights, so that the first step is not averaged with 0.
  if (!std::isfinite(step.loss)) return;
  loss_ = (1 - kWeight) * loss_ + kWeight * step.loss;
  weight_ = (1 - kWeight) * weight_ + kWeight;
}

FittedLine::Text StatusLine::fitted(const Terminal& t, unsigned columns) {
  const training::StepProgress& l = last_;
  const double loss = weight_ > 0 ? loss_ / weight_ : l.loss;
  const std::string rate = training::format_rate(l.tokens_per_s), eta = training::format_duration(l.eta_s);
  const std::string steps = std::to_string(l.steps);
  const double share = static_cast<double>(l.step) / static_cast<double>(std::max<std::uint64_t>(l.steps, 1));
  const std::string step = fmt::format("{:>{}}/{}", l.step, steps.size(), steps);
  FittedLine line;
  line.add_chart(
      kBar, {6, 16, 30}, [&](unsigned n) { return track(share, n, t.utf8); }, Style::kAccent);
  line.add(kStep, "step " + step, steps.size() <= 4 ? step : fmt::format("{:.1f} %", 100 * share));
  line.add(kLoss, fmt::format("loss {:.4f}", loss), fmt::format("loss {:.3f}", loss));
  line.add_chart(
      kSpark, {8, 16, 40}, [&](unsigned n) { return sparkline(losses_.means(n), t.utf8); }, Style::kAccent);
  line.add(kRate, rate + " tok/s", rate + "/s");
  if (const auto& r = l.ranks) {
    line.add(kRanks, training::format_rate(l.tokens_per_s / r->count) + "/rank");
    line.add(kRanks, fmt::format("wait {:.0f} %", 100 * r->wait_share));
    line.add(kRanks, fmt::format("slowest rank {} {:+.0f} %", r->slowest, 100 * r->slowest_excess),
             fmt::format("slowest {}", r->slowest), r->slowest_excess > kSlow ? Style::kBad : Style::kPlain);
  }
  line.add(kEta, "ETA " + eta);
  if (l.memory_bytes) line.add(kMemory, "mem " + format_bytes(l.memory_bytes), format_bytes(l.memory_bytes));
  if (l.mfu) line.add(kMfu, fmt::format("MFU {:.0f} %", 100 * *l.mfu));
  line.add(kNorm, fmt::format("norm {:.2f}", l.grad_norm));
  line.add(kLr, fmt::format("lr {:.2e}", l.lr));
  return line.fit(t, columns, padding_);
}

std::string StatusLine::plain() const {
  const training::StepProgress& l = last_;
  std::string s = fmt::format("step {:>{}}/{}  loss {:.4f}  norm {:.2f}  lr {:.2e}  {} tok/s", l.step,
                              std::to_string(l.steps).size(), l.steps, l.loss, l.grad_norm, l.lr,
                              training::format_rate(l.tokens_per_s));
  if (l.mfu) s += fmt::format("  MFU {:.0f} %", 100 * *l.mfu);
  if (const auto& r = l.ranks)
    s += fmt::format("  {}/rank  wait {:.0f} %  slowest rank {} {:+.0f} %",
                     training::format_rate(l.tokens_per_s / r->count), 100 * r->wait_share, r->slowest,
                     100 * r->slowest_excess);
  return s + "  ETA " + training::format_duration(l.eta_s);
}

void PhaseLine::add(std::string name, std::uint64_t done_bytes, std::uint64_t total_bytes, double seconds) {
  name_ = std::move(name), done_ = std::min(done_bytes, total_bytes), total_ = total_bytes;
  seconds_ = seconds;
}

double PhaseLine::share() const {
  return total_ ? static_cast<double>(done_) / static_cast<double>(total_) : 0;
}

std::string PhaseLine::eta() const {
  return training::format_duration(share() > 0 ? seconds_ / share() - seconds_ : -1);
}

FittedLine::Text PhaseLine::fitted(const Terminal& t, unsigned columns) {
  constexpr std::size_t kLongestName = 40;
  std::string name = escaped(name_);
  const std::size_t most = std::clamp<std::size_t>(columns * 3 / 5, 12, kLongestName);
  if (name.size() > most) {
    // What is done, and the end of the file's name, which distinguishes it from others.
    std::string done = name.substr(0, name.find(' ') + 1);
    if (done.size() + 8 > most) done.clear();
    std::size_t from = name.size() - (most - done.size() - 1);
    while (from < name.size() && (static_cast<unsigned char>(name[from]) & 0xC0) == 0x80) ++from;
    name = done + (t.utf8 ? "…" : "~") + name.substr(from);
  }
  FittedLine line;
  line.add(5, name);
  line.add_chart(
      3, {6, 16, 30}, [&](unsigned n) { return track(share(), n, t.utf8); }, Style::kAccent);
  line.add(4, fmt::format("{:>3.0f} %", 100 * share()));
  line.add(1, format_bytes(done_) + " of " + format_bytes(total_));
  line.add(0, seconds_ > 0
                  ? format_bytes(static_cast<std::uint64_t>(static_cast<double>(done_) / seconds_)) + "/s"
                  : "");
  line.add(2, "ETA " + eta());
  return line.fit(t, columns, padding_);
}

std::string PhaseLine::plain() const {
  if (done_ >= total_)
    return fmt::format("{}: {} in {}", escaped(name_), format_bytes(total_),
                       training::format_duration(seconds_));
  return fmt::format("{}: {:.0f} %, {} of {}, ETA {}", escaped(name_), 100 * share(), format_bytes(done_),
                     format_bytes(total_), eta());
}

}  // namespace trainhost::report
