// See run_record.hpp. Lines of steps, which are nearly all of a long file, are searched for their numbers
// instead of parsed: ten million of them are read in seconds.
#include "core/report/run_record.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/training/events.hpp"
#include "core/training/run_status.hpp"

namespace trainhost::report {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kBlock = 1 << 20, kEvents = 60, kEvaluations = 4000, kLogLines = 80, kSamples = 20;
constexpr std::uint64_t kMostBytes = 1 << 20;  // of the other files

constexpr double kMostCount = 9e15;  // below 2^53: a double has it exactly, and it fits 64 bits

/// The number after `"key":`; NaN if there is none or it is null.
double number_of(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  double v = std::numeric_limits<double>::quiet_NaN();
  if (at != line.npos) std::from_chars(line.data() + at + key.size(), line.data() + line.size(), v);
  return v;
}

/// The same for what is counted; NaN if it is negative or larger than any count.
double count_of(std::string_view line, std::string_view key) {
  const double v = number_of(line, key);
  return v >= 0 && v <= kMostCount ? v : std::numeric_limits<double>::quiet_NaN();
}

/// The last `most` bytes of a regular file; "" where it cannot be read.
std::string end_of_file(const fs::path& path, std::uint64_t most) {
  const checkpoint::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  const auto size = static_cast<std::uint64_t>(info.st_size);
  std::string text(std::min(size, most), '\0');
  const ssize_t n = ::pread(file.get(), text.data(), text.size(), static_cast<off_t>(size - text.size()));
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

/// Complete lines of `text`; without the first one if it may be a part of one.
std::vector<std::string> lines_of(const std::string& text, bool from_start) {
  std::vector<std::string> out;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    if (begin > 0 || from_start) out.push_back(text.substr(begin, end - begin));
  return out;
}

JsonValue json_of(const std::string& text) {
  try {
    return parse_json(text, 8);
  } catch (const JsonError&) {
    return {};
  }
}

double double_of(const JsonValue& j, std::string_view key) {
  const JsonValue* const v = j.find(key);
  return v && (v->kind == JsonValue::Kind::kNumber || v->kind == JsonValue::Kind::kInteger)
             ? v->number
             : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::uint64_t integer_of(const JsonValue& j, std::string_view key) {
  const JsonValue* const v = j.find(key);
  return v && v->integer > 0 ? static_cast<std::uint64_t>(v->integer) : 0;
}

RunRecord::RunRecord(fs::path folder, std::size_t points)
    : folder_(std::move(folder)), points_(points), curves_(points) {
  // "runs/a/" has an empty last part.
  if (!folder_.has_filename() && folder_.has_parent_path()) folder_ = folder_.parent_path();
}

std::string RunRecord::name() const {
  std::error_code ec;
  const std::string last = folder_.filename().string();
  return last == "." || last == ".." ? fs::canonical(folder_, ec).filename().string() : last;
}

void RunRecord::require_run(std::uint64_t most) {
  const std::string shown = escaped(folder_.string(), 4096);
  std::error_code ec;
  if (!fs::is_directory(folder_, ec))
    throw usage_error(shown + (fs::exists(folder_, ec) ? " is not a folder" : " does not exist"),
                      "name the folder of a run, for example runs/builtin");
  if (!fs::is_regular_file(folder_ / "metrics.jsonl", ec))
    throw usage_error(shown + " is not the folder of a run: it has no metrics.jsonl",
                      "name the output.dir of a run, for example runs/builtin");
  most == UINT64_MAX ? update() : read_metrics(false, most);
  if (start_.is_null() && step_ == 0)
    throw usage_error(shown + "/metrics.jsonl has no event of trainhost",
                      "name the output.dir of a run, for example runs/builtin");
}

const JsonValue& RunRecord::plan() const {
  static const JsonValue kNone;
  const JsonValue* const p = start_.find("plan");
  return p ? *p : kNone;
}

double RunRecord::eta_s() const {
  return ended() || steps_ <= step_ || recent_ms_ <= 0
             ? 0
             : static_cast<double>(steps_ - step_) * recent_ms_ * 1e-3;
}

void RunRecord::clear() {
  const RunRecord empty(folder_, points_);
  *this = empty;
}

bool RunRecord::update() {
  again_ = false;
  bool changed = read_metrics(true);
  if (again_) {
    clear();
    read_metrics(false);
    changed = true;
  }
  return read_others() || changed;
}

/// `stops`: at a step that comes twice, because it replaces what was read before. A file that has one itself,
/// which a run never writes, is read to its end.
bool RunRecord::read_metrics(bool stops, std::uint64_t most) {
  const checkpoint::Fd file(::open((folder_ / "metrics.jsonl").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  const std::uint64_t size = std::min(static_cast<std::uint64_t>(info.st_size), most);
  const bool another = inode_ && inode_ != static_cast<std::uint64_t>(info.st_ino);
  bool changed = another || size < read_;
  if (changed) clear();
  inode_ = info.st_ino;
  std::string block(std::min<std::uint64_t>(kBlock, size > read_ ? size - read_ : 0), '\0');
  while (read_ < size && !(again_ && stops)) {
    const ssize_t n = ::pread(file.get(), block.data(), block.size(), static_cast<off_t>(read_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    changed = true;
    read_ += static_cast<std::uint64_t>(n);
    const std::string_view bytes(block.data(), static_cast<std::size_t>(n));
    std::size_t begin = 0;
    for (std::size_t end; (end = bytes.find('\n', begin)) != bytes.npos; begin = end + 1) {
      const std::string_view part = bytes.substr(begin, end - begin);
      if (too_long_)
        too_long_ = false;
      else if (rest_.empty())
        line(part);
      else
        line(rest_.append(part));
      rest_.clear();
    }
    if (!too_long_) rest_.append(bytes.substr(begin));
    if (rest_.size() > training::kMostEventBytes) too_long_ = true, rest_ = {};
  }
  return changed;
}

void RunRecord::line(std::string_view text) {
  if (text.starts_with(R"({"event":"step",)")) return step_line(text);
  const std::optional<JsonValue> j = training::parse_event(std::string(text));
  if (!j) return;
  const std::string_view kind = j->text_of("event");
  const std::uint64_t at = integer_of(*j, "step");
  if (kind == "start") {
    // A resumed run adds a start event of its own, with the plan and the number of steps that hold from now
    // on.
    start_ = *j;
    steps_ = integer_of(*j, "steps");
    done_ = {};
    if (const std::uint64_t from = integer_of(*j, "resumed_from"))
      event(fmt::format("resumed after step {}", from));
  } else if (kind == "eval") {
    if (const double loss = double_of(*j, "loss"); std::isfinite(loss)) {
      if (evaluations_.size() == kEvaluations) {
        for (std::size_t i = 0; i < kEvaluations / 2; ++i) evaluations_[i] = evaluations_[2 * i + 1];
        evaluations_.resize(kEvaluations / 2);
      }
      evaluations_.emplace_back(at, loss);
    }
  } else if (kind == "done") {
    done_ = *j;
  } else if (kind == "checkpoint") {
    event(fmt::format("step {}: checkpoint", at));
  } else if (kind == "skip") {
    event(fmt::format("step {}: update left out ({})", at, escaped(j->text_of("reason"), 40)));
  } else if (kind == "rollback") {
    event(fmt::format("step {}: returned to step {} ({})", integer_of(*j, "from_step"), at,
                      escaped(j->text_of("reason"), 40)));
  } else if (kind == "early_stop") {
    event(fmt::format("step {}: stopped early", at));
  } else if (kind == "note") {
    event(escaped(j->text_of("text"), 400));
  }
}

/// Accepts only a line that ends as an object does: a torn one may have half a number.
void RunRecord::step_line(std::string_view text) {
  const double step = count_of(text, "\"step\":");
  if (!text.ends_with('}') || !(step >= 1)) return;
  const auto n = static_cast<std::uint64_t>(step);
  if (n <= step_) {
    again_ = true;
    return;
  }
  step_ = n;
  const double ms = number_of(text, "\"ms\":"), tokens = count_of(text, "\"tokens\":");
  if (ms > 0) ms_ += ms, recent_ms_ = recent_ms_ > 0 ? 0.95 * recent_ms_ + 0.05 * ms : ms;
  if (tokens > 0) tokens_ += static_cast<std::uint64_t>(tokens);
  curves_.add(n, {number_of(text, "\"loss\":"), number_of(text, "\"grad_norm\":"),
                  number_of(text, "\"tokens_per_s\":"), number_of(text, "\"lr\":"),
                  count_of(text, "\"memory_bytes\":")});
}

void RunRecord::event(const std::string& text) {
  if (events_.size() == kEvents) events_.pop_front();
  events_.push_back(text);
}

/// Read again only where the size or the time of one of them has changed; the state always, because a process
/// can end without writing.
bool RunRecord::read_others() {
  const training::RunState now = training::run_state(folder_);
  // Both are printed.
  const std::string state = escaped(now.state, 40), reason = escaped(now.reason, 4096);
  bool changed = state != state_ || reason != reason_;
  state_ = state, reason_ = reason;
  std::string stamp;
  for (const char* name : {"run.toml", "environment.json", "samples.jsonl", "run.log"}) {
    struct stat info {};
    if (::stat((folder_ / name).c_str(), &info) != 0) info = {};
    stamp += fmt::format("{} {} {} ", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  }
  if (fnv1a(stamp) == others_) return changed;
  others_ = fnv1a(stamp);
  run_file_ = end_of_file(folder_ / "run.toml", kMostBytes);
  environment_ = json_of(end_of_file(folder_ / "environment.json", kMostBytes));
  samples_.clear();
  for (const std::string& text : lines_of(end_of_file(folder_ / "samples.jsonl", kMostBytes), true))
    if (const std::optional<JsonValue> j = training::parse_event(text)) {
      // A resumed run, or one that has returned to a checkpoint, comes to a step again.
      while (!samples_.empty() && samples_.back().first >= integer_of(*j, "step")) samples_.pop_back();
      samples_.emplace_back(integer_of(*j, "step"), std::string(j->text_of("text")));
    }
  if (samples_.size() > kSamples) samples_.erase(samples_.begin(), samples_.end() - kSamples);
  constexpr std::uint64_t kLogBytes = 1 << 15;
  const std::string log = end_of_file(folder_ / "run.log", kLogBytes);
  log_ = lines_of(log, log.size() < kLogBytes);
  if (log_.size() > kLogLines) log_.erase(log_.begin(), log_.end() - kLogLines);
  return true;
}

}  // namespace trainhost::report
