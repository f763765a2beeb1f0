// The update: sum of squares of all gradients, then one pass over each parameter.
#include <cmath>

#include "plugins/cpu/engine/exec.hpp"

namespace trainhost::cpu {
namespace {

constexpr std::uint64_t kElementsPerTask = 16384;

std::uint32_t tasks_for(std::uint64_t elements) {
  return static_cast<std::uint32_t>((elements + kElementsPerTask - 1) / kElementsPerTask);
}

AdamConstants adam_constants(const Exec& e, const plan::Op& op, double clip_factor) {
  const RunSpec& r = e.program.run;
  const double t = static_cast<double>(e.step.step_index) + 1.0, lr = e.step.lr;
  AdamConstants c{};
  c.grad_scale = static_cast<float>(clip_factor);
  c.beta1 = static_cast<float>(r.beta1), c.one_minus_beta1 = static_cast<float>(1.0 - r.beta1);
  c.beta2 = static_cast<float>(r.beta2), c.one_minus_beta2 = static_cast<float>(1.0 - r.beta2);
  c.decay = op.flags & plan::kDecay ? static_cast<float>(1.0 - lr * r.weight_decay) : 1.0f;
  c.step_size = static_cast<float>(lr / (1.0 - std::pow(r.beta1, t)));
  c.inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(r.beta2, t)));
  c.eps = static_cast<float>(r.eps);
  return c;
}

SgdConstants sgd_constants(const Exec& e, const plan::Op& op, double clip_factor) {
  const RunSpec& r = e.program.run;
  SgdConstants c{};
  c.grad_scale = static_cast<float>(clip_factor);
  c.momentum = static_cast<float>(r.beta1);
  c.decay = op.flags & plan::kDecay ? static_cast<float>(1.0 - e.step.lr * r.weight_decay) : 1.0f;
  c.lr = static_cast<float>(e.step.lr);
  return c;
}

}  // namespace

void run_grad_squares(Exec& e, const plan::Op& op) {
  const plan::Buffer& b = e.buffer(op.in[0]);
  const std::uint64_t n = b.rows * b.cols;
  const float* g = e.f32(op.in[0]);
  const std::uint32_t tasks = tasks_for(n);
  e.pool.run(tasks, [&](std::uint32_t i, std::uint32_t) {
    Range r = part(n, i, tasks);
    e.partials[i] = e.kernels.sum_squares(r.size(), g + r.begin);
  });
  double sum = 0.0;
  for (std::uint32_t i = 0; i < tasks; ++i) sum += e.partials[i];
  e.f64(op.in[1])[plan::kNorm2] += sum;
}

void run_optimizer(Exec& e, const plan::Op& op) {
  const plan::Buffer& b = e.buffer(op.in[0]);
  const std::uint64_t n = b.rows * b.cols;
  const float* g = e.f32(op.in[0]);
  float* w = e.f32(op.in[1]);
  const std::uint32_t tasks = tasks_for(n);
  if (op.kind == plan::OpKind::kAdamW) {
    float *m = e.f32(op.in[2]), *v = e.f32(op.in[3]);
    const AdamConstants c = adam_constants(e, op, e.f64(op.in[4])[plan::kClipFactor]);
    e.pool.run(tasks, [&](std::uint32_t i, std::uint32_t) {
      Range r = part(n, i, tasks);
      e.kernels.adamw(r.size(), g + r.begin, w + r.begin, m + r.begin, v + r.begin, c);
    });
    return;
  }
  const bool momentum = op.kind == plan::OpKind::kSgdMomentum;
  float* m = momentum ? e.f32(op.in[2]) : nullptr;
  const SgdConstants c = sgd_constants(e, op, e.f64(op.in[momentum ? 3 : 2])[plan::kClipFactor]);
  e.pool.run(tasks, [&](std::uint32_t i, std::uint32_t) {
    Range r = part(n, i, tasks);
    if (momentum) e.kernels.sgd_momentum(r.size(), g + r.begin, w + r.begin, m + r.begin, c);
    else e.kernels.sgd(r.size(), g + r.begin, w + r.begin, c);
  });
}

std::size_t partials_needed(const plan::Program& p) {
  std::uint64_t most = 1;
  for (const plan::Op& op : p.ops) {
    if (op.kind == plan::OpKind::kGradSquares)
      most = std::max<std::uint64_t>(most, tasks_for(p[op.in[0]].rows * p[op.in[0]].cols));
    if (op.kind == plan::OpKind::kHeadLoss || op.kind == plan::OpKind::kHeadEval) {
      const plan::Buffer& logits = p[op.in[op.kind == plan::OpKind::kHeadLoss ? 4 : 3]];
      most = std::max<std::uint64_t>(most, Exec::row_parts(logits.rows, logits.cols));
    }
  }
  return most;
}

}  // namespace trainhost::cpu
