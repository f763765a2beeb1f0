// The update compared with references in double: sums of squares, clip factor and applied flag, and every
// optimizer over pieces of many sizes. An update that is not applied must not change any weight or moment.
#include "core/step/program.hpp"
#include "plugins/cuda/kernels/lion.hpp"
#include "tests/plugins/cuda/kernels/kernel_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using step::Scalar;

const std::vector<std::size_t> kSizes = {1, 2, 3, 4, 5, 1000, 2047, 2048, 2049, 8192, 20'003, 4};

BOOST_AUTO_TEST_SUITE(cuda_update)

BOOST_AUTO_TEST_CASE(squares_of_all_pieces) {
  double total = 0;
  std::vector<Vec> grads;
  for (std::size_t n : kSizes) {
    grads.push_back(random_vec(n, static_cast<unsigned>(n), n == 5 ? 1e-3 : 3));
    for (double g : grads.back()) total += g * g;
  }
  for (std::uint32_t slots : {1u, 2u, 7u, 300u}) {
    const Vec scalars(step::kScalarCount), norm = [&] {
      Vec v(step::kScalarCount);
      v[step::kNorm2] = 2 * total, v[step::kGradNorm] = std::sqrt(2 * total), v[step::kClipFactor] = 1,
      v[step::kApplied] = 1;
      return v;
    }();
    under_every_schedule([&](KernelRun& run) {
      cuda::Pieces<cuda::GradPiece> pieces{0, {}};
      for (const Vec& g : grads) pieces.piece[pieces.count++] = {g.size(), run.in<float>(g)};
      double *partials = run.out<double>(slots), *s = run.in<double>(scalars);
      run.expect_any(partials), run.expect(s, "scalars", norm, {1e-7, 0});
      run.require_success(cuda::grad_squares(run.stream, pieces, slots, true, partials));
      run.require_success(
          cuda::grad_squares(run.stream, pieces, slots, false, partials));  // adds to the first call
      run.require_success(cuda::finish_norm(run.stream, slots, partials, 0, s));
    });
  }
  const Vec none(3);
  under_every_schedule([&](KernelRun& run) {
    double* partials = run.out<double>(3);
    run.expect(partials, "partials", none, kExact);
    run.require_success(cuda::grad_squares(run.stream, {0, {}}, 3, true, partials));
  });
}

BOOST_AUTO_TEST_CASE(clip_factor_and_applied_flag) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  struct Case {
    double loss, norm2, clip, factor, applied;
  };
  for (const Case& c :
       {Case{5, 25, 0, 1, 1}, Case{5, 25, 1, 1 / (5 + 1e-6), 1}, Case{5, 0.25, 1, 1, 1},
        Case{nan, 25, 0, 1, 0}, Case{inf, 25, 0, 1, 0}, Case{5, inf, 1, 0, 0}, Case{5, nan, 0, 1, 0}}) {
    Vec before(step::kScalarCount);
    before[step::kLossSum] = c.loss, before[step::kNorm2] = c.norm2 / 2, before[step::kLr] = 0.125;
    const Vec partials{c.norm2 / 4, c.norm2 / 8, c.norm2 / 8};
    Vec after = before;
    after[step::kNorm2] = c.norm2, after[step::kGradNorm] = std::sqrt(c.norm2),
    after[step::kClipFactor] = c.factor, after[step::kApplied] = c.applied;
    under_every_schedule([&](KernelRun& run) {
      double* s = run.in<double>(before);
      run.expect(s, "scalars", after, {1e-15, 0});
      run.require_success(cuda::finish_norm(run.stream, 3, run.in<double>(partials), c.clip, s));
    });
  }
}

enum class Kind { kAdamW, kSgd, kMomentum, kLion };

template <class T>
void check_update(Kind kind, const std::vector<std::size_t>& sizes, bool applied) {
  constexpr bool kMaster = std::is_same_v<T, Bf16>;
  const double lr = 0.01, clip = 0.5, weight_decay = 0.1, t = 3;
  const ref::AdamW adamw{lr, 0.9, 0.95, 1e-8, weight_decay};
  const ref::Sgd sgd{lr, 0.75, weight_decay};
  const ref::Lion lion{lr, 0.9, 0.98, weight_decay};
  Vec scalars(step::kScalarCount);
  scalars[step::kClipFactor] = clip, scalars[step::kLr] = lr,
  scalars[step::kDecayFactor] = 1 - lr * weight_decay;
  scalars[step::kStepSize] = lr / (1 - std::pow(adamw.beta1, t)),
  scalars[step::kInvSqrtBias2] = 1 / std::sqrt(1 - std::pow(adamw.beta2, t));
  scalars[step::kApplied] = applied;
  struct Piece {
    Vec grad, weight, m, v, new_weight, new_stored, new_m, new_v;
  };
  std::vector<Piece> all;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const unsigned seed = static_cast<unsigned>(10 * i);
    Piece p{random_vec(sizes[i], seed + 1),
            random_vec(sizes[i], seed + 2),
            random_vec(sizes[i], seed + 3),
            random_vec(sizes[i], seed + 4),
            {},
            {},
            {},
            {}};
    for (double& x : p.v) x = static_cast<float>(x * x + 1e-4);
    p.new_weight = p.weight, p.new_m = p.m, p.new_v = p.v;
    Vec g = p.grad;
    for (double& x : g) x *= clip;
    const bool decay = i % 2 == 0;
    if (applied && kind == Kind::kAdamW) adamw.step(t, g, decay, p.new_weight, p.new_m, p.new_v);
    if (applied && kind == Kind::kLion) lion.step(g, decay, p.new_weight, p.new_m);
    if (applied && (kind == Kind::kSgd || kind == Kind::kMomentum))
      sgd.step(g, decay, p.new_weight, kind == Kind::kMomentum ? &p.new_m : nullptr);
    p.new_stored = applied ? p.new_weight : rounded<T>(p.weight);
    if (!applied) p.grad[0] = std::numeric_limits<double>::quiet_NaN();
    all.push_back(std::move(p));
  }
  const Tolerance f32 = applied ? Tolerance{1e-5, 1e-6} : kExact,
                  weight = applied ? Tolerance{close<T>().relative, 1e-6} : kExact;
  BOOST_TEST_CONTEXT("kind " << static_cast<int>(kind) << ", bytes " << sizeof(T) << ", applied "
                             << applied) {
    under_every_schedule([&](KernelRun& run) {
      cuda::Pieces<cuda::ParamPiece<T>> pieces{0, {}};
      for (const Piece& p : all) {
        T* w = run.in<T>(p.weight);
        float *master = kMaster ? run.in<float>(p.weight) : nullptr, *m = nullptr, *v = nullptr;
        run.expect(w, "weight", p.new_stored, weight);
        if (kMaster) run.expect(master, "master", p.new_weight, f32);
        if (kind != Kind::kSgd) m = run.in<float>(p.m), run.expect(m, "m", p.new_m, f32);
        if (kind == Kind::kAdamW) v = run.in<float>(p.v), run.expect(v, "v", p.new_v, f32);
        const bool decay = pieces.count % 2 == 0;
        pieces.piece[pieces.count++] = {p.grad.size(), run.in<float>(p.grad), w, master, m, v, decay};
      }
      const double* s = run.in<double>(scalars);
      const auto f = [](double x) { return static_cast<float>(x); };
      if (kind == Kind::kAdamW)
        run.require_success(cuda::adamw<T>(
            run.stream, pieces,
            {f(adamw.beta1), f(1 - adamw.beta1), f(adamw.beta2), f(1 - adamw.beta2), f(adamw.eps)}, s));
      if (kind == Kind::kSgd) run.require_success(cuda::sgd<T>(run.stream, pieces, s));
      if (kind == Kind::kMomentum)
        run.require_success(cuda::sgd_momentum<T>(run.stream, pieces, f(sgd.momentum), s));
      if (kind == Kind::kLion)
        run.require_success(cuda::lion<T>(
            run.stream, pieces, {f(lion.beta1), f(1 - lion.beta1), f(lion.beta2), f(1 - lion.beta2)}, s));
    });
  }
}

BOOST_AUTO_TEST_CASE(optimizers_update_many_pieces) {
  for (Kind kind : {Kind::kAdamW, Kind::kSgd, Kind::kMomentum, Kind::kLion}) {
    check_update<float>(kind, kSizes, true), check_update<Bf16>(kind, kSizes, true);
    check_update<float>(kind, {1}, true),
        check_update<Bf16>(kind, std::vector<std::size_t>(cuda::kMaxPieces, 17), true);
  }
  check_update<Bf16>(Kind::kSgd, {700'001, 400'003}, true);  // more chunks than blocks
}

BOOST_AUTO_TEST_CASE(an_update_that_is_not_applied_changes_nothing) {
  for (Kind kind : {Kind::kAdamW, Kind::kSgd, Kind::kMomentum, Kind::kLion})
    check_update<float>(kind, kSizes, false), check_update<Bf16>(kind, kSizes, false);
}

BOOST_AUTO_TEST_CASE(zero_pieces_queue_no_kernel) {
  BOOST_TEST(cuda::sgd<float>(nullptr, {0, {}}, nullptr) == cudaSuccess);
  BOOST_TEST(cuda::adamw<Bf16>(nullptr, {0, {}}, {}, nullptr) == cudaSuccess);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
