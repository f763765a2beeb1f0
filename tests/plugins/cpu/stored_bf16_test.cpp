// Runs that store weights and activations in bf16: every operation compared with the same one on f32 buffers
// with the same values, of which it may differ by the rounding of its results, and with the same bits on 1 to
// 4 threads; then whole models: the plan equals the memory used, and master copies are what is trained,
// loaded and saved.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <functional>

#include "core/model/trainable.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/scratch_sizes.hpp"
#include "tests/support/adapters_reference.hpp"
#include "tests/support/cpu_model_fixture.hpp"
#include "tests/support/cpu_op_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using reference::Ids;
using step::kNoBuffer;
using step::OpKind;

/// The results of an operation: those that are stored in bf16, and those in f32 or f64.
struct Results {
  std::vector<Vec> rounded, exact;
};

/// Runs `body` with f32 buffers, and with bf16 buffers on every pair of kernel tables and 1 to 4 threads.
void check(const std::function<Results(OneOp&)>& body, double floor = 0.1, double tolerance = 1e-4) {
  std::size_t count = 0, bf16_count = 0;
  const cpu::Kernels* const* tables = cpu::runnable_kernels(&count);
  const cpu::Bf16Kernels* const* bf16 = cpu::runnable_bf16_kernels(&bf16_count);
  OneOp plain(*tables[count - 1], 1);
  const Results want = body(plain);
  for (std::size_t t = 0; t < bf16_count; ++t) {
    Results first;
    for (const std::uint32_t threads : {1u, 3u}) {
      OneOp one(*tables[std::min(t, count - 1)], threads, bf16[t], true);
      const Results got = body(one);
      BOOST_TEST_CONTEXT(bf16[t]->name << ", " << threads << " threads") {
        BOOST_REQUIRE(got.rounded.size() == want.rounded.size());
        for (std::size_t i = 0; i < got.rounded.size(); ++i)
          BOOST_TEST(relative_difference(got.rounded[i], want.rounded[i], floor) <= 0x1.01p-8,
                     "bf16 result " << i);
        for (std::size_t i = 0; i < got.exact.size(); ++i)
          BOOST_TEST(relative_difference(got.exact[i], want.exact[i], floor) <= tolerance,
                     "f32 result " << i);
        if (threads == 1) first = got;
        BOOST_TEST((got.rounded == first.rounded && got.exact == first.exact), "bits depend on the threads");
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE(cpu_stored_bf16)

BOOST_AUTO_TEST_CASE(rows_are_read_and_written_in_bf16) {
  const Ids ids = {3, 0, 18, 3, 7, 7, 1};
  for (const std::size_t h : {std::size_t{7}, std::size_t{48}, std::size_t{97}}) BOOST_TEST_CONTEXT(h) {
      const std::size_t m = ids.size(), v = 19;
      const Vec x = exact_in_bf16(m * h, 1), w = exact_in_bf16(h, 2), dy = exact_in_bf16(m * h, 3),
                dx = exact_in_bf16(m * h, 4), table = exact_in_bf16(v * h, 5), gw = random_vec(h, 6),
                gate = exact_in_bf16(m * 2 * h, 7), rstd = random_vec(m, 8);
      check([&](OneOp& o) {
        o.step().rows = m, o.step().tokens = ids.data();
        const BufferId to = o.real(m, h);
        o.run(OpKind::kEmbed, {o.real(v, h, table), kNoBuffer}, {to});
        return Results{{o.values(to)}, {}};
      });
      check([&](OneOp& o) {
        o.step().rows = m, o.step().tokens = ids.data(), o.step().first_micro = false;
        const BufferId grad = o.buffer(v, h, random_vec(v * h, 9));
        o.run(OpKind::kEmbedBwd, {o.real(m, h, dx), kNoBuffer, grad}, {grad});
        return Results{{}, {o.values(grad)}};
      });
      check([&](OneOp& o) {
        o.program.model.norm_eps = 1e-5, o.step().rows = m;
        const BufferId y = o.real(m, h), s = o.buffer(m, 1);
        o.run(OpKind::kRmsNorm, {o.real(m, h, x), o.real(1, h, w)}, {y, s});
        return Results{{o.values(y)}, {o.values(s)}};
      });
      for (const bool fresh : {false, true})
        check([&](OneOp& o) {
          o.step().rows = m, o.step().first_micro = false;
          const BufferId d = o.real(m, h, dx), g = o.buffer(1, h, gw);
          o.run(OpKind::kRmsNormBwd,
                {o.real(m, h, dy), o.real(m, h, x), o.buffer(m, 1, rstd), o.real(1, h, w),
                 fresh ? kNoBuffer : d, g, o.buffer(16, h)},
                {d, g}, fresh ? step::kFreshDx : step::OpFlag{});
          return Results{{o.values(d)}, {o.values(g)}};
        });
      check([&](OneOp& o) {
        o.step().rows = m;
        const BufferId a = o.real(m, h);
        o.run(OpKind::kSwiGlu, {o.real(m, 2 * h, gate)}, {a});
        return Results{{o.values(a)}, {}};
      });
      check([&](OneOp& o) {
        o.step().rows = m;
        const BufferId g = o.real(m, 2 * h, gate);
        o.run(OpKind::kSwiGluBwd, {o.real(m, h, dy), g}, {g});
        return Results{{o.values(g)}, {}};
      });
    }
}

// More inner elements than one block, so that sums are kept between blocks.
BOOST_DATA_TEST_CASE(products_have_bf16_results,
                     boost::unit_test::data::make({1, 33, 100}) * boost::unit_test::data::make({45, 260}) *
                         boost::unit_test::data::make({39, 1100}),
                     rows, outputs, inputs) {
  const auto m = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(outputs),
             k = static_cast<std::size_t>(inputs);
  const Vec x = exact_in_bf16(m * k, 1), w = exact_in_bf16(n * k, 2), bias = exact_in_bf16(n, 3),
            residual = exact_in_bf16(m * n, 4), dy = exact_in_bf16(m * n, 5), gw = random_vec(n * k, 6),
            gb = random_vec(n, 7);
  const auto sizes = [&](OneOp& o) {
    o.program.model.vocab = o.program.model.hidden = 1200, o.program.run.seq_len = 128;
    o.step().rows = m, o.step().first_micro = false;
  };
  for (int options = 0; options < 4; ++options)
    check([&](OneOp& o) {
      sizes(o);
      const BufferId y = o.real(m, n);
      o.run(OpKind::kLinear,
            {o.real(m, k, x), o.real(n, k, w), options & 1 ? o.real(1, n, bias) : kNoBuffer,
             options & 2 ? o.real(m, n, residual) : kNoBuffer},
            {y});
      return Results{{o.values(y)}, {}};
    });
  check([&](OneOp& o) {
    sizes(o);
    const BufferId dx = o.real(m, k);
    o.run(OpKind::kLinearDx, {o.real(m, n, dy), o.real(n, k, w)}, {dx});
    return Results{{o.values(dx)}, {}};
  });
  check([&](OneOp& o) {
    sizes(o);
    const BufferId g = o.buffer(n, k, gw), b = o.buffer(1, n, gb);
    o.run(OpKind::kLinearDw, {o.real(m, n, dy), o.real(m, k, x), g, b, kNoBuffer}, {g, b});
    return Results{{}, {o.values(g), o.values(b)}};
  });
}

/// Two sequences with a window or documents, four query heads that share two key/value heads. 400 tokens of D
/// = 128 have no compact copies of all queries.
BOOST_DATA_TEST_CASE(heads_are_read_and_written_in_bf16,
                     boost::unit_test::data::make({8, 20, 128}) * boost::unit_test::data::make({1, 37, 400}),
                     head_dim, length) {
  const auto d = static_cast<std::size_t>(head_dim), s = static_cast<std::size_t>(length);
  const std::size_t heads = 4, kv = 2, width = (heads + 2 * kv) * d, normed = (heads + kv) * d, m = 2 * s;
  const Vec qkv = exact_in_bf16(m * width, 1), d_o = exact_in_bf16(m * heads * d, 2),
            pre = exact_in_bf16(m * normed, 3), rstd = random_vec(m * (heads + kv), 4),
            table = random_vec(s * d, 5), w = exact_in_bf16(d, 6);
  std::vector<std::int32_t> starts(m);
  for (std::size_t i = 0; i < m; ++i) starts[i] = static_cast<std::int32_t>(i % s / 11 * 11);
  const auto model = [&](OneOp& o) {
    ModelSpec& spec = o.program.model;
    spec.heads = heads, spec.kv_heads = kv, spec.head_dim = static_cast<std::uint32_t>(d),
    spec.norm_eps = 1e-5;
    TrainerTraits& p = o.program.traits;
    o.program.run.seq_len = static_cast<std::uint32_t>(s), o.step().rows = m;
    p.attention_tile_q = std::min<std::uint32_t>(32, o.program.run.seq_len);
    p.attention_tile_k = std::min<std::uint32_t>(128, o.program.run.seq_len), p.slots = 16;
    o.step().starts = s == 37 ? starts.data() : nullptr;
    return o.buffer(p.threads, step::attention_scratch_floats(p, spec.head_dim));
  };
  Vec o_values, lse;  // of the forward pass, for the backward pass
  check([&](OneOp& o) {
    const BufferId scratch = model(o), out = o.real(m, heads * d), l = o.buffer(m, heads);
    o.run(OpKind::kAttention, {o.real(m, width, qkv), scratch, kNoBuffer}, {out, l});
    if (!o.context().stores_bf16()) o_values = o.values(out), lse = o.values(l);
    return Results{{o.values(out)}, {o.values(l)}};
  });
  for (double& x : o_values) x = f32_from_bf16(bf16_from_f32(static_cast<float>(x)));
  check(
      [&](OneOp& o) {
        const BufferId scratch = model(o), dqkv = o.real(m, width);
        o.run(OpKind::kAttentionBwd,
              {o.real(m, heads * d, d_o), o.real(m, heads * d, o_values), o.buffer(m, heads, lse),
               o.real(m, width, qkv), scratch, kNoBuffer},
              {dqkv});
        return Results{{o.values(dqkv)}, {}};
      },
      0.2);
  check([&](OneOp& o) {
    model(o);
    const BufferId x = o.real(m, width, qkv);
    o.run(OpKind::kRope, {x, o.buffer(s, d, table)}, {x});
    return Results{{o.values(x)}, {}};
  });
  check([&](OneOp& o) {
    model(o);
    const BufferId x = o.real(m, width, qkv), kept = o.real(m, normed), scale = o.buffer(m, heads + kv);
    o.run(OpKind::kQkNorm, {x, o.real(1, d, w), o.real(1, d, w)}, {x, kept, scale});
    return Results{{o.values(x), o.values(kept)}, {o.values(scale)}};
  });
  check([&](OneOp& o) {
    model(o);
    o.step().first_micro = true;
    const BufferId x = o.real(m, width, qkv), gq = o.buffer(1, d), gk = o.buffer(1, d);
    o.run(OpKind::kQkNormBwd,
          {x, o.real(m, normed, pre), o.buffer(m, heads + kv, rstd), o.real(1, d, w), o.real(1, d, w), gq, gk,
           o.buffer(16, 2 * d)},
          {x, gq, gk}, step::kFirstWrite);
    return Results{{o.values(x)}, {o.values(gq), o.values(gk)}};
  });
  check([&](OneOp& o) {
    model(o);
    const std::size_t p = s - 1;
    o.step().rows = 1, o.step().position = static_cast<std::uint32_t>(p);
    const BufferId keys = o.real(s, kv * d, exact_in_bf16(s * kv * d, 7)), out = o.real(1, heads * d),
                   values = o.real(s, kv * d, exact_in_bf16(s * kv * d, 8));
    o.run(OpKind::kAttentionStep,
          {o.real(1, width, Vec(qkv.begin(), qkv.begin() + static_cast<long>(width))), keys, values,
           o.buffer(heads, s)},
          {out, keys, values});
    return Results{{o.values(out), o.values(keys), o.values(values)}, {}};
  });
}

BOOST_AUTO_TEST_CASE(the_head_has_bf16_logits) {
  const std::size_t m = 37, h = 24, v = 131, chunk = 16;
  const Vec hf = exact_in_bf16(m * h, 1), w = exact_in_bf16(v * h, 2), gw = random_vec(v * h, 3, 0.01);
  Ids targets(m);
  for (std::size_t i = 0; i < m; ++i) targets[i] = i % 5 ? static_cast<std::int32_t>(i * 3 % v) : -100;
  for (const OpKind kind : {OpKind::kHeadLoss, OpKind::kHeadEval}) {
    // Logits of about 1 with an error of 2^-9 each, so losses and gradients have errors of that size.
    std::vector<Results> results;
    const auto run = [&](OneOp& o) {
      o.step().rows = m, o.step().targets = targets.data(), o.step().loss_scale = 1.0f / 29;
      o.step().first_micro = false;
      const BufferId x = o.real(m, h, hf), g = o.buffer(v, h, gw), s = o.scalars(), l = o.real(chunk, v);
      if (kind == OpKind::kHeadLoss)
        o.run(kind, {x, o.real(v, h, w), kNoBuffer, g, l, s, kNoBuffer}, {x, g, s});
      else
        o.run(kind, {x, o.real(v, h, w), kNoBuffer, l, s, kNoBuffer}, {s});
      return std::vector<Vec>{o.values(s), o.values(x), o.values(g)};
    };
    std::size_t count = 0, bf16_count = 0;
    const cpu::Kernels* const* tables = cpu::runnable_kernels(&count);
    const cpu::Bf16Kernels* const* bf16 = cpu::runnable_bf16_kernels(&bf16_count);
    OneOp plain(*tables[count - 1], 1);
    const std::vector<Vec> want = run(plain);
    for (std::size_t t = 0; t < bf16_count; ++t) BOOST_TEST_CONTEXT(bf16[t]->name) {
        OneOp one(*tables[std::min(t, count - 1)], 2, bf16[t], true),
            three(*tables[std::min(t, count - 1)], 3, bf16[t], true);
        const std::vector<Vec> got = run(one);
        BOOST_TEST(relative_difference(got[0], want[0], 1.0) <= 1e-3);
        BOOST_TEST(relative_difference(got[1], want[1], 0.02) <= 0.02);
        BOOST_TEST(relative_difference(got[2], want[2], 0.02) <= 0.02);
        BOOST_TEST((got == run(three)));
      }
  }
  check([&](OneOp& o) {
    o.step().rows = 1;
    const BufferId l = o.real(1, v);
    o.run(OpKind::kHeadLogits,
          {o.real(1, h, Vec(hf.begin(), hf.begin() + static_cast<long>(h))), o.real(v, h, w)}, {l});
    return Results{{o.values(l)}, {}};
  });
}

BOOST_AUTO_TEST_CASE(dropout_reads_and_writes_bf16) {
  for (const std::size_t k : {std::size_t{7}, std::size_t{1029}}) {  // more than a chunk
    const std::size_t m = 5;
    const Vec x = exact_in_bf16(m * k, 1), dx = exact_in_bf16(m * k, 2);
    const auto prepare = [&](OneOp& o) {
      o.step().rows = m, o.program.run.seed = 11, o.program.run.memory.lora_dropout = 0.25;
    };
    check([&](OneOp& o) {
      prepare(o);
      const BufferId y = o.real(m, k);
      o.program.buffers[y].role = step::role::kDropped[1];
      o.run(OpKind::kDropout, {o.real(m, k, x), kNoBuffer}, {y});
      return Results{{o.values(y)}, {}};
    });
    check([&](OneOp& o) {
      prepare(o);
      const BufferId dy = o.real(m, k, x), to = o.real(m, k, dx);
      o.program.buffers[dy].role = step::role::kDDropped[1];
      o.run(OpKind::kDropoutAdd, {dy, to, kNoBuffer}, {to});
      return Results{{o.values(to)}, {}};
    });
  }
}

// The loops of every instruction set on bf16 beside those on f32 with the same values. Columns of whole and
// of incomplete vectors.
BOOST_AUTO_TEST_CASE(dora_reads_and_writes_bf16) {
  std::size_t count = 0;
  const cpu::Kernels* const* tables = cpu::runnable_kernels(&count);
  const auto floats = [](const Vec& v) { return std::vector<float>(v.begin(), v.end()); };
  const auto rounded = [](const std::vector<float>& v) {
    std::vector<cpu::Bf16> out;
    for (const float x : v) out.push_back(bf16_from_f32(x));
    return out;
  };
  const auto same = [](const std::vector<cpu::Bf16>& got, const std::vector<float>& want) {
    for (std::size_t i = 0; i < want.size(); ++i)
      BOOST_TEST(std::abs(f32_from_bf16(got[i]) - want[i]) <= 0x1.01p-8 * std::max(0.1f, std::abs(want[i])));
  };
  for (std::size_t t = 0; t < count; ++t)
    for (const std::size_t n : {std::size_t{3}, std::size_t{16}, std::size_t{101}, std::size_t{300}})
      BOOST_TEST_CONTEXT(tables[t]->name << ", " << n << " columns") {
        const cpu::Kernels& kernels = *tables[t];
        const std::size_t m = 4, rank = 3;
        const std::vector<float> x = floats(exact_in_bf16(m * n, 1)), dy = floats(exact_in_bf16(m * n, 2)),
                                 a = floats(exact_in_bf16(rank * n, 3)),
                                 b = floats(exact_in_bf16(m * rank, 4)), bias = floats(exact_in_bf16(n, 5)),
                                 factor = floats(random_vec(n, 6));
        const std::vector<cpu::Bf16> x16 = rounded(x), dy16 = rounded(dy), bias16 = rounded(bias);
        std::vector<double> squares(m), squares16(m);
        kernels.adapted_squares(m, n, rank, x.data(), a.data(), b.data(), 0.5f, squares.data());
        kernels.bf16.adapted_squares(m, n, rank, x16.data(), rounded(a).data(), rounded(b).data(), 0.5f,
                                     squares16.data());
        BOOST_TEST((squares == squares16));
        if (n <= 64) {
          // The columns of a table [m, n]: sums of squares of w + 0.5 * f a with f [m, rank].
          std::vector<double> of_columns(n), of_columns16(n);
          kernels.adapted_column_squares(m, n, rank, n, x.data(), b.data(), a.data(), 0.5f,
                                         of_columns.data());
          kernels.bf16.adapted_column_squares(m, n, rank, n, x16.data(), rounded(b).data(), rounded(a).data(),
                                              0.5f, of_columns16.data());
          BOOST_TEST((of_columns == of_columns16));
          double all = 0, of_rows = 0;
          for (const double s : of_columns) all += s;
          for (const double s : squares) of_rows += s;
          BOOST_TEST(std::abs(all - of_rows) <= 1e-6 * of_rows);
        }
        for (const bool more : {false, true}) {
          std::vector<float> y = dy, back = x, product(m * n), sums(n, 0.5f), sums16 = sums;
          std::vector<cpu::Bf16> y16 = dy16, back16 = x16, product16(m * n);
          kernels.dora(m, n, x.data(), factor.data(), more ? 1.0f : 0.0f, more ? nullptr : bias.data(),
                       more ? y.data() : nullptr, y.data());
          kernels.bf16.dora(m, n, x16.data(), factor.data(), more ? 1.0f : 0.0f,
                            more ? nullptr : bias16.data(), more ? y16.data() : nullptr, y16.data());
          same(y16, y);
          kernels.dora_bwd(m, n, n, dy.data(), back.data(), factor.data(), more ? product.data() : nullptr,
                           sums.data());
          kernels.bf16.dora_bwd(m, n, n, dy16.data(), back16.data(), factor.data(),
                                more ? product16.data() : nullptr, sums16.data());
          same(back16, back), same(product16, product);
          BOOST_TEST((sums == sums16));
        }
      }
}

/// A model with every option, trained in bf16.
struct Trained {
  ModelSpec model;
  RunSpec run;
  Trained() {
    model = small_model("qwen3", 61, 40, 3, 4, 2, 12, 52);
    model.qk_norm = true, model.qkv_bias = model.o_bias = model.mlp_bias = true;
    run.seq_len = 19, run.micro_batch = 2, run.accumulate = 2;
    run.compute = run.weight = DType::kBF16, run.master = DType::kF32;
  }
};

// The same weights: losses and gradients differ by roundings of activations. Buffers that are allocated one
// by one, so no buffer is used outside its lifetime or its bounds, and the maximum of live bytes is that of
// the plan.
BOOST_AUTO_TEST_CASE(a_model_in_bf16_follows_the_one_in_f32_in_the_planned_memory) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
    for (const Optimizer optimizer : {Optimizer::kAdamW, Optimizer::kLion, Optimizer::kAdafactor,
                                      Optimizer::kMuon, Optimizer::kAdamW8bit, Optimizer::kSgd})
      BOOST_TEST_CONTEXT(name(recompute) << ", " << name(optimizer)) {
        Trained t;
        t.run.recompute = recompute, t.run.optimizer = optimizer;
        RunSpec f32 = t.run;
        f32.compute = f32.weight = DType::kF32, f32.master = DType::kNone;
        const std::size_t n = t.run.tokens_per_step();
        const Ids ids = random_tokens(n, t.model.vocab, 1), targets = random_tokens(n, t.model.vocab, 2);
        const reference::Weights w = random_weights(t.model, 3);
        const cpu::Kernels& kernels = cpu::select_kernels();
        CpuModelFixture plain(t.model, f32, kernels, 2), bf16(t.model, t.run, kernels, 2, true),
            other(t.model, t.run, kernels, 3);
        BOOST_TEST(!bf16.program.traits.f32_storage);
        for (CpuModelFixture* f : {&plain, &bf16, &other}) f->load(w);
        for (std::uint64_t step = 0; step < 3; ++step) {
          const double want = plain.update(ids, targets, 1e-3, step).loss,
                       got = bf16.update(ids, targets, 1e-3, step).loss;
          BOOST_TEST(std::abs(got - want) <= 0.02 * want);
          BOOST_TEST(other.update(ids, targets, 1e-3, step).loss == got, "bits depend on threads or storage");
        }
        BOOST_TEST((bf16.read() == other.read()));
        const std::vector<float> logits = bf16.next(ids[0], 0), want = plain.next(ids[0], 0);
        for (std::size_t i = 0; i < logits.size(); ++i) BOOST_TEST(std::abs(logits[i] - want[i]) <= 0.1);
        BOOST_TEST(static_cast<SeparateStorage&>(*bf16.storage).peak() ==
                   placement::place(bf16.program).peak_tensor_bytes);
        // The weight is the rounded master copy.
        for (const step::Param& p : bf16.program.params) {
          const auto* master = static_cast<const float*>(bf16.storage->at(p.master));
          const auto* weight = static_cast<const std::uint16_t*>(bf16.storage->at(p.weight));
          const std::uint64_t elements = bf16.program[p.weight].rows * bf16.program[p.weight].cols;
          for (std::uint64_t i = 0; i < elements; ++i) BOOST_REQUIRE(weight[i] == bf16_from_f32(master[i]));
        }
      }
}

/// Distances of gradients from those in f32, relative to their norm: of all together, and the largest of one
/// tensor.
struct Distances {
  double all = 1e9, worst = 1e9;
  Distances(const reference::Weights& got, const reference::Weights& want) {
    if (got.size() != want.size()) return;
    double off = 0, norm = 0;
    worst = 0;
    for (const auto& [name, g] : want) {
      double off_here = 0, norm_here = 0;
      for (std::size_t i = 0; i < g.size(); ++i)
        off_here += std::pow(got.at(name)[i] - g[i], 2.0), norm_here += g[i] * g[i];
      worst = std::max(worst, std::sqrt(off_here / norm_here));
      off += off_here, norm += norm_here;
    }
    all = std::sqrt(off / norm);
  }
};

// Adapters of any kind, frozen weights that are exact in bf16 or quantized, and modules that are trained
// beside them.
BOOST_DATA_TEST_CASE(adapters_in_bf16_follow_those_in_f32_in_the_planned_memory,
                     boost::unit_test::data::make(small_models()) *
                         boost::unit_test::data::make({"LoRA", "DoRA", "LoRA outside layers",
                                                       "DoRA outside layers"}),
                     z, kind_of_adapter) {
  const std::string kind = kind_of_adapter;
  const bool dora = kind.starts_with("DoRA"), outside = kind.ends_with("outside layers");
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_tokens(n, z.spec.vocab, 2);
  const auto rounded = [](reference::Weights w) {
    for (auto& [name, values] : w)
      for (double& v : values) v = f32_from_bf16(bf16_from_f32(static_cast<float>(v)));
    return w;
  };
  std::uint32_t variant = 0;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
    for (const bool quantized : {false, true}) {
      const std::vector<std::uint32_t> sets = sets_outside_layers(z.spec);
      const std::uint32_t mask = outside ? sets[(sets.size() - 1 - variant) % sets.size()]
                                         : kAdapterTargets[variant % std::size(kAdapterTargets)];
      RunSpec r = lora_run(z, 2, 2, mask, 1 + 3 * (variant % 2));
      if (variant == 1 && !outside) set_different_adapters(z.spec, r);
      if (variant == 2 && !outside)
        r.trainable = rules_of_modules(std::vector<std::string>{"norm", "down_proj"});
      r.recompute = recompute, r.memory.dora = dora, r.memory.lora_dropout = variant % 3 ? 0.25 : 0.0;
      if (quantized && r.trainable.empty()) r.mode = RunMode::kQlora;
      RunSpec bf16 = r;
      bf16.compute = bf16.weight = DType::kBF16, bf16.master = DType::kF32;
      const cpu::Kernels& kernels = cpu::select_kernels();
      CpuModelFixture plain(z.spec, r, kernels, 2), stored(z.spec, bf16, kernels, 2, true),
          other(z.spec, bf16, kernels, 3);
      BOOST_TEST(!stored.program.traits.f32_storage);
      const reference::Weights w =
          united(rounded(random_weights(z.spec, 3)), rounded(random_adapters(z.spec, r, 4)));
      for (CpuModelFixture* f : {&plain, &stored, &other}) f->load(w);
      BOOST_TEST_CONTEXT(name(recompute) << (quantized ? ", quantized" : "") << ", variant " << variant) {
        const double want = plain.update(ids, targets, 0.0, 0).loss,
                     got = stored.update(ids, targets, 0.0, 0).loss;
        BOOST_TEST(std::abs(got - want) <= 0.01 * want);
        BOOST_TEST(other.update(ids, targets, 0.0, 0).loss == got);
        const Distances off(other.read(&step::Param::grad), plain.read(&step::Param::grad));
        BOOST_TEST(off.all <= 0.15, "gradients are " << off.all << " off");
        BOOST_TEST(off.worst <= 0.3, "gradients of one tensor are " << off.worst << " off");
        for (std::uint64_t step = 1; step < 3; ++step)
          BOOST_TEST(
              stored.update(ids, targets, 1e-2, step).loss == other.update(ids, targets, 1e-2, step).loss,
              "bits depend on threads or storage");
        BOOST_TEST((stored.read() == other.read()));
        const std::vector<float> logits = stored.next(ids[0], 0);
        BOOST_TEST(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
        BOOST_TEST(static_cast<SeparateStorage&>(*stored.storage).peak() ==
                   placement::place(stored.program).peak_tensor_bytes);
      }
      ++variant;
    }
}

// Which runs store bf16; the others keep f32 and round the operands of products.
BOOST_AUTO_TEST_CASE(runs_that_train_store_bf16) {
  Trained t;
  const auto bytes = [&] {
    std::uint64_t sum = 0;
    const step::Program p = step::build_program(t.model, t.run, cpu::traits_of(t.model, t.run, 2));
    for (const step::Buffer& b : p.buffers)
      if (b.component == Component::kActivations && b.role == std::string_view("gate_up")) sum += b.bytes();
    return sum;
  };
  const std::uint64_t stored = bytes();
  t.run.parallel.data = 2, t.run.parallel.data_rank = 1, t.run.parallel.zero = 3;
  BOOST_TEST(bytes() == stored);
  t.run.parallel = {};
  t.run.mode = RunMode::kLora, t.run.lora_rank = 4, t.run.lora_alpha = 4, t.run.lora_targets = TH_LORA_Q;
  BOOST_TEST(bytes() == stored);
  t.run = Trained().run;
  t.model.vocab = 62;
  t.run.parallel.tensor = 2, t.run.parallel.tensor_rank = t.run.parallel.data_rank = 1;
  BOOST_TEST(2 * bytes() == stored);  // half of the columns
  t.run = Trained().run;
  t.run.compute = t.run.weight = DType::kF32, t.run.master = DType::kNone;
  BOOST_TEST(bytes() == 2 * stored);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
