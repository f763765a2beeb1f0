// What a check may use: the run, the trainers in each of their modes, and batches of the run's text. Trainers
// are reached through TestedTrainers, so that tests can substitute broken ones; the real ones are in
// real_trainers.cpp.
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

/// Thrown where a check cannot be run here (no device, not enough memory, a mode that the backend does not
/// have). The result is "skipped" with this message.
class CheckSkipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The trainers under test. A returned reference is valid until a trainer of another mode is requested.
class TestedTrainers {
 public:
  virtual ~TestedTrainers() = default;
  virtual const std::string& backend() const = 0;  // id of the tested trainer
  virtual std::string unavailable_reason() = 0;    // why it cannot be used here; "" = it can
  virtual bool on_device() = 0;                    // false: it computes in host memory, without transfers
  virtual std::vector<std::string> modes() = 0;    // the modes to test; {""} for a trainer without modes
  virtual bool has_mode(const std::string& mode) = 0;
  virtual plugin::Trainer& trainer(const std::string& mode) = 0;
  virtual plugin::Trainer& reference_trainer() = 0;  // the CPU trainer; throws CheckSkipped if it is missing
  /// The ledger that counts the allocations of the trainers of the mode requested last.
  virtual plugin::Ledger& ledger() = 0;
  /// The run with every choice made that depends on the trainer (train.recompute = "auto").
  virtual RunSpec resolve_run(const std::string& mode, const runfile::RunConfig& c) = 0;
};

/// Fills tokens and targets of optimizer step t (from 0), each of tokens_per_step() ids.
using BatchSource =
    std::function<void(std::uint64_t t, std::span<std::int32_t> tokens, std::span<std::int32_t> targets)>;

struct HybridMeasurement;

struct Context {
  Context(runfile::RunConfig c, TestedTrainers& t) : run(std::move(c)), trainers(t) {}

  runfile::RunConfig run;  // the run that is trained, unless a check uses its own
  TestedTrainers& trainers;
  bool small = false;  // GPU-004 and GPU-005 measure the model of the run instead of the 350M model
  std::filesystem::path program = "/proc/self/exe";  // started by GPU-003
  std::vector<std::filesystem::path> plugin_path;    // passed to that child process
  std::function<void(const std::string&)> report_progress = [](const std::string&) {};
  /// The clock that times steps. Tests replace it, because their trainers only simulate time.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;

  /// Batches of the run's text, which is opened at the first call and shared by all checks.
  BatchSource text_batches();
  /// 100 steps in hybrid mode, measured once for GPU-004 and GPU-005. Throws CheckSkipped.
  const HybridMeasurement& hybrid();

 private:
  BatchSource text_batches_;
  std::shared_ptr<HybridMeasurement> hybrid_;
  std::string no_hybrid_;  // why hybrid() failed, after its first call
};

/// The run file that verify uses when none is given, without an [output] table: a byte-level model so small
/// that all checks take seconds. GPU-003 always trains it in its child process.
const char* builtin_run_toml();

}  // namespace trainhost::verify
