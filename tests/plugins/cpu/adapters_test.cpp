// Training adapters on the CPU trainer: loss and gradients compared with a reference in double, the same bits
// in every way to run, and that evaluation and generation apply the adapters.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "core/model/trainable.hpp"
#include "tests/support/adapters_reference.hpp"
#include "tests/support/cpu_model_fixture.hpp"
#include "tests/support/cpu_op_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using reference::Ids;
using reference::Vec;
using reference::Weights;

const auto kAdaptedModels = boost::unit_test::data::make(small_models());

/// Kinds of adapters: of every matrix of the layers, with magnitudes, and also of embedding and LM head.
struct Kind {
  bool dora, outside_layers, tied = false;  // tied: one adapter of both where they are one tensor
};
std::ostream& operator<<(std::ostream& o, const Kind& k) {
  return o << (k.dora ? "DoRA" : "LoRA") << (k.outside_layers ? " of embedding and head too" : "")
           << (k.tied ? ", tied" : "");
}
const auto kKinds =
    boost::unit_test::data::make({Kind{false, false}, Kind{true, false}, Kind{false, true}, Kind{true, true},
                                  Kind{false, true, true}, Kind{true, true, true}});
std::uint32_t targets_of(const Kind& k, const ModelSpec& m) {
  return !k.outside_layers ? 0x7f : !k.tied || !m.tied ? 0x1ff : 0x7f | kTargetEmbedding | kTiedAdapter;
}

BOOST_AUTO_TEST_SUITE(cpu_adapters)

BOOST_DATA_TEST_CASE(gradients_of_adapters_match_the_merged_reference, kAdaptedModels* kKinds, z, kind) {
  if (kind.tied) return;  // with kind.outside_layers
  const bool dora = kind.dora;
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  const Weights base = random_weights(z.spec, 3);
  std::size_t tables = 0;
  const cpu::Kernels* const* table = cpu::runnable_kernels(&tables);
  std::uint32_t variant = 0;
  const std::vector<std::uint32_t> masks =
      kind.outside_layers
          ? sets_outside_layers(z.spec)
          : std::vector<std::uint32_t>(std::begin(kAdapterTargets), std::end(kAdapterTargets));
  for (const std::uint32_t mask : masks) {
    const std::uint32_t rank = 1 + variant % 3 * 2;  // 1, 3, 5
    RunSpec r = lora_run(z, 4, 1, mask, rank);
    r.memory.dora = dora;
    const Weights adapters = random_adapters(z.spec, r, 4), whole = reference_weights(z.spec, r, base);
    const ModelSpec m = reference_model(z.spec, r);
    Weights dw;
    const double loss = reference::Model(m, z.seq).loss(merged(m, r, whole, adapters), ids, targets, &dw);
    const Weights expected = adapter_gradients(m, r, whole, dw, adapters);
    double norm = 0;
    for (const auto& [name, g] : expected)
      for (double x : g) norm += x * x;
    norm = std::sqrt(norm);
    for (Recompute recompute :
         {Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kLayers}) {
      const std::uint32_t accumulate = 1u << variant % 3;
      r.recompute = recompute, r.accumulate = accumulate, r.micro_batch = 4 / accumulate;
      if (recompute == Recompute::kLayers) r.recompute_layers = {0, 1, 0};
      TrainerTraits traits = cpu::traits_of(z.spec, r, 1 + variant % 3);
      if (variant % 2) traits.head_chunk_tokens = 5;
      CpuModelFixture fixture(z.spec, r, *table[variant % tables], 1 + variant % 3, false, &traits);
      fixture.load(united(base, adapters));
      const executor::UpdateResult out = fixture.update(ids, targets, 0.0, 0);
      BOOST_TEST_CONTEXT("targets " << mask << ", rank " << rank << ", recompute " << name(recompute)) {
        BOOST_TEST(std::abs(out.loss - loss) <= 4e-6 * loss);
        BOOST_TEST(std::abs(out.grad_norm - norm) <= 2e-5 * norm);
        const double off = largest_error(fixture.read(&step::Param::grad), expected);
        // The first norm multiplies the rounding errors of a short row of the embedding, which magnitudes
        // make.
        BOOST_TEST(off <= (dora && kind.outside_layers ? 2e-5 : 4e-6), "gradients are " << off << " off");
        BOOST_TEST((fixture.read() == united(base, adapters)), "an update with lr 0 changes a weight");
      }
      ++variant;
    }
  }
}

// Ranks and alphas that differ, and layers without adapters of some matrices.
BOOST_DATA_TEST_CASE(gradients_of_different_adapters_match_the_merged_reference,
                     kAdaptedModels* boost::unit_test::data::make({false, true}), z, dora) {
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  const Weights base = random_weights(z.spec, 3);
  RunSpec r = lora_run(z, 2, 2, 0, 4);
  r.memory.dora = dora, r.recompute = dora ? Recompute::kSelective : Recompute::kFull;
  set_different_adapters(z.spec, r);
  BOOST_TEST(!r.lora_rules.empty());
  const Weights adapters = random_adapters(z.spec, r, 4);
  Weights dw;
  const double loss =
      reference::Model(z.spec, z.seq).loss(merged(z.spec, r, base, adapters), ids, targets, &dw);
  const Weights expected = adapter_gradients(z.spec, r, base, dw, adapters);
  CpuModelFixture fixture(z.spec, r, cpu::select_kernels(), 2);
  fixture.load(united(base, adapters));
  BOOST_TEST(std::abs(fixture.update(ids, targets, 0.0, 0).loss - loss) <= 4e-6 * loss);
  BOOST_TEST(largest_error(fixture.read(&step::Param::grad), expected) <= 4e-6);
}

// Modules trained beside adapters: their gradients are those of the merged model.
BOOST_DATA_TEST_CASE(gradients_of_modules_beside_adapters_match_the_merged_reference, kAdaptedModels, z) {
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  const Weights base = random_weights(z.spec, 3);
  for (const std::vector<std::string>& modules :
       {std::vector<std::string>{"norm"}, std::vector<std::string>{"down_proj"},
        std::vector<std::string>{"lm_head", "embed_tokens"}}) {
    RunSpec r = lora_run(z, 2, 2, 0x5, 3);
    r.trainable = rules_of_modules(modules);
    r.recompute = modules.size() == 2 ? Recompute::kFull : Recompute::kSelective;
    const Weights adapters = random_adapters(z.spec, r, 4);
    Weights dw;
    reference::Model(z.spec, z.seq).loss(merged(z.spec, r, base, adapters), ids, targets, &dw);
    Weights expected = adapter_gradients(z.spec, r, base, dw, adapters);
    for (const TensorInfo& t : tensors(z.spec))
      if (is_trained(r, t.name)) expected[t.name] = dw.at(t.name);
    CpuModelFixture fixture(z.spec, r, cpu::select_kernels(), 2);
    fixture.load(united(base, adapters));
    fixture.update(ids, targets, 0.0, 0);
    const Weights gradients = fixture.read(&step::Param::grad);
    BOOST_TEST(gradients.size() == expected.size(), modules.front());
    BOOST_TEST(largest_error(gradients, expected) <= 4e-6, modules.front());
  }
}

BOOST_DATA_TEST_CASE(an_update_changes_adapters_alone_with_the_same_bits_everywhere, kAdaptedModels* kKinds,
                     z, kind) {
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  const Weights base = random_weights(z.spec, 3);
  for (Optimizer optimizer :
       {Optimizer::kAdafactor, Optimizer::kMuon, Optimizer::kAdamW8bit, Optimizer::kAdamW}) {
    Weights first;
    for (std::uint32_t threads : {1u, 3u})
      for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
        for (bool separate : {false, true}) {
          RunSpec r = lora_run(z, 2, 2, targets_of(kind, z.spec), 4);
          r.recompute = recompute, r.optimizer = optimizer, r.memory.lora_dropout = 0.2;
          r.memory.dora = kind.dora;
          const Weights adapters = random_adapters(z.spec, r, 4);
          CpuModelFixture fixture(z.spec, r, cpu::select_kernels(), threads, separate);
          fixture.load(united(base, adapters));
          for (std::uint64_t t = 0; t < 2; ++t) fixture.update(ids, targets, 0.01, t);
          const Weights now = fixture.read();
          for (const auto& [name, v] : base)
            BOOST_TEST((now.at(name) == v), name << " is frozen and changed");
          for (const auto& [name, v] : adapters) BOOST_TEST((now.at(name) != v), name << " is not trained");
          if (first.empty()) first = now;
          BOOST_TEST((now == first), name(optimizer) << ", " << threads << " threads, " << name(recompute)
                                                     << ", separate " << separate);
        }
  }
}

// Dropout: the mask is a function of the micro-batch, so a loss with other adapters at the same step has the
// same one, and the gradient is the limit of differences.
BOOST_DATA_TEST_CASE(gradients_behind_dropout_are_those_of_the_loss, kAdaptedModels* kKinds, z, kind) {
  const bool dora = kind.dora;
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  const Weights base = random_weights(z.spec, 3);
  RunSpec r = lora_run(z, 2, 2, targets_of(kind, z.spec), 3);
  r.memory.lora_dropout = 0.3, r.memory.dora = dora;
  const Weights adapters = random_adapters(z.spec, r, 4), direction = random_adapters(z.spec, r, 5);
  CpuModelFixture fixture(z.spec, r, cpu::select_kernels(), 2);
  const auto at = [&](double step) {
    Weights moved = adapters;
    for (auto& [name, v] : moved)
      for (std::size_t i = 0; i < v.size(); ++i) v[i] += step * direction.at(name)[i];
    return moved;
  };
  const auto loss_at = [&](double step, std::uint64_t index) {
    fixture.load(united(base, at(step)));
    return fixture.update(ids, targets, 0.0, index).loss;
  };
  constexpr double kStep = 0.002;
  const double slope = (loss_at(kStep, 5) - loss_at(-kStep, 5)) / (2 * kStep), loss = loss_at(0, 5);
  double expected = 0, norm = 0;
  for (const auto& [name, g] : fixture.read(&step::Param::grad))
    for (std::size_t i = 0; i < g.size(); ++i) expected += g[i] * direction.at(name)[i], norm += g[i] * g[i];
  // Gradients of DoRA leave out what the norms n of the rows change: the loss depends on m / n, so its
  // derivative by n is - m / n times that by m.
  if (dora) {
    const ModelSpec m = reference_model(z.spec, r);
    const Weights whole = reference_weights(z.spec, r, base);
    const Weights gradients = fixture.read(&step::Param::grad), norms = norms_of_rows(m, r, whole, adapters),
                  above = norms_of_rows(m, r, whole, at(kStep)),
                  below = norms_of_rows(m, r, whole, at(-kStep));
    for (const auto& [name, v] : norms)
      for (std::size_t i = 0; i < v.size(); ++i)
        expected -= adapters.at(name)[i] / v[i] * gradients.at(name)[i] *
                    (above.at(name)[i] - below.at(name)[i]) / (2 * kStep);
  }
  BOOST_TEST(std::abs(slope - expected) <= 2e-3 * (std::abs(expected) + std::sqrt(norm)),
             slope << " against " << expected);
  BOOST_TEST(loss_at(0, 5) == loss);
  BOOST_TEST(loss_at(0, 6) != loss);
  const ModelSpec m = reference_model(z.spec, r);
  const Weights whole = merged(m, r, reference_weights(z.spec, r, base), adapters);
  BOOST_TEST(loss != reference::Model(m, z.seq).loss(whole, ids, targets));
  // Evaluation drops nothing.
  const Ids two(ids.begin(), ids.begin() + 2 * z.seq),
      two_targets(targets.begin(), targets.begin() + 2 * z.seq);
  const double evaluated = reference::Model(m, z.seq).loss(whole, two, two_targets);
  BOOST_TEST(std::abs(fixture.evaluate(two, two_targets).loss - evaluated) <= 4e-6 * evaluated);
}

BOOST_DATA_TEST_CASE(evaluation_and_generation_apply_the_adapters, kAdaptedModels* kKinds, z, kind) {
  RunSpec r = lora_run(z, 2, 1, targets_of(kind, z.spec), 3);
  r.memory.dora = kind.dora;
  const Weights base = random_weights(z.spec, 3), adapters = random_adapters(z.spec, r, 4);
  const ModelSpec m = reference_model(z.spec, r);
  const Weights whole = merged(m, r, reference_weights(z.spec, r, base), adapters);
  CpuModelFixture fixture(z.spec, r, cpu::select_kernels(), 2, true);
  fixture.load(united(base, adapters));
  const Ids ids = random_tokens(2 * z.seq, z.spec.vocab, 1),
            targets = random_targets(2 * z.seq, z.spec.vocab, 2);
  const double loss = reference::Model(m, z.seq).loss(whole, ids, targets);
  BOOST_TEST(std::abs(fixture.evaluate(ids, targets).loss - loss) <= 4e-6 * loss);
  const Ids one(ids.begin(), ids.begin() + z.seq);
  const Vec expected = reference::Model(m, z.seq).logits(whole, one);
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
