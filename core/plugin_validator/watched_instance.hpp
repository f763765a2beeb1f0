// One training run of the trainer under test, on a tiny model: created, stepped and destroyed through calls
// that WatchedPlugin checks, with batches generated from a seed.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/plugin/instance_calls.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {

/// Tokens and targets of one step: ids below the vocabulary, the last target of each sequence not counted.
struct Batch {
  std::vector<std::int32_t> tokens, targets;
  std::uint32_t sequences = 0, seq = 0;
  std::uint64_t counted() const;
};
Batch make_batch(const Sample& s, std::uint64_t seed, std::uint32_t sequences);
/// For one whole step of the sample's run.
Batch make_batch(const Sample& s, std::uint64_t seed);

struct StepCallResult : CallResult {
  th_step_out out{};
};
struct SaveResult : CallResult {
  std::vector<ReceivedPiece> pieces;
  int calls_after_failure = 0;
};

class WatchedInstance {
 public:
  WatchedInstance(WatchedPlugin& plugin, Sample s)
      : plugin_(plugin), sample_(std::move(s)), table_(plugin.library().trainer()) {}
  ~WatchedInstance() { destroy(); }
  WatchedInstance(const WatchedInstance&) = delete;

  CallResult create(std::int32_t device = 0, bool no_error = false);
  CallResult init(std::uint64_t seed);
  CallResult load(std::uint32_t scope, const th_tensor& t);
  /// Loads a piece as save() sent it.
  CallResult load(std::uint32_t scope, const ReceivedPiece& p);
  StepCallResult step(const Batch& b, double lr, std::uint64_t index);
  StepCallResult evaluate(const Batch& b);
  StepCallResult step_with(const th_step& s);
  SaveResult save(std::uint32_t scope = TH_SCOPE_WEIGHTS, std::size_t fail_from = 0);
  CallResult counters(th_counters& out);
  void destroy();

  /// create() and init(). Throws CheckFailed if one fails.
  void create_and_init(std::uint64_t seed = 7);
  /// Another call on the instance, checked in the same way.
  CallResult call(const char* name, const std::function<th_status(th_trainer_inst*, th_error*)>& f);
  bool created() const { return instance_ != nullptr; }
  th_trainer_inst* handle() const { return instance_; }
  const th_trainer& table() const { return table_; }
  const Sample& sample() const { return sample_; }

 private:
  WatchedPlugin& plugin_;
  Sample sample_;
  th_trainer table_;
  th_trainer_inst* instance_ = nullptr;
  plugin::InstanceCalls calls_;  // enforces [inst] for the checks themselves
  std::optional<CheckingHost::CallbacksAllowed>
      callbacks_allowed_;  // while it exists, its threads may call back
};

/// The tensors assembled from saved pieces, by name. Throws CheckFailed for a piece without name or data,
/// outside its tensor, sent twice, or missing.
using Tensors = std::map<std::string, std::vector<unsigned char>>;
Tensors assembled(const std::vector<ReceivedPiece>& pieces);

}  // namespace trainhost::plugin_validator
