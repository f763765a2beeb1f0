// Trace: a training step as a sequence of allocations and frees of named storages, with marks where phases
// begin. Any builder can write one; evaluate.hpp and caching_allocator.hpp read it. Sizes are bytes of one
// device.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.hpp"

namespace trainhost::frameworks {

/// Purpose of a storage. The last purpose counts: a temporary that becomes the gradient of a weight is a
/// gradient.
enum class Purpose : std::uint8_t {
  kWeights,
  kBuffers,         // of the model (rotary frequencies), and token ids and labels
  kMasterWeights,   // f32 copies of weights, which the optimizer updates
  kGradients,       // of weights
  kOptimizerState,  // moments
  kActivations,     // results of the forward pass
  kLogits,          // logits, log-probabilities and their gradients
  kBackward,        // gradients of activations, and temporaries of the backward pass
  kUpdate,          // temporaries of the optimizer step
  kCommunication,   // buckets of gradients, gathered weights
  kKernel,          // workspaces of libraries, and what one operator allocates and frees
};
inline constexpr std::size_t kPurposes = 11;
std::string_view name(Purpose p);

/// Memory that one CUDA stream has freed is not used for an allocation of another stream.
enum class Stream : std::uint8_t { kCompute, kGather, kReduce, kCast };
inline constexpr std::size_t kStreams = 4;

struct TraceStorage {
  std::uint64_t bytes = 0;
  std::uint32_t module = 0, tensor = 0;  // indices of Trace::names: "self_attn.q_proj", "output"
  std::int32_t layer = -1;               // -1: outside of the layers
  Purpose purpose = Purpose::kActivations;
  bool saved = false;  // autograd keeps it for the backward pass
  Stream stream = Stream::kCompute;
};

/// storage: index of Trace::storages. A storage is allocated once and freed at most once.
struct TraceEvent {
  std::uint32_t storage : 31 = 0;
  bool allocation : 1 = false;
};
static_assert(sizeof(TraceEvent) == 4, "a replay makes 100,000 of them");

/// The phase of the events from `event` on. step: counted from 1; micro_batch: counted from 1, 0 in the
/// optimizer step.
struct TracePhase {
  std::uint64_t event = 0;
  Phase phase = kLoad;
  std::uint32_t step = 0, micro_batch = 0;
};

struct Trace {
  std::vector<std::string> names;
  std::vector<TraceStorage> storages;
  std::vector<TraceEvent> events;
  std::vector<TracePhase> phases;

  /// "layers.17.mlp.up_proj output, saved for backward"
  std::string name_of(const TraceStorage& s) const;
};

/// Where a step begins in a trace.
struct TraceMark {
  std::size_t storages = 0, events = 0, phases = 0;
};

/// The second step of a trace as a copy of the events of the first one, from `from` on, without those of the
/// storages in `kept`, as kept_by_step() returns them.
struct CopiedStep {
  TraceMark from;
  std::vector<bool> kept;
  /// Of a storage of the trace: whether the second step does not allocate it again.
  bool keeps(std::uint32_t storage) const { return storage < from.storages || kept[storage - from.storages]; }
};

/// Appends to a trace. An in-house framework is described with these four calls.
class TraceWriter {
 public:
  explicit TraceWriter(Trace& trace) : trace_(trace) {}
  /// From now on the layer that runs, `*layer`, is noted for every event; `layer` outlives the writer.
  void note_layers(const std::int32_t* layer) { layer_ = layer; }
  const std::vector<std::int32_t>& noted_layers() const { return noted_layers_; }

  /// A phase that has begun goes on.
  void begin(Phase phase, std::uint32_t step, std::uint32_t micro_batch);
  /// Returns the index of the storage. `layer` -1: outside of the layers.
  std::uint32_t allocate(std::uint64_t bytes, Purpose purpose, std::int32_t layer, std::string_view module,
                         std::string_view tensor);
  /// The same for names that exist unchanged as long as the writer does, such as literals: found by their
  /// addresses.
  std::uint32_t allocate_named(std::uint64_t bytes, Purpose purpose, std::int32_t layer, const char* module,
                               const char* tensor);
  std::uint32_t allocate(const TraceStorage& storage);
  void free(std::uint32_t storage) { add({storage, false}); }
  TraceStorage& operator[](std::uint32_t storage) { return trace_.storages[storage]; }
  Trace& trace() { return trace_; }

  /// From now on bytes() counts the storages that exist, each rounded up to a multiple of `block`, a power of
  /// two.
  void count_bytes(std::uint64_t block) { mask_ = block - 1; }
  std::uint64_t bytes() const { return bytes_; }
  /// Of events that were written to the trace without the writer.
  void add_bytes(std::uint64_t left) {
    if (mask_) bytes_ += left;
  }

 private:
  std::uint32_t intern(std::string_view text);
  std::uint32_t intern_address(const char* text);
  std::uint32_t allocate(std::uint64_t bytes, Purpose purpose, std::int32_t layer, std::uint32_t module,
                         std::uint32_t tensor);
  void add(TraceEvent e) {
    trace_.events.push_back(e);
    if (layer_) noted_layers_.push_back(*layer_);
    if (!mask_) return;
    const std::uint64_t bytes = (trace_.storages[e.storage].bytes + *mask_) & ~*mask_;
    bytes_ = e.allocation ? bytes_ + bytes : bytes_ - bytes;
  }

  struct Interned {
    const char* data;
    std::uint32_t index;
  };
  Trace& trace_;
  const std::int32_t* layer_ = nullptr;
  std::vector<std::int32_t> noted_layers_;
  std::vector<Interned> recent_ = std::vector<Interned>(256), named_ = std::vector<Interned>(256);
  std::optional<std::uint64_t> mask_;
  std::uint64_t bytes_ = 0;
};

}  // namespace trainhost::frameworks
