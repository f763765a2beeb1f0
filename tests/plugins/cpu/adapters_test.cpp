// Training adapters on the CPU trainer: loss and gradients compared with the reference model in double that
// has the adapters merged into its weights, W + scale * B A, and the chain rule: dA = scale * B^T dW, dB =
// scale * dW A^T. So the reference knows nothing of adapters.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "core/model/adapters.hpp"
#include "tests/support/cpu_model_fixture.hpp"
#include "tests/support/cpu_op_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using reference::Ids;
using reference::Vec;
using reference::Weights;

const auto kAdaptedModels = boost::unit_test::data::make(small_models());

/// q and v, every matrix, one of each product: k, gate, down, o with up.
constexpr std::uint32_t kTargets[] = {0b0000101, 0x7f, 0b0000010, 0b0010000, 0b1000000, 0b0101000};

RunSpec lora_run(const NamedModel& z, std::uint32_t micro_batch, std::uint32_t accumulate,
                 std::uint32_t targets, std::uint32_t rank) {
  RunSpec r;
  r.seq_len = z.seq, r.micro_batch = micro_batch, r.accumulate = accumulate, r.clip_norm = 0.0;
  r.mode = RunMode::kLora, r.lora_rank = rank, r.lora_targets = targets, r.lora_alpha = 1.5 * rank;
  return r;
}

/// Random values for A and B: B is 0 in a new run, which would hide everything behind it.
Weights random_adapters(const ModelSpec& m, const RunSpec& r, unsigned seed) {
  std::mt19937 g(seed);
  Weights w;
  for (const TensorInfo& t : adapter_tensors(m, r)) {
    Vec& v = w[t.name];
    v.resize(t.elements());
    for (double& x : v) x = static_cast<float>((static_cast<double>(g()) / 4294967296.0 * 2 - 1) * 0.4);
  }
  return w;
}

struct AdaptedMatrix {
  std::string weight, a, b;  // names
  std::size_t outputs, inputs;
};
std::vector<AdaptedMatrix> adapted(const ModelSpec& m, const RunSpec& r) {
  std::vector<AdaptedMatrix> out;
  for (const TensorInfo& t : adapter_tensors(m, r)) {
    if (t.part != AdapterPart::kA) continue;
    const std::string module = t.name.substr(0, t.name.size() - std::string("lora_A.weight").size());
    AdaptedMatrix x{module.substr(std::string("base_model.model.").size()) + "weight", t.name,
                    module + "lora_B.weight", 0, t.dim[1]};
    for (const TensorInfo& w : tensors(m))
      if (w.name == x.weight) x.outputs = w.dim[0];
    BOOST_REQUIRE_MESSAGE(x.outputs > 0, x.weight << " is no tensor of the model");
    out.push_back(std::move(x));
  }
  return out;
}

Weights merged(const ModelSpec& m, const RunSpec& r, Weights w, const Weights& adapters) {
  const double scale = r.lora_alpha / r.lora_rank;
  for (const AdaptedMatrix& x : adapted(m, r))
    for (std::size_t o = 0; o < x.outputs; ++o)
      for (std::size_t i = 0; i < x.inputs; ++i)
        for (std::size_t k = 0; k < r.lora_rank; ++k)
          w[x.weight][o * x.inputs + i] +=
              scale * adapters.at(x.b)[o * r.lora_rank + k] * adapters.at(x.a)[k * x.inputs + i];
  return w;
}

/// Gradients of A and B from those of the merged weights.
Weights adapter_gradients(const ModelSpec& m, const RunSpec& r, const Weights& dw, const Weights& adapters) {
  const double scale = r.lora_alpha / r.lora_rank;
  Weights out;
  for (const AdaptedMatrix& x : adapted(m, r)) {
    Vec &da = out[x.a], &db = out[x.b];
    da.resize(r.lora_rank * x.inputs), db.resize(x.outputs * r.lora_rank);
    for (std::size_t o = 0; o < x.outputs; ++o)
      for (std::size_t i = 0; i < x.inputs; ++i)
        for (std::size_t k = 0; k < r.lora_rank; ++k) {
          const double d = scale * dw.at(x.weight)[o * x.inputs + i];
          da[k * x.inputs + i] += d * adapters.at(x.b)[o * r.lora_rank + k];
          db[o * r.lora_rank + k] += d * adapters.at(x.a)[k * x.inputs + i];
        }
  }
  return out;
}

Weights united(Weights a, const Weights& b) {
  a.insert(b.begin(), b.end());
  return a;
}

double adapter_error(const Weights& a, const Weights& b) {
  BOOST_TEST(a.size() == b.size());
  double worst = 0;
  for (const auto& [name, v] : b) worst = std::max(worst, distance(a.at(name), v));
  return worst;
}

BOOST_AUTO_TEST_SUITE(cpu_adapters)

BOOST_DATA_TEST_CASE(gradients_of_adapters_match_the_merged_reference, kAdaptedModels, z) {
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  const Weights base = random_weights(z.spec, 3);
  std::size_t tables = 0;
  const cpu::Kernels* const* table = cpu::runnable_kernels(&tables);
  std::uint32_t variant = 0;
  for (const std::uint32_t mask : kTargets) {
    const std::uint32_t rank = 1 + variant % 3 * 2;  // 1, 3, 5
    RunSpec r = lora_run(z, 4, 1, mask, rank);
    const Weights adapters = random_adapters(z.spec, r, 4);
    Weights dw;
    const double loss =
        reference::Model(z.spec, z.seq).loss(merged(z.spec, r, base, adapters), ids, targets, &dw);
    const Weights expected = adapter_gradients(z.spec, r, dw, adapters);
    double norm = 0;
    for (const auto& [name, g] : expected)
      for (double x : g) norm += x * x;
    norm = std::sqrt(norm);
    for (Recompute recompute :
         {Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kLayers}) {
      const std::uint32_t accumulate = 1u << variant % 3;
      r.recompute = recompute, r.accumulate = accumulate, r.micro_batch = 4 / accumulate;
      if (recompute == Recompute::kLayers) r.recompute_layers = {0, 1, 0};
      CpuModelFixture fixture(z.spec, r, *table[variant % tables], 1 + variant % 3);
      fixture.load(united(base, adapters));
      const executor::UpdateResult out = fixture.update(ids, targets, 0.0, 0);
      BOOST_TEST_CONTEXT("targets " << mask << ", rank " << rank << ", recompute " << name(recompute)) {
        BOOST_TEST(std::abs(out.loss - loss) <= 4e-6 * loss);
        BOOST_TEST(std::abs(out.grad_norm - norm) <= 2e-5 * norm);
        const double off = adapter_error(fixture.read(&step::Param::grad), expected);
        BOOST_TEST(off <= 4e-6, "gradients are " << off << " off");
        BOOST_TEST((fixture.read() == united(base, adapters)), "an update with lr 0 changes a weight");
      }
      ++variant;
    }
  }
}

BOOST_DATA_TEST_CASE(an_update_changes_adapters_alone_with_the_same_bits_everywhere, kAdaptedModels, z) {
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  const Weights base = random_weights(z.spec, 3);
  Weights first;
  for (std::uint32_t threads : {1u, 3u})
    for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
      for (bool separate : {false, true}) {
        RunSpec r = lora_run(z, 2, 2, 0x7f, 4);
        r.recompute = recompute;
        const Weights adapters = random_adapters(z.spec, r, 4);
        CpuModelFixture fixture(z.spec, r, cpu::select_kernels(), threads, separate);
        fixture.load(united(base, adapters));
        for (std::uint64_t t = 0; t < 2; ++t) fixture.update(ids, targets, 0.01, t);
        const Weights now = fixture.read();
        for (const auto& [name, v] : base) BOOST_TEST((now.at(name) == v), name << " is frozen and changed");
        for (const auto& [name, v] : adapters) BOOST_TEST((now.at(name) != v), name << " is not trained");
        if (first.empty()) first = now;
        BOOST_TEST((now == first), threads << " threads, " << name(recompute) << ", separate " << separate);
      }
}

BOOST_DATA_TEST_CASE(evaluation_and_generation_apply_the_adapters, kAdaptedModels, z) {
  const RunSpec r = lora_run(z, 2, 1, 0x7f, 3);
  const Weights base = random_weights(z.spec, 3), adapters = random_adapters(z.spec, r, 4);
  const Weights whole = merged(z.spec, r, base, adapters);
  CpuModelFixture fixture(z.spec, r, cpu::select_kernels(), 2, true);
  fixture.load(united(base, adapters));
  const Ids ids = random_tokens(2 * z.seq, z.spec.vocab, 1),
            targets = random_targets(2 * z.seq, z.spec.vocab, 2);
  const double loss = reference::Model(z.spec, z.seq).loss(whole, ids, targets);
  BOOST_TEST(std::abs(fixture.evaluate(ids, targets).loss - loss) <= 4e-6 * loss);
  const Ids one(ids.begin(), ids.begin() + z.seq);
  const Vec expected = reference::Model(z.spec, z.seq).logits(whole, one);
  for (std::uint32_t p = 0; p < z.seq; ++p) {
    const std::vector<float> logits = fixture.next(one[p], p);
    const Vec row(expected.begin() + static_cast<long>(p * z.spec.vocab),
                  expected.begin() + static_cast<long>((p + 1) * z.spec.vocab));
    BOOST_TEST(distance(Vec(logits.begin(), logits.end()), row) <= 1e-5, "position " << p);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
