// See progress.hpp.
#include "core/report/progress.hpp"

#include <fmt/format.h>

namespace trainhost::report {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Ten times a second is as fast as one can read.
constexpr double kRedraw = 0.1;

}  // namespace

Progress::Progress(Mode mode, Terminal terminal, Write write)
    : mode_(mode), terminal_(terminal), write_(std::move(write)) {}

bool Progress::step_is_due(bool ends, Clock::time_point now) const {
  // The first step and the last are always shown.
  if (lines_ == 0 || ends) return true;
  const double since = seconds_between(last_, now);
  if (mode_ == Mode::kLive) return since >= kRedraw;
  // Lines of a log: soon at first, so that a wrong run is noticed, then every 10 s.
  return since >= (lines_ < 5 ? 0.5 : lines_ < 20 ? 2.0 : 10.0);
}

void Progress::step(const training::StepProgress& step) {
  if (mode_ == Mode::kSilent) return;
  status_.add(step);
  const auto now = Clock::now();
  if (!step_is_due(step.step == step.steps, now)) return;
  last_ = now;
  ++lines_;
  if (mode_ == Mode::kPlain) return write_(status_.plain() + "\n");
  shows_steps_ = true;
  draw();
}

void Progress::phase(std::string_view name, std::uint64_t done_bytes, std::uint64_t total_bytes) {
  if (mode_ == Mode::kSilent) return;
  const auto now = Clock::now();
  if (name != phase_name_) {
    end_phase();
    phase_ = {};
    phase_name_ = name, phase_start_ = phase_last_ = now;
  }
  phase_.add(phase_name_, done_bytes, total_bytes, seconds_between(phase_start_, now));
  if (done_bytes >= total_bytes) return end_phase();
  const bool live = mode_ == Mode::kLive;
  if (seconds_between(phase_last_, now) < (phase_shown_ ? (live ? kRedraw : 10.0) : (live ? 0.5 : 2.0)))
    return;
  phase_last_ = now;
  phase_shown_ = true;
  if (!live) return write_(phase_.plain() + "\n");
  shows_steps_ = false;
  draw();
}

void Progress::end_phase() {
  if (phase_name_.empty()) return;
  phase_name_.clear();
  if (!std::exchange(phase_shown_, false)) return;
  // On a terminal the line has shown it; messages follow.
  clear();
  if (mode_ == Mode::kPlain) write_(phase_.plain() + "\n");
}

/// Carriage return, text, then clear to the end of the line: a shorter text leaves nothing of a longer one.
/// After the window became narrower, the line before occupies several rows: the cursor goes back to the first
/// of them. The last column stays empty, because some terminals wrap there.
void Progress::draw() {
  terminal_.width = terminal_of(2).width;
  const unsigned width = std::max(terminal_.width, 1u);
  std::string out = "\r";
  if (const unsigned rows = shown_columns_ ? (shown_columns_ - 1) / width : 0; rows > 0)
    out += fmt::format("\x1b[{}A\x1b[J", rows);
  const FittedLine::Text line =
      shows_steps_ ? status_.fitted(terminal_, width - 1) : phase_.fitted(terminal_, width - 1);
  write_(out + line.text + "\x1b[K");
  shown_columns_ = std::max(line.columns, 1u);
}

void Progress::print_line(const std::string& text) {
  if (mode_ == Mode::kSilent) return;
  const bool shown = shown_columns_ > 0;
  clear();
  write_(text + "\n");
  if (shown) draw();
}

void Progress::clear() {
  if (!shown_columns_) return;
  const unsigned rows = (shown_columns_ - 1) / std::max(terminal_of(2).width, 1u);
  write_(rows ? fmt::format("\r\x1b[{}A\x1b[J", rows) : std::string("\r\x1b[K"));
  shown_columns_ = 0;
}

}  // namespace trainhost::report
