// See check_cases.hpp. The contents of operands depend on the order in which they are created; it is the same
// for reference and kernel. Each body creates its operands, calls mem.seal(), after which the memory is
// guarded, and calls one kernel. Bodies run twice: with the reference kernels and with those under test.
#include "core/executor/check_cases.hpp"

#include <algorithm>
#include <cmath>

#include "core/step/scratch_sizes.hpp"

namespace trainhost::executor {
namespace {

using Size = std::uint64_t;
using Body = std::function<void(const AnyKernels&, CheckMemory&, const CheckCase&, const TrainerTraits&)>;

// Sizes at which vectorised loops go wrong: 1, odd numbers, one more than a multiple of 32, and several
// blocks.
constexpr Size kRows[] = {1, 7, 33, 131};
constexpr Size kCols[] = {1, 7, 33, 97, 128};

std::string text(Size n) { return std::to_string(n); }

/// The list of cases under construction. The model of a case only has to be valid and large enough for the
/// traits of the trainer; kernels get their dimensions from the body.
class Cases {
 public:
  std::vector<CheckCase> all;

  /// Adds a case with `rows` rows; the model's hidden, intermediate and vocabulary sizes are max(a, b).
  void add(const char* kernel, const std::string& shape, Size rows, Size a, Size b, Body body) {
    CheckCase c;
    c.kernel = kernel, c.shape = shape;
    ModelSpec& m = c.model;
    m.vocab = std::max(a, b), m.hidden = static_cast<std::uint32_t>(std::max(a, b)), m.layers = 1;
    m.heads = m.kv_heads = 1, m.head_dim = 2, m.intermediate = m.hidden;
    c.run.seq_len = static_cast<std::uint32_t>(rows);
    c.body = std::move(body);
    all.push_back(std::move(c));
  }
};

/// One case per size of kRows x kCols.
void over_rows(const char* kernel, Cases& cases, const std::function<Body(Size, Size)>& body) {
  for (Size rows : kRows)
    for (Size cols : kCols)
      cases.add(kernel, text(rows) + " x " + text(cols), rows, cols, cols, body(rows, cols));
}

/// Ids repeat, since 19 rows of the table serve up to 131 tokens: embed_bwd must add, not assign.
void embeddings(Cases& cases) {
  constexpr Size kVocab = 19;
  over_rows("embed", cases, [](Size m, Size h) -> Body {
    return [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
      const Embed a{m, kVocab, h, mem.in(kVocab * h), mem.ids(m, kVocab), mem.out(m * h)};
      mem.seal();
      k.embed(a);
    };
  });
  for (bool overwrite : {false, true})
    over_rows("embed_bwd", cases, [=](Size m, Size h) -> Body {
      return [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
        const EmbedBwd a{m, kVocab, h, mem.in(m * h), mem.ids(m, kVocab), mem.inout(kVocab * h), overwrite};
        mem.seal();
        k.embed_bwd(a);
      };
    });
}

/// 1/rms as the forward pass would store it, with an epsilon that is large enough to matter.
std::vector<float> inverse_rms(const std::vector<float>& x, Size n, double eps) {
  std::vector<float> out;
  for (Size at = 0; at < x.size(); at += n) {
    double s = 0;
    for (Size j = 0; j < n; ++j) s += static_cast<double>(x[at + j]) * x[at + j];
    out.push_back(static_cast<float>(1.0 / std::sqrt(s / static_cast<double>(n) + eps)));
  }
  return out;
}

/// `how`: bit 0 adds to dx, bit 1 overwrites the weight's gradient.
void norms(Cases& cases) {
  over_rows("rms_norm", cases, [](Size m, Size h) -> Body {
    return [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
      const RmsNorm a{m, h, mem.in(m * h), mem.in(h), 1e-5f, mem.out(m * h), mem.out(m)};
      mem.seal();
      k.rms_norm(a);
    };
  });
  for (int how = 0; how < 4; ++how)
    over_rows("rms_norm_bwd", cases, [=](Size m, Size h) -> Body {
      return [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits& p) {
        const bool add = how & 1, overwrite = how & 2;
        const float *dy = mem.in(m * h), *x = mem.in(m * h);
        const float* rstd = mem.in(inverse_rms({x, x + m * h}, h, 1e-2));
        const float* w = mem.in(h);
        float* dx = add ? mem.inout(m * h) : mem.out(m * h);
        const RmsNormBwd a{
            m, h, dy, x, rstd, w, dx, add, mem.inout(h), overwrite, mem.scratch(p.slots * h), p.slots};
        mem.seal();
        k.rms_norm_bwd(a);
      };
    });
}

/// All combinations of bias, residual and overwriting, over odd and even inner sizes.
void products(Cases& cases) {
  for (Size m : kRows)
    for (Size n : kCols)
      for (Size i : {Size{1}, Size{16}, Size{53}})
        for (int how = 0; how < 4; ++how) {
          const bool bias = how & 1, other = how & 2;
          const std::string shape = text(m) + " rows, " + text(n) + " x " + text(i) + (bias ? ", bias" : "");
          cases.add("linear", shape + (other ? ", residual" : ""), m, n, i,
                    [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
                      const Linear a{m,
                                     n,
                                     i,
                                     mem.in(m * i),
                                     mem.in(n * i),
                                     bias ? mem.in(n) : nullptr,
                                     other ? mem.in(m * n) : nullptr,
                                     mem.out(m * n)};
                      mem.seal();
                      k.linear(a);
                    });
        }
  for (Size m : kRows)
    for (Size n : kCols)
      for (Size i : {Size{1}, Size{16}, Size{53}})
        cases.add("linear_dx", text(m) + " rows, " + text(n) + " x " + text(i), m, n, i,
                  [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
                    const LinearDx a{m, n, i, mem.in(m * n), mem.in(n * i), mem.out(m * i)};
                    mem.seal();
                    k.linear_dx(a);
                  });
  for (Size m : kRows)
    for (Size n : kCols)
      for (Size i : {Size{1}, Size{16}, Size{53}})
        for (int how = 0; how < 4; ++how) {
          const bool bias = how & 1, overwrite = how & 2;
          const std::string shape = text(m) + " rows, " + text(n) + " x " + text(i) + (bias ? ", bias" : "");
          cases.add("linear_dw", shape + (overwrite ? ", overwriting" : ""), m, n, i,
                    [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
                      const float *dy = mem.in(m * n), *x = mem.in(m * i);
                      float *gw = overwrite ? mem.out(n * i) : mem.inout(n * i),
                            *gb = bias ? (overwrite ? mem.out(n) : mem.inout(n)) : nullptr;
                      mem.seal();
                      k.linear_dw({m, n, i, dy, x, gw, gb, overwrite});
                    });
        }
}

/// Shapes of attention: grouped heads, head dimensions that are no power of two, windows of one key, windows
/// longer than the sequence, and sequences longer than a tile.
struct HeadShape {
  Size sequences, seq, heads, kv_heads, d, window;
};
constexpr HeadShape kHeads[] = {
    {1, 1, 1, 1, 2, 0},    {2, 7, 2, 1, 6, 0},    {1, 33, 3, 3, 10, 0},  {3, 37, 6, 2, 34, 0},
    {1, 33, 4, 2, 16, 1},  {2, 41, 2, 2, 32, 5},  {1, 61, 6, 3, 22, 17}, {1, 64, 2, 1, 64, 0},
    {1, 50, 2, 1, 8, 100}, {1, 131, 2, 2, 32, 0},
};

/// Adds one case per shape in kHeads; the run of a case has its sequences as micro-batch.
void heads(const char* kernel, Cases& cases,
           const std::function<void(const HeadShape&, const AnyKernels&, CheckMemory&, const CheckCase&,
                                    const TrainerTraits&)>& body) {
  for (const HeadShape& s : kHeads) {
    const std::string shape = text(s.sequences) + " x " + text(s.seq) + " tokens, " + text(s.heads) +
                              " heads over " + text(s.kv_heads) + " of " + text(s.d) +
                              (s.window ? ", window " + text(s.window) : "");
    cases.add(kernel, shape, s.seq, s.heads * s.d, s.d,
              [=](const AnyKernels& k, CheckMemory& mem, const CheckCase& c, const TrainerTraits& p) {
                body(s, k, mem, c, p);
              });
    ModelSpec& m = cases.all.back().model;
    m.heads = static_cast<std::uint32_t>(s.heads), m.kv_heads = static_cast<std::uint32_t>(s.kv_heads);
    m.head_dim = static_cast<std::uint32_t>(s.d), m.sliding_window = static_cast<std::uint32_t>(s.window),
    m.qk_norm = true;
    cases.all.back().run.micro_batch = static_cast<std::uint32_t>(s.sequences);
  }
}

Heads of(const HeadShape& s) { return {s.heads, s.kv_heads, s.d}; }
Size tokens(const HeadShape& s) { return s.sequences * s.seq; }

/// In place on qkv: v must come out unchanged, which the comparison of the whole buffer shows.
void head_norms(Cases& cases) {
  heads(
      "qk_norm", cases,
      [](const HeadShape& s, const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
        const Heads h = of(s);
        const Size m = tokens(s), n = h.turned();
        const QkNorm a{m,
                       h,
                       mem.in(s.d),
                       mem.in(s.d),
                       1e-5f,
                       mem.inout(m * h.width()),
                       mem.out(m * n * s.d),
                       mem.out(m * n)};
        mem.seal();
        k.qk_norm(a);
      });
  for (bool overwrite : {false, true})
    heads("qk_norm_bwd", cases,
          [=](const HeadShape& s, const AnyKernels& k, CheckMemory& mem, const CheckCase&,
              const TrainerTraits& p) {
            const Heads h = of(s);
            const Size m = tokens(s), n = h.turned();
            const float* pre = mem.in(m * n * s.d);
            const float* rstd = mem.in(inverse_rms({pre, pre + m * n * s.d}, s.d, 1e-2));
            const QkNormBwd a{m,
                              h,
                              pre,
                              rstd,
                              mem.in(s.d),
                              mem.in(s.d),
                              mem.inout(m * h.width()),
                              mem.inout(s.d),
                              mem.inout(s.d),
                              overwrite,
                              mem.scratch(p.slots * 2 * s.d),
                              p.slots};
            mem.seal();
            k.qk_norm_bwd(a);
          });
}

/// cos and sin of pos * 10000^(-2i/d): [seq, d], cos in the first half of each row.
std::vector<float> angles(Size seq, Size d) {
  std::vector<float> table(seq * d);
  for (Size pos = 0; pos < seq; ++pos)
    for (Size i = 0; i < d / 2; ++i) {
      const double angle = static_cast<double>(pos) *
                           std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d));
      table[pos * d + i] = static_cast<float>(std::cos(angle)),
                      table[pos * d + d / 2 + i] = static_cast<float>(std::sin(angle));
    }
  return table;
}

/// Both signs over whole sequences, then one token at the last position, as in generation.
void positions(Cases& cases) {
  for (float sign : {1.0f, -1.0f})
    heads("rope", cases,
          [=](const HeadShape& s, const AnyKernels& k, CheckMemory& mem, const CheckCase&,
              const TrainerTraits&) {
            const Rope a{tokens(s),
                         s.seq,
                         0,
                         of(s),
                         mem.in(angles(s.seq, s.d)),
                         sign,
                         mem.inout(tokens(s) * of(s).width())};
            mem.seal();
            k.rope(a);
          });
  heads(
      "rope", cases,
      [](const HeadShape& s, const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
        const Rope a{1, s.seq, s.seq - 1, of(s), mem.in(angles(s.seq, s.d)), 1.0f, mem.inout(of(s).width())};
        mem.seal();
        k.rope(a);
      });
}

/// Inputs have scale 2, so that the softmax is neither flat nor a single key. The backward pass
/// gets o and lse of the reference, so its error does not include that of the forward pass.
void attentions(Cases& cases) {
  heads("attention", cases,
        [](const HeadShape& s, const AnyKernels& k, CheckMemory& mem, const CheckCase&,
           const TrainerTraits& p) {
          const Size m = tokens(s), floats = step::attention_scratch_floats(p, s.d);
          const Attention a{s.sequences,
                            s.seq,
                            of(s),
                            s.window,
                            mem.in(m * of(s).width(), 2.0),
                            mem.out(m * s.heads * s.d),
                            mem.out(m * s.heads),
                            mem.scratch(p.threads * floats),
                            p.threads,
                            floats};
          mem.seal();
          k.attention(a);
        });
  heads("attention_bwd", cases,
        [](const HeadShape& s, const AnyKernels& k, CheckMemory& mem, const CheckCase&,
           const TrainerTraits& p) {
          const Size m = tokens(s), floats = step::attention_scratch_floats(p, s.d);
          const float *d_o = mem.in(m * s.heads * s.d), *qkv = mem.in(m * of(s).width(), 2.0);
          std::vector<float> o(m * s.heads * s.d), lse(m * s.heads), unused(p.threads * floats);
          ReferenceKernels().attention({s.sequences, s.seq, of(s), s.window, qkv, o.data(), lse.data(),
                                        unused.data(), p.threads, floats});
          const AttentionBwd a{s.sequences,
                               s.seq,
                               of(s),
                               s.window,
                               d_o,
                               mem.in(o),
                               mem.in(lse),
                               qkv,
                               mem.out(m * of(s).width()),
                               mem.scratch(p.threads * floats),
                               p.threads,
                               floats};
          mem.seal();
          k.attention_bwd(a);
        });
  // One token after the other: the last one attends to all keys in the caches. A kernel that writes a cache
  // at the wrong position is found by a later token.
  heads(
      "attention_step", cases,
      [](const HeadShape& s, const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
        const Size kv = s.kv_heads * s.d;
        const float* qkv = mem.in(s.seq * of(s).width(), 2.0);
        float *cache_k = mem.out(s.seq * kv), *cache_v = mem.out(s.seq * kv),
              *scratch = mem.scratch(s.heads * s.seq), *o = mem.out(s.seq * s.heads * s.d);
        mem.seal();
        for (Size at = 0; at < s.seq; ++at)
          k.attention_step({at, s.seq, of(s), s.window, qkv + at * of(s).width(), cache_k, cache_v, scratch,
                            o + at * s.heads * s.d});
      });
}

/// Values up to 30 reach the range in which exp() of a float overflows: the kernel must use a stable form.
void gated(Cases& cases) {
  over_rows("swiglu", cases, [](Size m, Size n) -> Body {
    return [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
      const SwiGlu a{m, n, mem.in(m * 2 * n, 30.0), mem.out(m * n)};  // far into both tails of the sigmoid
      mem.seal();
      k.swiglu(a);
    };
  });
  over_rows("swiglu_bwd", cases, [](Size m, Size n) -> Body {
    return [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
      const SwiGluBwd a{m, n, mem.in(m * n), mem.inout(m * 2 * n, 30.0)};
      mem.seal();
      k.swiglu_bwd(a);
    };
  });
}

/// Targets include -100, which counts neither in the loss nor in the gradient. The loss is compared per row.
void losses(Cases& cases) {
  for (bool gradient : {true, false})
    over_rows("cross_entropy", cases, [=](Size m, Size v) -> Body {
      return [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
        float* logits = gradient ? mem.inout(m * v, 20.0) : mem.unchecked(m * v, 20.0);
        const std::int32_t* targets = mem.ids(m, v, true);
        mem.seal();
        mem.result(k.cross_entropy({m, v, logits, targets, 0.37f, gradient}) / static_cast<double>(m));
      };
    });
}

/// One vector, sizes around its multiples, and more than a block of threads.
void updates(Cases& cases) {
  constexpr Size sizes[] = {1, 7, 33, 1000, 4099};
  for (Size n : sizes)
    cases.add("sum_squares", text(n) + " elements", 1, 1, 1,
              [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
                const float* x = mem.in(n);
                mem.seal();
                mem.result(k.sum_squares({n, x}));
              });
  // The scalars are those of an early step, where both bias corrections differ from 1. The second moment must
  // be positive.
  for (Size n : sizes)
    for (float decay : {1.0f, 0.97f})
      cases.add("adamw", text(n) + " elements", 1, 1, 1,
                [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
                  const AdamW a{n,
                                mem.in(n),
                                mem.inout(n),
                                mem.inout(n, 0.1),
                                mem.inout_positive(n, 0.1),
                                0.7f,
                                0.9f,
                                0.1f,
                                0.95f,
                                0.05f,
                                decay,
                                0.02f,
                                1.7f,
                                1e-6f};
                  mem.seal();
                  k.adamw(a);
                });
  for (Size n : sizes)
    cases.add("sgd", text(n) + " elements", 1, 1, 1,
              [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
                const Sgd a{n, mem.in(n), mem.inout(n), 0.7f, 0.97f, 0.03f};
                mem.seal();
                k.sgd(a);
              });
  for (Size n : sizes)
    cases.add("sgd_momentum", text(n) + " elements", 1, 1, 1,
              [=](const AnyKernels& k, CheckMemory& mem, const CheckCase&, const TrainerTraits&) {
                const SgdMomentum a{n, mem.in(n), mem.inout(n), mem.inout(n), 0.7f, 0.9f, 0.97f, 0.03f};
                mem.seal();
                k.sgd_momentum(a);
              });
}

}  // namespace

/// The order is that of the groups in kernels.hpp.
/// About 1,000 cases, all of them small: a trainer is tested in seconds.
std::vector<CheckCase> check_cases() {
  Cases cases;
  embeddings(cases), norms(cases), products(cases), head_norms(cases), positions(cases), attentions(cases);
  gated(cases), losses(cases), updates(cases);
  return std::move(cases.all);
}

}  // namespace trainhost::executor
