// GPU-008: no copy from the device reads bytes that a kernel on another stream has not finished writing. The
// result of such a copy depends on the timing of the host. So 20 steps without and 20 with an artificial host
// delay (pauses of different lengths, a busy second thread) must give the same losses and weights, bit for
// bit. A trainer that counts such reads itself reports them as the metric "order_violations".
#include <fmt/format.h>

#include <atomic>
#include <cassert>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/verify/contract_table.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint64_t kCopyOrderSteps = 20;

/// Keeps one core busy during its lifetime, so that threads of the trainer are delayed at times.
/// Yields instead of sleeping, so that it competes for a core all the time.
class BusyThread {
 public:
  explicit BusyThread(bool busy) {
    if (busy)
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

/// Sleeps 0 to 3 ms; the same sequence of times in every run.
/// Pauses shift the host against the device: with them the device has finished its work before the copy,
/// without them it may not have.
void sleep_before_step(std::uint64_t t) {
  std::this_thread::sleep_for(std::chrono::microseconds((t * 2654435761u) % 3001));
}

struct TrainingRecord {
  std::vector<double> losses, norms;
  /// Two readings, because a copy that came too early reads old bytes once and new ones later.
  Snapshot saved, saved_again;  // at once after the last step, and later
  std::optional<double> violations;
};

TrainingRecord train_20_steps(Context& context, const std::string& mode, bool delayed) {
  TrainerFixture fixture(context, context.run, {.mode = mode});
  // Started after the session: its creation need not be delayed.
  BusyThread busy(delayed);
  TrainingRecord out;
  for (std::uint64_t t = 0; t < kCopyOrderSteps; ++t) {
    if (delayed) sleep_before_step(t);
    const plugin::StepResult r = fixture.step(t, context.run.optimizer.lr);
    out.losses.push_back(r.loss);
    out.norms.push_back(r.grad_norm);
  }
  out.saved = fixture.weights();  // the copy most likely to read too early
  sleep_before_step(kCopyOrderSteps + 1);
  out.saved_again = fixture.weights();
  // Optional: a trainer that can detect early reads counts them.
  out.violations = fixture.session().metric("order_violations");
  return out;
}

// Losses and norms are compared by bits too: a tolerance could hide one wrong element.
std::uint64_t different_bits(const std::vector<double>& a, const std::vector<double>& b) {
  std::uint64_t n = 0;
  assert(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) n += std::memcmp(&a[i], &b[i], sizeof(double)) != 0;
  return n;
}

Finding judge_copy_order(Context& context, const std::string& mode) {
  const TrainingRecord plain = train_20_steps(context, mode, false);
  const TrainingRecord delayed = train_20_steps(context, mode, true);
  const std::uint64_t figures =
      different_bits(plain.losses, delayed.losses) + different_bits(plain.norms, delayed.norms);
  const std::uint64_t weights = verify::different_bits(plain.saved, delayed.saved);
  const std::uint64_t reread = verify::different_bits(plain.saved, plain.saved_again) +
                               verify::different_bits(delayed.saved, delayed.saved_again);
  // Each counted early read is a violation even if it had no effect this time.
  const double counted = plain.violations.value_or(0) + delayed.violations.value_or(0);
  const double violations = static_cast<double>(figures + weights + reread) + counted;
  std::string text = fmt::format(
      "{} steps without and {} with an artificial host delay: {} losses and norms and {} weights differ, {} "
      "weights differ when saved again",
      kCopyOrderSteps, kCopyOrderSteps, figures, weights, reread);
  text += plain.violations ? fmt::format("; the trainer counts {:g} early reads", counted)
                           : "; the trainer does not report order_violations";
  return {violations == 0, violations, 0, text};
}

}  // namespace

Result check_copy_order(Context& context) {
  if (!context.trainers.on_device())
    return skipped(fmt::format("the {} backend makes no transfers", context.trainers.backend()));
  return run_in_every_mode(context, [&](const std::string& mode) { return judge_copy_order(context, mode); });
}

}  // namespace trainhost::verify
