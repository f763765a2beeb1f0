// Attention of heads that are stored in bf16, and its gradient, compared with plain loops in double: random
// shapes with groups of heads, windows and documents, lengths around the tiles of the kernels, on every table
// of bf16 kernels that the CPU can run (on AMX by attention_amx.hpp, on the others by conversion to f32).
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "core/step/scratch_sizes.hpp"
#include "plugins/cpu/engine/bf16_attention.hpp"
#include "tests/support/cpu_op_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using step::kNoBuffer;
using step::OpKind;

struct Case {
  std::size_t sequences, seq, kv_heads, group, d, window;
  std::vector<std::size_t> documents;  // lengths, of all sequences; empty: one document per sequence
};
Case random_case(unsigned seed) {
  std::mt19937 g(seed);
  const auto between = [&](std::size_t from, std::size_t to) { return from + g() % (to - from + 1); };
  static constexpr std::size_t kDims[] = {8, 16, 20, 32, 48, 64, 64, 80, 96, 128, 160, 256};
  static constexpr std::size_t kLengths[] = {1, 31, 32, 33, 64, 65, 127, 128, 129, 255, 256, 257, 289, 400};
  Case c{};
  c.sequences = between(1, 2), c.kv_heads = between(1, 2), c.group = between(1, 3);
  c.d = kDims[seed % std::size(kDims)];
  c.seq = seed % 3 ? kLengths[g() % std::size(kLengths)] : between(1, 300);
  if (seed % 2) c.window = between(1, c.seq + 20);
  if (seed % 4 > 1)
    for (std::size_t s = 0; s < c.sequences; ++s)
      for (std::size_t rest = c.seq; rest > 0; rest -= c.documents.back())
        c.documents.push_back(std::min(rest, between(1, 150)));
  return c;
}

/// Results of plain loops: each document is a sequence of its own.
struct Expected {
  Vec o, lse, gradient;
  std::vector<std::int32_t> starts;
};
Expected expected(const Case& c, const Vec& qkv, const Vec& d_o) {
  Expected e;
  const std::size_t heads = c.kv_heads * c.group, width = (heads + 2 * c.kv_heads) * c.d, ow = heads * c.d;
  const std::vector<std::size_t> lengths =
      c.documents.empty() ? std::vector<std::size_t>(c.sequences, c.seq) : c.documents;
  const auto append = [](Vec& to, const Vec& x) { to.insert(to.end(), x.begin(), x.end()); };
  const auto part = [](const Vec& x, std::size_t from, std::size_t n) {
    return Vec(x.begin() + static_cast<long>(from), x.begin() + static_cast<long>(from + n));
  };
  std::size_t row = 0;
  for (const std::size_t length : lengths) {
    const reference::Heads h{length, heads, c.kv_heads, c.d, c.window};
    const Vec own = part(qkv, row * width, length * width);
    append(e.o, reference::attention(own, h));
    append(e.gradient, reference::attention_bwd(part(d_o, row * ow, length * ow), own, h));
    Vec rows(length * heads), one;
    for (std::size_t head = 0; head < heads; ++head) {
      reference::probabilities(own, h, 0, head, &one);
      for (std::size_t q = 0; q < length; ++q) rows[q * heads + head] = one[q];
    }
    append(e.lse, rows);
    e.starts.insert(e.starts.end(), length, static_cast<std::int32_t>(row % c.seq));
    row += length;
  }
  return e;
}

BOOST_AUTO_TEST_SUITE(cpu_bf16_attention)

BOOST_DATA_TEST_CASE(attention_in_bf16_is_that_of_plain_loops, boost::unit_test::data::xrange(60u), seed) {
  const Case c = random_case(seed);
  const std::size_t heads = c.kv_heads * c.group, width = (heads + 2 * c.kv_heads) * c.d, ow = heads * c.d,
                    m = c.sequences * c.seq;
  const Vec qkv = exact_in_bf16(m * width, seed + 1, 1.5), d_o = exact_in_bf16(m * ow, seed + 1000, 1.0);
  const Expected e = expected(c, qkv, d_o);
  Vec rounded = e.o;
  for (double& x : rounded) x = f32_from_bf16(bf16_from_f32(static_cast<float>(x)));
  std::size_t count = 0, bf16_count = 0;
  const cpu::Kernels* const* tables = cpu::runnable_kernels(&count);
  const cpu::Bf16Kernels* const* bf16 = cpu::runnable_bf16_kernels(&bf16_count);
  for (std::size_t t = 0; t < bf16_count; ++t)
    for (const std::uint32_t threads : {1u, 3u}) {
      OneOp one(*tables[std::min(t, count - 1)], threads, bf16[t], true);
      ModelSpec& spec = one.program.model;
      spec.heads = static_cast<std::uint32_t>(heads), spec.kv_heads = static_cast<std::uint32_t>(c.kv_heads);
      spec.head_dim = static_cast<std::uint32_t>(c.d);
      spec.sliding_window = static_cast<std::uint32_t>(c.window);
      TrainerTraits& p = one.program.traits;
      one.program.run.seq_len = static_cast<std::uint32_t>(c.seq), one.step().rows = m;
      p.attention_tile_q = std::min<std::uint32_t>(32, one.program.run.seq_len);
      p.attention_tile_k = std::min<std::uint32_t>(128, one.program.run.seq_len);
      one.step().starts = c.documents.empty() ? nullptr : e.starts.data();
      const BufferId scratch = one.buffer(threads, step::attention_scratch_floats(p, spec.head_dim)),
                     x = one.real(m, width, qkv), o = one.real(m, ow), lse = one.buffer(m, heads),
                     dqkv = one.real(m, width);
      one.run(OpKind::kAttention, {x, scratch, kNoBuffer}, {o, lse});
      // Outputs of plain loops, rounded, so that errors of the forward pass do not count twice.
      one.run(OpKind::kAttentionBwd,
              {one.real(m, ow, d_o), one.real(m, ow, rounded), one.buffer(m, heads, e.lse), x, scratch,
               kNoBuffer},
              {dqkv});
      BOOST_TEST_CONTEXT(bf16[t]->name << ", " << threads << " threads: " << c.sequences << "x" << c.seq
                                       << " K" << c.kv_heads << " group " << c.group << " D" << c.d
                                       << " window " << c.window << ", " << c.documents.size()
                                       << " documents") {
        BOOST_TEST(relative_difference(one.values(o), e.o, 0.1) <= 0x1.02p-8);
        BOOST_TEST(relative_difference(one.values(lse), e.lse, 0.1) <= 1e-4);
        // dot(o, d_o) has the rounding errors of o: up to 2^-9 of each product.
        BOOST_TEST(relative_difference(one.values(dqkv), e.gradient, 1.0) <= 0x1p-7);
      }
    }
}

BOOST_AUTO_TEST_CASE(heads_whose_memory_does_not_fit_are_computed_in_f32) {
  std::size_t count = 0;
  const cpu::Bf16Kernels* const* bf16 = cpu::runnable_bf16_kernels(&count);
  step::Op op;
  op.layer = 0;
  for (std::size_t t = 0; t < count; ++t)
    for (const std::uint32_t d : {32u, 16u}) {  // padded to 32, which is not planned for
      OneOp one(cpu::select_kernels(), 1, bf16[t], true);
      one.program.model.heads = 64, one.program.model.kv_heads = 1, one.program.model.head_dim = d;
      one.program.run.seq_len = 2048;
      one.program.traits.attention_tile_q = one.program.traits.attention_tile_k = 32;
      BOOST_TEST(cpu::computes_attention_in_bf16(one.context(), op) == (bf16[t]->attention && d == 32));
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
