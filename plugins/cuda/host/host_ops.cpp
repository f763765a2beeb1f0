// Operations of the hybrid and streamed modes that run on the host. Each is divided into tasks whose number
// depends on the shape only; every element of a result is written by one task. The loops: host_loops.cpp. See
// host_ops.hpp.
#include "plugins/cuda/host/host_ops.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <vector>

#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"
#include "plugins/cuda/host/host_loops.hpp"
#include "plugins/cuda/host/host_optimizers.hpp"

namespace trainhost::cuda::host {
namespace {

using step::Op;
using step::OpKind;
using step::Program;
using namespace step::operand;

// 1 MiB of f32 per array: few tasks, each long compared with its distribution.
constexpr std::uint32_t kParts = 64;  // tasks of an operation over rows, and partial sums of a sum
// Of a piece of the logits, whose end the device waits for: two rows of 512, so that threads end together.
constexpr std::uint32_t kLossParts = 256;

std::uint64_t elements(const Program& p, step::BufferId b) { return p[b].rows * p[b].cols; }

/// The sum of f(part) over all parts, added in the order of the parts whatever thread computed them.
template <std::uint32_t kCount, class F>
double sum_of_parts(ThreadPool& pool, F&& f) {
  std::array<double, kCount> sums{};
  pool.run(kCount, [&](std::uint32_t i) { sums[i] = f(i); });
  double total = 0;
  for (double s : sums) total += s;
  return total;
}

template <class T>
void embed(ThreadPool& pool, const Program& p, const Op& op, const Operands& at, const Step& s) {
  const std::uint64_t h = p[op[embed::kTable]].cols;
  const T* table = at.get<const T>(embed::kTable);
  T* x = static_cast<T*>(at.x);
  pool.run(kParts, [&](std::uint32_t i) {
    const Range r = part(s.rows, i, kParts);
    for (std::uint64_t t = r.begin; t < r.end; ++t)
      // Ids are in range: executor::check_step() has checked them.
      std::memcpy(x + t * h, table + static_cast<std::uint64_t>(s.ids[t]) * h, h * sizeof(T));
  });
}

// Task t owns the rows of the table with id % kParts == t and adds their tokens in order, so that every row
// has one writer and a fixed order of additions. Every task reads all ids; that is cheap compared with adding
// rows of h.
template <class T>
void embed_bwd(ThreadPool& pool, const Program& p, const Op& op, const Operands& at, const Step& s) {
  const std::uint64_t h = p[op[embed_bwd::kGradTable]].cols, vocab = p[op[embed_bwd::kGradTable]].rows;
  const T* dx = at.get<const T>(embed_bwd::kDx);
  float* grad = at.get<float>(embed_bwd::kGradTable);
  const bool overwrite = (op.flags & step::kFirstWrite) && s.first_micro;
  pool.run(kParts, [&](std::uint32_t t) {
    if (overwrite)
      for (std::uint64_t id = t; id < vocab; id += kParts) std::memset(grad + id * h, 0, h * sizeof(float));
    for (std::uint64_t r = 0; r < s.rows; ++r)
      if (const auto id = static_cast<std::uint64_t>(s.ids[r]); id % kParts == t)
        add(h, dx + r * h, grad + id * h);
  });
}

template <class T>
void cross_entropy(ThreadPool& pool, const Program& p, const Op& op, const Operands& at, const Step& s) {
  const std::uint64_t v = p[op[cross_entropy::kLogits]].cols;
  double* scalars = at.get<double>(cross_entropy::kScalars);
  // 1 / counted targets of the update. The same loop writes loss and gradient, while the row is in the cache.
  const float scale = static_cast<float>(scalars[step::kLossScale]);
  T* logits = at.get<T>(cross_entropy::kLogits) + s.first * v;
  // Not atomic: host operations run one at a time, in the order of their queue.
  scalars[step::kLossSum] += sum_of_parts<kLossParts>(pool, [&](std::uint32_t i) {
    const Range r = part(s.rows, i, kLossParts);
    double loss = 0;
    for (std::uint64_t t = r.begin; t < r.end; ++t) {
      if (s.targets[t] >= 0)
        loss += cross_entropy_row(v, logits + t * v, s.targets[t], scale);
      else
        std::memset(logits + t * v, 0, v * sizeof(T));  // target -100: no loss, gradient 0
    }
    return loss;
  });
}

void add_grad(ThreadPool& pool, const Program& p, const Op& op, const Operands& at, const Step& s) {
  const float* from = at.get<const float>(add_grad::kPart);
  float* to = at.get<float>(add_grad::kGrad);
  const bool overwrite = (op.flags & step::kFirstWrite) && s.first_micro;
  // The streamed mode copies one micro-batch's gradient to the host (kPart) and adds it to the sum here.
  over_elements(pool, elements(p, op[add_grad::kPart]), [&](std::uint64_t begin, std::uint64_t n) {
    if (overwrite)
      std::memcpy(to + begin, from + begin, n * sizeof(float));
    else
      add(n, from + begin, to + begin);
  });
}

}  // namespace

void run(ThreadPool& pool, const Program& p, const Op& op, const Operands& at, const Step& step) {
  // Type of the first operand: table, dx or logits. The gradient of kAddGrad is always f32.
  const bool half = p[op.in[0]].dtype == DType::kBF16;
  switch (op.kind) {
    case OpKind::kEmbed:
      return half ? embed<Half>(pool, p, op, at, step) : embed<float>(pool, p, op, at, step);
    case OpKind::kEmbedBwd:
      return half ? embed_bwd<Half>(pool, p, op, at, step) : embed_bwd<float>(pool, p, op, at, step);
    case OpKind::kCrossEntropy:
      return half ? cross_entropy<Half>(pool, p, op, at, step) : cross_entropy<float>(pool, p, op, at, step);
    case OpKind::kAddGrad:
      return add_grad(pool, p, op, at, step);
    default:
      assert(false && "not an operation of the host");
      return;
  }
}

void run_squares(ThreadPool& pool, const Program& p, const Op& op, const Operands& at) {
  const std::uint64_t n = elements(p, op[grad_squares::kGrad]);
  const float* g = at.get<const float>(grad_squares::kGrad);
  at.get<double>(grad_squares::kScalars)[step::kNorm2] += sum_of_parts<kParts>(pool, [&](std::uint32_t i) {
    const Range r = part(n, i, kParts);
    return squares(r.end - r.begin, g + r.begin);
  });
}

void run_update(ThreadPool& pool, const Program& p, const Op& op, const Operands& at) {
  const double* s = at.get<const double>(optimizer::scalars(op.kind));
  // Decided on the device (finish_norm), so that weights on both are updated, or none.
  if (s[step::kApplied] == 0.0) return;
  // Constants as the device computes them: 1 - beta in double, decay and step size from the scalars.
  const RunSpec& r = p.run;
  const float decay = op.flags & step::kDecay ? static_cast<float>(s[step::kDecayFactor]) : 1.0f;
  const float clip = static_cast<float>(s[step::kClipFactor]);
  const Adam adam{clip,
                  static_cast<float>(r.beta1),
                  static_cast<float>(1.0 - r.beta1),
                  static_cast<float>(r.beta2),
                  static_cast<float>(1.0 - r.beta2),
                  decay,
                  static_cast<float>(s[step::kStepSize]),
                  static_cast<float>(s[step::kInvSqrtBias2]),
                  static_cast<float>(r.eps)};
  const Sgd sgd_constants{clip, static_cast<float>(r.beta1), decay, static_cast<float>(s[step::kLr])};
  const Lion lion_constants{clip,  adam.beta1,      adam.one_minus_beta1, adam.beta2, adam.one_minus_beta2,
                            decay, sgd_constants.lr};
  float* master = at.get<float>(optimizer::master(op.kind));
  if (op.kind == OpKind::kAdamW8bit) return run_adamw_8bit(pool, p, op, at, adam);
  if (op.kind == OpKind::kAdafactor) return run_adafactor(pool, p, op, at, clip, decay);
  if (op.kind == OpKind::kMuonDirection) return run_muon_direction(pool, p, op, at, clip);
  if (op.kind == OpKind::kMuon) return run_muon_apply(pool, p, op, at, decay);
  over_elements(pool, elements(p, op[optimizer::kGrad]), [&](std::uint64_t begin, std::uint64_t n) {
    const float* g = at.get<const float>(optimizer::kGrad) + begin;
    // bf16 runs update the f32 master copy and round it into the weight.
    float* w = (master ? master : at.get<float>(optimizer::kWeight)) + begin;
    if (op.kind == OpKind::kAdamW)
      adamw(n, g, w, at.get<float>(optimizer::kM) + begin, at.get<float>(adamw::kV) + begin, adam);
    else if (op.kind == OpKind::kSgd)
      sgd(n, g, w, sgd_constants);
    else if (op.kind == OpKind::kLion)
      lion(n, g, w, at.get<float>(optimizer::kM) + begin, lion_constants);
    else
      sgd_momentum(n, g, w, at.get<float>(optimizer::kM) + begin, sgd_constants);
    if (master) to_half(n, w, at.get<Half>(optimizer::kWeight) + begin);
  });
}

}  // namespace trainhost::cuda::host
