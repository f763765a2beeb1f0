// Operations that the hybrid and streamed modes run on the host, in f32 and bf16: compared with reference
// operations in double, with the same bits for any number of threads. Also the thread pool that runs them.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "plugins/cuda/host/host_loops.hpp"
#include "plugins/cuda/host/host_ops.hpp"
#include "tests/support/reference_ops.hpp"

namespace trainhost::cuda {
namespace {

using host::Half;
using reference::Ids;
using reference::Vec;
using step::OpKind;

float widened(Half h) {
  float f;
  host::to_float(1, &h, &f);
  return f;
}
Half rounded(double x) {
  const float f = static_cast<float>(x);
  Half h;
  host::to_half(1, &f, &h);
  return h;
}

Vec random_vec(std::size_t n, unsigned seed, double scale, bool half = false) {
  std::mt19937 g(seed);
  Vec v(n);
  for (double& x : v) {
    x = static_cast<float>((static_cast<double>(g()) / 4294967296.0 * 2 - 1) * scale);
    if (half) x = widened(rounded(x));
  }
  return v;
}
Ids random_ids(std::size_t n, std::uint64_t vocab, unsigned seed) {
  std::mt19937 g(seed);
  Ids ids(n);
  for (std::int32_t& i : ids) i = static_cast<std::int32_t>(g() % vocab);
  return ids;
}

/// One operation with its buffers: the parts of a program that host::run() reads.
class OneOp {
 public:
  explicit OneOp(std::uint32_t threads) : pool_(threads) {}

  /// Adds a buffer of type t; it becomes the next operand of the operation.
  void buffer(std::uint64_t rows, std::uint64_t cols, const Vec& values, DType t = DType::kF32) {
    step::Buffer b;
    b.rows = rows, b.cols = cols, b.dtype = t;
    program_.buffers.push_back(b);
    memory_.emplace_back(rows * cols * size_of(t) / 8 + 1);
    for (std::size_t i = 0; i < values.size(); ++i) {
      void* at = memory_.back().data();
      if (t == DType::kF32)
        static_cast<float*>(at)[i] = static_cast<float>(values[i]);
      else if (t == DType::kBF16)
        static_cast<Half*>(at)[i] = rounded(values[i]);
      else
        static_cast<double*>(at)[i] = values[i];
    }
  }
  /// Adds an absent operand.
  void absent() { program_.buffers.emplace_back(), memory_.emplace_back(); }
  Vec values(std::size_t k) const {
    const step::Buffer& b = program_.buffers[k];
    Vec out(b.rows * b.cols);
    const void* at = memory_[k].data();
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = b.dtype == DType::kF32    ? static_cast<const float*>(at)[i]
               : b.dtype == DType::kBF16 ? widened(static_cast<const Half*>(at)[i])
                                         : static_cast<const double*>(at)[i];
    return out;
  }
  step::Op op(OpKind kind, std::uint32_t flags) const {
    step::Op op;
    op.kind = kind, op.flags = flags, op.ins = static_cast<std::uint8_t>(program_.buffers.size());
    for (std::size_t k = 0; k < step::kMaxOperands; ++k)
      op.in[k] = k < op.ins ? static_cast<step::BufferId>(k) : step::kNoBuffer;
    return op;
  }
  host::Operands operands() {
    host::Operands at;
    for (std::size_t k = 0; k < memory_.size(); ++k)
      at.in[k] = memory_[k].empty() ? nullptr : memory_[k].data();
    if (memory_.size() > 1) at.x = at.in[1];  // tests of kEmbed put x in the second buffer
    return at;
  }
  void run(OpKind kind, const host::Step& step, std::uint32_t flags = 0) {
    host::run(pool_, program_, op(kind, flags), operands(), step);
  }
  void squares() { host::run_squares(pool_, program_, op(OpKind::kGradSquares, 0), operands()); }
  void update(OpKind kind, std::uint32_t flags) {
    host::run_update(pool_, program_, op(kind, flags), operands());
  }
  step::Program& program() { return program_; }

 private:
  ThreadPool pool_;
  step::Program program_;
  std::vector<std::vector<double>> memory_;
};

double furthest(const Vec& a, const Vec& b) {
  BOOST_TEST_REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    if (!(d <= worst)) worst = std::isfinite(d) ? d : INFINITY;
  }
  return worst;
}

/// Calls f(threads) for 1 to 4 threads and checks that all results are equal bit for bit. Returns the first
/// one.
template <class F>
Vec on_any_threads(F&& f) {
  const Vec first = f(1u);
  for (std::uint32_t threads = 2; threads <= 4; ++threads) {
    const Vec other = f(threads);
    BOOST_TEST((other.size() == first.size() &&
                std::memcmp(other.data(), first.data(), first.size() * sizeof(double)) == 0),
               threads << " threads");
  }
  return first;
}

const DType kTypes[] = {DType::kF32, DType::kBF16};
struct Shape {
  std::size_t rows, h, vocab;
};
const Shape kShapes[] = {{1, 1, 2}, {7, 3, 5}, {33, 17, 100}, {130, 64, 1000}, {5, 8, 33000}};

BOOST_AUTO_TEST_SUITE(cuda_host)

BOOST_AUTO_TEST_CASE(embedding_and_its_gradient_match_the_reference) {
  for (DType t : kTypes)
    for (const Shape& s : kShapes) {
      if (s.vocab > 2000) continue;
      const bool half = t == DType::kBF16;
      const Ids ids = random_ids(s.rows, s.vocab, 1);
      const Vec table = random_vec(s.vocab * s.h, 2, 1, half), dx = random_vec(s.rows * s.h, 3, 1, half),
                before = random_vec(s.vocab * s.h, 4, 1);
      const host::Step step{ids.data(), nullptr, 0, s.rows, true};
      const Vec x = on_any_threads([&](std::uint32_t threads) {
        OneOp o(threads);
        o.buffer(s.vocab, s.h, table, t), o.buffer(s.rows, s.h, {}, t);
        o.run(OpKind::kEmbed, step);
        return o.values(1);
      });
      BOOST_TEST((x == reference::embed(table, ids, s.h)));
      for (bool first : {true, false})
        for (std::uint32_t flags : {0u, std::uint32_t{step::kFirstWrite}}) {
          Vec expected = first && flags ? Vec(s.vocab * s.h) : before;
          reference::embed_bwd(dx, ids, s.h, expected);
          host::Step now = step;
          now.first_micro = first;
          const Vec grad = on_any_threads([&](std::uint32_t threads) {
            OneOp o(threads);
            o.buffer(s.rows, s.h, dx, t), o.absent(), o.buffer(s.vocab, s.h, before);
            o.run(OpKind::kEmbedBwd, now, flags);
            return o.values(2);
          });
          BOOST_TEST(furthest(grad, expected) <= 2e-6);
        }
    }
}

BOOST_AUTO_TEST_CASE(cross_entropy_and_its_gradient_match_the_reference) {
  for (DType t : kTypes)
    for (const Shape& s : kShapes)
      for (double scale : {1.0, 30.0}) {  // range of the logits
        const bool half = t == DType::kBF16;
        const Vec logits = random_vec(s.rows * s.vocab, 5, scale, half);
        Ids targets = random_ids(s.rows, s.vocab, 6);
        for (std::size_t i = 3; i < targets.size(); i += 4) targets[i] = -100;
        Vec expected, scalars(step::kScalarCount, 0.0);
        const double weight = 1.0 / 3.0;
        scalars[step::kLossScale] = weight, scalars[step::kLossSum] = 2.0;
        const double loss = reference::cross_entropy(logits, targets, s.vocab, weight, &expected);
        const std::uint64_t first = s.rows > 4 ? 2 : 0;  // rows before `first` must not change
        Ids rest(targets.begin() + static_cast<long>(first), targets.end());
        const Vec before_loss(logits.begin(), logits.begin() + static_cast<long>(first * s.vocab));
        const double skipped = reference::cross_entropy(
            before_loss, Ids(targets.begin(), targets.begin() + static_cast<long>(first)), s.vocab, 1,
            nullptr);
        for (std::size_t i = 0; i < first * s.vocab; ++i) expected[i] = logits[i];
        double sum = 0;
        const Vec grad = on_any_threads([&](std::uint32_t threads) {
          OneOp o(threads);
          o.buffer(s.rows, s.vocab, logits, t), o.absent(),
              o.buffer(1, step::kScalarCount, scalars, DType::kF64);
          o.run(OpKind::kCrossEntropy, {nullptr, rest.data(), first, s.rows - first, true});
          Vec all = o.values(0);
          sum = o.values(2)[step::kLossSum];
          all.push_back(sum);
          return all;
        });
        BOOST_TEST(std::abs(sum - 2.0 - (loss - skipped)) <= 2e-6 * (1 + loss),
                   s.vocab << ": " << sum - 2.0 << " against " << loss - skipped);
        BOOST_TEST(furthest(Vec(grad.begin(), grad.end() - 1), expected) <= (half ? 4e-3 * weight : 1e-6));
      }
}

// The gradient of a row of two logits contains exp() of their difference: checked by relative error if the
// result is a normal number, else it must be almost 0.
BOOST_AUTO_TEST_CASE(exponentials_are_accurate) {
  for (double x = 0; x > -100; x -= 0.00137) {
    float row[2] = {0.0f, static_cast<float>(x)};
    const double e = std::exp(static_cast<double>(row[1])), expected = e / (1 + e);
    host::cross_entropy_row(2, row, 0, 1.0f);
    if (x > -86)
      BOOST_TEST(std::abs(row[1] - expected) <= 4e-7 * expected, "exp(" << x << ")");
    else
      BOOST_TEST((row[1] >= 0 && row[1] < 1e-37));
  }
}

BOOST_AUTO_TEST_CASE(a_nan_among_the_logits_makes_the_loss_non_finite) {
  for (std::size_t n : {3u, 16u, 17u, 5000u})
    for (std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
      std::vector<float> row(n, 1.0f);
      row[at] = std::nanf("");
      BOOST_TEST(!std::isfinite(host::cross_entropy_row(n, row.data(), 1, 1.0f)), n << ", " << at);
      std::vector<float> wide(n, 1.0f);
      wide[at] = HUGE_VALF;
      BOOST_TEST(!std::isfinite(host::cross_entropy_row(n, wide.data(),
                                                        static_cast<std::int64_t>(at == 1 ? 0 : 1), 1.0f)),
                 n << ", inf at " << at);
    }
}

BOOST_AUTO_TEST_CASE(gradients_are_added_and_squared) {
  for (std::size_t n : {1u, 63u, 1000u, 300001u}) {
    const Vec part = random_vec(n, 1, 1), grad = random_vec(n, 2, 1);
    for (bool first : {true, false}) {
      const Vec sum = on_any_threads([&](std::uint32_t threads) {
        OneOp o(threads);
        o.buffer(1, n, part), o.buffer(1, n, grad);
        o.run(OpKind::kAddGrad, {nullptr, nullptr, 0, 1, first}, step::kFirstWrite);
        return o.values(1);
      });
      for (std::size_t i = 0; i < n; ++i)
        BOOST_TEST_REQUIRE(sum[i] ==
                           (first ? part[i] : static_cast<float>(part[i]) + static_cast<float>(grad[i])));
    }
    double expected = 0.5;
    for (double g : grad) expected += g * g;
    const Vec squares = on_any_threads([&](std::uint32_t threads) {
      OneOp o(threads);
      Vec scalars(step::kScalarCount, 0.0);
      scalars[step::kNorm2] = 0.5;
      o.buffer(1, n, grad), o.buffer(1, step::kScalarCount, scalars, DType::kF64);
      o.squares();
      return o.values(1);
    });
    BOOST_TEST(std::abs(squares[step::kNorm2] - expected) <= 1e-6 * expected);
  }
}

BOOST_AUTO_TEST_CASE(optimizers_match_the_reference) {
  constexpr double kLr = 0.01, kClip = 0.5, kDecay = 0.1;
  for (std::size_t n : {1u, 100u, 300001u})
    for (OpKind kind : {OpKind::kAdamW, OpKind::kSgd, OpKind::kSgdMomentum, OpKind::kLion})
      for (bool master : {false, true})
        for (bool decay : {false, true})
          for (bool applied : {true, false}) {
            if (n > 1000 && (!decay || !applied)) continue;
            const Vec g = random_vec(n, 1, 1), w0 = random_vec(n, 2, 1), m0 = random_vec(n, 3, 0.1);
            Vec v0 = random_vec(n, 4, 0.1), clipped = g, w = w0, m = m0;
            for (double& x : v0) x = std::abs(x);
            Vec v = v0, scalars(step::kScalarCount, 0.0);
            for (double& x : clipped) x *= kClip;
            const double t = 3;
            RunSpec r;
            scalars[step::kApplied] = applied, scalars[step::kClipFactor] = kClip, scalars[step::kLr] = kLr;
            scalars[step::kDecayFactor] = 1 - kLr * kDecay,
            scalars[step::kStepSize] = kLr / (1 - std::pow(r.beta1, t));
            scalars[step::kInvSqrtBias2] = 1 / std::sqrt(1 - std::pow(r.beta2, t));
            if (applied && kind == OpKind::kAdamW)
              reference::AdamW{kLr, r.beta1, r.beta2, r.eps, kDecay}.step(t, clipped, decay, w, m, v);
            else if (applied && kind == OpKind::kLion)
              reference::Lion{kLr, r.beta1, r.beta2, kDecay}.step(clipped, decay, w, m);
            else if (applied)
              reference::Sgd{kLr, r.beta1, kDecay}.step(clipped, decay, w,
                                                        kind == OpKind::kSgd ? nullptr : &m);
            const std::size_t moments = kind == OpKind::kAdamW ? 2 : kind == OpKind::kSgd ? 0 : 1;
            const Vec all = on_any_threads([&](std::uint32_t threads) {
              OneOp o(threads);
              o.buffer(1, n, g), o.buffer(1, n, w0, master ? DType::kBF16 : DType::kF32);
              if (moments > 0) o.buffer(1, n, m0);
              if (moments > 1) o.buffer(1, n, v0);
              o.buffer(1, step::kScalarCount, scalars, DType::kF64);
              if (master) o.buffer(1, n, w0);
              o.update(kind, decay ? std::uint32_t{step::kDecay} : 0u);
              Vec out = master ? o.values(3 + moments) : o.values(1);
              if (master && applied) {
                const Vec half = o.values(1);
                for (std::size_t i = 0; i < n; ++i) BOOST_TEST_REQUIRE(half[i] == widened(rounded(out[i])));
              }
              for (std::size_t k = 0; k < moments; ++k) {
                const Vec x = o.values(2 + k);
                out.insert(out.end(), x.begin(), x.end());
              }
              return out;
            });
            Vec expected = w;
            if (moments > 0) expected.insert(expected.end(), m.begin(), m.end());
            if (moments > 1) expected.insert(expected.end(), v.begin(), v.end());
            BOOST_TEST(furthest(all, expected) <= (applied ? 1e-6 : 0.0));
          }
}

BOOST_AUTO_TEST_CASE(bf16_rounds_to_nearest_even_and_keeps_nan) {
  for (std::uint32_t high = 0; high < 0x10000; high += 7)
    for (std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const std::uint32_t bits = high << 16 | low;
      float x;
      std::memcpy(&x, &bits, 4);
      Half h;
      host::to_half(1, &x, &h);
      const float back = widened(h);
      if (std::isnan(x))
        BOOST_TEST_REQUIRE(std::isnan(back));
      else if ((high & 0x7f80) != 0x7f80) {
        const bool up = low > 0x8000 || (low == 0x8000 && (high & 1));
        BOOST_TEST_REQUIRE(h == high + up);
      }
    }
}

BOOST_AUTO_TEST_CASE(the_pool_runs_every_task_exactly_once) {
  for (std::uint32_t threads : {0u, 1u, 2u, 4u, 9u}) {
    ThreadPool pool(threads);
    BOOST_TEST(pool.threads() == std::max(threads, 1u));
    for (std::uint32_t tasks : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> runs(tasks);
      pool.run(tasks, [&](std::uint32_t t) { ++runs[t]; });
      std::uint32_t once = 0;
      for (auto& r : runs) once += r == 1;
      BOOST_TEST(once == tasks);
    }
  }
}

BOOST_AUTO_TEST_CASE(concurrent_callers_lose_no_task) {
  ThreadPool pool(3);
  std::atomic<std::uint64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c)
    callers.emplace_back([&] {
      for (std::uint32_t job = 0; job < 1000; ++job)
        pool.run(job % 7, [&](std::uint32_t t) { sum += t + 1; });
    });
  for (std::thread& c : callers) c.join();
  std::uint64_t expected = 0;
  for (std::uint32_t job = 0; job < 1000; ++job) expected += 3 * (job % 7) * (job % 7 + 1) / 2;
  BOOST_TEST(sum == expected);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::cuda
