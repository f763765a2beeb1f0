// Fixture: runs a single operation of the CPU trainer on buffers given as vectors of doubles. Sets the parts
// of a Program that an operation reads, so that no planner is needed.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <random>
#include <vector>

#include "core/base/bf16.hpp"
#include "plugins/cpu/engine/op_context.hpp"
#include "plugins/cpu/engine/thread_pool.hpp"
#include "tests/support/reference_ops.hpp"

namespace trainhost::test {

using reference::Vec;
using step::BufferId;

/// Reproducible random numbers in [-scale, scale] that are exact in f32.
inline Vec random_vec(std::size_t n, unsigned seed, double scale = 1.0) {
  std::mt19937 g(seed);
  Vec v(n);
  for (double& x : v) x = static_cast<float>((static_cast<double>(g()) / 4294967296.0 * 2 - 1) * scale);
  return v;
}

/// Random numbers that are exact in bf16.
inline Vec exact_in_bf16(std::size_t n, unsigned seed, double scale = 1.0) {
  Vec v = random_vec(n, seed, scale);
  for (double& x : v) x = f32_from_bf16(bf16_from_f32(static_cast<float>(x)));
  return v;
}
/// Largest difference relative to the larger of |b| and `floor`.
inline double relative_difference(const Vec& a, const Vec& b, double floor) {
  double worst = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::abs(a[i] - b[i]) / std::max(std::abs(b[i]), floor);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

/// [rows, cols] as [cols, rows].
inline Vec transposed(const Vec& v, std::size_t rows, std::size_t cols) {
  Vec t(v.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < cols; ++c) t[c * rows + r] = v[r * cols + c];
  return t;
}

class VectorStorage final : public executor::Storage {
 public:
  void* at(BufferId b) override { return data[b].data(); }
  std::vector<std::vector<double>> data;  // allocated as doubles for the alignment; most contain floats
};

class OneOp {
 public:
  /// bf16: kernels of a bf16 run, which rounds operands, or if `stored` has weights and activations in bf16.
  OneOp(const cpu::Kernels& kernels, std::uint32_t threads, const cpu::Bf16Kernels* bf16 = nullptr,
        bool stored = false)
      : pool_(threads), ctx_{program,         storage_, pool_, kernels, {}, std::vector<double>(4096),
                             step::kNoBuffer, bf16} {
    if (bf16) program.run.compute = program.run.weight = DType::kBF16, program.run.master = DType::kF32;
    program.traits.threads = threads, program.traits.f32_storage = !stored;
    program.model.vocab = program.model.hidden = program.model.intermediate =
        300;  // the largest weight in a test has 300 x 300 elements
  }

  /// Adds a buffer [rows, cols] of f32 with these values, or filled with NaN if there are none.
  BufferId buffer(std::uint64_t rows, std::uint64_t cols, const Vec& values = {}) {
    step::Buffer b;
    b.rows = rows, b.cols = cols;
    program.buffers.push_back(b);
    storage_.data.emplace_back(rows * cols / 2 + 1);
    BufferId id = static_cast<BufferId>(program.buffers.size() - 1);
    fill_with_nan(id);
    float* const to = floats(id);
    const double* const from = values.data();
    if (!values.empty())
      for (std::uint64_t i = 0; i < rows * cols; ++i) to[i] = static_cast<float>(from[i]);
    return id;
  }
  /// The same of weights or activations: bf16 if the run stores them so. The values must be exact in bf16.
  BufferId real(std::uint64_t rows, std::uint64_t cols, const Vec& values = {}) {
    const BufferId id = buffer(rows, cols, values);
    if (!ctx_.stores_bf16()) return id;
    program.buffers[id].dtype = DType::kBF16;
    fill_with_nan(id);
    auto* to = reinterpret_cast<std::uint16_t*>(storage_.data[id].data());
    for (const double x : values) *to++ = bf16_from_f32(static_cast<float>(x));
    return id;
  }
  BufferId scalars(const Vec& values = Vec(step::kScalarCount, 0.0)) {
    step::Buffer b;
    b.dtype = DType::kF64, b.cols = values.size();
    program.buffers.push_back(b);
    storage_.data.push_back(values);
    return static_cast<BufferId>(program.buffers.size() - 1);
  }

  /// A workspace of NaN for the shapes that `program` has now.
  void prepare() {
    const std::uint64_t floats = cpu::workspace_floats(program.model, program.run, program.traits);
    if (ctx_.workspace == step::kNoBuffer || program.buffers[ctx_.workspace].cols != floats)
      ctx_.workspace = buffer(1, floats);
    else
      fill_with_nan(ctx_.workspace);
  }
  cpu::OpContext& context() { return ctx_; }

  void run(step::OpKind kind, std::initializer_list<BufferId> in, std::initializer_list<BufferId> out,
           std::uint32_t flags = 0) {
    step::Op op;
    op.kind = kind, op.layer = 0, op.flags = flags, op.rows = step().rows;
    std::fill(std::begin(op.in), std::end(op.in), step::kNoBuffer);
    std::fill(std::begin(op.out), std::end(op.out), step::kNoBuffer);
    for (BufferId b : in) op.in[op.ins++] = b;
    for (BufferId b : out) op.out[op.outs++] = b;
    prepare();
    cpu::FlushDenormals mode;
    cpu::run_ops(ctx_, {&op, 1});
  }

  Vec values(BufferId b) {
    const step::Buffer& buffer = program.buffers[b];
    if (buffer.dtype == DType::kF64) return storage_.data[b];
    if (buffer.dtype == DType::kBF16) {
      Vec out(buffer.rows * buffer.cols);
      const auto* from = reinterpret_cast<const std::uint16_t*>(storage_.data[b].data());
      for (double& x : out) x = f32_from_bf16(*from++);
      return out;
    }
    return Vec(floats(b), floats(b) + buffer.rows * buffer.cols);
  }
  executor::StepState& step() { return ctx_.step; }

  /// Of one layer, which the operations are in: the context counts layers when it is made.
  step::Program program = [] {
    step::Program p;
    p.model.layers = 1;
    return p;
  }();

 private:
  void fill_with_nan(BufferId b) {
    std::memset(floats(b), 0xff, program.buffers[b].rows * program.buffers[b].cols * sizeof(float));
  }
  float* floats(BufferId b) { return reinterpret_cast<float*>(storage_.data[b].data()); }
  VectorStorage storage_;
  cpu::ThreadPool pool_;
  cpu::OpContext ctx_;
};

/// Largest |a - b| / (1 + |b|); infinity if the sizes differ or a value is not finite.
inline double distance(const Vec& a, const Vec& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double d = std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    if (!(d <= worst)) worst = std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
  }
  return worst;
}

/// Largest distance of two tensors of the same name; infinity if one has a tensor that the other lacks.
inline double largest_error(const std::map<std::string, Vec>& a, const std::map<std::string, Vec>& b) {
  double worst = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (const auto& [name, v] : b) worst = std::max(worst, distance(a.at(name), v));
  return worst;
}

}  // namespace trainhost::test
