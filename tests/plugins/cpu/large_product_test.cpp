// Large products of the CPU trainer compared with sums in double and with OpenBLAS, over random shapes, both
// layouts of each operand, every kernel table, and with the same bits on 1 to 4 threads.
#include "plugins/cpu/engine/large_product.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "core/base/error.hpp"
#include "plugins/cpu/engine/weight_product.hpp"
#include "tests/support/cpu_op_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

std::vector<const cpu::Kernels*> all_kernels() {
  std::size_t n = 0;
  const cpu::Kernels* const* all = cpu::runnable_kernels(&n);
  return {all, all + n};
}

struct ProductShape {
  std::size_t m, n, k;
};

/// A large product whose operands are read as they are (way 0), or transposed: bit 0 the left, bit 1 the
/// right one.
Vec large_result(OneOp& one, const ProductShape& s, const Vec& a, const Vec& b, int way, const Vec& before) {
  const bool ta = way & 1, tb = way & 2;
  one.prepare();
  const BufferId ab = one.buffer(s.m, s.k, ta ? transposed(a, s.m, s.k) : a),
                 bb = one.buffer(s.n, s.k, tb ? transposed(b, s.n, s.k) : b),
                 cb = one.buffer(s.m, s.n, before);
  cpu::OpContext& e = one.context();
  cpu::large_product(e, s.m, s.n, s.k, {e.f32(ab), ta ? s.m : s.k, ta}, {e.f32(bb), tb ? s.n : s.k, tb},
                     {before.empty() ? nullptr : e.f32(cb)}, e.f32(cb));
  return one.values(cb);
}

BOOST_AUTO_TEST_SUITE(large_products)

BOOST_AUTO_TEST_CASE(random_shapes_match_sums_in_double) {
  std::mt19937 g(1);
  std::vector<ProductShape> shapes = {{1, 1, 1}, {12, 32, 384}, {13, 33, 385}, {200, 400, 17}, {5, 770, 400}};
  while (shapes.size() < 24) shapes.push_back({1 + g() % 260, 1 + g() % 260, 1 + g() % 900});
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const ProductShape& s = shapes[i];
    const Vec a = random_vec(s.m * s.k, 1), b = random_vec(s.n * s.k, 2),
              before = i % 2 ? random_vec(s.m * s.n, 3) : Vec{},
              want = reference::linear(a, b, {}, before, s.n, s.k);
    for (const cpu::Kernels* t : all_kernels())
      BOOST_TEST_CONTEXT(t->name << " " << s.m << " " << s.n << " " << s.k) {
        Vec first;
        for (int way = 0; way < 4; ++way) {
          OneOp one(*t, 1 + static_cast<std::uint32_t>(way));
          const Vec got = large_result(one, s, a, b, way, before);
          BOOST_TEST(distance(got, want) <= 2e-5, "way " << way << " is " << distance(got, want) << " off");
          if (way == 0) first = got;
          BOOST_TEST((got == first), "bits depend on threads or on the layout of an operand: way " << way);
        }
      }
  }
}

// Several blocks of columns and of inner elements, many tiles of rows.
BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_threads_and_openblas_agrees) {
  const ProductShape s{701, 1030, 1111};
  const Vec a = random_vec(s.m * s.k, 1), b = random_vec(s.n * s.k, 2);
  for (const cpu::Kernels* t : all_kernels()) BOOST_TEST_CONTEXT(t->name) {
      Vec first;
      for (std::uint32_t threads = 1; threads <= 4; ++threads) {
        OneOp one(*t, threads);
        const Vec got = large_result(one, s, a, b, 0, {});
        if (threads == 1) first = got;
        BOOST_TEST((got == first), threads << " threads");
      }
      OneOp one(*t, 2);
      cpu::OpContext& e = one.context();
      const BufferId x = one.buffer(s.m, s.k, a), w = one.buffer(s.n, s.k, b), y = one.buffer(s.m, s.n);
      cpu::blas_tile(cpu::Right::kTransposed, {0, s.m}, {0, s.n}, s.n, s.k, e.f32(x), e.f32(w), false,
                     e.f32(y));
      BOOST_TEST(distance(first, one.values(y)) <= 5e-5);
    }
}

// Parts of the inner elements of a tile are added in order, without a barrier between the tiles; with more
// tiles than are counted with one.
BOOST_AUTO_TEST_CASE(parts_of_a_tile_are_added_in_order) {
  const ProductShape s{30, 70, 384 * 40};
  const Vec a = random_vec(s.m * s.k, 1), b = random_vec(s.n * s.k, 2);
  for (const cpu::Kernels* t : all_kernels()) BOOST_TEST_CONTEXT(t->name) {
      Vec first;
      for (const std::size_t counted : {std::size_t{0}, cpu::OpContext::kCountedTiles})
        for (std::uint32_t threads = 1; threads <= 4; ++threads)
          for (int repetition = 0; repetition < 8; ++repetition) {
            OneOp one(*t, threads);
            one.prepare();
            cpu::OpContext& e = one.context();
            e.finished_parts.resize(counted);
            const BufferId ab = one.buffer(s.m, s.k, a), bb = one.buffer(s.n, s.k, b),
                           cb = one.buffer(s.m, s.n);
            cpu::large_product(e, s.m, s.n, s.k, {e.f32(ab), s.k, false}, {e.f32(bb), s.k, false}, {},
                               e.f32(cb));
            const Vec got = one.values(cb);
            if (first.empty()) first = got;
            BOOST_REQUIRE_MESSAGE(got == first, threads << " threads, " << counted << " counted tiles");
          }
    }
}

// weight_product.hpp selects by shape: a weight of more than 2^17 elements.
BOOST_AUTO_TEST_CASE(a_large_weight_and_its_gradient_agree_with_openblas) {
  const std::uint64_t m = 70, n = 1100, k = 1000;
  BOOST_TEST(!cpu::small_weight(n, k));
  const Vec x = random_vec(m * k, 1), w = random_vec(n * k, 2), start = random_vec(m * n, 3),
            g = random_vec(n * k, 4);
  for (const cpu::Kernels* t : all_kernels()) BOOST_TEST_CONTEXT(t->name) {
      Vec y[2], dx[2], dw[2];
      std::uint32_t extra[2] = {};
      for (const bool own : {false, true}) {
        OneOp one(*t, 2);
        one.prepare();
        cpu::OpContext& e = one.context();
        e.own_products = own;
        const BufferId xb = one.buffer(m, k, x), wb = one.buffer(n, k, w), yb = one.buffer(m, n),
                       db = one.buffer(m, k), gb = one.buffer(n, k, g), sb = one.buffer(m, n, start);
        const float *from = e.f32(xb), *weight = e.f32(wb);
        float* to = e.f32(yb);
        cpu::product_with_weight(e, cpu::Right::kTransposed, m, n, k, from, weight, {e.f32(sb)}, to);
        cpu::product_with_weight(e, cpu::Right::kPlain, m, k, n, to, weight, {}, e.f32(db));
        std::atomic<std::uint32_t> tasks = 0;
        cpu::weight_gradient(e, n, k, m, to, from, false, e.f32(gb), 5,
                             [&](std::uint32_t i) { tasks += 1u << i; });
        y[own] = one.values(yb), dx[own] = one.values(db), dw[own] = one.values(gb), extra[own] = tasks;
      }
      BOOST_TEST(distance(y[1], y[0]) <= 5e-5);
      BOOST_TEST(distance(dx[1], dx[0]) <= 5e-4);
      BOOST_TEST(distance(dw[1], dw[0]) <= 5e-4);
      BOOST_TEST((extra[0] == 31u && extra[1] == 31u), "additional tasks run once each");
    }
}

// Residual and bias are added where the sums are stored, both are added before. Several blocks of inner
// elements and of columns, and tiles that are not whole.
BOOST_AUTO_TEST_CASE(addends_give_the_bits_of_a_c_that_starts_with_them) {
  const ProductShape s{205, 810, 800};
  const Vec a = random_vec(s.m * s.k, 1), b = random_vec(s.n * s.k, 2), residual = random_vec(s.m * s.n, 3),
            bias = random_vec(s.n, 4);
  for (const cpu::Kernels* t : all_kernels())
    for (const bool with_residual : {false, true})
      for (const bool with_bias : {false, true}) BOOST_TEST_CONTEXT(t->name) {
          Vec got[2];
          for (const bool fused : {false, true}) {
            OneOp one(*t, 3);
            one.prepare();
            cpu::OpContext& e = one.context();
            const BufferId ab = one.buffer(s.m, s.k, a), wb = one.buffer(s.n, s.k, b),
                           rb = one.buffer(s.m, s.n, residual), bb = one.buffer(1, s.n, bias),
                           cb = one.buffer(s.m, s.n);
            float* const c = e.f32(cb);
            const cpu::Addends add{with_residual ? e.f32(rb) : nullptr, with_bias ? e.f32(bb) : nullptr};
            if (!fused) cpu::start_tile(*t, add, s.n, {0, s.m}, {0, s.n}, c);
            cpu::large_product(e, s.m, s.n, s.k, {e.f32(ab), s.k, false}, {e.f32(wb), s.k, false},
                               fused       ? add
                               : add.any() ? cpu::Addends{c}
                                           : cpu::Addends{},
                               c);
            got[fused] = one.values(cb);
          }
          BOOST_TEST((got[0] == got[1]), "residual " << with_residual << ", bias " << with_bias);
          const Vec want =
              reference::linear(a, b, with_bias ? bias : Vec{}, with_residual ? residual : Vec{}, s.n, s.k);
          BOOST_TEST(distance(got[1], want) <= 5e-5);
        }
}

BOOST_AUTO_TEST_CASE(the_environment_selects_the_products) {
  for (const cpu::Kernels* t : all_kernels()) {
    BOOST_TEST(cpu::select_own_products(*t) == (std::string(t->name) != "scalar"));
    setenv("TRAINHOST_CPU_PRODUCTS", "own", 1);
    BOOST_TEST(cpu::select_own_products(*t));
    setenv("TRAINHOST_CPU_PRODUCTS", "openblas", 1);
    BOOST_TEST(!cpu::select_own_products(*t));
    setenv("TRAINHOST_CPU_PRODUCTS", "openblsa", 1);
    BOOST_CHECK_EXCEPTION(cpu::select_own_products(*t), Error, [](const Error& e) {
      return std::string(e.what()).find("TRAINHOST_CPU_PRODUCTS=openblsa: expected own or openblas") == 0;
    });
    unsetenv("TRAINHOST_CPU_PRODUCTS");
  }
}

BOOST_AUTO_TEST_CASE(the_peaks_are_those_of_the_instruction_set) {
  for (const cpu::Kernels* t : all_kernels()) {
    const std::string name = t->name;
    float sum = 0;
    // Chains of FMAs x lanes; rows x columns of a register tile.
    BOOST_TEST(t->fma_loop(1000, &sum) == 2.0 * 1000 *
                                              (name == "avx512" ? 24 * 16
                                               : name == "avx2" ? 12 * 8
                                                                : 12 * 4));
    BOOST_TEST(std::isfinite(sum));
    BOOST_TEST(t->tile_loop(10, &sum) == 2.0 * 10 * 192 *
                                             (name == "avx512" ? 12 * 32
                                              : name == "avx2" ? 6 * 16
                                                               : 4 * 8));
    BOOST_TEST(std::isfinite(sum));
    BOOST_TEST(sum != 0.0f);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
