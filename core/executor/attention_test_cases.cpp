// The cases of kernels that work on heads: QK norms, rotary positions and attention. See
// kernel_test_cases.hpp.
#include <cmath>

#include "core/executor/kernel_test_cases.hpp"
#include "core/step/scratch_sizes.hpp"

namespace trainhost::executor {
namespace {

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
void heads(const char* kernel, KernelCaseList& cases,
           const std::function<void(const HeadShape&, const AnyKernels&, GuardedOperands&,
                                    const KernelTestCase&, const TrainerTraits&)>& body) {
  for (const HeadShape& s : kHeads) {
    const std::string shape = std::to_string(s.sequences) + " x " + std::to_string(s.seq) + " tokens, " +
                              std::to_string(s.heads) + " heads over " + std::to_string(s.kv_heads) + " of " +
                              std::to_string(s.d) + (s.window ? ", window " + std::to_string(s.window) : "");
    cases.add(kernel, shape, s.seq, s.heads * s.d, s.d,
              [=](const AnyKernels& k, GuardedOperands& mem, const KernelTestCase& c,
                  const TrainerTraits& p) { body(s, k, mem, c, p); });
    // traits() derives tile sizes and scratch from these dimensions, so they must be those of the shape.
    ModelSpec& m = cases.all.back().model;
    m.heads = static_cast<std::uint32_t>(s.heads), m.kv_heads = static_cast<std::uint32_t>(s.kv_heads);
    m.head_dim = static_cast<std::uint32_t>(s.d), m.sliding_window = static_cast<std::uint32_t>(s.window),
    m.qk_norm = true;
    cases.all.back().run.micro_batch = static_cast<std::uint32_t>(s.sequences);
  }
}

/// Head counts as kernels get them; rows of qkv have of(s).width() floats.
Heads of(const HeadShape& s) { return {s.heads, s.kv_heads, s.d}; }
// Rows of an operand.
Size tokens(const HeadShape& s) { return s.sequences * s.seq; }

/// In place on qkv: v must come out unchanged, which the comparison of the whole buffer shows.
void head_norms(KernelCaseList& cases) {
  heads("qk_norm", cases,
        [](const HeadShape& s, const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&,
           const TrainerTraits&) {
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
          [=](const HeadShape& s, const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&,
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
void positions(KernelCaseList& cases) {
  for (float sign : {1.0f, -1.0f})
    heads("rope", cases,
          [=](const HeadShape& s, const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&,
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
  heads("rope", cases,
        [](const HeadShape& s, const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&,
           const TrainerTraits&) {
          const Rope a{
              1, s.seq, s.seq - 1, of(s), mem.in(angles(s.seq, s.d)), 1.0f, mem.inout(of(s).width())};
          mem.seal();
          k.rope(a);
        });
}

/// Inputs have scale 2, so that the softmax is neither flat nor a single key. The backward pass
/// gets o and lse of the reference, so its error does not include that of the forward pass.
void attentions(KernelCaseList& cases) {
  heads("attention", cases,
        [](const HeadShape& s, const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&,
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
        [](const HeadShape& s, const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&,
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
  heads("attention_step", cases,
        [](const HeadShape& s, const AnyKernels& k, GuardedOperands& mem, const KernelTestCase&,
           const TrainerTraits&) {
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

}  // namespace

void add_attention_cases(KernelCaseList& cases) { head_norms(cases), positions(cases), attentions(cases); }

}  // namespace trainhost::executor
