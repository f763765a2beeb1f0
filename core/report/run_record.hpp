// What the files in the folder of a run say about it: metrics.jsonl, status.json, run.toml, environment.json,
// samples.jsonl and run.log. Reads only, in bounded memory, and follows a run that goes on. The source of
// report.html, `compare`, `watch` and `train --live`.
#pragma once
#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json_value.hpp"
#include "core/report/run_curves.hpp"

namespace trainhost::report {

/// The member `key` if it is an integer above 0, else 0.
std::uint64_t integer_of(const JsonValue& j, std::string_view key);

class RunRecord {
 public:
  /// `points`: of each curve.
  explicit RunRecord(std::filesystem::path folder, std::size_t points = 400);

  /// Throws usage_error if the folder has no metrics.jsonl, or one that no run of trainhost has written.
  /// `most`: bytes of the file that are read for it; a long one takes seconds.
  void require_run(std::uint64_t most = UINT64_MAX);
  /// Reads what was added since the last call; starts again where the file was cut (a rollback, a new run).
  /// A line that is not complete is read when it is. Returns whether anything changed.
  bool update();

  const std::filesystem::path& folder() const { return folder_; }
  std::string name() const;                              // last part of the folder
  const std::string& state() const { return state_; }    // see training::RunState
  const std::string& reason() const { return reason_; }  // why it was stopped or has failed
  bool ended() const { return !state_.empty() && state_ != "running"; }
  std::uint64_t step() const { return step_; }
  std::uint64_t steps() const { return steps_; }  // of the whole run; 0: not known
  std::uint64_t tokens() const { return tokens_; }
  double seconds() const { return ms_ * 1e-3; }  // in the trainer
  double eta_s() const;                          // 0 where nothing is known
  const RunCurves& curves() const { return curves_; }
  /// Steps and losses of the evaluations.
  const std::vector<std::pair<std::uint64_t, double>>& evaluations() const { return evaluations_; }
  /// The objects "start", "plan" of it, and "done" of metrics.jsonl; null where there is none.
  const JsonValue& start() const { return start_; }
  const JsonValue& plan() const;
  const JsonValue& done() const { return done_; }
  /// Checkpoints, skipped steps, rollbacks and notes: the last ones, as sentences.
  const std::deque<std::string>& events() const { return events_; }
  /// Step and text of generated samples.
  const std::vector<std::pair<std::uint64_t, std::string>>& samples() const { return samples_; }
  const std::vector<std::string>& log() const { return log_; }  // the last lines of run.log
  const std::string& run_file() const { return run_file_; }
  const JsonValue& environment() const { return environment_; }

 private:
  void clear();
  bool read_metrics(bool stops, std::uint64_t most = UINT64_MAX);
  void line(std::string_view text);
  void step_line(std::string_view text);
  void event(const std::string& text);
  bool read_others();

  std::filesystem::path folder_;
  std::size_t points_;
  std::uint64_t read_ = 0, inode_ = 0;  // of metrics.jsonl
  std::string rest_;                    // bytes of a line that is not complete
  bool too_long_ = false;               // the line that is read is longer than any event
  bool again_ = false;                  // a step came twice: the file was cut since the last call
  std::uint64_t step_ = 0, steps_ = 0, tokens_ = 0;
  double ms_ = 0, recent_ms_ = 0;
  RunCurves curves_;
  std::vector<std::pair<std::uint64_t, double>> evaluations_;
  JsonValue start_, done_, environment_;
  std::deque<std::string> events_;
  std::vector<std::pair<std::uint64_t, std::string>> samples_;
  std::vector<std::string> log_;
  std::string run_file_, state_, reason_;
  std::uint64_t others_ = 0;  // sizes and times of the other files, as one number
};

}  // namespace trainhost::report
