// AdamW with 8-bit moments compared with encode_moments() and with plain loops, Adafactor and Muon's passes
// with references in double, over tensors of many shapes that begin anywhere. An update that is not applied
// must not change any weight or state.
#include "plugins/cuda/kernels/tensor_optimizers.hpp"

#include "core/model/optimizer_state.hpp"
#include "core/step/moment_codes.hpp"
#include "core/step/program.hpp"
#include "tests/plugins/cuda/kernels/kernel_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

Vec scalars_of(double clip, double lr, bool applied) {
  Vec s(step::kScalarCount);
  s[step::kClipFactor] = clip, s[step::kLr] = lr, s[step::kStepSize] = 1.5 * lr;
  s[step::kInvSqrtBias2] = 1.25, s[step::kDecayFactor] = 1 - 0.1 * lr, s[step::kApplied] = applied;
  s[step::kMomentWeight] = 0.25, s[step::kRelativeLr] = 0.5 * lr;
  return s;
}

/// The moments that n codes and scales stand for, as encode_moments() writes them.
struct Coded {
  std::vector<int> codes;
  Vec scales, values;
  Coded(bool is_signed, const Vec& x) : values(x.size()) {
    const step::MomentCodes& map = step::moment_codes(is_signed);
    for (std::size_t first = 0; first < x.size(); first += kMomentBlock) {
      const std::size_t n = std::min<std::size_t>(kMomentBlock, x.size() - first);
      const std::vector<float> block(x.begin() + static_cast<long>(first),
                                     x.begin() + static_cast<long>(first + n));
      std::uint8_t code[kMomentBlock];
      const float scale = step::encode_moments(map, n, block.data(), code);
      scales.push_back(scale);
      for (std::size_t i = 0; i < n; ++i)
        codes.push_back(code[i]), values[first + i] = map.value[code[i]] * scale;
    }
  }
  Vec numbers() const { return {codes.begin(), codes.end()}; }
};

/// With beta1 = beta2 = 0 the moments are g and g^2 without rounding, so codes and scales must be those of
/// encode_moments(); otherwise the new moments are those of AdamW, within the distance of two codes.
template <class T>
void check_8bit(const std::vector<std::size_t>& sizes, bool exact, bool applied) {
  const double beta1 = exact ? 0 : 0.75, beta2 = exact ? 0 : 0.5, lr = 0.01, clip = exact ? 1 : 0.5,
               eps = 1e-4;
  const Vec scalars = scalars_of(clip, lr, applied);
  constexpr bool kMaster = std::is_same_v<T, Bf16>;
  struct Piece {
    Vec grad, weight, m, v, new_weight, stored, new_m, new_v;
    Coded m_before, v_before, m_after, v_after;
    bool coded;
  };
  std::vector<Piece> all;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const unsigned seed = static_cast<unsigned>(10 * i);
    const bool coded = i % 3 != 2, decay = i % 2;
    Vec g = random_vec(sizes[i], seed), w = random_vec(sizes[i], seed + 1),
        m = random_vec(sizes[i], seed + 2, 0.1), v = random_vec(sizes[i], seed + 3);
    for (double& x : v) x = static_cast<float>(x * x);
    const Coded m_before(true, m), v_before(false, v);
    if (coded) m = m_before.values, v = v_before.values;
    Vec new_m = m, new_v = v, new_w = w;
    for (std::size_t e = 0; applied && e < g.size(); ++e) {
      const auto gi = static_cast<float>(g[e] * clip);
      new_m[e] = static_cast<float>(beta1 * m[e] + (1 - beta1) * gi);
      new_v[e] = static_cast<float>(beta2 * v[e] + (1 - beta2) * static_cast<float>(gi * gi));
      new_w[e] = w[e] * (decay ? scalars[step::kDecayFactor] : 1) -
                 scalars[step::kStepSize] * new_m[e] / (std::sqrt(new_v[e]) * 1.25 + eps);
    }
    if (!applied) g[0] = std::numeric_limits<double>::quiet_NaN();
    const Vec stored = applied ? new_w : rounded<T>(w);
    all.push_back(
        {g, w, m, v, new_w, stored, new_m, new_v, m_before, v_before, {true, new_m}, {false, new_v}, coded});
  }
  const Tolerance weight = applied ? Tolerance{close<T>().relative, 1e-6} : kExact,
                  f32 = applied ? Tolerance{1e-5, 1e-6} : kExact;
  std::vector<Vec> codes;  // expected values outlive the runs
  for (const Piece& p : all)
    for (const Coded& c : {applied ? p.m_after : p.m_before, applied ? p.v_after : p.v_before})
      codes.push_back(c.numbers());
  BOOST_TEST_CONTEXT("exact " << exact << ", bytes " << sizeof(T) << ", applied " << applied) {
    under_every_schedule([&](KernelRun& run) {
      cuda::Pieces8bit<T> pieces{};
      for (const Piece& p : all) {
        const std::size_t shift = pieces.count % 4;
        cuda::Piece8bit<T>& q = pieces.piece[pieces.count];
        q.elements = p.grad.size(), q.grad = run.in<float>(p.grad, shift), q.decay = pieces.count % 2;
        q.weight = run.in<T>(p.weight, shift), run.expect(q.weight, "weight", p.stored, weight);
        q.master = kMaster ? run.in<float>(p.weight, shift) : nullptr;
        if (kMaster) run.expect(q.master, "master", p.new_weight, f32);
        const auto moment = [&](const Coded& before, const Coded& after, const Vec& values,
                                const Vec& new_values, const Vec& new_codes) -> cuda::Moment8bitPiece {
          if (!p.coded) {
            float* at = run.in<float>(values, shift);
            run.expect(at, "moment", new_values, f32);
            return {nullptr, at};
          }
          auto* code = run.in<unsigned char>(before.codes, shift);
          float* scale = run.in<float>(before.scales, shift);
          // The first element may be between two codes where the moments were rounded.
          run.expect(code, "codes", new_codes, exact || !applied ? kExact : Tolerance{0, 1});
          run.expect(scale, "scales", applied ? after.scales : before.scales, exact ? kExact : f32);
          return {code, scale};
        };
        q.m = moment(p.m_before, p.m_after, p.m, p.new_m, codes[2 * pieces.count]);
        q.v = moment(p.v_before, p.v_after, p.v, p.new_v, codes[2 * pieces.count + 1]);
        ++pieces.count;
      }
      const auto f = [](double x) { return static_cast<float>(x); };
      run.require_success(cuda::adamw_8bit<T>(run.stream, pieces,
                                              {f(beta1), f(1 - beta1), f(beta2), f(1 - beta2), f(eps)},
                                              run.in<double>(scalars)));
    });
  }
}

/// torch.optim.Adafactor in double, with the scalars' constants.
struct AdafactorReference {
  Vec w, rows, cols;
  void step(std::size_t r, std::size_t c, bool matrix, Vec g, const Vec& s, double eps, bool decay) {
    const auto n = static_cast<double>(g.size());
    const double eps1 = std::ldexp(1.0, -23), weight = s[step::kMomentWeight];
    Vec change(g.size());
    double of_weights = 0, of_changes = 0, mean = 0;
    for (double& x : g) x *= s[step::kClipFactor];
    for (const double x : w) of_weights += x * x;
    Vec row(r), col(c);
    for (std::size_t i = 0; i < g.size(); ++i) {
      row[i / c] += g[i] * g[i] / static_cast<double>(c);
      col[i % c] += g[i] * g[i] / static_cast<double>(r);
    }
    for (std::size_t i = 0; i < c; ++i) cols[i] += weight * (col[i] - cols[i]);
    for (std::size_t i = 0; matrix && i < r; ++i)
      rows[i] += weight * (row[i] - rows[i]), mean += rows[i] / static_cast<double>(r);
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double v = matrix ? rows[i / c] * cols[i % c] / std::max(mean, eps1) : cols[i];
      change[i] = g[i] / std::sqrt(std::max(v, eps1 * eps1)), of_changes += change[i] * change[i];
    }
    const double lr = std::max(eps, std::sqrt(of_weights / n)) * s[step::kRelativeLr] /
                      std::max(1.0, std::sqrt(of_changes / n));
    for (std::size_t i = 0; i < g.size(); ++i)
      w[i] = w[i] * (decay ? s[step::kDecayFactor] : 1) - lr * change[i];
  }
};

template <class T>
void check_adafactor(std::size_t r, std::size_t c, bool matrix, std::uint32_t slots, bool applied) {
  constexpr bool kMaster = std::is_same_v<T, Bf16>;
  const auto seed = static_cast<unsigned>(r * 100 + c);
  const bool decay = c % 2;
  const double eps = 1e-3;
  const Vec scalars = scalars_of(0.5, 0.1, applied), w = random_vec(r * c, seed);
  Vec g = random_vec(r * c, seed + 1), rows = random_vec(matrix ? r : 0, seed + 2),
      cols = random_vec(c, seed + 3);
  for (Vec* x : {&rows, &cols})
    for (double& e : *x) e = static_cast<float>(e * e);
  AdafactorReference expected{w, rows, cols};
  if (applied)
    expected.step(r, c, matrix, g, scalars, eps, decay);
  else
    g[0] = std::numeric_limits<double>::quiet_NaN();
  const Vec stored = applied ? expected.w : rounded<T>(w);
  const Tolerance weight = applied ? Tolerance{close<T>().relative, 1e-6} : kExact,
                  f32 = applied ? Tolerance{1e-5, 1e-6} : kExact;
  BOOST_TEST_CONTEXT(r << " x " << c << ", matrix " << matrix << ", slots " << slots << ", bytes "
                       << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      const std::size_t shift = c % 4, width = c + 3;
      cuda::AdafactorTensor<T> t{};
      t.elements = r * c, t.rows = r, t.cols = c, t.decay = decay;
      t.grad = run.in<float>(g, shift), t.weight = run.in<T>(w, shift);
      t.master = kMaster ? run.in<float>(w, shift) : nullptr;
      t.row_means = matrix ? run.in<float>(rows, shift) : nullptr, t.col_means = run.in<float>(cols, shift);
      run.expect(t.weight, "weight", stored, weight);
      if (kMaster) run.expect(t.master, "master", expected.w, f32);
      if (matrix) run.expect(t.row_means, "row means", expected.rows, f32);
      run.expect(t.col_means, "column means", expected.cols, f32);
      double* sums = run.out<double>(slots * width);
      run.expect_any(sums);
      run.require_success(
          cuda::adafactor<T>(run.stream, t, eps, slots, width, sums, run.in<double>(scalars)));
    });
  }
}

/// The part [r, c] of a TP rank, where the other ranks have the same part, so that a sum over them is a
/// multiple.
template <class T>
void check_adafactor_part(std::size_t r, std::size_t c, bool matrix, bool by_columns, std::uint32_t ranks,
                          std::uint32_t slots, bool applied) {
  constexpr bool kMaster = std::is_same_v<T, Bf16>;
  const auto seed = static_cast<unsigned>(r * 100 + c);
  const double eps = 1e-3;
  const Vec scalars = scalars_of(0.5, 0.1, applied), w = random_vec(r * c, seed),
            g = random_vec(r * c, seed + 1);
  Vec rows = random_vec(matrix ? r : 0, seed + 2), cols = random_vec(c, seed + 3);
  for (Vec* x : {&rows, &cols})
    for (double& e : *x) e = static_cast<float>(e * e);
  // The whole tensor: `ranks` copies of the part, side by side or one below the other.
  const std::size_t all_r = by_columns || !matrix ? r : r * ranks,
                    all_c = by_columns || !matrix ? c * ranks : c;
  Vec whole_w(all_r * all_c), whole_g(all_r * all_c), whole_rows(matrix ? all_r : 0), whole_cols(all_c);
  for (std::size_t i = 0; i < all_r; ++i)
    for (std::size_t j = 0; j < all_c; ++j)
      whole_w[i * all_c + j] = w[i % r * c + j % c], whole_g[i * all_c + j] = g[i % r * c + j % c];
  for (std::size_t i = 0; i < whole_rows.size(); ++i) whole_rows[i] = rows[i % r];
  for (std::size_t j = 0; j < all_c; ++j) whole_cols[j] = cols[j % c];
  AdafactorReference expected{whole_w, whole_rows, whole_cols};
  if (applied) expected.step(all_r, all_c, matrix, whole_g, scalars, eps, true);
  Vec part_w(r * c), part_rows(matrix ? r : 0), part_cols(c);
  for (std::size_t i = 0; i < r; ++i)
    for (std::size_t j = 0; j < c; ++j) part_w[i * c + j] = expected.w[i * all_c + j];
  for (std::size_t i = 0; i < part_rows.size(); ++i) part_rows[i] = expected.rows[i];
  for (std::size_t j = 0; j < c; ++j) part_cols[j] = expected.cols[j];
  const Vec stored = applied ? part_w : rounded<T>(w);
  const Tolerance f32 = applied ? Tolerance{1e-5, 1e-6} : kExact;
  BOOST_TEST_CONTEXT(r << " x " << c << ", matrix " << matrix << ", by columns " << by_columns << ", slots "
                       << slots << ", bytes " << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      const std::size_t width = c + 3, sums_of_ranks = 2 + (!matrix ? 0 : by_columns ? r : c);
      cuda::AdafactorPart<T> t{};
      t.elements = r * c, t.rows = r, t.cols = c, t.decay = true;
      t.all_rows = all_r, t.all_cols = all_c, t.by_columns = by_columns;
      t.grad = run.in<float>(g), t.weight = run.in<T>(w), t.master = kMaster ? run.in<float>(w) : nullptr;
      t.row_means = matrix ? run.in<float>(rows) : nullptr, t.col_means = run.in<float>(cols);
      run.expect(t.weight, "weight", stored, applied ? Tolerance{close<T>().relative, 1e-6} : kExact);
      if (kMaster) run.expect(t.master, "master", part_w, f32);
      if (matrix) run.expect(t.row_means, "row means", part_rows, f32);
      run.expect(t.col_means, "column means", part_cols, f32);
      double *sums = run.out<double>(slots * width), *s = run.in<double>(scalars);
      float *of_ranks = run.in<float>(Vec(sums_of_ranks)), *change = run.in<float>(Vec(1));
      run.expect_any(sums), run.expect_any(of_ranks), run.expect_any(change);
      const auto add_up = [&](float* values, std::size_t n) {
        run.require_success(cudaStreamSynchronize(run.stream));
        for (std::size_t i = 0; i < n; ++i) values[i] *= static_cast<float>(ranks);
      };
      run.require_success(cuda::adafactor_sums<T>(run.stream, t, slots, width, sums, s, of_ranks));
      add_up(of_ranks, sums_of_ranks);
      run.require_success(cuda::adafactor_change<T>(run.stream, t, slots, width, sums, s, of_ranks, change));
      add_up(change, 1);
      run.require_success(
          cuda::adafactor_apply<T>(run.stream, t, eps, slots, width, sums, s, of_ranks, change));
    });
  }
}

template <class T>
void check_muon(std::size_t n, bool applied, double scale = 1) {
  constexpr bool kMaster = std::is_same_v<T, Bf16>;
  const auto seed = static_cast<unsigned>(n);
  const bool decay = n % 2;
  const double beta = 0.75;
  const Vec scalars = scalars_of(0.5, 0.1, applied), m = random_vec(n, seed, scale),
            w = random_vec(n, seed + 1), direction = random_vec(n, seed + 2);
  Vec g = random_vec(n, seed + 3, scale), new_m = m, x(n), new_w = w;
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double gi = g[i] * 0.5;
    new_m[i] = beta * m[i] + (1 - beta) * gi, x[i] = (1 - beta) * gi + beta * new_m[i];
    squares += x[i] * x[i];
    new_w[i] = w[i] * (decay ? scalars[step::kDecayFactor] : 1) - 0.1 * 3 * direction[i];
  }
  for (double& e : x) e /= std::max(std::sqrt(squares), 1e-7);
  if (!applied) {
    new_m = m, new_w = w, g[0] = std::numeric_limits<double>::quiet_NaN();
    std::fill(x.begin(), x.end(), g[0]);
  }
  const Vec stored = applied ? new_w : rounded<T>(w);
  const Tolerance weight = applied ? Tolerance{close<T>().relative, 1e-6} : kExact,
                  f32 = applied ? Tolerance{1e-5, 1e-6 * scale} : kExact;
  BOOST_TEST_CONTEXT("elements " << n << ", bytes " << sizeof(T) << ", applied " << applied) {
    under_every_schedule([&](KernelRun& run) {
      const std::size_t shift = n % 4;
      const double* s = run.in<double>(scalars);
      float *moment = run.in<float>(m, shift), *to = run.out<float>(n),
            *partials = run.out<float>((n + 1023) / 1024);
      run.expect(moment, "momentum", new_m, f32), run.expect(to, "x", x, {1e-5, 1e-6}),
          run.expect_any(partials);
      run.require_success(cuda::muon_direction(run.stream, n, run.in<float>(g, shift), moment, to, 0.75f,
                                               0.25f, partials, s));
      cuda::TensorPiece<T> t{n, nullptr, run.in<T>(w, shift), kMaster ? run.in<float>(w, shift) : nullptr,
                             decay};
      run.expect(t.weight, "weight", stored, weight);
      if (kMaster) run.expect(t.master, "master", new_w, applied ? Tolerance{1e-5, 1e-6} : kExact);
      run.require_success(cuda::muon_apply<T>(run.stream, t, run.in<float>(direction, shift), 3, s));
    });
  }
}

BOOST_AUTO_TEST_SUITE(cuda_tensor_optimizers)

BOOST_AUTO_TEST_CASE(eight_bit_moments_have_the_codes_and_scales_of_the_plain_loop) {
  const std::vector<std::size_t> sizes = {4096, 1, 300, 257, 255, 2049, 5000, 31, 4};
  for (const bool applied : {true, false})
    check_8bit<float>(sizes, true, applied), check_8bit<Bf16>(sizes, true, applied),
        check_8bit<float>(sizes, false, applied), check_8bit<Bf16>(sizes, false, applied);
  check_8bit<float>(std::vector<std::size_t>(cuda::kMax8bitPieces, 260), true, true);
  check_8bit<float>({1'100'000}, true, true);  // more chunks than blocks
}

BOOST_AUTO_TEST_CASE(adafactor_averages_rows_and_columns) {
  for (const std::uint32_t slots : {1u, 3u, 40u}) {
    for (const auto& [r, c] :
         {std::pair<std::size_t, std::size_t>{1, 1}, {7, 5}, {33, 257}, {40, 3}, {3, 700}})
      check_adafactor<float>(r, c, true, slots, true), check_adafactor<Bf16>(r, c, true, slots, true);
    for (const std::size_t n : {1, 5, 256, 1000})
      check_adafactor<float>(1, n, false, slots, true), check_adafactor<Bf16>(1, n, false, slots, true);
  }
  check_adafactor<float>(33, 257, true, 3, false), check_adafactor<Bf16>(1, 300, false, 3, false);
}

BOOST_AUTO_TEST_CASE(adafactor_of_a_part_has_the_means_of_the_whole) {
  for (const std::uint32_t slots : {1u, 3u, 40u}) {
    for (const auto& [r, c] : {std::pair<std::size_t, std::size_t>{1, 1}, {7, 5}, {33, 257}, {40, 3}})
      for (const bool by_columns : {false, true})
        check_adafactor_part<float>(r, c, true, by_columns, 2, slots, true),
            check_adafactor_part<Bf16>(r, c, true, by_columns, 3, slots, true);
    for (const std::size_t n : {1, 5, 1000}) check_adafactor_part<float>(1, n, false, false, 2, slots, true);
  }
  check_adafactor_part<float>(33, 257, true, false, 2, 3, false);
  check_adafactor_part<Bf16>(33, 257, true, true, 2, 3, false);
}

/// A tensor whose first row is row first_row of pieces that have `behind` rows more.
void check_pieces(std::uint64_t part_rows, std::uint64_t part_cols, std::uint32_t ranks, bool by_columns,
                  std::uint64_t first_row, std::uint64_t behind, bool applied = true) {
  const std::uint64_t rows = part_rows * (by_columns ? 1 : ranks),
                      cols = part_cols * (by_columns ? ranks : 1),
                      piece = (first_row + part_rows + behind) * part_cols;
  const std::uint32_t own = ranks - 1;
  const cuda::MuonPieces t{rows, cols, part_rows, part_cols, first_row, piece, by_columns, own};
  const Vec pieces = random_vec(ranks * piece, 1), direction = random_vec(rows * cols, 2);
  Vec whole(rows * cols), taken = pieces;
  double squares = 0;
  for (std::uint64_t r = 0; r < rows; ++r)
    for (std::uint64_t c = 0; c < cols; ++c) {
      const std::uint64_t rank = by_columns ? c / part_cols : r / part_rows,
                          at = rank * piece + (first_row + r % part_rows) * part_cols + c % part_cols;
      const double x = whole[r * cols + c] = pieces[at];
      squares += x * x;
      if (rank == own) taken[at] = direction[r * cols + c];
    }
  if (applied)
    for (double& x : whole) x /= std::sqrt(squares);
  Vec scalars(step::kScalarCount);
  scalars[step::kApplied] = applied;
  BOOST_TEST_CONTEXT("rows " << rows << ", cols " << cols << ", ranks " << ranks) {
    under_every_schedule([&](KernelRun& run) {
      float *x = run.out<float>(rows * cols), *partials = run.out<float>(rows * cols / 1024 + 1),
            *into = run.in<float>(pieces);
      run.expect_any(partials);
      run.expect(x, "x", whole, {1e-5, 1e-6}), run.expect(into, "pieces", taken, kExact);
      run.require_success(
          cuda::muon_assemble(run.stream, t, run.in<float>(pieces), x, partials, run.in<double>(scalars)));
      run.require_success(cuda::muon_take(run.stream, t, run.in<float>(direction), into));
    });
  }
}

void check_momentum(std::size_t n) {
  const Vec g = random_vec(n, 1), m = random_vec(n, 2);
  const auto beta = static_cast<double>(0.95f), rest = static_cast<double>(0.05f), clip = 0.5;
  Vec new_m(n), x(n), scalars(step::kScalarCount);
  for (std::size_t i = 0; i < n; ++i) {
    new_m[i] = beta * m[i] + rest * clip * g[i], x[i] = rest * clip * g[i] + beta * new_m[i];
  }
  scalars[step::kApplied] = 1, scalars[step::kClipFactor] = clip;
  under_every_schedule([&](KernelRun& run) {
    float *momentum = run.in<float>(m), *to = run.out<float>(n);
    run.expect(momentum, "m", new_m, {1e-6, 1e-7}), run.expect(to, "x", x, {1e-6, 1e-7});
    run.require_success(cuda::muon_momentum(run.stream, n, run.in<float>(g), momentum, to, 0.95f, 0.05f,
                                            run.in<double>(scalars)));
  });
}

BOOST_AUTO_TEST_CASE(muon_puts_tensors_together_and_takes_parts) {
  for (const bool by_columns : {false, true}) {
    check_pieces(3, 5, 2, by_columns, 0, 0), check_pieces(3, 5, 3, by_columns, 2, 4);
    check_pieces(1, 1, 1, by_columns, 0, 0), check_pieces(40, 70, 1, by_columns, 7, 1);
    check_pieces(33, 64, 4, by_columns, 1, 0), check_pieces(300, 9, 2, by_columns, 0, 5);
  }
  check_pieces(3, 5, 2, true, 1, 1, false);
  for (const std::size_t n : {1, 1000, 5000}) check_momentum(n);
}

BOOST_AUTO_TEST_CASE(muon_averages_normalises_and_applies) {
  for (const std::size_t n : {1, 2, 5, 1024, 1025, 4099})
    check_muon<float>(n, true), check_muon<Bf16>(n, true);
  check_muon<float>(600'001, true);      // more chunks than blocks
  check_muon<float>(1000, true, 1e-10);  // a norm below the smallest one
  check_muon<float>(1025, false), check_muon<Bf16>(5, false);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
