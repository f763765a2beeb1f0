// What a check may use: the run, the trainers in each of their modes, and the text. Trainers come through
// Subjects, so that tests put broken ones in their place; the real ones are in real_trainers.cpp.
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/plugin/ledger.hpp"
#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::verify {

/// A fact that keeps a check from being judged here (no device, no room, a mode that is not offered). Becomes
/// "skipped".
class NotJudged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The trainers under test. A reference that it returned is good until another mode is asked for.
class Subjects {
 public:
  virtual ~Subjects() = default;
  virtual const std::string& backend() const = 0;  // id of the trainer that is judged
  virtual std::string absent() = 0;                // why nothing can be judged here; "" = it can
  virtual bool on_device() = 0;                  // false: it computes in host memory, so it transfers nothing
  virtual std::vector<std::string> modes() = 0;  // those that the run may have; {""} where there is one
  virtual bool offers(const std::string& mode) = 0;
  virtual plugin::Trainer& judged(const std::string& mode) = 0;
  virtual plugin::Trainer& reference() = 0;  // the CPU trainer; throws NotJudged where there is none
  virtual plugin::Ledger& ledger() = 0;  // through which the trainers of the mode last asked for take memory
  /// The run with everything decided that depends on the trainer (train.recompute = "auto").
  virtual RunSpec resolved(const std::string& mode, const runfile::RunConfig& c) = 0;
};

/// Fills tokens and targets of update t (from 0).
using Feed =
    std::function<void(std::uint64_t t, std::span<std::int32_t> tokens, std::span<std::int32_t> targets)>;

struct HybridFigures;

struct Context {
  Context(runfile::RunConfig c, Subjects& s) : run(std::move(c)), subjects(s) {}

  runfile::RunConfig run;  // what is trained, unless a check says otherwise
  Subjects& subjects;
  bool small = false;  // measure the run's model where a check has a large one of its own
  std::filesystem::path program = "/proc/self/exe";                         // what GPU-003 starts
  std::vector<std::filesystem::path> plugin_path;                           // handed to that child
  std::function<void(const std::string&)> say = [](const std::string&) {};  // progress, for people
  /// What steps are timed by: a test whose trainer only pretends to work brings the clock that it pretends
  /// by.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;

  /// Batches of the run's own text; opened on first use, shared by all checks.
  Feed text();
  /// 100 steps in hybrid mode, measured once for GPU-004 and GPU-005. Throws NotJudged.
  const HybridFigures& hybrid();

 private:
  Feed text_;
  std::shared_ptr<HybridFigures> hybrid_;
  std::string no_hybrid_;  // why not, once tried
};

}  // namespace trainhost::verify
