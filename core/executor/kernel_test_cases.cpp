// See kernel_test_cases.hpp. The contents of operands depend on the order in which they are created; it is
// the same for reference and kernel. Each body creates its operands, calls mem.seal(), after which the memory
// is guarded, and calls one kernel. Bodies run twice: with the reference kernels and with those under test.
#include "core/executor/kernel_test_cases.hpp"

#include <algorithm>
#include <cmath>

namespace trainhost::executor {
namespace {

// Sizes at which vectorised loops go wrong: 1, odd numbers, one more than a multiple of 32, and several
// blocks.
constexpr Size kRows[] = {1, 7, 33, 131};
constexpr Size kCols[] = {1, 7, 33, 97, 128};

/// One case per size of kRows x kCols.
void over_rows(const char* kernel, KernelCaseList& cases,
               const std::function<KernelTestCase::Body(Size, Size)>& body) {
  for (Size rows : kRows)
    for (Size cols : kCols)
      cases.add(kernel, std::to_string(rows) + " x " + std::to_string(cols), rows, cols, cols,
                body(rows, cols));
}

/// Ids repeat, since 19 rows of the table serve up to 131 tokens: embed_bwd must add, not assign.
void embeddings(KernelCaseList& cases) {
  constexpr Size kVocab = 19;
  over_rows("embed", cases, [](Size m, Size h) -> KernelTestCase::Body {
    return [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
      const Embed a{m, kVocab, h, mem.in(kVocab * h), mem.ids(m, kVocab), mem.out(m * h)};
      mem.seal();
      k.embed(a);
    };
  });
  for (bool overwrite : {false, true})
    over_rows("embed_bwd", cases, [=](Size m, Size h) -> KernelTestCase::Body {
      return [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
        const EmbedBwd a{m, kVocab, h, mem.in(m * h), mem.ids(m, kVocab), mem.inout(kVocab * h), overwrite};
        mem.seal();
        k.embed_bwd(a);
      };
    });
}

/// `how`: bit 0 adds to dx, bit 1 overwrites the weight's gradient.
void norms(KernelCaseList& cases) {
  over_rows("rms_norm", cases, [](Size m, Size h) -> KernelTestCase::Body {
    return [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
      const RmsNorm a{m, h, mem.in(m * h), mem.in(h), 1e-5f, mem.out(m * h), mem.out(m)};
      mem.seal();
      k.rms_norm(a);
    };
  });
  for (int how = 0; how < 4; ++how)
    over_rows("rms_norm_bwd", cases, [=](Size m, Size h) -> KernelTestCase::Body {
      return [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits& p) {
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
void products(KernelCaseList& cases) {
  for (Size m : kRows)
    for (Size n : kCols)
      for (Size i : {Size{1}, Size{16}, Size{53}})
        for (int how = 0; how < 4; ++how) {
          const bool bias = how & 1, other = how & 2;
          const std::string shape = std::to_string(m) + " rows, " + std::to_string(n) + " x " +
                                    std::to_string(i) + (bias ? ", bias" : "");
          cases.add(
              "linear", shape + (other ? ", residual" : ""), m, n, i,
              [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
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
        cases.add(
            "linear_dx", std::to_string(m) + " rows, " + std::to_string(n) + " x " + std::to_string(i), m, n,
            i, [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
              const LinearDx a{m, n, i, mem.in(m * n), mem.in(n * i), mem.out(m * i)};
              mem.seal();
              k.linear_dx(a);
            });
  for (Size m : kRows)
    for (Size n : kCols)
      for (Size i : {Size{1}, Size{16}, Size{53}})
        for (int how = 0; how < 4; ++how) {
          const bool bias = how & 1, overwrite = how & 2;
          const std::string shape = std::to_string(m) + " rows, " + std::to_string(n) + " x " +
                                    std::to_string(i) + (bias ? ", bias" : "");
          cases.add(
              "linear_dw", shape + (overwrite ? ", overwriting" : ""), m, n, i,
              [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
                const float *dy = mem.in(m * n), *x = mem.in(m * i);
                float *gw = overwrite ? mem.out(n * i) : mem.inout(n * i),
                      *gb = bias ? (overwrite ? mem.out(n) : mem.inout(n)) : nullptr;
                mem.seal();
                k.linear_dw({m, n, i, dy, x, gw, gb, overwrite});
              });
        }
}

/// Values up to 30 reach the range in which exp() of a float overflows: the kernel must use a stable form.
void gated(KernelCaseList& cases) {
  over_rows("swiglu", cases, [](Size m, Size n) -> KernelTestCase::Body {
    return [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
      const SwiGlu a{m, n, mem.in(m * 2 * n, 30.0), mem.out(m * n)};  // far into both tails of the sigmoid
      mem.seal();
      k.swiglu(a);
    };
  });
  over_rows("swiglu_bwd", cases, [](Size m, Size n) -> KernelTestCase::Body {
    return [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
      const SwiGluBwd a{m, n, mem.in(m * n), mem.inout(m * 2 * n, 30.0)};
      mem.seal();
      k.swiglu_bwd(a);
    };
  });
}

/// Targets include -100, which counts neither in the loss nor in the gradient. The loss is compared per row.
void losses(KernelCaseList& cases) {
  for (bool gradient : {true, false})
    over_rows("cross_entropy", cases, [=](Size m, Size v) -> KernelTestCase::Body {
      return [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
        float* logits = gradient ? mem.inout(m * v, 20.0) : mem.unchecked(m * v, 20.0);
        const std::int32_t* targets = mem.ids(m, v, true);
        mem.seal();
        mem.result(k.cross_entropy({m, v, logits, targets, 0.37f, gradient}) / static_cast<double>(m));
      };
    });
}

/// One vector, sizes around its multiples, and more than a block of threads.
void updates(KernelCaseList& cases) {
  constexpr Size sizes[] = {1, 7, 33, 1000, 4099};
  for (Size n : sizes)
    cases.add("sum_squares", std::to_string(n) + " elements", 1, 1, 1,
              [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
                const float* x = mem.in(n);
                mem.seal();
                mem.result(k.sum_squares({n, x}));
              });
  // The scalars are those of an early step, where both bias corrections differ from 1. The second moment must
  // be positive.
  for (Size n : sizes)
    for (float decay : {1.0f, 0.97f})
      cases.add("adamw", std::to_string(n) + " elements", 1, 1, 1,
                [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
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
    cases.add("sgd", std::to_string(n) + " elements", 1, 1, 1,
              [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
                const Sgd a{n, mem.in(n), mem.inout(n), 0.7f, 0.97f, 0.03f};
                mem.seal();
                k.sgd(a);
              });
  for (Size n : sizes)
    cases.add("sgd_momentum", std::to_string(n) + " elements", 1, 1, 1,
              [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
                const SgdMomentum a{n, mem.in(n), mem.inout(n), mem.inout(n), 0.7f, 0.9f, 0.97f, 0.03f};
                mem.seal();
                k.sgd_momentum(a);
              });
  for (Size n : sizes)
    cases.add("lion", std::to_string(n) + " elements", 1, 1, 1,
              [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&, const TrainerTraits&) {
                const Lion a{n,    mem.in(n), mem.inout(n), mem.inout(n), 0.7f, 0.9f,
                             0.1f, 0.99f,     0.01f,        0.97f,        0.03f};
                mem.seal();
                k.lion(a);
              });
}

}  // namespace

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

void KernelCaseList::add(const char* kernel, const std::string& shape, Size rows, Size a, Size b,
                         KernelTestCase::Body body) {
  KernelTestCase c;
  c.kernel = kernel, c.shape = shape;
  ModelSpec& m = c.model;
  m.vocab = std::max(a, b), m.hidden = static_cast<std::uint32_t>(std::max(a, b)), m.layers = 1;
  m.heads = m.kv_heads = 1, m.head_dim = 2, m.intermediate = m.hidden;
  c.run.seq_len = static_cast<std::uint32_t>(rows);
  c.body = std::move(body);
  all.push_back(std::move(c));
}

/// The order is that of the groups in kernels.hpp.
/// About 1,000 cases, all of them small: a trainer is tested in seconds.
std::vector<KernelTestCase> kernel_test_cases() {
  KernelCaseList cases;
  embeddings(cases), norms(cases), products(cases);
  add_attention_cases(cases);
  gated(cases), losses(cases), updates(cases);
  return std::move(cases.all);
}

}  // namespace trainhost::executor
