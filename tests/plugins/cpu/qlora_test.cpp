// Adapters over weights in NF4 on the CPU trainer: loss and gradients compared with a reference in double
// that has the dequantized weights; the bits of a LoRA run over these weights, in every precision and
// recompute policy; and the dequantization of every instruction set.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <limits>

#include "core/abi/error_guard.hpp"
#include "tests/support/adapters_reference.hpp"
#include "tests/support/cpu_model_fixture.hpp"
#include "tests/support/cpu_op_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using reference::Ids;
using reference::Vec;
using reference::Weights;

const auto kQuantizedModels = boost::unit_test::data::make(small_models());

RunSpec qlora_run(const NamedModel& z, std::uint32_t micro_batch, std::uint32_t accumulate, bool doubled) {
  RunSpec r = lora_run(z, micro_batch, accumulate, 0b1010101, 3);
  r.mode = RunMode::kQlora, r.memory.double_quantized = doubled;
  return r;
}

BOOST_AUTO_TEST_SUITE(cpu_qlora)

BOOST_DATA_TEST_CASE(gradients_match_the_reference_over_the_dequantized_weights,
                     kQuantizedModels* boost::unit_test::data::make({false, true}), z, dora) {
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  for (const bool doubled : {false, true}) {
    RunSpec r = qlora_run(z, 4, 1, doubled);
    r.memory.dora = dora;
    const Weights adapters = random_adapters(z.spec, r, 4), given = random_weights(z.spec, 3),
                  base = in_nf4(z.spec, r, given);
    Weights dw;
    const double loss =
        reference::Model(z.spec, z.seq).loss(merged(z.spec, r, base, adapters), ids, targets, &dw);
    const Weights expected = adapter_gradients(z.spec, r, base, dw, adapters);
    CpuModelFixture fixture(z.spec, r, cpu::select_kernels(), 2);
    fixture.load(united(given, adapters));
    const executor::UpdateResult out = fixture.update(ids, targets, 0.0, 0);
    BOOST_TEST(std::abs(out.loss - loss) <= 4e-6 * loss);
    const double off = largest_error(fixture.read(&step::Param::grad), expected);
    BOOST_TEST(off <= 4e-6, "gradients are " << off << " off");
    BOOST_TEST((fixture.read() == united(base, adapters)));
  }
}

// LoRA over the dequantized values is another program with the same products.
BOOST_DATA_TEST_CASE(training_has_the_bits_of_lora_over_the_dequantized_weights, kQuantizedModels, z) {
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  std::size_t tables = 0;
  const cpu::Kernels* const* table = cpu::runnable_kernels(&tables);
  std::uint32_t variant = 0;
  for (const bool bf16 : {false, true})
    for (const Recompute recompute :
         {Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kLayers}) {
      const bool doubled = variant % 2, separate = variant % 3 == 0;
      RunSpec r = qlora_run(z, 2, 2, doubled);
      if (bf16) r.compute = r.weight = DType::kBF16, r.master = DType::kF32;
      r.recompute = recompute, r.memory.dora = variant % 4 < 2;
      if (recompute == Recompute::kLayers) r.recompute_layers = {0, 1, 0};
      RunSpec lora = r;
      lora.mode = RunMode::kLora, lora.memory.double_quantized = false;
      const Weights adapters = random_adapters(z.spec, r, 4), given = random_weights(z.spec, 3);
      const cpu::Kernels& kernels = *table[variant % tables];
      CpuModelFixture quantized(z.spec, r, kernels, 1 + variant % 3, separate);
      CpuModelFixture plain(z.spec, lora, kernels, 2);
      quantized.load(united(given, adapters));
      plain.load(united(in_nf4(z.spec, r, given), adapters));
      BOOST_TEST_CONTEXT(name(recompute) << (bf16 ? ", bf16" : ", f32") << ", " << kernels.name) {
        for (std::uint64_t t = 0; t < 2; ++t) {
          const executor::UpdateResult a = quantized.update(ids, targets, 0.01, t),
                                       b = plain.update(ids, targets, 0.01, t);
          BOOST_TEST(a.loss == b.loss);
          BOOST_TEST(a.grad_norm == b.grad_norm);
        }
        // Where bf16 is stored, the matrix of a quantized weight is rounded like a weight that is loaded.
        Weights in_matrices = quantized.read();
        for (auto& [name, values] : in_matrices)
          if (bf16 && !adapters.count(name))
            for (double& v : values) v = f32_from_bf16(bf16_from_f32(static_cast<float>(v)));
        BOOST_TEST((in_matrices == plain.read()));
        const Ids one(ids.begin(), ids.begin() + 2 * z.seq),
            next(targets.begin(), targets.begin() + 2 * z.seq);
        BOOST_TEST(quantized.evaluate(one, next).loss == plain.evaluate(one, next).loss);
        for (std::uint32_t p = 0; p < 3; ++p)
          BOOST_TEST((quantized.next(ids[p], p) == plain.next(ids[p], p)));
      }
      ++variant;
    }
}

BOOST_AUTO_TEST_CASE(every_instruction_set_has_the_bits_of_the_plain_loop) {
  std::size_t tables = 0;
  const cpu::Kernels* const* table = cpu::runnable_kernels(&tables);
  for (const std::uint64_t n : {1, 2, 63, 64, 65, 64 * 9 + 33}) {
    const nf4::Layout l = nf4::layout(n, true);
    std::vector<std::byte> bytes(l.bytes);
    std::vector<float> x(n), scales(l.blocks), expected(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i * i)));
    nf4::quantize_blocks(l, 0, x, bytes.data(), scales.data());
    nf4::store_scales(l, scales.data(), bytes.data());
    nf4::dequantize_blocks(l, bytes.data(), 0, expected);
    nf4::read_scales(l, bytes.data(), 0, scales);
    for (std::size_t t = 0; t < tables; ++t) {
      std::vector<float> out(n + 1, 5.0f);
      table[t]->dequantize_nf4(n, reinterpret_cast<const unsigned char*>(bytes.data() + l.codes),
                               nf4::kValues.data(), scales.data(), out.data());
      BOOST_TEST(out.back() == 5.0f);
      out.pop_back();
      BOOST_TEST((out == expected), table[t]->name << ", " << n << " elements");
    }
  }
}

BOOST_AUTO_TEST_CASE(pieces_of_any_size_give_the_same_bits_and_wrong_ones_are_rejected) {
  const NamedModel z = small_models().front();
  const RunSpec r = qlora_run(z, 1, 1, true);
  const Weights given = united(random_weights(z.spec, 3), random_adapters(z.spec, r, 4));
  CpuModelFixture whole(z.spec, r, cpu::select_kernels(), 1);
  whole.load(given);
  CpuModelFixture pieces(z.spec, r, cpu::select_kernels(), 1, true);
  pieces.load(given);
  std::size_t tensor = 0;
  while (!pieces.quantized->contains(tensor)) ++tensor;
  const Vec& v = given.at(pieces.program.tensor_infos[tensor].name);
  const std::vector<float> values(v.begin(), v.end());
  for (const std::size_t size : {1ul, 7ul, 64ul, 65ul, 130ul}) {
    pieces.quantized->load(tensor, 0, std::vector<float>(values.size(), 1.0f));  // something else first
    for (std::size_t i = 0; i < values.size(); i += size)
      pieces.quantized->load(tensor, i, std::span(values).subspan(i, std::min(size, values.size() - i)));
    BOOST_TEST((pieces.read() == whole.read()), "pieces of " << size);
  }
  const auto message = [&](std::uint64_t first, std::vector<float> piece) -> std::string {
    try {
      pieces.quantized->load(tensor, first, piece);
    } catch (const abi::StatusError& e) {
      return e.what();
    }
    return "";
  };
  BOOST_TEST(message(1, {1.0f}).find("must arrive in order") != std::string::npos);
  const std::string bad = message(0, {1.0f, std::numeric_limits<float>::infinity()});
  BOOST_TEST(bad.find("element 1 is inf") != std::string::npos, bad);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
