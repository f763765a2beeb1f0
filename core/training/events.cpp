// See events.hpp. Keys of the events are an interface (docs/cli.md): none is renamed or removed.
// metrics.jsonl is appended and flushed per event, so it is complete up to the last event even after a kill.
#include "core/training/events.hpp"

#include <cstdio>

#include "core/base/error.hpp"
#include "core/checkpoint/store.hpp"

namespace trainhost::training {
namespace {

using Json = JsonValue;

std::string to_line(const Json& j) { return j.dump(); }

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
Events::Events(const std::filesystem::path& metrics, bool append, bool to_stdout)
    : file_(metrics, append ? std::ios::app : std::ios::trunc), path_(metrics), to_stdout_(to_stdout) {
  if (!file_) throw run_error("cannot write " + metrics.string());
}

/// The file comes first: it is the record of the run, and a closed pipe on stdout must not lose a line.
/// Flushed per line, so that another process can follow the run.
void Events::line(const std::string& json) {
  file_ << json << '\n';
  file_.flush();
  if (!file_) throw run_error("cannot write " + path_.string() + ": is the disk full?");
  if (to_stdout_) {
    std::fwrite(json.data(), 1, json.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
  }
}

/// The first event. "plan" is the object that `plan --json` prints, so readers need one schema.
void Events::start(const std::string& source, std::optional<double> entropy,
                   std::optional<double> entropy_error, const planning::Choice& choice,
                   const std::string& plan_json, std::uint64_t resumed_from) {
  Json src = {{"name", source}};
  if (entropy) src["entropy_nats"] = *entropy;
  if (entropy_error) src["entropy_error"] = *entropy_error;
  Json j = {{"event", "start"},
            {"source", std::move(src)},
            {"backend", choice.id},
            {"requested", choice.requested}};
  if (!choice.fallback_reason.empty()) j["fallback_reason"] = choice.fallback_reason;
  if (resumed_from) j["resumed_from"] = resumed_from;
  j["plan"] = parse_json(plan_json);
  line(to_line(j));
}

/// `tokens` are those of this step; ms is the time in the trainer, without data loading and checkpoints.
void Events::step(const StepEvent& e) {
  line(to_line({{"event", "step"},
                {"step", e.step},
                {"loss", e.loss},
                {"grad_norm", e.grad_norm},
                {"lr", e.lr},
                {"tokens", e.tokens},
                {"ms", e.ms},
                {"tokens_per_s", e.tokens_per_s}}));
}

void Events::eval(std::uint64_t step, double loss, std::uint64_t tokens) {
  line(to_line({{"event", "eval"}, {"step", step}, {"loss", loss}, {"tokens", tokens}}));
}

void Events::checkpoint(std::uint64_t step, const std::filesystem::path& dir) {
  line(to_line({{"event", "checkpoint"}, {"step", step}, {"dir", dir.string()}}));
}

// Code 0 is success for CUDA and errno, so it means that there is no native error.
void Events::note(const std::string& text, const plugin::VendorError& native) {
  Json j = {{"event", "note"}, {"text", text}};
  if (native.code != 0) j["native_domain"] = native.domain, j["native_code"] = native.code;
  line(to_line(j));
}

/// The last event of a complete run. Its absence tells a reader that the run was stopped. summary.json
/// repeats the line, so both agree.
std::string Events::done(std::uint64_t steps, const MemoryResult& memory, const plugin::Counters& c,
                         double utilization, const std::string& recompute_json,
                         const std::string& profile_json) {
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
            {"utilization", utilization}};
  if (!recompute_json.empty()) j["recompute"] = parse_json(recompute_json);
  if (!profile_json.empty()) j["profile"] = parse_json(profile_json);
  std::string text = to_line(j);
  line(text);
  return text;
}

std::optional<JsonValue> parse_event(const std::string& line) try {
  JsonValue event = parse_json(line);
  return event.is_object() ? std::optional(std::move(event)) : std::nullopt;
} catch (const JsonError&) {
  return std::nullopt;
}

/// A run that resumes after step N continues with step N + 1. Events of later steps belong to work that was
/// lost, and "done" to a run that this one continues. Written atomically: a kill leaves the old file or the
/// new one.
void truncate_metrics(const std::filesystem::path& metrics, std::uint64_t step) {
  std::ifstream in(metrics);
  if (!in) return;
  std::string kept;
  for (std::string text; std::getline(in, text);) {
    const std::optional<JsonValue> event = parse_event(text);
    if (!event) break;  // a line truncated by a crash: drop it and all after it
    const JsonValue* event_step = event->find("step");
    const bool later = event_step && event_step->integer > static_cast<std::int64_t>(step);
    if (later || event->text_of("event") == "done") continue;
    kept += text + "\n";
  }
  in.close();
  checkpoint::write_file_atomically(metrics, kept);
}

}  // namespace trainhost::training
