// The reference kernels against tests/support/reference_ops.hpp, which is independent, out of place and in
// double.
#include <boost/test/unit_test.hpp>

#include <random>

#include "core/executor/reference_kernels.hpp"
#include "tests/support/reference_ops.hpp"

namespace trainhost {
namespace {

namespace ex = executor;
namespace ref = reference;
using Floats = std::vector<float>;

Floats random(std::size_t n, unsigned seed, double scale = 1.0) {
  std::mt19937 g(seed);
  Floats v(n);
  for (float& x : v) x = static_cast<float>((static_cast<double>(g()) / 4294967296.0 * 2 - 1) * scale);
  return v;
}
ref::Vec wide(const Floats& v) { return {v.begin(), v.end()}; }
void near(const Floats& got, const ref::Vec& expected, double tolerance = 2e-6) {
  BOOST_REQUIRE_EQUAL(got.size(), expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::abs(got[i] - expected[i]) / (1 + std::abs(expected[i])));
  BOOST_TEST(worst <= tolerance);
}

constexpr std::size_t M = 7, N = 33, K = 13;
ex::ReferenceKernels kernels;

BOOST_AUTO_TEST_SUITE(reference_kernels)

BOOST_AUTO_TEST_CASE(products) {
  const Floats x = random(M * K, 1), w = random(N * K, 2), bias = random(N, 3), residual = random(M * N, 4),
               dy = random(M * N, 5);
  Floats y(M * N), dx(M * K), gw = random(N * K, 6), gb = random(N, 7);
  kernels.linear({M, N, K, x.data(), w.data(), bias.data(), residual.data(), y.data()});
  near(y, ref::linear(wide(x), wide(w), wide(bias), wide(residual), N, K));
  kernels.linear_dx({M, N, K, dy.data(), w.data(), dx.data()});
  near(dx, ref::linear_dx(wide(dy), wide(w), N, K));
  ref::Vec rgw = wide(gw), rgb = wide(gb);
  ref::linear_dw(wide(dy), wide(x), N, K, rgw, &rgb);
  kernels.linear_dw({M, N, K, dy.data(), x.data(), gw.data(), gb.data(), false});
  near(gw, rgw), near(gb, rgb);
}

BOOST_AUTO_TEST_CASE(norms) {
  const Floats x = random(M * N, 1), w = random(N, 2), dy = random(M * N, 3);
  Floats y(M * N), rstd(M), dx(M * N), gw = random(N, 4);
  kernels.rms_norm({M, N, x.data(), w.data(), 1e-5f, y.data(), rstd.data()});
  near(y, ref::rms_norm(wide(x), wide(w), N, 1e-5));
  ref::Vec rgw = wide(gw);
  const ref::Vec rdx = ref::rms_norm_bwd(wide(dy), wide(x), wide(w), N, 1e-5, rgw);
  kernels.rms_norm_bwd(
      {M, N, dy.data(), x.data(), rstd.data(), w.data(), dx.data(), false, gw.data(), false, nullptr, 1});
  near(dx, rdx, 2e-5), near(gw, rgw, 2e-5);
}

BOOST_AUTO_TEST_CASE(heads) {
  const ref::Heads shape{11, 4, 2, 6, 5};
  const ex::Heads h{4, 2, 6};
  const std::size_t tokens = 2 * shape.seq;
  const Floats qkv = random(tokens * shape.width(), 1, 2.0), d_o = random(tokens * 24, 2);
  Floats o(tokens * 24), lse(tokens * 4), d(qkv.size()), rotated = qkv, table(shape.seq * 6);
  kernels.attention({2, shape.seq, h, 5, qkv.data(), o.data(), lse.data(), nullptr, 1, 0});
  near(o, ref::attention(wide(qkv), shape));
  kernels.attention_bwd(
      {2, shape.seq, h, 5, d_o.data(), o.data(), lse.data(), qkv.data(), d.data(), nullptr, 1, 0});
  near(d, ref::attention_bwd(wide(d_o), wide(qkv), shape), 1e-5);
  const std::vector<double> inv_freq = {1.0, 0.1, 0.01};
  for (std::size_t p = 0; p < shape.seq; ++p)
    for (std::size_t i = 0; i < 3; ++i) {
      table[p * 6 + i] = static_cast<float>(std::cos(static_cast<double>(p) * inv_freq[i]));
      table[p * 6 + 3 + i] = static_cast<float>(std::sin(static_cast<double>(p) * inv_freq[i]));
    }
  ref::Vec expected = wide(qkv);
  ref::rope(expected, shape, inv_freq, 1.0);
  kernels.rope({tokens, shape.seq, 0, h, table.data(), 1.0f, rotated.data()});
  near(rotated, expected);
  kernels.rope({tokens, shape.seq, 0, h, table.data(), -1.0f, rotated.data()});
  near(rotated, wide(qkv));
  // One token at a time gives the same rows as the whole sequence.
  Floats k(shape.seq * 12), v(shape.seq * 12), scratch(4 * shape.seq), one(24);
  for (std::size_t p = 0; p < shape.seq; ++p) {
    kernels.attention_step(
        {p, shape.seq, h, 5, qkv.data() + p * shape.width(), k.data(), v.data(), scratch.data(), one.data()});
    near(one, ref::Vec(o.begin() + static_cast<long>(p * 24), o.begin() + static_cast<long>(p * 24 + 24)),
         5e-6);
  }
}

BOOST_AUTO_TEST_CASE(swiglu_and_cross_entropy) {
  const Floats gu = random(M * 2 * N, 1, 10.0), da = random(M * N, 2);
  Floats act(M * N), g = gu, logits = random(M * N, 3, 10.0);
  kernels.swiglu({M, N, gu.data(), act.data()});
  near(act, ref::swiglu(wide(gu), N));
  kernels.swiglu_bwd({M, N, da.data(), g.data()});
  near(g, ref::swiglu_bwd(wide(da), wide(gu), N));
  const ref::Ids targets = {3, -100, 0, 32, 7, 7, -100};
  ref::Vec dlogits;
  const double expected = ref::cross_entropy(wide(logits), targets, N, 0.3, &dlogits);
  BOOST_TEST(std::abs(kernels.cross_entropy({M, N, logits.data(), targets.data(), 0.3f, true}) - expected) <
             1e-6 * expected);
  near(logits, dlogits);
}

BOOST_AUTO_TEST_CASE(the_update) {
  const Floats g = random(N, 1);
  Floats w = random(N, 2), m(N), v(N);
  ref::Vec rw = wide(w), rm(N), rv(N);
  ref::AdamW{0.01, 0.9, 0.95, 1e-8, 0.1}.step(1, wide(g), true, rw, rm, rv);
  kernels.adamw({N, g.data(), w.data(), m.data(), v.data(), 1.0f, 0.9f, 0.1f, 0.95f, 0.05f, 0.999f, 0.1f,
                 static_cast<float>(1 / std::sqrt(0.05)), 1e-8f});
  near(w, rw), near(m, rm), near(v, rv);
  ref::Sgd{0.01, 0.9, 0.1}.step(wide(g), true, rw, &rm);
  kernels.sgd_momentum({N, g.data(), w.data(), m.data(), 1.0f, 0.9f, 0.999f, 0.01f});
  near(w, rw), near(m, rm);
  ref::Lion{0.01, 0.9, 0.99, 0.1}.step(wide(g), true, rw, rm);
  kernels.lion({N, g.data(), w.data(), m.data(), 1.0f, 0.9f, 0.1f, 0.99f, 0.01f, 0.999f, 0.01f});
  near(w, rw), near(m, rm);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
