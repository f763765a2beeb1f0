// See progress.hpp. On a terminal one line is rewritten in place; in a file or pipe lines are added, less
// often the longer the run is. Everything goes to stderr: stdout is for results.
#include "core/report/progress.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/report/text_table.hpp"
#include "core/training/throughput.hpp"

namespace trainhost::report {

namespace {

std::string text_of(const training::StepProgress& l) {
  std::string s = fmt::format("step {:>{}}/{}  loss {:.4f}  norm {:.2f}  lr {:.2e}  {} tok/s", l.step,
                              std::to_string(l.steps).size(), l.steps, l.loss, l.grad_norm, l.lr,
                              training::format_rate(l.tokens_per_s));
  if (l.mfu) s += fmt::format("  MFU {:.0f} %", 100 * *l.mfu);
  return s + "  ETA " + training::format_duration(l.eta_s);
}

}  // namespace

bool Progress::due(const training::StepProgress& l, Clock::time_point now) const {
  // The first step and the last are always shown.
  if (lines_ == 0 || l.step == l.steps) return true;
  double since = std::chrono::duration<double>(now - last_).count();
  // Ten times a second is as fast as one can read.
  if (mode_ == Mode::kLive) return since >= 0.1;
  // Lines of a log: soon at first, so that a wrong run is noticed, then every 10 s.
  return since >= (lines_ < 5 ? 0.5 : lines_ < 20 ? 2.0 : 10.0);
}

void Progress::step(const training::StepProgress& l) {
  auto now = Clock::now();
  if (mode_ == Mode::kSilent || !due(l, now)) return;
  last_ = now;
  ++lines_;
  if (mode_ == Mode::kPlain) {
    write_stderr(text_of(l) + "\n");
  } else {
    std::string text = text_of(l);
    unsigned used = static_cast<unsigned>(display_width(text)) + 3;
    // The bar needs at least 10 columns; without them only the text is printed.
    if (terminal_.width > used + 10) {
      unsigned width = std::min(30u, terminal_.width - used - 1);
      std::string filled = bar(static_cast<double>(l.step) / static_cast<double>(l.steps), width);
      filled.append(width - display_width(filled), ' ');
      text = styled(terminal_, Style::kAccent, filled) + " " + text;
    }
    // Carriage return, text, then clear to the end of the line: a shorter text leaves nothing of a longer
    // one.
    write_stderr("\r" + text + "\x1b[K");
    live_shown_ = true;
  }
}

void Progress::print_line(const std::string& text) {
  if (mode_ == Mode::kSilent) return;
  // The live line is removed and comes back with the next step.
  clear();
  write_stderr(text + "\n");
}

void Progress::clear() {
  if (!live_shown_) return;
  write_stderr("\r\x1b[K");
  live_shown_ = false;
}

}  // namespace trainhost::report
