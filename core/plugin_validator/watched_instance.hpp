// One training run of the trainer under test, on the smallest of models: created, driven and destroyed
// through calls that the Bench watches, with batches made from a seed.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/plugin/instance_turns.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {

/// Tokens and targets of one step: ids below the vocabulary, the last target of each sequence not counted.
struct Batch {
  std::vector<std::int32_t> tokens, targets;
  std::uint32_t sequences = 0, seq = 0;
  std::uint64_t counted() const;
};
Batch make_batch(const Sample& s, std::uint64_t seed, std::uint32_t sequences);
/// Of one whole update of the sample's run.
Batch make_batch(const Sample& s, std::uint64_t seed);

struct StepAnswer : Answer {
  th_step_out out{};
};
struct SaveAnswer : Answer {
  std::vector<SeenPiece> pieces;
  int calls_after_refusal = 0;
};

class Instance {
 public:
  Instance(Bench& b, Sample s) : bench_(b), sample_(std::move(s)), table_(b.subject().trainer()) {}
  ~Instance() { destroy(); }
  Instance(const Instance&) = delete;

  Answer create(std::int32_t device = 0, bool no_error = false);
  Answer init(std::uint64_t seed);
  Answer load(std::uint32_t scope, const th_tensor& t);
  StepAnswer step(const Batch& b, double lr, std::uint64_t index);
  StepAnswer evaluate(const Batch& b);
  StepAnswer raw_step(const th_step& s);
  SaveAnswer save(std::uint32_t scope = TH_SCOPE_WEIGHTS, std::size_t refuse_from = 0);
  Answer counters(th_counters& out);
  void destroy();

  /// create() and init(), as a check that is about something else wants it: throws Broken.
  void begin(std::uint64_t seed = 7);
  /// A call of one's own on the instance, by the same rules.
  Answer call(const char* name, const std::function<th_status(th_trainer_inst*, th_error*)>& f);
  bool alive() const { return instance_ != nullptr; }
  th_trainer_inst* raw() const { return instance_; }
  const th_trainer& table() const { return table_; }
  const Sample& sample() const { return sample_; }

 private:
  Bench& bench_;
  Sample sample_;
  th_trainer table_;
  th_trainer_inst* instance_ = nullptr;
  plugin::Turns turns_;                       // that the checks themselves keep [inst]
  std::optional<CheckingHost::Legal> legal_;  // while it lives, its own threads may call back
};

/// The saved pieces put together, by name. Throws Broken for what no checkpoint can hold: a piece without a
/// name or data, outside its tensor, twice, or missing.
using Tensors = std::map<std::string, std::vector<unsigned char>>;
Tensors assembled(const std::vector<SeenPiece>& pieces);

}  // namespace trainhost::plugin_validator
