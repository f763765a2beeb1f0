// GPU-008: no copy off the device reads what a kernel on another stream has not finished writing. Seen from
// outside, such a copy gives other bits when the host is early or late: 20 steps in peace and 20 with pauses
// of many lengths and a busy second thread must end in the same losses and weights. A trainer that keeps
// count itself is asked
// ("order_violations").
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/verify/gpu_checks.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint64_t kCopyOrderSteps = 20;

/// Keeps one core busy while it lives, so that the trainer's own threads are late now and then.
class BusyThread {
 public:
  explicit BusyThread(bool on) {
    if (on)
      thread_ = std::thread([this] {
        while (!stop_.load(std::memory_order_relaxed)) std::this_thread::yield();
      });
  }
  ~BusyThread() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  BusyThread(const BusyThread&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// 0 to 3 ms, the same sequence every time.
void pause(std::uint64_t t) {
  std::this_thread::sleep_for(std::chrono::microseconds((t * 2654435761u) % 3001));
}

struct Trace {
  std::vector<double> losses, norms;
  Snapshot saved, again;
  std::optional<double> violations;
};

Trace trace(Context& context, const std::string& mode, bool disturbed) {
  Rig rig(context, context.run, {.mode = mode});
  BusyThread busy(disturbed);
  Trace out;
  for (std::uint64_t t = 0; t < kCopyOrderSteps; ++t) {
    if (disturbed) pause(t);
    const plugin::StepResult r = rig.step(t, context.run.optimizer.lr);
    out.losses.push_back(r.loss);
    out.norms.push_back(r.grad_norm);
  }
  out.saved = rig.weights();  // at once after the last step: the copy most likely to come too early
  pause(kCopyOrderSteps + 1);
  out.again = rig.weights();
  out.violations = rig.session().metric("order_violations");
  return out;
}

std::uint64_t different_bits(const std::vector<double>& a, const std::vector<double>& b) {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) n += std::memcmp(&a[i], &b[i], sizeof(double)) != 0;
  return n;
}

Finding judge(Context& context, const std::string& mode) {
  const Trace calm = trace(context, mode, false), late = trace(context, mode, true);
  const std::uint64_t figures =
      different_bits(calm.losses, late.losses) + different_bits(calm.norms, late.norms);
  const std::uint64_t weights = verify::different_bits(calm.saved, late.saved);
  const std::uint64_t reread =
      verify::different_bits(calm.saved, calm.again) + verify::different_bits(late.saved, late.again);
  const double counted = calm.violations.value_or(0) + late.violations.value_or(0);
  const double breaches = static_cast<double>(figures + weights + reread) + counted;
  std::string text = fmt::format(
      "{} steps in peace and {} with a late host: {} losses and norms and {} weights differ, {} weights "
      "differ when read again",
      kCopyOrderSteps, kCopyOrderSteps, figures, weights, reread);
  text += calm.violations ? fmt::format("; the trainer counts {:g} reads that came too early", counted)
                          : "; the trainer does not count order violations itself";
  return {breaches == 0, breaches, 0, text};
}

}  // namespace

Result check_order(Context& context) {
  if (!context.subjects.on_device())
    return skipped(fmt::format("the {} backend transfers nothing", context.subjects.backend()));
  return over_modes(context, [&](const std::string& mode) { return judge(context, mode); });
}

}  // namespace trainhost::verify
