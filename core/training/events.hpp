// Writes the events of a run as JSON, one object per line: to metrics.jsonl, and to another stream (--json).
// The field names are those of docs/cli.md; numbers keep full precision.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "core/base/json_value.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/plugin/plugin.hpp"
#include "core/training/memory_result.hpp"
#include "core/training/rank_times.hpp"
#include "core/training/run_history.hpp"

namespace trainhost::training {

struct StepEvent {
  std::uint64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  std::uint64_t tokens = 0;
  double ms = 0, tokens_per_s = 0;
  std::uint64_t memory_bytes = 0;  // in use in the tier that computes, by the ledger
};

/// The device that runs, as the trainer names it; all empty for a trainer without a device of its own.
struct RunDevice {
  std::string name, uuid;  // "NVIDIA H200", "GPU-5a0c..." or "MIG-..."
  std::string engine;      // file that the trainer loaded for it
};

/// Of all steps of a run.
struct RunSpeed {
  double tokens_per_s = 0;
  double utilization = 0;     // share of the time in which the device computed
  std::optional<double> mfu;  // at tokens_per_s; absent where the trainer measures no peak
};

class Events {
 public:
  /// Appends to `metrics` if `append`, else replaces it. `copy`: also receives every line; may be null.
  Events(const std::filesystem::path& metrics, bool append, std::FILE* copy);

  /// `plan_json`: the trainhost.plan/1 object. `steps`: of the whole run.
  void start(const std::string& source, std::optional<double> entropy, std::optional<double> entropy_error,
             const planning::Choice& choice, const RunDevice& device, const std::string& plan_json,
             std::uint64_t steps, std::uint64_t resumed_from);
  /// `ranks`: the times of this step of every rank; empty in a run of one process.
  void step(const StepEvent& e, std::span<const RankTime> ranks);
  void eval(std::uint64_t step, double loss, std::uint64_t tokens);
  void checkpoint(std::uint64_t step, const std::filesystem::path& dir);
  /// The update of a step was left out: "nonfinite" or "spike".
  void skip(std::uint64_t step, const char* reason, std::optional<double> loss);
  /// Step `from` failed; the run continues after step `to`.
  void rollback(std::uint64_t to, std::uint64_t from, const char* reason, std::uint64_t batch_offset);
  /// A step was computed twice with the same bits.
  void verify(std::uint64_t step, const std::string& weights_hash);
  /// `native`: the error number of the driver or the system, if any.
  void note(const std::string& text, const plugin::VendorError& native = {});
  /// The validation loss did not improve in `evaluations` evaluations: no further step is computed.
  void early_stop(std::uint64_t step, std::uint64_t evaluations);
  /// Returns the line, which summary.json repeats. `ranks`: the times of all steps. `recompute_json`: what
  /// train.recompute = "auto" chose; `profile_json`: of a profiled run. Both are JSON objects; "" = none.
  std::string done(std::uint64_t steps, const MemoryResult& memory, const plugin::Counters& counters,
                   const RunSpeed& speed, std::span<const RankTime> ranks, const RunHistory& history,
                   const std::string& recompute_json, const std::string& profile_json);

 private:
  /// Writes the event with the time of writing; returns the line without its end.
  std::string line(JsonValue event);
  checkpoint::Fd file_;
  std::filesystem::path path_;
  std::FILE* copy_;
};

/// Bytes of a line that readers accept: 28 times the largest plan of a preset. As JSON in memory a line of
/// short values takes 60 times its bytes.
inline constexpr std::size_t kMostEventBytes = 4 << 20;

/// One line of the events as a JSON object; nullopt if it is not one, for example because a crash truncated
/// it.
std::optional<JsonValue> parse_event(const std::string& line);

/// The step of the last event that has one; 0 if there is none.
std::uint64_t last_step(const std::filesystem::path& metrics);

/// Cuts metrics.jsonl off before the first event of a later step, so that the file of a resumed run has each
/// step once.
void truncate_metrics(const std::filesystem::path& metrics, std::uint64_t step);

}  // namespace trainhost::training
