// The decoder of the CPU trainer compared with the reference model in double: row by row, a prompt in one
// call, several sequences at a time, every instruction set, both types of weights. Memory, and arguments that
// are refused.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>

#include "core/abi/error_guard.hpp"
#include "plugins/cpu/engine/decoder.hpp"
#include "tests/support/plugin_session.hpp"
#include "tests/support/small_models.hpp"

namespace trainhost {
namespace {

using namespace test;
using reference::Ids;
using reference::Vec;
using reference::Weights;
using Rows = std::vector<abi::DecodeRow>;

std::vector<const cpu::Kernels*> decoder_tables() {
  std::size_t n = 0;
  const cpu::Kernels* const* t = cpu::runnable_kernels(&n);
  return {t, t + n};
}

/// Also dimensions above the width of a vector and above the size of a packed block.
std::vector<NamedModel> decoder_models() {
  std::vector<NamedModel> models = small_models();
  ModelSpec wide = small_model("qwen3", 61, 72, 2, 6, 2, 16, 600);
  wide.qk_norm = wide.tied = true, wide.sliding_window = 9;
  models.push_back({"wide qwen3 with a window", wide, 40});
  return models;
}
const auto kDecoderModels = boost::unit_test::data::make(decoder_models());

/// As the file would store them.
Weights rounded_to_bf16(Weights w, const ModelSpec& m) {
  for (const TensorInfo& t : tensors(m))
    if (t.rank == 2)
      for (double& x : w[t.name]) {
        const float f = static_cast<float>(x);
        std::uint32_t bits;
        std::memcpy(&bits, &f, sizeof bits);
        bits = (bits + 0x8000) & 0xffff0000u;
        float back;
        std::memcpy(&back, &bits, sizeof back);
        x = back;
      }
  return w;
}

void load_all(cpu::Decoder& d, const ModelSpec& m, const Weights& w) {
  for (const TensorInfo& t : tensors(m)) {
    std::vector<float> values(w.at(t.name).begin(), w.at(t.name).end());
    th_tensor c{};
    c.dtype = TH_DT_F32, c.name = t.name.c_str();
    for (std::uint64_t first = 0; first < values.size(); first += 100) {
      c.data = values.data() + first, c.first = first;
      c.count = std::min<std::uint64_t>(100, values.size() - first);
      d.load(c);
    }
  }
}

std::vector<float> forward(cpu::Decoder& d, const Rows& rows, std::uint64_t vocab) {
  std::uint64_t wanted = 0;
  for (const auto& r : rows) wanted += r.wants_logits;
  std::vector<float> logits(wanted * vocab);
  float none = 0;
  d.forward(rows, wanted ? logits.data() : &none);
  return logits;
}

double largest_difference(std::span<const float> got, const Vec& expected, std::size_t first) {
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::abs(got[i] - expected[first + i]));
  return worst;
}

th_status status_of_call(const std::function<void()>& f) {
  try {
    f();
  } catch (const abi::StatusError& e) {
    return e.code;
  }
  return TH_OK;
}

BOOST_AUTO_TEST_SUITE(cpu_decoder)

BOOST_DATA_TEST_CASE(logits_match_the_reference_in_any_division_of_the_rows, kDecoderModels, z) {
  const ModelSpec& m = z.spec;
  const Ids ids = random_tokens(z.seq, m.vocab, 5);
  for (const std::uint32_t type : {TH_DT_F32, TH_DT_BF16}) {
    Weights w = random_weights(m, 7);
    if (type == TH_DT_BF16) w = rounded_to_bf16(std::move(w), m);
    const Vec expected = reference::Model(m, z.seq).logits(w, ids);
    double largest = 0;
    for (double x : expected) largest = std::max(largest, std::abs(x));
    for (const cpu::Kernels* k : decoder_tables()) {
      CountingHost host(2);
      cpu::Decoder d(&host, m, {type, 2, z.seq, z.seq}, *k);
      load_all(d, m, w);
      // One call, then calls of 1, 2, 3, ... rows of another sequence.
      Rows rows;
      for (std::uint32_t i = 0; i < z.seq; ++i) rows.push_back({ids[i], 1, i, 1});
      BOOST_TEST_CONTEXT(k->name << ", weights " << (type == TH_DT_F32 ? "f32" : "bf16")) {
        BOOST_TEST(largest_difference(forward(d, rows, m.vocab), expected, 0) < 4e-6 * largest);
        for (std::uint32_t at = 0, n = 1; at < z.seq; at += n, ++n) {
          Rows some;
          for (std::uint32_t i = at; i < std::min<std::uint32_t>(at + n, z.seq); ++i)
            some.push_back({ids[i], 0, i, 1});
          BOOST_TEST(largest_difference(forward(d, some, m.vocab), expected, at * m.vocab) < 4e-6 * largest);
        }
      }
    }
  }
}

BOOST_DATA_TEST_CASE(sequences_at_a_time_have_the_bits_of_each_alone, kDecoderModels, z) {
  const ModelSpec& m = z.spec;
  const Weights w = random_weights(m, 8);
  CountingHost host(2);
  constexpr std::uint32_t kSequences = 5;
  cpu::Decoder alone(&host, m, {TH_DT_F32, 1, z.seq, 1}),
      together(&host, m, {TH_DT_F32, kSequences, z.seq, 8});
  load_all(alone, m, w), load_all(together, m, w);
  std::vector<std::vector<float>> expected(kSequences);
  std::vector<Ids> ids(kSequences);
  for (std::uint32_t s = 0; s < kSequences; ++s) {
    ids[s] = random_tokens(z.seq, m.vocab, 20 + s);
    for (std::uint32_t i = 0; i < z.seq; ++i) {
      const std::vector<float> logits = forward(alone, {{ids[s][i], 0, i, 1}}, m.vocab);
      expected[s].insert(expected[s].end(), logits.begin(), logits.end());
    }
  }
  for (std::uint32_t i = 0; i < z.seq; ++i) {  // sequence s starts s steps later
    Rows rows;
    for (std::uint32_t s = 0; s < std::min(i + 1, kSequences); ++s)
      rows.push_back({ids[s][i - s], s, i - s, s % 2});
    const std::vector<float> logits = forward(together, rows, m.vocab);
    std::size_t at = 0;
    for (const auto& r : rows)
      if (r.wants_logits) {
        const std::vector<float> got(logits.begin() + static_cast<std::ptrdiff_t>(at * m.vocab),
                                     logits.begin() + static_cast<std::ptrdiff_t>((at + 1) * m.vocab));
        const auto from = expected[r.sequence].begin() + static_cast<std::ptrdiff_t>(r.position * m.vocab);
        BOOST_TEST((got == std::vector<float>(from, from + static_cast<std::ptrdiff_t>(m.vocab))));
        ++at;
      }
  }
}

BOOST_AUTO_TEST_CASE(threads_do_not_change_a_bit) {
  const NamedModel z = decoder_models().back();
  const Ids ids = random_tokens(z.seq, z.spec.vocab, 5);
  Rows rows;
  for (std::uint32_t i = 0; i < z.seq; ++i) rows.push_back({ids[i], 0, i, 1});
  std::vector<float> first;
  for (const std::uint32_t threads : {1u, 2u, 3u}) {
    CountingHost host(threads);
    cpu::Decoder d(&host, z.spec, {TH_DT_BF16, 1, z.seq, z.seq});
    load_all(d, z.spec, random_weights(z.spec, 9));
    const std::vector<float> logits = forward(d, rows, z.spec.vocab);
    if (first.empty()) first = logits;
    BOOST_TEST((logits == first));
  }
}

BOOST_AUTO_TEST_CASE(it_allocates_what_it_states_and_nothing_where_that_does_not_fit) {
  for (const NamedModel& z : decoder_models()) {
    CountingHost host(2);
    const abi::DecodeOptions options = {TH_DT_BF16, 3, z.seq, 4};
    const abi::DecodeMemory stated = cpu::Decoder::memory(z.spec, options, 2);
    const std::uint64_t total = stated.weights + stated.cache + stated.workspace;
    {
      cpu::Decoder d(&host, z.spec, options);
      BOOST_TEST(host.peak == total);
    }
    BOOST_TEST(host.now == 0u);
    // Weights in two bytes and vectors in four, each part rounded up to 64 bytes.
    std::uint64_t bytes = 0, parts = 0;
    for (const TensorInfo& t : tensors(z.spec)) bytes += t.elements() * (t.rank == 2 ? 2 : 4), ++parts;
    BOOST_TEST(stated.weights >= bytes);
    BOOST_TEST(stated.weights < bytes + 64 * parts);
    const std::uint64_t cache = 2ull * z.spec.layers * 3 * z.seq * z.spec.kv_width() * 4;
    BOOST_TEST(stated.cache >= cache);
    BOOST_TEST(stated.cache < cache + 128);
    host.limit = total - 1;
    BOOST_TEST(status_of_call([&] { cpu::Decoder d(&host, z.spec, options); }) == TH_E_HOST_OOM);
  }
}

BOOST_AUTO_TEST_CASE(wrong_rows_are_refused_and_a_cancelled_call_discards_its_rows) {
  const NamedModel z = small_models().front();
  CountingHost host(1);
  cpu::Decoder d(&host, z.spec, {TH_DT_F32, 2, z.seq, 4});
  const auto status = [&](const Rows& rows) {
    return status_of_call([&] { forward(d, rows, z.spec.vocab); });
  };
  BOOST_TEST(status({{1, 0, 0, 1}}) == TH_E_STATE);  // no weights yet
  load_all(d, z.spec, random_weights(z.spec, 1));
  BOOST_TEST(status({}) == TH_E_ARG);
  BOOST_TEST(status({{19, 0, 0, 1}}) == TH_E_ARG);  // token
  BOOST_TEST(status({{-1, 0, 0, 1}}) == TH_E_ARG);
  BOOST_TEST(status({{1, 2, 0, 1}}) == TH_E_ARG);                              // sequence
  BOOST_TEST(status({{1, 0, 1, 1}}) == TH_E_ARG);                              // a skipped position
  BOOST_TEST(status({{1, 0, z.seq, 1}}) == TH_E_ARG);                          // beyond the context
  BOOST_TEST(status({{1, 0, 0, 1}, {1, 0, 2, 1}}) == TH_E_ARG);                // not consecutive
  BOOST_TEST(status({{1, 0, 0, 1}, {1, 1, 0, 1}, {1, 0, 1, 1}}) == TH_E_ARG);  // not neighbours
  BOOST_TEST(status(Rows(5, {1, 0, 0, 1})) == TH_E_ARG);                       // too many
  const std::vector<float> first = forward(d, {{3, 0, 0, 0}, {4, 0, 1, 1}}, z.spec.vocab);
  host.cancel = true;
  BOOST_TEST(status({{5, 0, 1, 1}}) == TH_E_CANCELLED);
  host.cancel = false;
  BOOST_TEST(status({{5, 0, 2, 1}}) == TH_E_ARG);
  BOOST_TEST((forward(d, {{4, 0, 1, 1}}, z.spec.vocab) == first));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
