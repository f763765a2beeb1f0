// A step under ZeRO of DeepSpeed in two parts, for models of many equal layers. What the modules do does not
// depend on what is gathered and reduced; that depends on sizes and order of all parameters. So the modules
// of four layers run once and note where they call Zero or Zero3 (a script); the script is repeated for all
// layers (repeat_layers.hpp) and played with a Zero or Zero3 that carries the calls out. Used by
// training_step() to save time; it changes no result.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/frameworks/autograd/tape.hpp"
#include "core/frameworks/trace/repeat_layers.hpp"

namespace trainhost::frameworks {

struct StepSettings;
struct TrainingStep;
struct CopiedStep;

/// A call of Zero or Zero3, or kView: handles of the memory that a weight has now. Of a view both events
/// count; a call is a storage that is freed at once.
enum class ZeroCall : std::uint8_t {
  kNone,
  kParameter,
  kShare,
  kStart,
  kBeginMicroBatch,
  kFetch,
  kRelease,
  kRead,
  kBeforeBackwardOf,
  kAfterBackwardOf,
  kGradient,
  kBeforeBackward,
  kBeforeLastBackward,
  kAfterBackward,
  kStep,
  kView,
};
inline constexpr std::size_t kZeroCalls = 16;
/// Of the storages that note it. No tensor has such a name.
const char* call_name(ZeroCall call);

/// Notes calls as storages of the trace: `module` names the module, `layer` the layer that runs, and `bytes`
/// has the argument.
class ZeroScript {
 public:
  struct Declared {
    Shape shape;
    Element type = Element::kBF16;
    bool trained = true;
  };
  explicit ZeroScript(Tape& tape) : t_(tape) {}
  void note(ZeroCall call, const char* module = "", std::uint64_t argument = 0);
  /// A parameter of the layer that is built.
  void declare(const Shape& shape, Element type, const char* module, bool trained);
  /// Memory for a view of a parameter; `ordinal`: among the parameters of its layer.
  Tensor view(std::int32_t layer, const char* module, std::uint64_t ordinal);
  /// The step does what a script cannot say.
  void fail() { complete_ = false; }
  bool is_complete() const { return complete_; }
  const std::vector<Declared>& declared() const { return declared_; }

 private:
  Tape& t_;
  std::vector<Declared> declared_;
  bool complete_ = true;
};

struct ZeroPasses;

/// The script of all layers, from before the first parameter on.
struct RecordedScript {
  Trace trace;
  std::vector<ZeroScript::Declared> declared;
  TraceMark begin;         // of the step
  std::vector<bool> kept;  // as kept_by_step() returns it
  std::vector<std::uint64_t> saved_bytes;
  /// Of the last run under ZeRO 3 whose passes other runs share; guarded by the lock.
  mutable std::mutex lock;
  mutable std::shared_ptr<const ZeroPasses> passes;
};

/// Plays the script of one step twice, or once where the second step is a copy of the first (`copied`).
/// Throws PeakAboveLimit where more bytes than `limit` exist. Where the ranks divide every parameter, no pass
/// of ZeRO 3 depends on their number: passes that were played for one are copied for another.
void play_zero(const RecordedScript& script, const StepSettings& settings, std::uint64_t limit,
               TrainingStep& result, std::optional<CopiedStep>& copied);

}  // namespace trainhost::frameworks
