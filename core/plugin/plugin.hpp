// The C++ interfaces through which the host uses plugins: Estimator, Trainer, Session, PluginError. The
// adapters (adapt_*.cpp) implement them on top of the C tables. No module above this one includes an SDK
// header.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/memory_report.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/tensors.hpp"
#include "core/plugin/profiler.hpp"
#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {

/// A plugin returned an error. `status` is the name of the ABI's code ("unavailable", "unsupported",
/// "device_oom", ...).
class PluginError : public Error {
 public:
  PluginError(Exit code, std::string status, std::string message, std::string hint,
              std::uint64_t bytes_needed, VendorError native = {})
      : Error(code, std::move(message), std::move(hint)),
        status_(std::move(status)),
        bytes_needed_(bytes_needed),
        native_(std::move(native)) {}
  const std::string& status() const { return status_; }
  std::uint64_t bytes_needed() const { return bytes_needed_; }
  /// The error number of a vendor library; the message begins with it.
  const VendorError& native() const { return native_; }
  /// Records which plugin wrote the message.
  PluginError& from_plugin(std::string plugin_id) { return plugin_ = std::move(plugin_id), *this; }
  /// The message, preceded by the plugin's id if the plugin wrote it and it does not contain the id.
  std::string message_with_plugin() const {
    const std::string message = what();
    const bool complete = plugin_.empty() || message.find(plugin_) != message.npos;
    return complete ? message : "plugin " + plugin_ + ": " + message;
  }

 private:
  std::string status_;
  std::uint64_t bytes_needed_;
  VendorError native_;
  std::string plugin_;
};

class Estimator {
 public:
  virtual ~Estimator() = default;
  virtual const std::string& id() const = 0;
  virtual int match(const ModelSpec& m, const RunSpec& r) const = 0;
  virtual MemoryReport estimate(const ModelSpec& m, const RunSpec& r, const TrainerTraits* traits) const = 0;
};

enum class Scope : std::uint32_t { kWeights = 1, kAdapter = 2, kMoment1 = 3, kMoment2 = 4 };

struct TensorPiece {
  std::string name;
  DType dtype = DType::kF32;
  std::uint32_t rank = 1;
  std::array<std::uint64_t, 2> dim{};
  const void* data = nullptr;
  std::uint64_t first = 0, count = 0;  // elements
};

struct StepInput {
  std::span<const std::int32_t> tokens, targets;  // [batch * seq]
  std::span<const std::int32_t> starts = {};      // likewise, of a run with document_mask; else empty
  std::uint32_t batch = 0, seq = 0;
  double lr = 0;
  std::uint64_t step_index = 0;
};
struct StepResult {
  double loss = 0, grad_norm = 0;
  std::uint64_t tokens_counted = 0, wall_ns = 0, device_ns = 0;
};
struct Counters {
  std::uint64_t h2d = 0, d2h = 0, h2d_bytes = 0, d2h_bytes = 0, sync = 0, sync_bytes = 0, chunks = 0;
  std::uint64_t launches = 0, compute_ns = 0, exposed_transfer_ns = 0;
  std::uint64_t stream = 0, stream_bytes = 0;
  std::uint64_t communication_bytes = 0, communication_wait_ns = 0;
};

/// One training run inside a plugin. Calls are serialised by the caller. Throws PluginError.
class Session {
 public:
  virtual ~Session() = default;
  virtual void load(Scope scope, const TensorPiece& piece) = 0;
  virtual void init(std::uint64_t seed) = 0;
  virtual StepResult step(const StepInput& in) = 0;
  virtual StepResult evaluate(const StepInput& in) = 0;
  virtual void save(Scope scope, const std::function<void(const TensorPiece&)>& sink) = 0;
  /// Of a run of several ranks, what this one has to write: th_tensor of TH_SAVE_OWN_PART.
  virtual void save_own_part(Scope scope, const std::function<void(const TensorPiece&)>& sink) = 0;
  virtual Counters counters() = 0;
  virtual std::string info(const std::string& key) = 0;  // "" = unknown
  virtual std::optional<double> metric(const std::string& key) = 0;
  virtual bool can_generate() const = 0;
  /// Starts profiling into `records` (Trainer::profile_bytes bytes, aligned to 64), which must outlive the
  /// result.
  virtual std::unique_ptr<Profiler> start_profiler(std::span<std::byte> records,
                                                   Profiler::OnBoundary reached) = 0;
  virtual void next_logits(std::int32_t token, std::uint32_t position, std::span<float> logits) = 0;
};

/// What a decoder allocates, in bytes.
struct DecodeMemory {
  std::uint64_t weights = 0, cache = 0, workspace = 0;
  std::uint64_t total() const { return weights + cache + workspace; }
};
struct DecodeSpec {
  DType weight = DType::kF32;   // of matrices: kF32 or kBF16
  std::uint32_t sequences = 1;  // each with a key/value cache
  std::uint32_t context = 0;    // positions of each
  std::uint32_t rows = 1;       // of one forward(), at most
};
/// One token at a position of a sequence. Rows of one sequence are neighbours in a call and have consecutive
/// positions. The first one may go back, which discards what the cache has from there on, but not skip ahead.
struct DecodeRow {
  std::int32_t token = 0;
  std::uint32_t sequence = 0, position = 0;
  std::uint32_t wants_logits = 0;  // 1: the logits of the token after it are computed
};

/// The inference of a trainer (core/abi/decode_table.hpp). Calls are serialised by the caller. Throws
/// PluginError.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Elements of a weight, as f32. All weights are loaded before forward().
  virtual void load(const TensorPiece& piece) = 0;
  /// Runs the model on the rows and appends their keys and values to the caches. logits: [vocab] for each row
  /// that wants them, in the order of the rows. After an error the sequences of the call end where its rows
  /// began.
  virtual void forward(std::span<const DecodeRow> rows, std::span<float> logits) = 0;
};

/// Current memory of the device that the trainer would use.
struct DeviceMemory {
  std::uint64_t free_bytes = 0, total_bytes = 0;
  std::string name;  // "NVIDIA H200"
};

class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual const std::string& id() const = 0;
  /// Throws PluginError("unavailable") with the reason if the trainer cannot be used on this machine.
  virtual void probe() = 0;
  virtual TrainerTraits traits(const ModelSpec& m, const RunSpec& r) = 0;
  virtual MemoryReport plan(const ModelSpec& m, const RunSpec& r) = 0;
  /// Host memory in bytes that profiling a run needs; nullopt if the trainer does not support profiling.
  virtual std::optional<std::uint64_t> profile_bytes(const ModelSpec& m, const RunSpec& r) = 0;
  /// Memory of the device that create() would use; nullopt if the trainer has no device of its own or none
  /// is available.
  virtual std::optional<DeviceMemory> device_memory() = 0;
  virtual std::unique_ptr<Session> create(const ModelSpec& m, const RunSpec& r) = 0;
  /// The bytes that create_decoder() allocates in host memory; nullopt if the trainer has no decoder.
  virtual std::optional<DecodeMemory> decode_memory(const ModelSpec&, const DecodeSpec&) {
    return std::nullopt;
  }
  /// Only where decode_memory() returned a value.
  virtual std::unique_ptr<Decoder> create_decoder(const ModelSpec&, const DecodeSpec&) { return nullptr; }
};

}  // namespace trainhost::plugin
