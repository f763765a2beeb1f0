// See events.hpp. Keys of the events are an interface (docs/cli.md): none is renamed or removed.
// metrics.jsonl is written per event, so it is complete up to the last event even after a kill.
#include "core/training/events.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/training/utc_time.hpp"

namespace trainhost::training {
namespace {

using Json = JsonValue;

/// Opened without following a link, which could lead to a file of the user, and without waiting for a reader
/// of a pipe.
checkpoint::Fd open_metrics(const std::filesystem::path& path, int mode) {
  checkpoint::Fd file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | mode, 0644));
  if (file.get() < 0 && errno == ELOOP)  // O_NOFOLLOW
    throw run_error("cannot write " + escaped(path.string(), 4096) + ": it is a symbolic link");
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) checkpoint::throw_errno("open", path, errno);
  if (!S_ISREG(info.st_mode))
    throw run_error("cannot write " + escaped(path.string(), 4096) + ": it is not a regular file");
  return file;
}

Json memory_json(const MemoryResult& m) {
  Json tiers = Json::array();
  for (const auto& t : m.tiers)
    tiers.push_back({{"tier", name(t.tier)},
                     {"predicted_bytes", t.predicted_bytes},
                     {"measured_bytes", t.measured_bytes}});
  return {{"predicted_bytes", m.predicted_bytes},
          {"measured_bytes", m.measured_bytes},
          {"process_peak_bytes", m.process_peak_bytes},
          {"runtime_bytes", m.runtime_bytes()},
          {"tiers", std::move(tiers)}};
}

}  // namespace

/// Appends for a resumed run, whose file truncate_metrics() has cut back before.
Events::Events(const std::filesystem::path& metrics, bool append, std::FILE* copy)
    : file_(metrics.empty() ? checkpoint::Fd(-1) : open_metrics(metrics, O_APPEND | (append ? 0 : O_TRUNC))),
      path_(metrics),
      copy_(copy) {}

/// The file comes first: it is the record of the run, and a closed pipe must not lose a line. Each
/// line is written at once, so that another process can follow the run. The time is the last key: a line
/// still begins with what it is about.
std::string Events::line(Json event) {
  event["time"] = utc_time();
  std::string text = event.dump() + '\n';
  if (!path_.empty()) checkpoint::write_all(file_.get(), std::as_bytes(std::span(text)), path_);
  if (copy_) {
    std::fwrite(text.data(), 1, text.size(), copy_);
    std::fflush(copy_);
  }
  text.pop_back();
  return text;
}

/// The first event. "plan" is the object that `plan --json` prints, so readers need one schema.
void Events::start(const std::string& source, std::optional<double> entropy,
                   std::optional<double> entropy_error, const planning::Choice& choice,
                   const RunDevice& device, const std::string& plan_json, std::uint64_t steps,
                   std::uint64_t resumed_from) {
  Json src = {{"name", source}};
  if (entropy) src["entropy_nats"] = *entropy;
  if (entropy_error) src["entropy_error"] = *entropy_error;
  Json j = {{"event", "start"},
            {"source", std::move(src)},
            {"backend", choice.id},
            {"requested", choice.requested},
            {"dir", path_.parent_path().string()},
            {"steps", steps}};
  if (!choice.fallback_reason.empty()) j["fallback_reason"] = choice.fallback_reason;
  if (resumed_from) j["resumed_from"] = resumed_from;
  if (!device.name.empty())
    j["device"] = {{"name", device.name}, {"uuid", device.uuid}, {"engine", device.engine}};
  j["plan"] = parse_json(plan_json);
  line(std::move(j));
}

/// `tokens` are those of this step; ms is the time in the trainer, without data loading and checkpoints.
void Events::step(const StepEvent& e, std::span<const RankTime> ranks) {
  Json j = {{"event", "step"},
            {"step", e.step},
            {"loss", e.loss},
            {"grad_norm", e.grad_norm},
            {"lr", e.lr},
            {"tokens", e.tokens},
            {"ms", e.ms},
            {"tokens_per_s", e.tokens_per_s},
            {"memory_bytes", e.memory_bytes}};
  if (!ranks.empty()) {
    const std::uint32_t slowest = slowest_rank(ranks);
    const RankTime mean = mean_of(ranks);
    j["communication"] = {{"bytes", static_cast<std::uint64_t>(ranks[0].bytes)},
                          {"wait_ms", mean.wait_ms},
                          {"compute_ms", mean.compute_ms},
                          {"slowest_rank", slowest},
                          {"slowest_compute_ms", ranks[slowest].compute_ms}};
  }
  line(std::move(j));
}

void Events::eval(std::uint64_t step, double loss, std::uint64_t tokens) {
  line({{"event", "eval"}, {"step", step}, {"loss", loss}, {"tokens", tokens}});
}

void Events::checkpoint(std::uint64_t step, const std::filesystem::path& dir) {
  line({{"event", "checkpoint"}, {"step", step}, {"dir", dir.string()}});
}

void Events::skip(std::uint64_t step, const char* reason, std::optional<double> loss) {
  Json j = {{"event", "skip"}, {"step", step}, {"reason", reason}};
  if (loss) j["loss"] = *loss;
  line(std::move(j));
}

/// The events of the steps that are trained again are removed first, so that the file has each step once.
void Events::rollback(std::uint64_t to, std::uint64_t from, const char* reason, std::uint64_t batch_offset) {
  truncate_metrics(path_, to);
  line({{"event", "rollback"},
        {"step", to},
        {"from_step", from},
        {"reason", reason},
        {"batch_offset", batch_offset}});
}

void Events::verify(std::uint64_t step, const std::string& weights_hash) {
  line({{"event", "verify"}, {"step", step}, {"weights_xxh3_128", weights_hash}});
}

// Code 0 is success for CUDA and errno, so it means that there is no native error.
void Events::note(const std::string& text, const plugin::VendorError& native) {
  Json j = {{"event", "note"}, {"text", text}};
  if (native.code != 0) j["native_domain"] = native.domain, j["native_code"] = native.code;
  line(std::move(j));
}

void Events::early_stop(std::uint64_t step, std::uint64_t evaluations) {
  line({{"event", "early_stop"}, {"step", step}, {"evaluations", evaluations}});
}

/// The last event of a complete run. Its absence tells a reader that the run was stopped. summary.json
/// repeats the line, so both agree.
std::string Events::done(std::uint64_t steps, const MemoryResult& memory, const plugin::Counters& c,
                         const RunSpeed& speed, std::span<const RankTime> ranks, const RunHistory& history,
                         const std::string& recompute_json, const std::string& profile_json) {
  Json transfers = {{"h2d", c.h2d},
                    {"d2h", c.d2h},
                    {"h2d_bytes", c.h2d_bytes},
                    {"d2h_bytes", c.d2h_bytes},
                    {"sync", c.sync},
                    {"sync_bytes", c.sync_bytes},
                    {"stream", c.stream},
                    {"stream_bytes", c.stream_bytes},
                    {"chunks", c.chunks},
                    {"exposed_ms", static_cast<double>(c.exposed_transfer_ns) * 1e-6}};
  Json j = {{"event", "done"},
            {"steps", steps},
            {"memory", memory_json(memory)},
            {"transfers", std::move(transfers)},
            {"tokens_per_s", speed.tokens_per_s},
            {"utilization", speed.utilization},
            {"skipped_steps", history.skipped},
            {"rollbacks", history.rollbacks}};
  if (speed.mfu) j["mfu"] = *speed.mfu;
  if (c.communication_bytes)
    j["communication"] = {{"bytes", c.communication_bytes},
                          {"wait_ms", static_cast<double>(c.communication_wait_ns) * 1e-6}};
  if (!ranks.empty()) {
    Json all = Json::array();
    for (const RankTime& t : ranks)
      all.push_back({{"compute_ms", t.compute_ms},
                     {"wait_ms", t.wait_ms},
                     {"bytes", static_cast<std::uint64_t>(t.bytes)}});
    j["ranks"] = std::move(all);
    j["slowest_rank"] = slowest_rank(ranks);
  }
  if (history.best_step) j["best"] = {{"step", *history.best_step}, {"loss", history.best_loss}};
  j["model_step"] = history.model_step;
  if (history.stopped_early) j["stopped_early"] = true;
  if (!recompute_json.empty()) j["recompute"] = parse_json(recompute_json);
  if (!profile_json.empty()) j["profile"] = parse_json(profile_json);
  return line(std::move(j));
}

std::optional<JsonValue> parse_event(const std::string& line) try {
  JsonValue event = parse_json(line);
  return event.is_object() ? std::optional(std::move(event)) : std::nullopt;
} catch (const JsonError&) {
  return std::nullopt;
}

std::uint64_t last_step(const std::filesystem::path& metrics) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(metrics, ec))) return 0;
  constexpr std::uint64_t kTail = 1 << 16;  // some hundred events
  const std::uint64_t size = std::filesystem::file_size(metrics, ec);
  if (ec || size == 0) return 0;
  std::string tail(std::min(size, kTail), '\0');
  const checkpoint::Fd file = open_metrics(metrics, 0);
  const ssize_t n = ::pread(file.get(), tail.data(), tail.size(), static_cast<off_t>(size - tail.size()));
  tail.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  std::uint64_t last = 0;
  for (std::size_t begin = 0, end; (end = tail.find('\n', begin)) != tail.npos; begin = end + 1) {
    const std::optional<JsonValue> event = parse_event(tail.substr(begin, end - begin));
    const JsonValue* const step = event ? event->find("step") : nullptr;
    if (step && step->integer > 0) last = static_cast<std::uint64_t>(step->integer);
  }
  return last;
}

/// A run that resumes after step N continues with step N + 1. Events of later steps belong to work that was
/// lost, and "done" to a run that this one continues. What follows the first of them, or a line that a crash
/// truncated, is cut off; nothing else is rewritten, so a kill cannot damage the file. Lines are read one at
/// a time with a limit: a damaged file may hold gigabytes without an end of line.
void truncate_metrics(const std::filesystem::path& metrics, std::uint64_t step) {
  std::error_code ec;
  if (!std::filesystem::exists(std::filesystem::symlink_status(metrics, ec))) return;
  const checkpoint::Fd file = open_metrics(metrics, 0);
  constexpr std::size_t kBlock = 1 << 16;
  std::uint64_t kept = 0;  // bytes of complete lines that stay
  std::string text;        // read, but not yet split into lines
  std::vector<char> block(kBlock);
  for (std::uint64_t read = 0;;) {
    ssize_t n;
    do n = ::pread(file.get(), block.data(), block.size(), static_cast<off_t>(read));
    while (n < 0 && errno == EINTR);
    if (n < 0) checkpoint::throw_errno("read", metrics, errno);
    read += static_cast<std::uint64_t>(n);
    text.append(block.data(), static_cast<std::size_t>(n));
    std::size_t begin = 0;
    bool cut = n == 0 || text.size() > kMostEventBytes;
    for (std::size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
      const std::optional<JsonValue> event = parse_event(text.substr(begin, end - begin));
      const JsonValue* event_step = event ? event->find("step") : nullptr;
      if (!event || event->text_of("event") == "done" ||
          (event_step && event_step->number > static_cast<double>(step))) {
        cut = true;
        break;
      }
      kept += end + 1 - begin;
    }
    if (cut) break;
    text.erase(0, begin);
  }
  int r;
  do r = ::ftruncate(file.get(), static_cast<off_t>(kept));
  while (r != 0 && errno == EINTR);
  if (r != 0) checkpoint::throw_errno("truncate", metrics, errno);
}

}  // namespace trainhost::training
