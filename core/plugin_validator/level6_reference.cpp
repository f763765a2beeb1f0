// Level 6 for trainers, compared with the reference in double (core/numerics) on every sample run of their
// families: losses, gradients, updates, generation. The reference is part of this program, so every trainer
// is compared, the plugin `cpu` included.
#include <algorithm>

#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/numerics/compare_trainer.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

/// One instance of the plugin for a sample run. Weights are those of load(): init() fills nothing that is
/// compared, since each comparison begins with load().
class WatchedRun final : public numerics::ComparedRun {
 public:
  WatchedRun(WatchedPlugin& plugin, const Sample& s)
      : plugin_(plugin), infos_(tensors(s.model)), instance_(plugin, s) {
    instance_.create_and_init();
  }

  void load(const numerics::Tensors& weights) override {
    for (const TensorInfo& t : infos_) {
      const std::vector<double>& values = weights.at(t.name);
      Weights w{t.rank, {t.dim[0], t.rank == 2 ? t.dim[1] : 0}, {}};
      for (const double x : values) w.values.push_back(static_cast<float>(x));
      load_tensor(instance_, t.name, w);
    }
  }
  numerics::Tensors save() override {
    // Every tensor must be there with all its elements: the comparison subtracts two results of save().
    const AllWeights saved = weights_of(instance_);
    numerics::Tensors all;
    for (const TensorInfo& t : infos_) {
      const auto found = saved.find(t.name);
      expect(found != saved.end() && found->second.values.size() == t.elements(),
             "save() did not send the {} elements of {}", t.elements(), t.name);
      all[t.name].assign(found->second.values.begin(), found->second.values.end());
    }
    return all;
  }
  numerics::StepResult step(const numerics::Batch& b, double lr, std::uint64_t index) override {
    const th_step_out out = step_or_throw(instance_, converted(b), lr, index);
    return {out.loss, out.grad_norm};
  }
  double evaluate(const numerics::Batch& b) override { return evaluate_or_throw(instance_, converted(b)); }

  bool can_generate() const override { return generate() != nullptr; }
  std::vector<float> next_logits(std::int32_t token, std::uint32_t position) override {
    std::vector<float> logits(instance_.sample().model.vocab);
    const CallResult a = instance_.call(
        "next", [&](auto* i, auto* e) { return generate()->next(i, token, position, logits.data(), e); });
    expect(a.ok(), "next() at position {} returned {}", position, a.text());
    return logits;
  }

 private:
  static Batch converted(const numerics::Batch& b) { return {b.tokens, b.targets, b.sequences(), b.seq}; }
  /// nullptr: the interface for generation is optional, and T-066 is skipped.
  const th_generate* generate() const {
    const auto* g = static_cast<const th_generate*>(plugin_.library().interface(TH_GENERATE_ID));
    return g && g->next ? g : nullptr;
  }

  WatchedPlugin& plugin_;
  const std::vector<TensorInfo> infos_;
  WatchedInstance instance_;
};

/// Creates runs of the plugin. A run that plan() refuses as unsupported is skipped, not failed: a trainer may
/// lack an option, but what it accepts must be right.
class WatchedTrainer final : public numerics::ComparedTrainer {
 public:
  explicit WatchedTrainer(WatchedPlugin& plugin) : plugin_(plugin) {}
  std::unique_ptr<numerics::ComparedRun> create(const ModelSpec& m, const RunSpec& run) override {
    Sample s;
    s.model = m, s.run = run;
    write_config(s.model);
    const ReportResult plan = plugin_.report(s);
    if (plan.status == TH_E_UNSUPPORTED) return refusal_ = plan.text(), nullptr;
    expect(plan.ok(), "plan() of a tiny {} model returned {}", m.family, plan.text());
    return std::make_unique<WatchedRun>(plugin_, s);
  }
  const std::string& refusal() const override { return refusal_; }

 private:
  WatchedPlugin& plugin_;
  std::string refusal_;
};

using Compare = numerics::Comparison (*)(numerics::ComparedTrainer&, const numerics::SampleRun&,
                                         std::uint64_t seed);

/// `compare` as a template argument: the table holds plain function pointers. Samples of families that the
/// manifest does not name are left out; the plugin never said that it trains them.
template <Compare compare>
void check_against_reference(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedTrainer trainer(plugin);
  const std::vector<std::string>& families = plugin.manifest().families;
  const auto named = [&](const std::string& f) {
    return std::find(families.begin(), families.end(), f) != families.end();
  };
  int compared = 0;
  double largest = 0;
  std::string refusal = "the reference has no model of its families";
  for (const numerics::SampleRun& s : numerics::sample_runs()) {
    if (!named(s.model.family) && !named("*")) continue;
    // An optimizer works on tensors, whatever the model: one sample is enough.
    if (compare == numerics::compare_updates && compared > 0) break;
    const numerics::Comparison c = compare(trainer, s, plugin.seed());
    expect(!c.largest.too_large(), "{}", c.largest.where);
    if (!c.done) refusal = s.what + ": " + c.refusal;
    compared += c.done;
    largest = std::max(largest, c.largest.error);
  }
  if (compared == 0) throw CheckSkipped(refusal);
  plugin.note_measurement(
      fmt::format("{} models, largest difference {:.2g} of the tolerance", compared, largest));
}

}  // namespace

// From the forward pass to what is built on it: a wrong loss makes every gradient wrong, and a wrong gradient
// every update, so that only the first failure has to be looked at.
std::vector<Check> trainer_reference_checks() {
  return {
      {"T-050",
       6,
       "Its losses equal those of the reference",
       "The program has a forward pass of its own, in double. On tiny models that together use every option "
       "of the trained families (biases, q/k norm, grouped heads, windows, tied heads, rope scalings) the "
       "losses of an evaluation and of a step must be equal; another loss means another model. Fix: switch "
       "off the options of the model that the message names, one at a time, until the losses agree: the "
       "operation that reads the last one is wrong.",
       {"T-028", "T-061"},
       check_against_reference<numerics::compare_losses>},
      {"T-064",
       6,
       "Its gradients equal those of the reference",
       "One SGD step with learning rate 1 subtracts the gradient. It is compared with derivatives of the "
       "loss "
       "of the reference, for every tensor of every option, with two micro-batches and with recompute. Fix: "
       "look at the backward kernel that writes the gradient of the tensor in the message; if the tensors of "
       "all earlier layers are wrong as well, at the kernel that passes the gradient on.",
       {"T-050", "T-051", "T-052"},
       check_against_reference<numerics::compare_gradients>},
      {"T-065",
       6,
       "Its optimizers follow their definitions",
       "Two steps of SGD, SGD with momentum and AdamW, clipped and with weight decay, must change the "
       "weights "
       "as torch.optim does. Fix: compare the update with core/executor/kernels.hpp; moments get the clipped "
       "gradient, bias corrections use step_index + 1, and only tensors of two dimensions decay.",
       {"T-064"},
       check_against_reference<numerics::compare_updates>},
      {"T-066",
       6,
       "Generation gives the logits of the reference",
       "next() computes one token at a time from a cache, through kernels of its own. Its logits must be "
       "those "
       "of a forward pass over the whole text. Fix: look at the attention over the cache, its window and the "
       "position that rotates q and k.",
       {"T-050"},
       check_against_reference<numerics::compare_generation>},
  };
}

}  // namespace trainhost::plugin_validator
