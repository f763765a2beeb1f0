// See compare_trainer.hpp. Tolerances, chosen between the error of correct trainers in f32 and the effect of
// a missing operand; both are measured by tests/core/numerics (README.md has the figures).
#include "core/numerics/compare_trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "core/model/tensors.hpp"

namespace trainhost::numerics {
namespace {

constexpr double kLossTolerance = 3e-5;      // relative
constexpr double kLogitTolerance = 1e-4;     // of 1 + |logit|
constexpr double kGradientTolerance = 1e-3;  // of the norm of the tensor's gradient ...
constexpr double kWeakGradient = 1e-5;  // ... and of the norm of all: rounding of weights and of large terms
// Of the norm of all gradients; the weights of a norm have a thousandth of it.
constexpr double kNormTolerance = 1e-4;
constexpr double kUpdateTolerance = 1e-3;  // of the largest change of the tensor ...
constexpr double kRounding = 1e-6;         // ... and rounding of weights around 1

/// Records a difference in units of its tolerance. True if it is too large.
bool record(Difference& largest, double off, double tolerance, const std::string& where) {
  const double error = off == 0 ? 0 : std::isnan(off / tolerance) ? INFINITY : off / tolerance;
  if (error > largest.error) largest = {error, where};
  return largest.too_large();
}

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

double norm(const Tensors& all) {
  double sum = 0;
  for (const auto& [name, v] : all) sum += norm(v) * norm(v);
  return std::sqrt(sum);
}

Tensors difference(const Tensors& a, const Tensors& b) {
  Tensors out = a;
  for (auto& [name, v] : out)
    for (std::size_t i = 0; i < v.size(); ++i) v[i] -= b.at(name)[i];
  return out;
}

/// What all comparisons of a sample share.
struct Inputs {
  Inputs(const SampleRun& s, std::uint64_t seed)
      : weights(generate_weights(s.model, seed)),
        step(generate_batch(s.model, s.run, s.run.micro_batch * s.run.accumulate, seed)),
        other_step(generate_batch(s.model, s.run, s.run.micro_batch * s.run.accumulate, seed + 1)),
        micro_batch(generate_batch(s.model, s.run, s.run.micro_batch, seed + 2)) {}
  Tensors weights;
  Batch step, other_step, micro_batch;
};

/// A run of the trainer with the generated weights, or the refusal in `c`.
std::unique_ptr<ComparedRun> begin(ComparedTrainer& trainer, const ModelSpec& m, const RunSpec& run,
                                   const Inputs& in, Comparison& c) {
  std::unique_ptr<ComparedRun> r = trainer.create(m, run);
  c.done = r != nullptr;
  if (r)
    r->load(in.weights);
  else
    c.refusal = trainer.refusal();
  return r;
}

/// The gradient of one step from the weights of `in`; the run has these weights again afterwards.
Tensors gradient(ComparedRun& run, const Inputs& in, const Batch& batch, StepResult* result = nullptr) {
  const StepResult r = run.step(batch, 1, 0);
  if (result) *result = r;
  const Tensors g = difference(in.weights, run.save());
  run.load(in.weights);
  return g;
}

/// Derivative of the reference loss along `direction` of one tensor, by central differences.
double derivative(const SampleRun& s, Tensors& w, const std::string& name,
                  const std::vector<double>& direction, const Batch& batch) {
  // In double the differences are exact to about 1e-9: far below every tolerance.
  constexpr double kStep = 1e-5;
  std::vector<double>& v = w.at(name);
  const std::vector<double> kept = v;
  const auto loss_at = [&](double step) {
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = kept[i] + step * direction[i];
    return mean_loss(s.model, w, batch);
  };
  const double change = loss_at(kStep) - loss_at(-kStep);
  v = kept;
  return change / (2 * kStep);
}

struct Derivative {
  std::string tensor;
  std::vector<double> direction;
  double value = 0;
};

/// Derivatives along two random directions per tensor, each element +1 or -1, so that every element counts.
/// Two, because the errors of the elements can cancel along one. The results are kept and used again for the
/// next mode or trainer: they take most of the time of a comparison.
const std::vector<Derivative>& derivatives(const SampleRun& s, const Inputs& in, std::uint64_t seed) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::uint64_t>, std::vector<Derivative>> known;
  std::lock_guard lock(mutex);
  std::vector<Derivative>& all = known[{s.what, seed}];
  if (!all.empty()) return all;
  Tensors w = in.weights;
  std::mt19937_64 random(seed);
  for (const auto& [name, values] : in.weights)
    for (int i = 0; i < 2; ++i) {
      Derivative d{name, std::vector<double>(values.size()), 0};
      for (double& sign : d.direction) sign = random() & 1 ? 1 : -1;
      d.value = derivative(s, w, name, d.direction, in.step);
      all.push_back(std::move(d));
    }
  return all;
}

/// The state of one optimizer, in double: the definitions of torch.optim with decoupled weight decay.
struct Definition {
  const RunSpec& run;
  Tensors weights, moment1, moment2;

  void step(const Tensors& gradients, const std::vector<TensorInfo>& infos, double lr, double t) {
    const double norm_of_all = norm(gradients);
    const double clip = run.clip_norm > 0 ? std::min(1.0, run.clip_norm / (norm_of_all + 1e-6)) : 1;
    for (const TensorInfo& info : infos) {
      std::vector<double>&w = weights.at(info.name), &m = moment1[info.name], &v = moment2[info.name];
      m.resize(w.size()), v.resize(w.size());
      const double decay = info.rank >= 2 ? 1 - lr * run.weight_decay : 1;
      for (std::size_t i = 0; i < w.size(); ++i)
        w[i] = decay * w[i] - lr * change(gradients.at(info.name)[i] * clip, m[i], v[i], t);
    }
  }

 private:
  double change(double g, double& m, double& v, double t) const {
    if (run.optimizer == Optimizer::kSgd) return g;
    if (run.optimizer == Optimizer::kSgdMomentum) return m = run.beta1 * m + g;
    m = run.beta1 * m + (1 - run.beta1) * g, v = run.beta2 * v + (1 - run.beta2) * g * g;
    return m / (1 - std::pow(run.beta1, t)) / (std::sqrt(v / (1 - std::pow(run.beta2, t))) + run.eps);
  }
};

}  // namespace

Comparison compare_losses(ComparedTrainer& trainer, const SampleRun& s, std::uint64_t seed) {
  Comparison c;
  const Inputs in(s, seed);
  const auto run = begin(trainer, s.model, s.run, in, c);
  if (!run) return c;
  // A step reports the loss of the weights before its update.
  constexpr double kLr = 0.1;
  const auto judge = [&](const char* what, double got, const Tensors& weights, const Batch& batch) {
    const double expected = mean_loss(s.model, weights, batch);
    return record(
        c.largest, std::abs(got - expected), kLossTolerance * expected,
        fmt::format("{}: the loss of {} is {:.6f}; the reference has {:.6f}", s.what, what, got, expected));
  };
  if (judge("an evaluation", run->evaluate(in.micro_batch), in.weights, in.micro_batch)) return c;
  if (judge("a step", run->step(in.step, kLr, 0).loss, in.weights, in.step)) return c;
  // A trainer may keep a weight in several places, for example on two devices; load() sets all of them.
  const Tensors updated = run->save();
  if (judge("an evaluation after an update", run->evaluate(in.micro_batch), updated, in.micro_batch))
    return c;
  judge("a step after an update", run->step(in.other_step, 0, 1).loss, updated, in.other_step);
  return c;
}

Comparison compare_gradients(ComparedTrainer& trainer, const SampleRun& s, std::uint64_t seed) {
  Comparison c;
  const Inputs in(s, seed);
  const auto run = begin(trainer, s.model, s.run, in, c);
  if (!run) return c;
  StepResult result;
  const Tensors g = gradient(*run, in, in.step, &result);
  const double norm_of_all = norm(g);
  for (const Derivative& d : derivatives(s, in, seed)) {
    const std::vector<double>& own = g.at(d.tensor);
    const double got = std::inner_product(own.begin(), own.end(), d.direction.begin(), 0.0);
    if (record(c.largest, std::abs(got - d.value),
               kGradientTolerance * norm(own) + kWeakGradient * norm_of_all,
               fmt::format("{}: along a direction of {} the update predicts a derivative of {:.6f}; the "
                           "reference has {:.6f}",
                           s.what, d.tensor, got, d.value)))
      return c;
  }
  record(c.largest, std::abs(result.grad_norm - norm_of_all), kNormTolerance * norm_of_all,
         fmt::format("{}: step() reports a gradient norm of {:.6f}; its update has {:.6f}", s.what,
                     result.grad_norm, norm_of_all));
  return c;
}

Comparison compare_updates(ComparedTrainer& trainer, const SampleRun& s, std::uint64_t seed) {
  constexpr double kLr = 0.03;
  Comparison c;
  const Inputs in(s, seed);
  const auto sgd = begin(trainer, s.model, s.run, in, c);
  if (!sgd) return c;
  const Tensors first = gradient(*sgd, in, in.step), second = gradient(*sgd, in, in.other_step);
  const std::vector<TensorInfo> infos = tensors(s.model);
  for (const auto& [optimizer, name] : {std::pair{Optimizer::kSgd, "sgd"},
                                        {Optimizer::kSgdMomentum, "sgd with momentum"},
                                        {Optimizer::kAdamW, "adamw"}}) {
    // Values unlike every default. eps is large: where it is small, AdamW amplifies the rounding of small
    // gradients.
    RunSpec run = s.run;
    run.optimizer = optimizer;
    run.beta1 = 0.7, run.beta2 = 0.8, run.eps = 1e-2, run.weight_decay = 0.3;
    run.clip_norm = 0.4 * std::min(norm(first), norm(second));
    Comparison one;
    const auto r = begin(trainer, s.model, run, in, one);
    // The optimizers are optional; those that the trainer has are compared.
    if (!r) continue;
    // The first step has a learning rate of 0: it sets the moments and leaves the weights, so that the
    // gradients of both steps are those measured above.
    Definition expected{run, in.weights, {}, {}};
    r->step(in.step, 0, 0), r->step(in.other_step, kLr, 1);
    expected.step(first, infos, 0, 1), expected.step(second, infos, kLr, 2);
    const Tensors got = r->save(), change = difference(expected.weights, in.weights),
                  off = difference(got, expected.weights);
    for (const auto& [tensor, d] : off) {
      double largest_change = 0, largest_off = 0;
      for (const double x : change.at(tensor)) largest_change = std::max(largest_change, std::abs(x));
      // max() would drop a NaN.
      for (const double x : d) largest_off = std::isnan(x) ? INFINITY : std::max(largest_off, std::abs(x));
      if (record(c.largest, largest_off, kUpdateTolerance * largest_change + kRounding,
                 fmt::format("{}: two steps of {} leave {} with an error of {:.2g} of its largest change",
                             s.what, name, tensor, largest_off / largest_change)))
        return c;
    }
  }
  return c;
}

Comparison compare_generation(ComparedTrainer& trainer, const SampleRun& s, std::uint64_t seed) {
  Comparison c;
  const Inputs in(s, seed);
  const auto run = begin(trainer, s.model, s.run, in, c);
  if (!run) return c;
  if (!run->can_generate()) {
    c.done = false, c.refusal = "it does not provide the generate interface";
    return c;
  }
  const std::span<const std::int32_t> text(in.step.tokens.data(), s.run.seq_len);
  const std::vector<double> expected = logits(s.model, in.weights, text);
  for (std::uint32_t p = 0; p < text.size(); ++p) {
    const std::vector<float> got = run->next_logits(text[p], p);
    for (std::size_t j = 0; j < got.size(); ++j) {
      const double e = expected[p * s.model.vocab + j];
      if (record(
              c.largest, std::abs(got[j] - e), kLogitTolerance * (1 + std::abs(e)),
              fmt::format("{}: the logit of token {} after position {} is {:.6f}; the reference has {:.6f}",
                          s.what, j, p, got[j], e)))
        return c;
    }
  }
  return c;
}

}  // namespace trainhost::numerics
