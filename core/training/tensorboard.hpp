// What a run writes for TensorBoard (output.tensorboard): scalars, texts and hyperparameters, in event files
// in the folder tb of the run. Only the first process of a run has one. It never ends a run: after a failure,
// such as a full disk, it says so once and writes nothing more.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/runfile/run_config.hpp"
#include "core/training/event_file.hpp"
#include "core/training/layer_norms.hpp"
#include "core/training/run_observer.hpp"

namespace trainhost::training {

class TensorBoard {
 public:
  /// Begins a file in `folder` for the steps after `first_step`: TensorBoard drops what earlier files say
  /// about them. `warn` gets the one message about a failure.
  TensorBoard(const std::filesystem::path& folder, std::uint64_t first_step,
              std::function<void(const std::string&)> warn);
  ~TensorBoard() { flush(); }
  TensorBoard(const TensorBoard&) = delete;

  void hyperparameters(const runfile::RunConfig& c);
  /// A text in monospaced letters, as it is. TensorBoard shows at most some thousand lines.
  void text(std::uint64_t step, std::string_view tag, std::string_view text);
  void step(const StepProgress& p, Scalars layer_norms);
  void validation(std::uint64_t step, double loss);
  /// The steps after `to` are computed again.
  void rollback(std::uint64_t to);
  void end(bool finished);
  void flush();

 private:
  void attempt(const std::function<void(EventFile&)>& write);
  void scalars(std::uint64_t step, const Scalars& values);
  void restart(std::uint64_t step);

  std::function<void(const std::string&)> warn_;
  std::optional<EventFile> file_;  // none after a failure
  std::chrono::steady_clock::time_point written_;
};

}  // namespace trainhost::training
