// Work is divided into blocks of 8-bit moments, and for Adafactor into the program's slots of rows, whose
// sums are added in order. See host_optimizers.hpp; the loops: host_loops.cpp.
#include "plugins/cuda/host/host_optimizers.hpp"

#include <algorithm>
#include <cmath>

#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"
#include "core/step/state_layout.hpp"

namespace trainhost::cuda::host {
namespace {

using step::Op;
using step::Program;
using namespace step::operand;

/// The arrays of one tensor that begins at element `first` of a parameter.
struct TensorArrays {
  const float* g;
  float* w;       // f32: the master copy if there is one
  Half* rounded;  // null without a master copy
  TensorArrays(const Op& op, const Operands& at, std::uint64_t first)
      : g(at.get<const float>(optimizer::kGrad) + first) {
    float* master = at.get<float>(optimizer::master(op.kind));
    w = (master ? master : at.get<float>(optimizer::kWeight)) + first;
    rounded = master ? at.get<Half>(optimizer::kWeight) + first : nullptr;
  }
  void round(std::uint64_t first, std::uint64_t n) const {
    if (rounded) to_half(n, w + first, rounded + first);
  }
};

constexpr double kEps1 = 1.1920928955078125e-07;  // torch's default: that of f32
constexpr std::uint64_t kPieceOfVector = 256;

/// moment = (1 - weight) moment + weight mean, as torch.lerp.
void average_into(float& moment, double mean, double weight) {
  moment = static_cast<float>(moment + weight * (mean - moment));
}

/// Adafactor of one tensor, in rows: those of a matrix, or pieces of a vector, whose col_means are its second
/// moment.
struct AdafactorTensor {
  ThreadPool& pool;
  TensorArrays arrays;
  std::uint64_t rows, cols, elements;
  float *row_means, *col_means;  // row_means: null for a vector
  std::uint32_t slots;
  std::uint64_t width;
  double* sums;  // [slots, width]; of a slot: squares of weights, squares of changes, one sum per column

  double& of(std::uint32_t slot, std::uint64_t i) const { return sums[slot * width + i]; }
  double total(std::uint64_t i) const {
    double sum = 0;
    for (std::uint32_t s = 0; s < slots; ++s) sum += of(s, i);
    return sum;
  }
  /// f(slot, row, first element of the row, elements of the row)
  template <class F>
  void over_rows(F&& f) const {
    pool.run(slots, [&](std::uint32_t s) {
      const Range mine = part(rows, s, slots);
      for (std::uint64_t r = mine.begin; r < mine.end; ++r)
        f(s, r, r * cols, std::min(cols, elements - r * cols));
    });
  }
  const float* moment(std::uint64_t first) const { return row_means ? col_means : col_means + first; }

  void update(const double* scalars, double eps, float clip_factor, float decay) const {
    const double clip = scalars[step::kClipFactor], weight = scalars[step::kMomentWeight],
                 n = static_cast<double>(elements);
    std::fill_n(sums, slots * width, 0.0);
    over_rows([&](std::uint32_t s, std::uint64_t r, std::uint64_t first, std::uint64_t count) {
      const float* g = arrays.g + first;
      of(s, 0) += squares(count, arrays.w + first);
      if (!row_means) {
        for (std::uint64_t i = 0; i < count; ++i) {
          const double x = g[i] * clip;
          average_into(col_means[first + i], x * x, weight);
        }
        return;
      }
      average_into(row_means[r], squares(count, g) * clip * clip / static_cast<double>(cols), weight);
      add_squares(count, g, &of(s, 2));
    });
    float inverse_mean = 1.0f;
    if (row_means) {
      double means = 0;
      for (std::uint64_t r = 0; r < rows; ++r) means += row_means[r];
      inverse_mean = static_cast<float>(1.0 / std::max(means / static_cast<double>(rows), kEps1));
      for (std::uint64_t c = 0; c < cols; ++c)
        average_into(col_means[c], total(2 + c) * clip * clip / static_cast<double>(rows), weight);
    }
    const auto factor = [&](std::uint64_t r) { return row_means ? row_means[r] * inverse_mean : 1.0f; };
    Adafactor c{clip_factor, static_cast<float>(kEps1 * kEps1), decay, 0.0f};
    over_rows([&](std::uint32_t s, std::uint64_t r, std::uint64_t first, std::uint64_t count) {
      of(s, 1) += adafactor_squares(count, arrays.g + first, moment(first), factor(r), c);
    });
    c.step = static_cast<float>(std::max(eps, std::sqrt(total(0) / n)) * scalars[step::kRelativeLr] /
                                std::max(1.0, std::sqrt(total(1) / n)));
    over_rows([&](std::uint32_t, std::uint64_t r, std::uint64_t first, std::uint64_t count) {
      adafactor(count, arrays.g + first, moment(first), factor(r), arrays.w + first, c);
      arrays.round(first, count);
    });
  }
};

}  // namespace

void run_adamw_8bit(ThreadPool& pool, const Program& p, const Op& op, const Operands& at, const Adam& c) {
  constexpr std::uint64_t kElementsPerTask = 64 * kMomentBlock;
  const step::MomentCodes &first = step::moment_codes(true), &second = step::moment_codes(false);
  auto *m = at.get<std::byte>(adamw_8bit::kM), *v = at.get<std::byte>(adamw_8bit::kV);
  for (const step::Moment8bit& t : step::moments_8bit(p, step::param_of_gradient(p, op[adamw_8bit::kGrad]))) {
    const TensorArrays arrays(op, at, t.first_element);
    auto *m_floats = reinterpret_cast<float*>(m + t.floats),
         *v_floats = reinterpret_cast<float*>(v + t.floats);
    auto *m_codes = reinterpret_cast<std::uint8_t*>(m + t.codes),
         *v_codes = reinterpret_cast<std::uint8_t*>(v + t.codes);
    const auto tasks = static_cast<std::uint32_t>((t.elements + kElementsPerTask - 1) / kElementsPerTask);
    pool.run(tasks, [&](std::uint32_t task) {
      const std::uint64_t begin = task * kElementsPerTask,
                          end = std::min(t.elements, begin + kElementsPerTask);
      for (std::uint64_t i = begin; t.coded && i < end; i += kMomentBlock) {
        const std::uint64_t block = i / kMomentBlock;
        host::adamw_8bit(std::min(kMomentBlock, end - i), arrays.g + i, arrays.w + i,
                         {m_codes + i, m_floats + block, first}, {v_codes + i, v_floats + block, second}, c);
      }
      if (!t.coded)
        host::adamw(end - begin, arrays.g + begin, arrays.w + begin, m_floats + begin, v_floats + begin, c);
      arrays.round(begin, end - begin);
    });
  }
}

void run_adafactor(ThreadPool& pool, const Program& p, const Op& op, const Operands& at, float clip,
                   float decay) {
  const step::Param& param = step::param_of_gradient(p, op[adafactor::kGrad]);
  const step::Buffer& sums = p[op[adafactor::kSums]];
  float *row_means = at.get<float>(adafactor::kRows), *col_means = at.get<float>(adafactor::kColumns);
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::MatrixSlice s = step::matrix_slice(p, param, i);
    AdafactorTensor t{pool,
                      TensorArrays(op, at, s.first_row * s.cols),
                      s.rows,
                      s.cols,
                      s.rows * s.cols,
                      row_means + s.first_row,
                      col_means ? col_means + i * s.cols : nullptr,
                      static_cast<std::uint32_t>(sums.rows),
                      sums.cols,
                      at.get<double>(adafactor::kSums)};
    if (!col_means) {
      t.col_means = t.row_means, t.row_means = nullptr;
      t.rows = (t.elements + kPieceOfVector - 1) / kPieceOfVector, t.cols = kPieceOfVector;
    }
    t.update(at.get<double>(adafactor::kScalars), p.run.eps, clip, decay);
  }
}

void run_muon_direction(ThreadPool& pool, const Program& p, const Op& op, const Operands& at, float clip) {
  const step::Buffer& grad = p[op[muon_direction::kGrad]];
  const auto beta = static_cast<float>(p.run.beta1), rest = static_cast<float>(1.0 - p.run.beta1);
  const float* g = at.get<const float>(muon_direction::kGrad);
  float *m = at.get<float>(muon_direction::kM), *x = static_cast<float*>(at.x);
  over_elements(pool, grad.rows * grad.cols, [&](std::uint64_t begin, std::uint64_t n) {
    muon_momentum(n, g + begin, m + begin, x + begin, clip, beta, rest);
  });
}

void run_muon_apply(ThreadPool& pool, const Program& p, const Op& op, const Operands& at, float decay) {
  const step::Param& param = step::param_of_gradient(p, op[muon::kGrad]);
  const float* direction = at.get<const float>(muon::kDirection);
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::MatrixSlice s = step::matrix_slice(p, param, i);
    const std::uint64_t first = s.first_row * s.cols;
    const TensorArrays arrays(op, at, first);
    const auto step = static_cast<float>(at.get<const double>(muon::kScalars)[step::kLr] * 0.2 *
                                         std::sqrt(static_cast<double>(std::max(s.rows, s.cols))));
    over_elements(pool, s.rows * s.cols, [&](std::uint64_t begin, std::uint64_t n) {
      muon_apply(n, direction + first + begin, arrays.w + begin, decay, step);
      arrays.round(begin, n);
    });
  }
}

}  // namespace trainhost::cuda::host
