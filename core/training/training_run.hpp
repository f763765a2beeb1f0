// The class behind train.hpp: one training run from the choice of the trainer to the written model. Internal
// to core/training. start_run.cpp has everything before the first step, train.cpp the loop, save_checkpoints.cpp
// the checkpoints, end_run.cpp the end, find_lr.cpp the steps of a range test in place of loop and end,
// validate.cpp evaluation and what follows from it, recover_step.cpp what happens when a step fails numerically
// or is verified.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "core/checkpoint/store.hpp"
#include "core/data/dataset.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/estimate_run.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/training/batches.hpp"
#include "core/training/early_stopping.hpp"
#include "core/training/events.hpp"
#include "core/training/layer_norms.hpp"
#include "core/training/model_state.hpp"
#include "core/training/rank_times.hpp"
#include "core/training/ranks.hpp"
#include "core/training/shared_save.hpp"
#include "core/training/spike_detector.hpp"
#include "core/training/state_copy.hpp"
#include "core/training/step_profile.hpp"
#include "core/training/stop_signals.hpp"
#include "core/training/tensorboard.hpp"
#include "core/training/throughput.hpp"
#include "core/training/train.hpp"

namespace trainhost::training {

/// Steps are counted in two ways: a step index counts from 0 and names the learning rate and, with
/// batch_offset_, the data; "after step N" means that N steps are done. The host has one thread, and a second
/// one while a checkpoint is written in the background; the trainer has its own threads. Members are
/// destroyed in reverse order: the session before the buffers that it reads, the lock after everything that
/// writes.
class TrainingRun {
 public:
  /// Chooses the trainer and resolves the run for it: budgets, and train.recompute = "auto".
  TrainingRun(const runfile::RunConfig& c, plugin::Registry& registry, const TrainOptions& o,
              RunObserver& observer);
  Exit run();
  /// See training::find_lr(). In place of run().
  std::optional<LrRangeResult> find_lr(const LrRange& range);
  /// Ends a run whose device was lost. Returns kStopped if a checkpoint is intact, else throws Error.
  Exit end_after_lost_device(const plugin::PluginError& e);
  /// Notes in status.json how the run ended; nothing if it has not begun.
  void note_end(const std::string& state, Exit code, const std::string& reason) noexcept;
  const std::string& why_stopped() const { return why_stopped_; }

 private:
  // start_run.cpp
  void reject_profile_with_policies() const;
  void plan();
  bool open_output();  // false: --resume=auto, and the run is finished
  void open_data();
  void note_new_files(const std::filesystem::path& dir);
  void remove_new_files();
  std::uint64_t steps_of_epochs(double epochs, const char* key) const;
  void set_steps();
  void create_session();
  void compare_with_best(const Progress& best);
  void compare_ranks();
  void align_traces();
  void share_output();
  void start_session(bool from_checkpoint, const std::function<void(const std::string&)>& say);
  std::string device_message() const;
  std::string weights_message() const;
  void open_metrics();
  void open_board();

  // train.cpp
  bool train_step();  // the step after steps_done_; false: a signal asks the run to stop
  void end_step();
  void state_loss();
  void report_step(std::uint64_t step, std::uint64_t steps, const plugin::StepResult& r, double lr);
  void question_first_loss(double loss);

  // save_checkpoints.cpp
  bool checkpoint_is_due();
  void write_checkpoint();
  void start_save();
  bool is_saved() const;
  void finish_save();  // waits for a checkpoint that is written in the background
  void saved(std::uint64_t step, const std::filesystem::path& dir);

  // end_run.cpp
  bool finish();  // false: a signal came before the model was written
  void report_sample(std::uint64_t step);
  Exit stop_before_first_step();
  Exit stop();
  void checkpoint_after_failure();
  void checkpoint_after_own_failure();
  std::string finish_profile();  // the JSON object; "" without --profile
  double utilization(const plugin::Counters& n) const;

  // find_lr.cpp
  void compute_range(LrRangeResult& result);

  // validate.cpp
  bool evaluation_is_due() const;
  void evaluate();
  void save_if_best(double loss);
  std::uint64_t load_weights_of_model();  // returns the step after which they were saved
  void report_best(const char* result);

  // recover_step.cpp
  plugin::StepInput fill_batch(std::uint64_t step_index);
  plugin::StepResult compute_step(const plugin::StepInput& in);
  plugin::StepResult compute_twice(const plugin::StepInput& in);
  /// Applies train.on_nonfinite or train.on_spike to the step after steps_done_.
  void recover(runfile::Policy policy, const char* reason, std::optional<double> loss,
               const std::string& what);
  bool roll_back_broken_weights();  // true: the run has returned to a checkpoint
  std::uint64_t return_to_checkpoint();
  bool return_to_step(std::uint64_t step);  // false: a signal came
  bool repeat_steps(std::uint64_t until);   // false: a signal came

  /// A line for people.
  void report(const std::string& text) { observer_.message(text); }

  PhaseSink phases() {
    return [this](std::string_view what, std::uint64_t done_bytes, std::uint64_t total_bytes) {
      observer_.phase(what, done_bytes, total_bytes);
    };
  }

  /// The signal that asks the run to end before its last step; 0: none. With several ranks all have the same
  /// answer, which changes only in agree_to_stop().
  int stop_signal() const { return ranks_.several() ? agreed_signal_ : StopSignals::received(); }
  bool stops() const { return stop_signal() != 0; }
  void agree_to_stop() { agreed_signal_ = ranks_.largest(StopSignals::received()); }
  /// The same after a step, together with the times of the ranks and whether all have written a checkpoint.
  /// `before`: the counters before the step.
  void agree_after_step(double step_ms, const plugin::Counters& before);
  /// Whether a call into the trainer ended because a signal asked the run to stop. A call that was cancelled
  /// has changed nothing. The ranks of a run are cancelled together.
  bool ended_by_signal(const plugin::PluginError& e) {
    if (e.status() != "cancelled") return false;
    agree_to_stop();
    return stops();
  }
  /// Tokens of an optimizer step, of all ranks.
  std::uint64_t tokens_per_step() const { return config_.run.tokens_per_step() * data_ranks(); }
  /// Data-parallel ranks, and this one of them. The tensor-parallel ranks of each have the same sequences.
  std::uint32_t data_ranks() const { return ranks_.count() / config_.run.parallel.tensor; }
  std::uint32_t data_rank() const { return ranks_.rank() / config_.run.parallel.tensor; }
  /// True for one of the ranks that have the same sequences.
  bool first_of_tensor_ranks() const { return ranks_.rank() % config_.run.parallel.tensor == 0; }

  runfile::RunConfig config_;  // as resolved for the trainer
  planning::Budgets budgets_;
  plugin::Registry& registry_;
  const TrainOptions& options_;
  RunObserver& observer_;
  Ranks ranks_;
  int agreed_signal_ = 0;
  RankTimes rank_times_;     // of several ranks
  planning::Choice choice_;  // the trainer

  planning::PlanResult plan_;        // of the estimators, as printed
  planning::Estimate trainer_plan_;  // of the trainer, with the host's own buffers

  std::vector<std::filesystem::path> new_files_;  // that open_output() creates: files first, then folders
  std::optional<checkpoint::DirectoryLock> lock_;
  std::optional<checkpoint::Store> store_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  data::Source source_;
  std::optional<Batches> batches_;

  // batch_: [2, tokens_per_step] ids, tokens then targets. staging_: one piece of a tensor between file and
  // trainer. copy_: with output.async_checkpoints or train.verify_every.
  std::optional<planning::HostBlock> batch_, staging_;
  std::optional<StateCopy> copy_;
  std::unique_ptr<plugin::Session> session_;
  std::optional<StepProfile> profile_;  // declared after session_: it must be destroyed first
  RunDevice device_;                    // set by create_session()
  std::optional<Events> events_;
  std::optional<LayerNorms> layer_norms_;  // of every process, with output.tensorboard
  std::optional<TensorBoard> board_;       // of the first process, with output.tensorboard
  Throughput throughput_;
  SpikeDetector spikes_;
  EarlyStopping early_stopping_;
  RunHistory history_;

  static constexpr std::uint64_t kNever = UINT64_MAX;
  bool resumes_ = false, begun_ = false;
  std::string why_stopped_;
  std::uint64_t first_step_ = 0;  // steps done by earlier runs that this one resumes
  std::uint64_t steps_done_ = 0;  // in all
  std::uint64_t evaluated_after_ = kNever, checkpointed_after_ = kNever;
  double validation_loss_ = 0;  // of evaluated_after_
  std::uint64_t checkpointed_ns_ = 0;

  // Recovery. Step t reads batch t + batch_offset_. skipped_: step indices whose update was left out since
  // the last checkpoint, for steps that are computed again.
  std::uint64_t batch_offset_ = 0, failed_step_ = 0;
  std::string frozen_content_;  // of load_frozen_weights(), where the run trains adapters
  std::set<std::uint64_t> skipped_;
  std::optional<std::string> verified_;  // hash of the weights after a step that was computed twice
  unsigned failures_in_a_row_ = 0;

  // The checkpoint that is written in the background. Declared last: its end is awaited first.
  std::unique_ptr<SharedSave> shared_save_;  // of several ranks; declared before the thread that uses it
  std::future<std::filesystem::path> saving_;
  std::uint64_t saving_step_ = kNever;
  bool all_saved_ = false;  // of several ranks: after the last step, all have written the files of saving_
};

}  // namespace trainhost::training
