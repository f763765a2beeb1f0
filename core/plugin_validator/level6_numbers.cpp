// Level 6 for trainers: the loss is the reference's, the update is the gradient of the loss, and means are
// over counted targets whatever the cut into micro-batches. Tiny models with weights that this program makes.
#include <cmath>
#include <random>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr double kLossTolerance = 2e-5;  // relative, of one f32 forward pass over some thousand terms
constexpr double kStepTolerance = 1e-3;  // relative, after updates that divide by small second moments

bool near(double a, double b, double relative) {
  return std::abs(a - b) <= relative * std::max(std::abs(a), std::abs(b));
}

/// An instance of the sample with made weights, ready.
void begin_made(Instance& i, std::uint64_t seed) {
  i.begin();
  load_weights(i, made_weights(weights_of(i), seed));
}

void same_loss_as_the_reference(Bench& b) {
  const auto& file = b.around().reference_trainer;
  if (file.empty()) throw NotHere("the reference trainer 'cpu' is not among this program's plugins");
  if (std::filesystem::equivalent(file, b.file())) throw NotHere("it is the reference itself");
  Started started(b);
  b.need_device();
  Bench reference(file, b.seed());
  Started reference_started(reference);
  reference.need_device();
  const Sample s = b.sample();
  if (reference.plan(s).status == TH_E_UNSUPPORTED)
    throw NotHere("the reference trainer 'cpu' does not train this family");
  Instance i(b, s), r(reference, s);
  begin_made(i, b.seed());
  r.begin();
  load_weights(r, made_weights(weights_of(i), b.seed()));
  const Batch batch = make_batch(s, b.seed());
  const Batch micro = make_batch(s, b.seed() + 1, s.run.micro_batch);
  const double own = must_evaluate(i, micro), theirs = must_evaluate(r, micro);
  expect(near(own, theirs, kLossTolerance),
         "on the same weights and tokens its loss is {:.7f}; the reference trainer 'cpu' "
         "has {:.7f}",
         own, theirs);
  double apart = 0;
  for (std::uint64_t n = 0; n < 5; ++n) {
    const th_step_out a = must_step(i, batch, 1e-3, n), c = must_step(r, batch, 1e-3, n);
    expect(near(a.loss, c.loss, kStepTolerance) && near(a.grad_norm, c.grad_norm, 5 * kStepTolerance),
           "at step {} its loss is {:.6f} and its gradient norm {:.6f}; the reference trainer 'cpu' has "
           "{:.6f} and {:.6f}",
           n + 1, a.loss, a.grad_norm, c.loss, c.grad_norm);
    apart = std::max(apart, std::abs(a.loss - c.loss) / c.loss);
  }
  b.figure(fmt::format("5 losses within {:.1e} of the reference trainer 'cpu'", apart));
}

/// The gradient of one batch, from an update of plain descent with a learning rate of 1.
AllWeights gradient(Instance& i, const AllWeights& from, const Batch& batch, th_step_out& out) {
  out = must_step(i, batch, 1, 0);
  AllWeights g = weights_of(i);
  for (auto& [name, w] : g)
    for (std::size_t k = 0; k < w.values.size(); ++k) w.values[k] = from.at(name).values[k] - w.values[k];
  return g;
}

double norm(const Weights& w) {
  double sum = 0;
  for (float x : w.values) sum += double{x} * x;
  return std::sqrt(sum);
}

/// Sample, weights and batch of the gradient checks: one micro-batch, so that an evaluation sees what the
/// update sees.
struct Descent {
  Descent(Bench& b) : sample(plain_descent(b.sample())), instance(b, sample) {
    need_run(b, sample, "plain gradient descent (sgd)");
    instance.begin();
    weights = made_weights(weights_of(instance), b.seed());
    load_weights(instance, weights);
    batch = make_batch(sample, b.seed());
    g = gradient(instance, weights, batch, out);
    load_weights(instance, weights);
  }
  Sample sample;
  Instance instance;
  AllWeights weights, g;
  Batch batch;
  th_step_out out{};
};

/// Central differences along directions of random signs, tensor by tensor: such a direction meets every
/// element alike, so a gradient that lacks some of them is off by as much as they weigh.
void gradient_by_differences(Bench& b) {
  Started started(b);
  b.need_device();
  Descent d(b);
  constexpr double kStep = 2e-3, kNoise = 2e-6 / (2 * kStep);  // the loss comes from f32 sums
  std::mt19937_64 random(b.seed());
  double worst = 0;
  for (const auto& [name, w] : d.weights) {
    const Weights& g = d.g.at(name);
    for (int direction = 0; direction < 3; ++direction) {
      Weights up = w, down = w;
      double expected = 0;
      for (std::size_t k = 0; k < w.values.size(); ++k) {
        const double sign = random() & 1 ? 1 : -1;
        up.values[k] += static_cast<float>(sign * kStep), down.values[k] -= static_cast<float>(sign * kStep);
        expected += sign * g.values[k];
      }
      load_tensor(d.instance, name, up);
      const double above = must_evaluate(d.instance, d.batch);
      load_tensor(d.instance, name, down);
      const double measured = (above - must_evaluate(d.instance, d.batch)) / (2 * kStep);
      const double scale = norm(g), off = std::abs(measured - expected);
      expect(off <= 0.05 * scale + 2 * kNoise,
             "along a direction of {} the evaluated loss changes by {:.5f}; the update says {:.5f} (norm of "
             "its gradient "
             "{:.5f})",
             escaped(name), measured, expected, scale);
      if (scale > 100 * kNoise) worst = std::max(worst, off / scale);
    }
    load_tensor(d.instance, name, w);
  }
  b.figure(fmt::format("gradients and differences of the loss agree within {:.1e} of the norm", worst));
}

void norm_is_of_the_gradient(Bench& b) {
  Started started(b);
  b.need_device();
  Descent d(b);
  double sum = 0;
  for (const auto& [name, g] : d.g) sum += norm(g) * norm(g);
  expect(near(d.out.grad_norm, std::sqrt(sum), 2e-3),
         "step() reports a gradient norm of {:.6f}; its update has {:.6f}", d.out.grad_norm, std::sqrt(sum));
}

/// Sequences with quite different numbers of counted targets.
Batch uneven(Batch b) {
  for (std::uint32_t n = 0; n < b.sequences; ++n)
    for (std::uint32_t t = 0; t < n * b.seq / b.sequences; ++t) b.targets[n * b.seq + t] = -100;
  return b;
}

void accumulates_as_one(Bench& b) {
  Started started(b);
  b.need_device();
  Sample parts = plain_descent(b.sample()), whole = parts;
  parts.run.micro_batch = 1, parts.run.accumulate = 4, whole.run.micro_batch = 4, whole.run.accumulate = 1;
  need_run(b, parts, "plain gradient descent (sgd) in 4 micro-batches");
  Instance p(b, parts), w(b, whole);
  begin_made(p, b.seed()), begin_made(w, b.seed());
  const Batch batch = uneven(make_batch(whole, b.seed()));
  const th_step_out a = must_step(p, batch, 1, 0), c = must_step(w, batch, 1, 0);
  expect(near(a.loss, c.loss, 1e-4) && near(a.grad_norm, c.grad_norm, 1e-3),
         "4 micro-batches of 1 give the loss {:.6f} and the norm {:.6f}, 1 of 4 gives {:.6f} and {:.6f}; "
         "means over all "
         "counted targets were expected",
         a.loss, a.grad_norm, c.loss, c.grad_norm);
  expect(a.tokens_counted == c.tokens_counted, "4 micro-batches of 1 count {} targets, 1 of 4 counts {}",
         a.tokens_counted, c.tokens_counted);
}

void ignored_are_ignored(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  begin_made(i, b.seed());
  Batch both = make_batch(i.sample(), b.seed(), 2), one = both;
  one.sequences = 1, one.tokens.resize(one.seq), one.targets.resize(one.seq);
  for (std::uint32_t t = 0; t < both.seq; ++t) both.targets[both.seq + t] = -100;
  const double with = must_evaluate(i, both), alone = must_evaluate(i, one);
  expect(near(with, alone, kLossTolerance),
         "a sequence beside one whose targets are all -100 has the loss {:.6f}, alone "
         "{:.6f}; the same was expected",
         with, alone);
}

}  // namespace

std::vector<Check> trainer_number_checks() {
  return {
      {"T-055",
       6,
       "Targets of -100 weigh nothing",
       "Prompts and padding are masked with -100. A sequence of them alone must change neither the loss nor "
       "the mean: a "
       "trainer that reads -100 as a token, or divides by all positions, learns padding.",
       {"T-022", "T-061", "T-026"},
       ignored_are_ignored},
      {"T-051",
       6,
       "The update is the gradient of the loss",
       "One update of plain descent with a learning rate of 1 is the gradient. Along random directions of "
       "every tensor it "
       "is held against differences of the evaluated loss: a wrong or missing backward kernel shows here and "
       "nowhere in a "
       "loss that still falls.",
       {"T-061", "T-023", "T-025", "T-055"},
       gradient_by_differences},
      {"T-052",
       6,
       "grad_norm is the norm of the gradient",
       "Users clip by it and watch it for spikes: the L2 norm over all parameters, before clipping.",
       {"T-051", "T-058"},
       norm_is_of_the_gradient},
      {"T-054",
       6,
       "Micro-batches add up to one batch",
       "accumulate x micro_batch sequences are one update: the loss and the gradient are means over all "
       "counted targets, "
       "not means of the means of micro-batches.",
       {"T-051"},
       accumulates_as_one},
      {"T-050",
       6,
       "Its losses are those of the reference trainer",
       "The same weights, tokens and updates on `cpu`, the trainer of reference, which was held against "
       "PyTorch: another "
       "loss is another model. Skipped where `cpu` is not installed.",
       {"T-028", "T-061"},
       same_loss_as_the_reference},
  };
}

}  // namespace trainhost::plugin_validator
