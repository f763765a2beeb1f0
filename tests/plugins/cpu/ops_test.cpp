// Every operation of the CPU trainer compared with a naive loop in double, at sizes that are not multiples of
// a vector width, for every instruction set that this CPU supports, and with the same bits on 1 to 4 threads.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/support/cpu_op_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using reference::Ids;
using step::kNoBuffer;
using step::OpKind;
namespace ref = reference;

// f32 sums of up to a few hundred products of numbers below 1: far below sqrt(n) * 2^-24 * n.
constexpr double kTolerance = 2e-5;

// Runs `body` (which returns the op's results) for every kernel table and 1..4 threads; bits must not depend
// on the number of threads. Then compares with `expected`.
template <class Body>
void check_op(const std::vector<Vec>& expected, Body&& body, double tolerance = kTolerance) {
  std::size_t count = 0;
  const cpu::Kernels* const* tables = cpu::runnable_kernels(&count);
  for (std::size_t t = 0; t < count; ++t) {
    std::vector<Vec> first;
    for (std::uint32_t threads = 1; threads <= 4; ++threads) {
      OneOp one(*tables[t], threads);
      std::vector<Vec> got = body(one);
      BOOST_TEST_CONTEXT(tables[t]->name << ", " << threads << " threads") {
        BOOST_REQUIRE_EQUAL(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i)
          BOOST_TEST(distance(got[i], expected[i]) <= tolerance,
                     "result " << i << " is " << distance(got[i], expected[i]) << " off");
        if (threads == 1)
          first = got;
        else
          BOOST_TEST((got == first), "bits depend on the number of threads");
      }
    }
  }
}

Ids random_ids(std::size_t n, std::size_t vocab, unsigned seed, bool with_gaps = false) {
  std::mt19937 g(seed);
  Ids ids(n);
  for (std::int32_t& i : ids) i = with_gaps && g() % 5 == 0 ? -100 : static_cast<std::int32_t>(g() % vocab);
  return ids;
}

const auto kRows = boost::unit_test::data::make({1, 7, 33, 131});
const auto kCols = boost::unit_test::data::make({1, 7, 33, 97, 128});

BOOST_AUTO_TEST_SUITE(cpu_ops)

BOOST_DATA_TEST_CASE(embedding_copies_rows_and_scatters_gradients, kRows* kCols, rows, cols) {
  const std::size_t m = static_cast<std::size_t>(rows), h = static_cast<std::size_t>(cols), v = 19;
  const Vec table = random_vec(v * h, 1), dx = random_vec(m * h, 2), before = random_vec(v * h, 3);
  const Ids ids = random_ids(m, v, 4);
  check_op(
      {ref::embed(table, ids, h)},
      [&](OneOp& o) {
        o.step().rows = m, o.step().tokens = ids.data();
        BufferId x = o.buffer(m, h);
        o.run(OpKind::kEmbed, {o.buffer(v, h, table), kNoBuffer}, {x});
        return std::vector<Vec>{o.values(x)};
      },
      0);
  for (bool overwrite : {false, true}) {
    Vec grad = overwrite ? Vec(v * h) : before;
    ref::embed_bwd(dx, ids, h, grad);
    check_op({grad}, [&](OneOp& o) {
      o.step().rows = m, o.step().tokens = ids.data();
      BufferId g = o.buffer(v, h, overwrite ? Vec{} : before);
      o.run(OpKind::kEmbedBwd, {o.buffer(m, h, dx), kNoBuffer, g}, {g},
            overwrite ? step::kFirstWrite : step::OpFlag{});
      return std::vector<Vec>{o.values(g)};
    });
  }
}

BOOST_DATA_TEST_CASE(rms_norm_and_its_gradient, kRows* kCols, rows, cols) {
  const std::size_t m = static_cast<std::size_t>(rows), h = static_cast<std::size_t>(cols);
  const Vec x = random_vec(m * h, 1), w = random_vec(h, 2), dy = random_vec(m * h, 3),
            before = random_vec(m * h, 4), gw = random_vec(h, 5);
  Vec rstd(m);
  for (std::size_t r = 0; r < m; ++r) rstd[r] = ref::rstd(&x[r * h], h, 1e-5);
  check_op({ref::rms_norm(x, w, h, 1e-5), rstd}, [&](OneOp& o) {
    o.program.model.norm_eps = 1e-5, o.step().rows = m;
    BufferId y = o.buffer(m, h), s = o.buffer(m, 1);
    o.run(OpKind::kRmsNorm, {o.buffer(m, h, x), o.buffer(1, h, w)}, {y, s});
    return std::vector<Vec>{o.values(y), o.values(s)};
  });
  for (bool fresh : {false, true}) {
    Vec grad = fresh ? Vec(h) : gw;
    Vec dx = ref::rms_norm_bwd(dy, x, w, h, 1e-5, grad);
    if (!fresh)
      for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += before[i];
    check_op(
        {dx, grad},
        [&](OneOp& o) {
          o.step().rows = m;
          BufferId d = o.buffer(m, h, fresh ? Vec{} : before), g = o.buffer(1, h, fresh ? Vec{} : gw);
          o.run(OpKind::kRmsNormBwd,
                {o.buffer(m, h, dy), o.buffer(m, h, x), o.buffer(m, 1, rstd), o.buffer(1, h, w),
                 fresh ? kNoBuffer : d, g, o.buffer(16, h)},
                {d, g}, fresh ? step::kFreshDx | step::kFirstWrite : 0);
          return std::vector<Vec>{o.values(d), o.values(g)};
        },
        5e-5);
  }
}

BOOST_DATA_TEST_CASE(linear_and_its_gradients, kRows* kCols* boost::unit_test::data::make({1, 16, 53}), rows,
                     outputs, inputs) {
  const std::size_t m = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(outputs),
                    k = static_cast<std::size_t>(inputs);
  const Vec x = random_vec(m * k, 1), w = random_vec(n * k, 2), bias = random_vec(n, 3),
            residual = random_vec(m * n, 4), dy = random_vec(m * n, 5);
  const Vec gw = random_vec(n * k, 6), gb = random_vec(n, 7);
  for (int options = 0; options < 4; ++options) {
    const bool with_bias = options & 1, other = options & 2;
    check_op({ref::linear(x, w, with_bias ? bias : Vec{}, other ? residual : Vec{}, n, k)}, [&](OneOp& o) {
      o.step().rows = m;
      BufferId y = o.buffer(m, n);
      o.run(OpKind::kLinear,
            {o.buffer(m, k, x), o.buffer(n, k, w), with_bias ? o.buffer(1, n, bias) : kNoBuffer,
             other ? o.buffer(m, n, residual) : kNoBuffer},
            {y});
      return std::vector<Vec>{o.values(y)};
    });
    Vec grad_w = other ? Vec(n * k) : gw, grad_b = other ? Vec(n) : gb;
    ref::linear_dw(dy, x, n, k, grad_w, &grad_b);
    if (!with_bias) grad_b = gb;
    check_op({grad_w, grad_b}, [&](OneOp& o) {
      o.step().rows = m;
      BufferId g = o.buffer(n, k, other ? Vec{} : gw), b = o.buffer(1, n, with_bias && other ? Vec{} : gb);
      o.run(OpKind::kLinearDw,
            {o.buffer(m, n, dy), o.buffer(m, k, x), g, with_bias ? b : kNoBuffer, kNoBuffer},
            {g, with_bias ? b : kNoBuffer}, other ? step::kFirstWrite : step::OpFlag{});
      return std::vector<Vec>{o.values(g), o.values(b)};
    });
  }
  check_op({ref::linear_dx(dy, w, n, k)}, [&](OneOp& o) {
    o.step().rows = m;
    BufferId dx = o.buffer(m, k);
    o.run(OpKind::kLinearDx, {o.buffer(m, n, dy), o.buffer(n, k, w)}, {dx});
    return std::vector<Vec>{o.values(dx)};
  });
}

BOOST_DATA_TEST_CASE(swiglu_and_its_gradient, kRows* kCols, rows, cols) {
  const std::size_t m = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(cols);
  const Vec gu = random_vec(m * 2 * n, 1, 30.0), da = random_vec(m * n, 2);  // both tails of the sigmoid
  check_op({ref::swiglu(gu, n)}, [&](OneOp& o) {
    o.step().rows = m;
    BufferId a = o.buffer(m, n);
    o.run(OpKind::kSwiGlu, {o.buffer(m, 2 * n, gu)}, {a});
    return std::vector<Vec>{o.values(a)};
  });
  check_op({ref::swiglu_bwd(da, gu, n)}, [&](OneOp& o) {
    o.step().rows = m;
    BufferId g = o.buffer(m, 2 * n, gu);
    o.run(OpKind::kSwiGluBwd, {o.buffer(m, n, da), g}, {g});
    return std::vector<Vec>{o.values(g)};
  });
}

// ---- heads

struct HeadShape {
  std::uint32_t sequences, seq, heads, kv_heads, d, tile_q, tile_k, window;
};
std::ostream& operator<<(std::ostream& o, const HeadShape& s) {
  return o << s.sequences << "x" << s.seq << " A" << s.heads << " K" << s.kv_heads << " D" << s.d << " tiles "
           << s.tile_q << "x" << s.tile_k << " window " << s.window;
}
const HeadShape kHeadShapes[] = {
    {1, 1, 1, 1, 2, 1, 1, 0},
    {2, 7, 2, 1, 6, 4, 4, 0},
    {1, 33, 3, 3, 10, 16, 8, 0},
    {3, 37, 6, 2, 34, 8, 16, 0},
    {1, 33, 4, 2, 16, 8, 8, 1},
    {2, 41, 2, 2, 32, 16, 8, 5},
    {1, 61, 6, 3, 22, 32, 16, 17},
    {1, 64, 2, 1, 64, 64, 64, 0},
    {1, 50, 2, 1, 8, 64, 16, 100},
    {1, 131, 2, 2, 32, 64, 64, 0},
    // The gradient in segments of 64 and of 48 queries; tiles of keys that end in another segment.
    {1, 96, 16, 1, 64, 32, 32, 0},
    {2, 150, 24, 2, 96, 16, 64, 70},
};
void set_shape(OneOp& o, const HeadShape& s) {
  ModelSpec& m = o.program.model;
  m.heads = s.heads, m.kv_heads = s.kv_heads, m.head_dim = s.d, m.sliding_window = s.window,
  m.norm_eps = 1e-6;
  o.program.run.seq_len = s.seq;
  o.program.traits.attention_tile_q = s.tile_q, o.program.traits.attention_tile_k = s.tile_k;
  o.step().rows = std::uint64_t{s.sequences} * s.seq;
}
ref::Heads reference_heads(const HeadShape& s) { return {s.seq, s.heads, s.kv_heads, s.d, s.window}; }

BOOST_DATA_TEST_CASE(attention_and_its_gradient, boost::unit_test::data::make(kHeadShapes), s) {
  const std::size_t m = std::size_t{s.sequences} * s.seq, width = reference_heads(s).width(),
                    ow = std::size_t{s.heads} * s.d;
  const Vec qkv = random_vec(m * width, 1, 2.0), d_o = random_vec(m * ow, 2);
  const Vec o_ref = ref::attention(qkv, reference_heads(s));
  Vec lse(m * s.heads), one;
  for (std::size_t b = 0; b < s.sequences; ++b)
    for (std::size_t h = 0; h < s.heads; ++h) {
      ref::probabilities(qkv, reference_heads(s), b, h, &one);
      for (std::size_t q = 0; q < s.seq; ++q) lse[(b * s.seq + q) * s.heads + h] = one[q];
    }
  auto scratch = [&](OneOp& o) {
    return o.buffer(o.program.traits.threads, 2 * std::uint64_t{s.tile_q} * s.tile_k);
  };
  check_op({o_ref, lse}, [&](OneOp& o) {
    set_shape(o, s);
    BufferId out = o.buffer(m, ow), l = o.buffer(m, s.heads);
    o.run(OpKind::kAttention, {o.buffer(m, width, qkv), scratch(o)}, {out, l});
    return std::vector<Vec>{o.values(out), o.values(l)};
  });
  check_op({ref::attention_bwd(d_o, qkv, reference_heads(s))}, [&](OneOp& o) {
    set_shape(o, s);
    BufferId d = o.buffer(m, width);
    o.run(OpKind::kAttentionBwd,
          {o.buffer(m, ow, d_o), o.buffer(m, ow, o_ref), o.buffer(m, s.heads, lse), o.buffer(m, width, qkv),
           scratch(o)},
          {d});
    return std::vector<Vec>{o.values(d)};
  });
}

/// Lengths of documents that fill `seq` positions: shorter and longer than tiles, and single tokens.
std::vector<std::size_t> document_lengths(std::size_t seq, std::size_t sequence) {
  static constexpr std::size_t kLengths[] = {1, 3, 40, 2, 97, 1, 150, 17};
  std::vector<std::size_t> lengths;
  for (std::size_t i = sequence; seq > 0; ++i)
    lengths.push_back(std::min(seq, kLengths[i % std::size(kLengths)])), seq -= lengths.back();
  return lengths;
}

// The expected rows come from each document in a sequence of its own.
BOOST_DATA_TEST_CASE(documents_of_a_sequence_attend_to_themselves_only,
                     boost::unit_test::data::make(kHeadShapes), s) {
  const std::size_t m = std::size_t{s.sequences} * s.seq, width = reference_heads(s).width(),
                    ow = std::size_t{s.heads} * s.d;
  const Vec qkv = random_vec(m * width, 1, 2.0), d_o = random_vec(m * ow, 2);
  const auto part = [](const Vec& x, std::size_t from, std::size_t n) {
    return Vec(x.begin() + static_cast<long>(from), x.begin() + static_cast<long>(from + n));
  };
  Vec o_ref, lse, gradient;
  std::vector<std::int32_t> starts;
  for (std::size_t b = 0, row = 0; b < s.sequences; ++b)
    for (const std::size_t length : document_lengths(s.seq, b)) {
      ref::Heads h = reference_heads(s);
      h.seq = length;
      const Vec of_qkv = part(qkv, row * width, length * width);
      const auto append = [](Vec& to, const Vec& x) { to.insert(to.end(), x.begin(), x.end()); };
      append(o_ref, ref::attention(of_qkv, h));
      append(gradient, ref::attention_bwd(part(d_o, row * ow, length * ow), of_qkv, h));
      Vec rows(length * s.heads), one;
      for (std::size_t head = 0; head < s.heads; ++head) {
        ref::probabilities(of_qkv, h, 0, head, &one);
        for (std::size_t q = 0; q < length; ++q) rows[q * s.heads + head] = one[q];
      }
      append(lse, rows);
      starts.insert(starts.end(), length, static_cast<std::int32_t>(row - b * s.seq));
      row += length;
    }
  const auto run = [&](OneOp& o, const std::vector<std::int32_t>& of) {
    set_shape(o, s);
    o.step().starts = of.data();
    const BufferId scratch = o.buffer(o.program.traits.threads, 2 * std::uint64_t{s.tile_q} * s.tile_k);
    const BufferId out = o.buffer(m, ow), l = o.buffer(m, s.heads), d = o.buffer(m, width),
                   x = o.buffer(m, width, qkv);
    o.run(OpKind::kAttention, {x, scratch}, {out, l});
    o.run(OpKind::kAttentionBwd,
          {o.buffer(m, ow, d_o), o.buffer(m, ow, o_ref), o.buffer(m, s.heads, lse), x, scratch}, {d});
    return std::vector<Vec>{o.values(out), o.values(l), o.values(d)};
  };
  check_op({o_ref, lse, gradient}, [&](OneOp& o) { return run(o, starts); });
  // A start that is one token off changes the result.
  std::vector<std::int32_t> wrong = starts;
  for (std::size_t i = 1; i < wrong.size(); ++i)
    if (i % s.seq && wrong[i] == static_cast<std::int32_t>(i % s.seq)) {
      wrong[i] = wrong[i - 1];
      break;
    }
  if (wrong == starts || s.window == 1) return;  // one document, or no query sees another key anyway
  OneOp broken(cpu::select_kernels(), 1);
  BOOST_TEST(distance(run(broken, wrong)[0], o_ref) > 1e-3);
}

BOOST_DATA_TEST_CASE(attention_of_one_token_at_a_time_is_the_last_row,
                     boost::unit_test::data::make(kHeadShapes), s) {
  const std::size_t width = reference_heads(s).width(), ow = std::size_t{s.heads} * s.d,
                    kw = std::size_t{s.kv_heads} * s.d;
  const Vec qkv = random_vec(s.seq * width, 1, 2.0);
  check_op({ref::attention(qkv, reference_heads(s))}, [&](OneOp& o) {
    set_shape(o, s);
    o.step().rows = 1;
    BufferId keys = o.buffer(s.seq, kw), values = o.buffer(s.seq, kw), scratch = o.buffer(s.heads, s.seq),
             out = o.buffer(1, ow);
    Vec all;
    for (std::uint32_t p = 0; p < s.seq; ++p) {
      o.step().position = p;
      BufferId row = o.buffer(
          1, width,
          Vec(qkv.begin() + static_cast<long>(p * width), qkv.begin() + static_cast<long>((p + 1) * width)));
      o.run(OpKind::kAttentionStep, {row, keys, values, scratch}, {out, keys, values});
      const Vec got = o.values(out);
      all.insert(all.end(), got.begin(), got.end());
    }
    return std::vector<Vec>{all};
  });
}

BOOST_DATA_TEST_CASE(rope_rotates_and_rotates_back, boost::unit_test::data::make(kHeadShapes), s) {
  const std::size_t m = std::size_t{s.sequences} * s.seq, width = reference_heads(s).width();
  std::vector<double> inv_freq(s.d / 2);
  for (std::size_t i = 0; i < inv_freq.size(); ++i)
    inv_freq[i] = std::pow(10000.0, -2.0 * static_cast<double>(i) / s.d);
  Vec table(std::size_t{s.seq} * s.d);
  for (std::size_t p = 0; p < s.seq; ++p)
    for (std::size_t i = 0; i < s.d / 2; ++i) {
      table[p * s.d + i] = std::cos(static_cast<double>(p) * inv_freq[i]);
      table[p * s.d + s.d / 2 + i] = std::sin(static_cast<double>(p) * inv_freq[i]);
    }
  for (double sign : {1.0, -1.0}) {
    const Vec qkv = random_vec(m * width, 1);
    Vec rotated = qkv;
    ref::rope(rotated, reference_heads(s), inv_freq, sign);
    check_op({rotated}, [&](OneOp& o) {
      set_shape(o, s);
      BufferId x = o.buffer(m, width, qkv);
      o.run(sign > 0 ? OpKind::kRope : OpKind::kRopeBwd, {x, o.buffer(s.seq, s.d, table)}, {x});
      return std::vector<Vec>{o.values(x)};
    });
  }
}

BOOST_DATA_TEST_CASE(qk_norm_and_its_gradient, boost::unit_test::data::make(kHeadShapes), s) {
  const std::size_t m = std::size_t{s.sequences} * s.seq, width = reference_heads(s).width(), d = s.d,
                    a = s.heads, k = s.kv_heads, n = (a + k) * d;
  const Vec qkv = random_vec(m * width, 1), wq = random_vec(d, 2), wk = random_vec(d, 3),
            dqkv = random_vec(m * width, 4), gq0 = random_vec(d, 5), gk0 = random_vec(d, 6);
  Vec normed = qkv, pre(m * n), rstd(m * (a + k)), grad = dqkv, gq = gq0, gk = gk0;
  for (std::size_t r = 0; r < m; ++r)
    for (std::size_t h = 0; h < a + k; ++h) {
      const Vec head(qkv.begin() + static_cast<long>(r * width + h * d),
                     qkv.begin() + static_cast<long>(r * width + (h + 1) * d));
      const Vec dy(dqkv.begin() + static_cast<long>(r * width + h * d),
                   dqkv.begin() + static_cast<long>(r * width + (h + 1) * d));
      const Vec y = ref::rms_norm(head, h < a ? wq : wk, d, 1e-6),
                dx = ref::rms_norm_bwd(dy, head, h < a ? wq : wk, d, 1e-6, h < a ? gq : gk);
      rstd[r * (a + k) + h] = ref::rstd(head.data(), d, 1e-6);
      for (std::size_t i = 0; i < d; ++i)
        normed[r * width + h * d + i] = y[i], pre[r * n + h * d + i] = head[i],
                                   grad[r * width + h * d + i] = dx[i];
    }
  check_op(
      {normed, pre, rstd},
      [&](OneOp& o) {
        set_shape(o, s);
        BufferId x = o.buffer(m, width, qkv), p = o.buffer(m, n), t = o.buffer(m, a + k);
        o.run(OpKind::kQkNorm, {x, o.buffer(1, d, wq), o.buffer(1, d, wk)}, {x, p, t});
        return std::vector<Vec>{o.values(x), o.values(p), o.values(t)};
      },
      1e-4);
  check_op(
      {grad, gq, gk},
      [&](OneOp& o) {
        set_shape(o, s);
        BufferId x = o.buffer(m, width, dqkv), q = o.buffer(1, d, gq0), g = o.buffer(1, d, gk0);
        o.run(OpKind::kQkNormBwd,
              {x, o.buffer(m, n, pre), o.buffer(m, a + k, rstd), o.buffer(1, d, wq), o.buffer(1, d, wk), q, g,
               o.buffer(16, 2 * d)},
              {x, q, g});
        return std::vector<Vec>{o.values(x), o.values(q), o.values(g)};
      },
      1e-4);
}

// ---- head

BOOST_DATA_TEST_CASE(head_loss_and_its_gradients_in_chunks,
                     kRows* boost::unit_test::data::make({2, 37, 257}) *
                         boost::unit_test::data::make({1, 33, 96}),
                     rows, vocab, hidden) {
  const std::size_t m = static_cast<std::size_t>(rows), v = static_cast<std::size_t>(vocab),
                    h = static_cast<std::size_t>(hidden);
  const Vec hf = random_vec(m * h, 1), w = random_vec(v * h, 2), before = random_vec(v * h, 3);
  const Ids targets = random_ids(m, v, 4, true);
  const double scale = 1.0 / 16;
  for (std::size_t chunk : {std::size_t{5}, m}) {
    for (bool overwrite : {false, true}) {
      Vec dlogits, grad = overwrite ? Vec(v * h) : before;
      const double loss = ref::cross_entropy(ref::linear(hf, w, {}, {}, v, h), targets, v, scale, &dlogits);
      ref::linear_dw(dlogits, hf, v, h, grad, nullptr);
      check_op({ref::linear_dx(dlogits, w, v, h), grad, {loss}}, [&](OneOp& o) {
        o.step().rows = m, o.step().targets = targets.data(), o.step().loss_scale = static_cast<float>(scale);
        BufferId x = o.buffer(m, h, hf), g = o.buffer(v, h, overwrite ? Vec{} : before), s = o.scalars();
        o.run(OpKind::kHeadLoss, {x, o.buffer(v, h, w), kNoBuffer, g, o.buffer(chunk, v), s}, {x, g, s},
              overwrite ? step::kFirstWrite : step::OpFlag{});
        return std::vector<Vec>{o.values(x), o.values(g), {o.values(s)[step::kLossSum]}};
      });
      check_op({{loss}}, [&](OneOp& o) {
        o.step().rows = m, o.step().targets = targets.data();
        BufferId s = o.scalars();
        o.run(OpKind::kHeadEval, {o.buffer(m, h, hf), o.buffer(v, h, w), kNoBuffer, o.buffer(chunk, v), s},
              {s});
        return std::vector<Vec>{{o.values(s)[step::kEvalLossSum]}};
      });
    }
  }
  const Vec row(hf.begin(), hf.begin() + static_cast<long>(h));
  check_op({ref::linear(row, w, {}, {}, v, h)}, [&](OneOp& o) {
    BufferId y = o.buffer(1, v);
    o.run(OpKind::kHeadLogits, {o.buffer(1, h, row), o.buffer(v, h, w)}, {y});
    return std::vector<Vec>{o.values(y)};
  });
}

// ---- update

BOOST_DATA_TEST_CASE(optimizers_follow_their_definitions,
                     boost::unit_test::data::make({1, 33, 20011}) * boost::unit_test::data::make({0, 1}),
                     elements, decay) {
  const std::size_t n = static_cast<std::size_t>(elements);
  const Vec g = random_vec(n, 1), w0 = random_vec(n, 2), m0 = random_vec(n, 3), clip_half = [] {
    Vec s(step::kScalarCount);
    s[step::kClipFactor] = 0.5;
    return s;
  }();
  Vec v0 = random_vec(n, 4), clipped = g;
  for (double& x : v0) x = std::abs(x);
  for (double& x : clipped) x *= 0.5;
  auto setup = [&](OneOp& o) {
    o.program.run.beta1 = 0.9, o.program.run.beta2 = 0.95, o.program.run.eps = 1e-8,
    o.program.run.weight_decay = 0.1;
    o.step().lr = 0.01, o.step().step_index = 2;
  };
  const std::uint32_t flags = decay ? step::kDecay : step::OpFlag{};

  Vec w = w0, m = m0, v = v0;
  ref::AdamW{0.01, 0.9, 0.95, 1e-8, 0.1}.step(3, clipped, decay, w, m, v);
  check_op(
      {w, m, v},
      [&](OneOp& o) {
        setup(o);
        BufferId bw = o.buffer(1, n, w0), bm = o.buffer(1, n, m0), bv = o.buffer(1, n, v0);
        o.run(OpKind::kAdamW, {o.buffer(1, n, g), bw, bm, bv, o.scalars(clip_half)}, {bw, bm, bv}, flags);
        return std::vector<Vec>{o.values(bw), o.values(bm), o.values(bv)};
      },
      1e-6);

  w = w0;
  ref::Sgd{0.01, 0, 0.1}.step(clipped, decay, w, nullptr);
  check_op(
      {w},
      [&](OneOp& o) {
        setup(o);
        BufferId bw = o.buffer(1, n, w0);
        o.run(OpKind::kSgd, {o.buffer(1, n, g), bw, o.scalars(clip_half)}, {bw}, flags);
        return std::vector<Vec>{o.values(bw)};
      },
      1e-6);

  w = w0, m = m0;
  ref::Sgd{0.01, 0.9, 0.1}.step(clipped, decay, w, &m);
  check_op(
      {w, m},
      [&](OneOp& o) {
        setup(o);
        BufferId bw = o.buffer(1, n, w0), bm = o.buffer(1, n, m0);
        o.run(OpKind::kSgdMomentum, {o.buffer(1, n, g), bw, bm, o.scalars(clip_half)}, {bw, bm}, flags);
        return std::vector<Vec>{o.values(bw), o.values(bm)};
      },
      1e-6);

  // Element 0: no gradient and no momentum, so the sign is 0.
  w = w0, m = m0;
  Vec g_lion = g;
  g_lion[0] = m[0] = 0, clipped[0] = 0;
  const Vec m_lion = m;
  ref::Lion{0.01, 0.9, 0.95, 0.1}.step(clipped, decay, w, m);
  check_op(
      {w, m},
      [&](OneOp& o) {
        setup(o);
        BufferId bw = o.buffer(1, n, w0), bm = o.buffer(1, n, m_lion);
        o.run(OpKind::kLion, {o.buffer(1, n, g_lion), bw, bm, o.scalars(clip_half)}, {bw, bm}, flags);
        return std::vector<Vec>{o.values(bw), o.values(bm)};
      },
      1e-6);

  double squares = 0.25;
  for (double x : g) squares += x * x;
  check_op(
      {{squares}},
      [&](OneOp& o) {
        Vec before(step::kScalarCount);
        before[step::kNorm2] = 0.25;
        BufferId s = o.scalars(before), bg = o.buffer(1, n, g);
        o.run(OpKind::kGradSquares, {bg, s, kNoBuffer}, {bg, s});
        return std::vector<Vec>{{o.values(s)[step::kNorm2]}};
      },
      1e-12);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
