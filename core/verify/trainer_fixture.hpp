// One session ready to take steps, with batches and initial weights. Checks first that memory suffices. All
// sessions of this module are created here.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/verify/context.hpp"
#include "core/verify/snapshot.hpp"

namespace trainhost::verify {

class TrainerFixture {
 public:
  /// A session of run `c` with the tested trainer in `mode`, or with the reference trainer if `reference` is
  /// set. Initial weights: `from`, else model.weights of the run, else random by train.seed. Throws
  /// CheckSkipped if memory does not suffice or the trainer rejects the run.
  struct Options {
    std::string mode = {};
    bool reference = false;
    const Snapshot* from = nullptr;
    BatchSource batches = {};  // default: the run's text
    unsigned copies = 3;       // of the weights that the check will keep at the same time
  };
  TrainerFixture(Context& context, const runfile::RunConfig& c, const Options& o);

  /// Optimizer step t (from 0) with this learning rate.
  plugin::StepResult step(std::uint64_t t, double lr);
  /// Evaluates the first micro-batch of optimizer step t; changes nothing.
  plugin::StepResult evaluate(std::uint64_t t);
  Snapshot weights() { return take_snapshot(*session_, c_.model); }
  plugin::Session& session() { return *session_; }
  const runfile::RunConfig& run() const { return c_; }

 private:
  plugin::StepInput input(std::uint64_t t, double lr, std::uint32_t sequences);

  runfile::RunConfig c_;
  BatchSource batches_;
  std::vector<std::int32_t> ids_;  // tokens, then targets, of one optimizer step
  std::unique_ptr<plugin::Session> session_;
};

/// The same run in f32, for checks that compare the results of two devices.
runfile::RunConfig in_fp32(runfile::RunConfig c);

/// Ids below `vocab` that depend only on the step, for checks that measure only time, transfers or memory.
BatchSource arbitrary_ids(std::uint64_t vocab);

/// min(most, train.steps): a run file can shorten every check.
std::uint64_t limited_steps(const runfile::RunConfig& c, std::uint64_t most);

/// "; in fp32 instead of the run's bf16", or "" for a run in fp32.
std::string fp32_note(const runfile::RunConfig& c);

/// Whether a trainer rejected the run because of this machine or a missing feature, as opposed to a failure.
bool is_rejection(const plugin::PluginError& e);

}  // namespace trainhost::verify
