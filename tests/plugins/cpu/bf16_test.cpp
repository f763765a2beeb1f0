// bf16 products: rounding, packing, and products of odd sizes compared with sums in double over rounded
// operands, for every kernel table that this CPU supports and with the same bits on 1 to 4 threads. Also the
// linear operation in bf16.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <limits>
#include <utility>

#include "plugins/cpu/common/workspace.hpp"
#include "plugins/cpu/engine/bf16_product.hpp"
#include "tests/support/cpu_op_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using step::OpKind;
namespace ref = reference;

std::vector<const cpu::Bf16Kernels*> bf16_tables() {
  std::size_t n = 0;
  const cpu::Bf16Kernels* const* all = cpu::runnable_bf16_kernels(&n);
  return {all, all + n};
}
const cpu::Kernels& f32_kernels() {
  std::size_t n = 0;
  return *cpu::runnable_kernels(&n)[0];
}

/// The nearest number with 8 significant bits, ties to even; by division, not by bit operations.
double rounded(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // in [1/2, 1)
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}
Vec rounded(Vec v) {
  for (double& x : v) x = rounded(x);
  return v;
}
float widened(std::uint16_t bits) {
  std::uint32_t wide = std::uint32_t{bits} << 16;
  float f;
  std::memcpy(&f, &wide, sizeof f);
  return f;
}

/// C[m,n] = A[m,k] B[n,k]^T with both operands rounded first.
Vec expected_product(const Vec& a, const Vec& b, std::size_t n, std::size_t k) {
  return reference::linear(rounded(a), rounded(b), {}, {}, n, k);
}

/// The packed elements of one row or column.
std::vector<double> pack(const cpu::Bf16Kernels& t, bool left, const std::vector<float>& values,
                         bool inner_is_row) {
  const std::size_t count = t.step(values.size());
  std::vector<float> to(count, std::numeric_limits<float>::quiet_NaN());
  (left ? t.pack_left : t.pack_right)(1, values.size(), values.data(), false,
                                      inner_is_row ? 1 : values.size(), inner_is_row, to.data());
  if (t.element_bytes == sizeof(float)) return {to.begin(), to.end()};
  std::vector<double> out(count);
  std::vector<std::uint16_t> words(count);
  std::memcpy(words.data(), to.data(), count * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < count; ++i) out[i] = widened(words[i]);
  return out;
}
/// Row or column and inner element of the i-th packed element (kernels/bf16.hpp), with at most 32 inner
/// elements.
std::pair<std::size_t, std::size_t> position(const cpu::Bf16Kernels& t, bool left, std::size_t i) {
  if (t.native) return left ? std::pair{i / 32, i % 32} : std::pair{i % 64 / 2, i / 64 * 2 + i % 2};
  const std::string name = t.name;
  const std::size_t panel = left ? 48 : name == "avx512" ? 48 : name == "avx2" ? 24 : 12, inner = 13;
  return {i / (panel * inner) * panel + i % panel, i % (panel * inner) / panel};
}

BOOST_AUTO_TEST_SUITE(cpu_bf16)

BOOST_AUTO_TEST_CASE(packing_rounds_to_nearest_even_and_fills_up_with_zeros) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float odd = 1.0f + 0x1p-7f;  // the last of its 8 significant bits is set
  std::vector<float> values = {1.0f,
                               -2.5f,
                               0.0f,
                               1.0f + 0x1p-8f,
                               odd + 0x1p-8f,
                               1.0f + 0x1p-8f + 0x1p-23f,
                               odd - 0x1.8p-9f,
                               3.3895314e38f,
                               kInfinity,
                               -kInfinity,
                               0x1.fffffep127f,
                               1e-30f,
                               -7.0f / 3};
  for (const cpu::Bf16Kernels* t : bf16_tables()) BOOST_TEST_CONTEXT(t->name) {
      for (bool left : {true, false})
        for (bool inner_is_row : {true, false}) {  // a single row or column: the same numbers in both layouts
          const std::vector<double> packed = pack(*t, left, values, inner_is_row);
          for (std::size_t i = 0; i < packed.size(); ++i) {
            const auto [outer, p] = position(*t, left, i);
            const double want = outer == 0 && p < values.size() ? rounded(values[p]) : 0.0;
            const double clipped = std::abs(want) > 3.4028e38 ? std::copysign(kInfinity, want) : want;
            BOOST_TEST(packed[i] == clipped, (left ? "left" : "right") << " element " << i);
          }
        }
      BOOST_TEST(std::isnan(pack(*t, true, {std::numeric_limits<float>::quiet_NaN()}, false).front()));
    }
}

BOOST_DATA_TEST_CASE(products_match_sums_over_rounded_operands,
                     boost::unit_test::data::make({1, 7, 33, 131}) *
                         boost::unit_test::data::make({1, 31, 64, 97}) *
                         boost::unit_test::data::make({1, 7, 33, 300}),
                     rows, cols, inner) {
  const auto m = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(cols),
             k = static_cast<std::size_t>(inner);
  const Vec a = random_vec(m * k, 1), b = random_vec(n * k, 2), before = random_vec(m * n, 3);
  const Vec product = expected_product(a, b, n, k);
  Vec sum = before;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += product[i];
  for (const cpu::Bf16Kernels* t : bf16_tables()) BOOST_TEST_CONTEXT(t->name) {
      Vec first[2];
      for (std::uint32_t threads = 1; threads <= 4; ++threads)
        for (int way = 0; way < 4; ++way) {  // each operand plain or transposed
          OneOp one(f32_kernels(), threads, t);
          one.program.model.vocab = one.program.model.hidden = 512;
          one.prepare();
          cpu::OpContext& e = one.context();
          const bool ta = way & 1, tb = way & 2;
          const BufferId ab = one.buffer(m, k, ta ? transposed(a, m, k) : a),
                         bb = one.buffer(n, k, tb ? transposed(b, n, k) : b);
          for (bool add : {false, true}) {
            const BufferId cb = add ? one.buffer(m, n, before) : one.buffer(m, n);
            cpu::bf16_product(e, m, n, k, {e.f32(ab), ta ? m : k, ta}, {e.f32(bb), tb ? n : k, tb}, add,
                              e.f32(cb));
            const Vec got = one.values(cb);
            BOOST_TEST(distance(got, add ? sum : product) <= 2e-5, "way " << way << " add " << add);
            if (threads == 1 && way == 0)
              first[add] = got;
            else
              BOOST_TEST((got == first[add]),
                         "bits depend on threads or on the layout of an operand: variant " << way);
          }
        }
    }
}

// Sizes with more than one block in every dimension.
BOOST_AUTO_TEST_CASE(products_of_several_blocks_are_summed) {
  const std::size_t m = 2081, n = 1057, k = 1031;
  const cpu::Bf16Blocks cut = cpu::bf16_blocks(m, n, k);
  BOOST_TEST((cut.inner < k && cut.cols < n && cut.rows < m));
  const Vec a = random_vec(m * k, 1), b = random_vec(n * k, 2);
  for (const cpu::Bf16Kernels* t : bf16_tables()) BOOST_TEST_CONTEXT(t->name) {
      if (!t->native && std::string(t->name) != "avx2") continue;  // the others are the same code, and slow
      OneOp one(f32_kernels(), 2, t);
      one.program.model.vocab = 4096, one.program.model.hidden = 1024, one.program.run.seq_len = 4096;
      one.prepare();
      const BufferId ab = one.buffer(m, k, a), bb = one.buffer(n, k, b), cb = one.buffer(m, n);
      cpu::OpContext& e = one.context();
      std::vector<int> seen(m * n);
      struct Context {
        std::vector<int>* seen;
        std::size_t n;
      } context{&seen, n};
      const cpu::TileHook hook = {[](void* c, cpu::Range r, cpu::Range s) {
                                    auto* to = static_cast<Context*>(c);
                                    for (std::uint64_t i = r.begin; i < r.end; ++i)
                                      for (std::uint64_t j = s.begin; j < s.end; ++j)
                                        ++(*to->seen)[i * to->n + j];
                                  },
                                  &context};
      cpu::bf16_product(e, m, n, k, {e.f32(ab), k, false}, {e.f32(bb), k, false}, false, e.f32(cb), hook);
      BOOST_TEST(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
      const Vec got = one.values(cb);
      std::mt19937 g(5);
      for (int probe = 0; probe < 2000; ++probe) {
        const std::size_t i = g() % m, j = g() % n;
        double want = 0;
        for (std::size_t p = 0; p < k; ++p) want += rounded(a[i * k + p]) * rounded(b[j * k + p]);
        BOOST_REQUIRE(std::abs(got[i * n + j] - want) <= 1e-4 * (1 + std::abs(want)));
      }
    }
}

// Inner elements that fit into one packed block of a core, and those that do not; with 40 threads the
// workspace is too small for a block per core. Kernels without AMX pack per core from 2^17 sums on.
BOOST_DATA_TEST_CASE(products_of_stored_operands_have_the_same_bits_however_they_are_packed,
                     boost::unit_test::data::make({300, 450, 700}) *
                         boost::unit_test::data::make({992, 2401}),
                     rows, inner) {
  const auto m = static_cast<std::size_t>(rows), n = std::size_t{210}, k = static_cast<std::size_t>(inner);
  const Vec a = rounded(random_vec(m * k, 1)), b = rounded(random_vec(n * k, 2));
  const Vec product = expected_product(a, b, n, k);
  for (const cpu::Bf16Kernels* t : bf16_tables()) BOOST_TEST_CONTEXT(t->name) {
      if (!t->native && std::string(t->name) != "avx2") continue;  // the others are the same code, and slow
      Vec first, first_rounded;
      for (const std::uint32_t threads : {1u, 2u, 40u})
        for (int way = 0; way < 4; ++way) {  // each operand plain or transposed
          OneOp one(f32_kernels(), threads, t, true);
          one.program.model.vocab = 512, one.program.model.hidden = 2401, one.program.run.seq_len = 1024;
          one.prepare();
          cpu::OpContext& e = one.context();
          const bool ta = way & 1, tb = way & 2;
          const BufferId ab = one.real(m, k, ta ? transposed(a, m, k) : a),
                         bb = one.real(n, k, tb ? transposed(b, n, k) : b), sums = one.buffer(m, n),
                         to = one.real(m, n);
          const cpu::Bf16Operand left(e.at<cpu::Bf16>(ab), ta ? m : k, ta),
              right(e.at<cpu::Bf16>(bb), tb ? n : k, tb);
          cpu::bf16_product(e, m, n, k, left, right, false, e.f32(sums));
          cpu::bf16_product(e, m, n, k, left, right, {e.at<cpu::Bf16>(to), n});
          const Vec got = one.values(sums), got_rounded = one.values(to);
          if (first.empty()) {
            first = got, first_rounded = got_rounded;
            BOOST_TEST(distance(got, product) <= 1e-4);
            BOOST_TEST(distance(got_rounded, product) <= 0x1.01p-8);
          }
          BOOST_TEST((got == first && got_rounded == first_rounded), threads << " threads, way " << way);
        }
    }
}

// Large results with whole cache lines are written past the caches.
BOOST_AUTO_TEST_CASE(large_results_have_the_same_bits_at_every_alignment) {
  const std::size_t m = 1100, n = 496, k = 70;
  const Vec a = random_vec(m * k, 1), b = random_vec(n * k, 2);
  for (const cpu::Bf16Kernels* t : bf16_tables()) BOOST_TEST_CONTEXT(t->name) {
      if (!t->native) continue;
      OneOp one(f32_kernels(), 2, t);
      one.program.model.vocab = 1024, one.program.run.seq_len = 1100;
      one.prepare();
      cpu::OpContext& e = one.context();
      const BufferId ab = one.buffer(m, k, a), bb = one.buffer(n, k, b), cb = one.buffer(m + 1, n);
      std::vector<float> results[2];
      for (const std::size_t offset : {0u, 1u}) {
        float* at = e.f32(cb);
        while (reinterpret_cast<std::uintptr_t>(at) % 64) ++at;
        cpu::bf16_product(e, m, n, k, {e.f32(ab), k, false}, {e.f32(bb), k, false}, false, at + offset);
        results[offset].assign(at + offset, at + offset + m * n);
      }
      BOOST_TEST((results[0] == results[1]));
      BOOST_TEST(
          results[0][m * n - 1] == expected_product(Vec(a.end() - static_cast<long>(k), a.end()),
                                                    Vec(b.end() - static_cast<long>(k), b.end()), 1, k)[0],
          boost::test_tools::tolerance(1e-4));
    }
}

BOOST_AUTO_TEST_CASE(a_linear_layer_and_its_gradients_round_their_operands) {
  const std::size_t m = 70, n = 45, k = 39;
  const Vec x = random_vec(m * k, 1), w = random_vec(n * k, 2), bias = random_vec(n, 3),
            res = random_vec(m * n, 4);
  const Vec dy = random_vec(m * n, 5), before = random_vec(n * k, 6);
  Vec y = expected_product(x, w, n, k), dx = expected_product(dy, transposed(w, n, k), k, n);
  Vec dw = expected_product(transposed(dy, m, n), transposed(x, m, k), k, m);
  for (std::size_t i = 0; i < m * n; ++i) y[i] += bias[i % n] + res[i];
  for (std::size_t i = 0; i < n * k; ++i) dw[i] += before[i];
  for (const cpu::Bf16Kernels* t : bf16_tables()) BOOST_TEST_CONTEXT(t->name) {
      OneOp o(f32_kernels(), 2, t);
      o.step().rows = m, o.step().first_micro = false;
      const BufferId xb = o.buffer(m, k, x), wb = o.buffer(n, k, w), yb = o.buffer(m, n),
                     dyb = o.buffer(m, n, dy), dxb = o.buffer(m, k);
      const BufferId gb = o.buffer(n, k, before);
      o.run(OpKind::kLinear, {xb, wb, o.buffer(1, n, bias), o.buffer(m, n, res)}, {yb});
      o.run(OpKind::kLinearDx, {dyb, wb}, {dxb});
      o.run(OpKind::kLinearDw, {dyb, xb, gb, step::kNoBuffer}, {gb});
      BOOST_TEST(distance(o.values(yb), y) <= 2e-5);
      BOOST_TEST(distance(o.values(dxb), dx) <= 2e-5);
      BOOST_TEST(distance(o.values(gb), dw) <= 2e-5);
    }
}

// Fewer tokens than planned, as rows (an evaluation's last batch) or as inner elements (the last chunk of the
// head, in its weight's gradient), must fit in the planned workspace.
BOOST_AUTO_TEST_CASE(packed_blocks_of_fewer_tokens_fit_in_the_work_space) {
  std::mt19937 g(7);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t m = 1 + g() % 5000, n = 1 + g() % 40000, k = 1 + g() % (i % 2 ? 20000 : 2000);
    const std::uint64_t fewer_rows = 1 + g() % m, less_inner = 1 + g() % k;
    const cpu::Bf16Blocks all = cpu::bf16_blocks(m, n, k);
    BOOST_REQUIRE(all.floats() <= cpu::max_bf16_block_floats(m, n, k));
    BOOST_REQUIRE(cpu::bf16_blocks(fewer_rows, n, k).floats() <= cpu::max_bf16_block_floats(m, n, k));
    BOOST_REQUIRE(cpu::bf16_blocks(n, m, less_inner).floats() <= cpu::max_bf16_block_floats(n, m, k));
    BOOST_REQUIRE((all.rows >= 96 && all.cols >= 96 && all.inner >= 32 && all.inner <= 1024));
    BOOST_REQUIRE(cpu::max_bf16_block_floats(m, n, k) * 4 <= (8u << 20) + (1u << 18));
  }
}

BOOST_AUTO_TEST_CASE(vdpbf16ps_is_selected_where_it_is_faster_than_conversion) {
  BOOST_TEST(cpu::vdpbf16ps_is_slow(true, 0x806f8));     // Sapphire Rapids
  BOOST_TEST(cpu::vdpbf16ps_is_slow(true, 0xc06f2));     // Emerald Rapids
  BOOST_TEST(!cpu::vdpbf16ps_is_slow(true, 0x5065b));    // Cooper Lake
  BOOST_TEST(!cpu::vdpbf16ps_is_slow(false, 0xa10f11));  // Zen 4
  std::size_t count = 0, bf16 = 0, converted = 0;
  const cpu::Bf16Kernels* const* all = cpu::runnable_bf16_kernels(&count);
  for (std::size_t i = 0; i < count; ++i) {
    if (std::string(all[i]->name) == "avx512_bf16") bf16 = i;
    if (std::string(all[i]->name) == "avx512") converted = i;
  }
  if (!bf16) return;
  __builtin_cpu_init();
  BOOST_TEST((bf16 > converted) == (!__builtin_cpu_is("intel") || __builtin_cpu_is("cooperlake")));
}

BOOST_AUTO_TEST_CASE(bf16_kernels_can_be_forced_by_name) {
  for (const cpu::Bf16Kernels* t : bf16_tables()) {
    setenv("TRAINHOST_CPU_ISA", t->name, 1);
    BOOST_TEST(std::string(cpu::select_bf16_kernels().name) == t->name);
    const std::string f32 = cpu::select_kernels().name;
    BOOST_TEST((t->native ? f32 == "avx512" : f32 == t->name));
  }
  unsetenv("TRAINHOST_CPU_ISA");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
