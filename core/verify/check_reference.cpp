// REF-001: losses, gradients, updates and generated logits equal those of the reference in double
// (core/numerics) on every sample run. GPU-001 and GPU-007 compare with the CPU trainer on the run of the
// user, where an error that both trainers share, or that the run's model cannot show, is not found.
#include <fmt/format.h>

#include <algorithm>

#include "core/numerics/compare_trainer.hpp"
#include "core/runfile/run_config.hpp"
#include "core/verify/contract_table.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

/// A session whose batches are those of the comparison.
class SessionRun final : public numerics::ComparedRun {
 public:
  SessionRun(Context& context, const runfile::RunConfig& c, const std::string& mode)
      : fixture_(context, c, {.mode = mode, .batches = [this](auto, auto tokens, auto targets) {
                                std::copy(batch_->tokens.begin(), batch_->tokens.end(), tokens.begin());
                                std::copy(batch_->targets.begin(), batch_->targets.end(), targets.begin());
                              }}) {}

  // The reference computes in double; both start from the weights rounded to f32, so rounding is no
  // difference.
  void load(const numerics::Tensors& weights) override {
    for (const TensorInfo& t : tensors(fixture_.run().model)) {
      const std::vector<double>& values = weights.at(t.name);
      const std::vector<float> narrow(values.begin(), values.end());
      fixture_.session().load(plugin::Scope::kWeights,
                              {t.name, DType::kF32, t.rank, t.dim, narrow.data(), 0, narrow.size()});
    }
  }
  // From the trainer, not from what was loaded: this is how updates are read.
  numerics::Tensors save() override {
    const Snapshot s = fixture_.weights();
    numerics::Tensors all;
    for (std::size_t i = 0; i < s.tensors.size(); ++i)
      all[s.tensors[i].name].assign(s.values_of(i).begin(), s.values_of(i).end());
    return all;
  }
  numerics::StepResult step(const numerics::Batch& b, double lr, std::uint64_t index) override {
    batch_ = &b;
    const plugin::StepResult r = fixture_.step(index, lr);
    return {r.loss, r.grad_norm};
  }
  // The index of the batch is irrelevant: the fixture copies batch_.
  double evaluate(const numerics::Batch& b) override {
    batch_ = &b;
    return fixture_.evaluate(0).loss;
  }
  bool can_generate() const override { return can_generate_; }
  std::vector<float> next_logits(std::int32_t token, std::uint32_t position) override {
    std::vector<float> logits(fixture_.run().model.vocab);
    fixture_.session().next_logits(token, position, logits);
    return logits;
  }

 private:
  const numerics::Batch* batch_ = nullptr;  // of the call that runs
  TrainerFixture fixture_;
  const bool can_generate_ = fixture_.session().can_generate();
};

/// Creates a session per sample model. A trainer that rejects a model (too large, not supported) is not
/// falsified by it: refusal() keeps the reason.
class SessionTrainer final : public numerics::ComparedTrainer {
 public:
  SessionTrainer(Context& context, const std::string& mode) : context_(context), mode_(mode) {}
  std::unique_ptr<numerics::ComparedRun> create(const ModelSpec& m, const RunSpec& run) override {
    runfile::RunConfig c = in_fp32(context_.run);
    c.model = m, c.run = run;
    // Trainers may read config.json, which must describe the sample and not the run's model.
    c.model.config_json = runfile::model_config_json(m);
    c.weights.reset();
    try {
      return std::make_unique<SessionRun>(context_, c, mode_);
    } catch (const CheckSkipped& e) {
      return refusal_ = e.what(), nullptr;
    }
  }
  const std::string& refusal() const override { return refusal_; }

 private:
  Context& context_;
  const std::string mode_;
  std::string refusal_;
};

Finding compare_all(Context& context, const std::string& mode) {
  SessionTrainer trainer(context, mode);
  numerics::Difference largest;
  int compared = 0;
  std::string refusal;
  for (const numerics::SampleRun& s : numerics::sample_runs()) {
    bool done = false;
    for (const auto compare : {numerics::compare_losses, numerics::compare_gradients,
                               numerics::compare_updates, numerics::compare_generation}) {
      // An optimizer works on tensors, whatever the model: one sample is enough.
      if (compare == numerics::compare_updates && compared > 0) continue;
      const numerics::Comparison c = compare(trainer, s, context.run.run.seed);
      // The first difference ends the check: its place is more useful than a count.
      if (c.largest.too_large()) return {false, c.largest.error, 1, c.largest.where};
      if (!c.done && refusal.empty()) refusal = s.what + ": " + c.refusal;
      done = done || c.done;
      if (c.largest.error > largest.error) largest = c.largest;
    }
    compared += done;
  }
  // Skipped, not held: nothing was compared.
  if (compared == 0) throw CheckSkipped(refusal);
  return {true, largest.error, 1,
          fmt::format(
              "on {} of {} models losses, gradients, updates and generated logits agree with the reference "
              "in double; largest difference, in units of its tolerance: {}{}",
              compared, numerics::sample_runs().size(), largest.where,
              refusal.empty() ? "" : "; not compared: " + refusal)};
}

}  // namespace

Result check_reference(Context& context) {
  return run_in_every_mode(context, [&](const std::string& mode) { return compare_all(context, mode); });
}

}  // namespace trainhost::verify
