// One session with what it needs to take steps: batches, weights to begin with, room looked for first. The
// only place in this folder that creates sessions.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/verify/context.hpp"
#include "core/verify/snapshot.hpp"

namespace trainhost::verify {

class Rig {
 public:
  /// The judged trainer in `mode`, or the reference when `reference` is set, on run `c`. It starts from
  /// `from`, else from the run's own weights, else from train.seed. Throws NotJudged where there is no room
  /// or the trainer cannot do it.
  struct Options {
    std::string mode = {};
    bool reference = false;
    const Snapshot* from = nullptr;
    Feed feed = {};       // empty: the run's text
    unsigned copies = 3;  // of the weights that the check will hold at once
  };
  Rig(Context& context, const runfile::RunConfig& c, const Options& o);

  /// Update t (from 0) with this learning rate.
  plugin::StepResult step(std::uint64_t t, double lr);
  /// Loss of the first micro-batch of update t; changes nothing.
  plugin::StepResult evaluate(std::uint64_t t);
  Snapshot weights() { return snapshot(*session_, c_.model); }
  plugin::Session& session() { return *session_; }
  const runfile::RunConfig& run() const { return c_; }

 private:
  plugin::StepInput input(std::uint64_t t, double lr, std::uint32_t sequences);

  runfile::RunConfig c_;
  Feed feed_;
  std::vector<std::int32_t> ids_;  // tokens, then targets, of one update
  std::unique_ptr<plugin::Session> session_;
};

/// The same run in f32 throughout: what a check uses that compares figures of two devices.
runfile::RunConfig in_fp32(runfile::RunConfig c);

/// Ids below `vocab`, a pure function of the update: where only time, traffic or memory are looked at.
Feed arbitrary_ids(std::uint64_t vocab);

/// min(most, train.steps): a run file may make every check shorter.
std::uint64_t steps_of(const runfile::RunConfig& c, std::uint64_t most);

/// "; in fp32, whatever the run says (bf16)", or "" for a run in fp32.
std::string fp32_note(const runfile::RunConfig& c);

/// True for what a trainer refuses because of this machine or its own abilities, not because it is broken.
bool is_refusal(const plugin::PluginError& e);

}  // namespace trainhost::verify
