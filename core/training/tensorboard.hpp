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
#include <utility>
#include <vector>

#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/event_file.hpp"
#include "core/training/run_observer.hpp"

namespace trainhost::training {

/// A tag, "loss/train", and its value. TensorBoard shows the tags before a slash as one group.
using Scalars = std::vector<std::pair<std::string, double>>;

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
  void step(const StepProgress& p, plugin::Session& session, std::uint32_t layers);
  void validation(std::uint64_t step, double loss);
  /// The steps after `to` are computed again.
  void rollback(std::uint64_t to);
  void end(bool finished);
  void flush();

  /// Gradient norms of layers are written in every n-th step.
  static constexpr std::uint64_t kLayerSteps = 10;

 private:
  void attempt(const std::function<void(EventFile&)>& write);
  void scalars(std::uint64_t step, const Scalars& values);
  void restart(std::uint64_t step);
  Scalars layer_norms(plugin::Session& session, std::uint32_t layers);

  std::function<void(const std::string&)> warn_;
  std::optional<EventFile> file_;  // none after a failure
  std::chrono::steady_clock::time_point written_;
  bool has_layer_norms_ = true;  // until the trainer has said that it does not know them
};

}  // namespace trainhost::training
