// Whole models through the executor and the CPU backend: gradients, updates, evaluation and generation
// compared with the reference model in double. Results must have the same bits with any number of threads,
// any storage and any recompute policy.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/support/cpu_model_fixture.hpp"
#include "tests/support/cpu_op_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using reference::Ids;
using reference::Vec;
using reference::Weights;

const auto kSmallModels = boost::unit_test::data::make(small_models());

RunSpec run_of(const NamedModel& z, std::uint32_t micro_batch, std::uint32_t accumulate) {
  RunSpec r;
  r.seq_len = z.seq, r.micro_batch = micro_batch, r.accumulate = accumulate, r.clip_norm = 0.0,
  r.weight_decay = 0.1;
  return r;
}
std::vector<const cpu::Kernels*> kernel_tables() {
  std::size_t n = 0;
  const cpu::Kernels* const* t = cpu::runnable_kernels(&n);
  return {t, t + n};
}

BOOST_AUTO_TEST_SUITE(cpu_model)

BOOST_DATA_TEST_CASE(gradients_match_the_reference, kSmallModels, z) {
  const std::size_t n = 4 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  const Weights w = random_weights(z.spec, 3);
  Weights expected;
  const double loss = reference::Model(z.spec, z.seq).loss(w, ids, targets, &expected);
  double norm = 0;
  for (const auto& [name, g] : expected)
    for (double x : g) norm += x * x;
  norm = std::sqrt(norm);
  for (const cpu::Kernels* k : kernel_tables())
    for (std::uint32_t accumulate : {1u, 2u, 4u})
      for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        RunSpec r = run_of(z, 4 / accumulate, accumulate);
        r.recompute = recompute;
        CpuModelFixture fixture(z.spec, r, *k, 2);
        fixture.load(w);
        const executor::UpdateResult out = fixture.update(ids, targets, 0.0, 0);
        BOOST_TEST_CONTEXT(k->name << ", accumulate " << accumulate << ", recompute " << name(recompute)) {
          BOOST_TEST(std::abs(out.loss - loss) <= 2e-6 * loss);
          BOOST_TEST(std::abs(out.grad_norm - norm) <= 1e-5 * norm);
          const double off = largest_error(fixture.read(&step::Param::grad), expected);
          BOOST_TEST(off <= 2e-6, "gradients are " << off << " off");
          BOOST_TEST((fixture.read() == w), "an update with lr 0 changes a weight");
        }
      }
}

// The reference computes each document in a sequence of its own, so with positions from 0.
BOOST_DATA_TEST_CASE(packed_documents_have_the_gradients_of_separate_ones, kSmallModels, z) {
  constexpr std::size_t kSequences = 4;
  const std::size_t n = kSequences * z.seq;
  Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2), starts(n);
  const Weights w = random_weights(z.spec, 3);
  Weights expected;
  double loss = 0, counted = 0;
  for (std::size_t row = 0, document = 0; row < n; ++document) {
    const std::size_t in_sequence = row % z.seq,
                      length = std::min<std::size_t>(1 + document * 3 % 7, z.seq - in_sequence);
    const auto part = [&](const Ids& x) {
      return Ids(x.begin() + static_cast<long>(row), x.begin() + static_cast<long>(row + length));
    };
    for (std::size_t t = 0; t < length; ++t) starts[row + t] = static_cast<std::int32_t>(in_sequence);
    targets[row + length - 1] = -100;  // the target of the last token is of the next document
    const auto here =
        static_cast<double>(length) -
        static_cast<double>(std::count(targets.begin() + static_cast<long>(row),
                                       targets.begin() + static_cast<long>(row + length), -100));
    if (here > 0) {
      Weights g;
      loss += here * reference::Model(z.spec, length).loss(w, part(ids), part(targets), &g);
      for (const auto& [name, x] : g) {
        Vec& sum = expected[name];
        sum.resize(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) sum[i] += here * x[i];
      }
    }
    counted += here, row += length;
  }
  loss /= counted;
  for (auto& [name, x] : expected)
    for (double& v : x) v /= counted;
  for (const cpu::Kernels* k : kernel_tables())
    for (Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      RunSpec r = run_of(z, 2, 2);
      r.recompute = recompute, r.document_mask = true;
      CpuModelFixture fixture(z.spec, r, *k, 2);
      fixture.load(w);
      const executor::UpdateResult out = fixture.update(ids, targets, 0.0, 0, starts);
      BOOST_TEST_CONTEXT(k->name << ", recompute " << name(recompute)) {
        BOOST_TEST(std::abs(out.loss - loss) <= 2e-6 * loss);
        const double off = largest_error(fixture.read(&step::Param::grad), expected);
        BOOST_TEST(off <= 2e-6, "gradients are " << off << " off");
      }
      const auto half = static_cast<long>(n / 2);
      const Ids first(ids.begin(), ids.begin() + half), of_first(targets.begin(), targets.begin() + half),
          at(starts.begin(), starts.begin() + half);
      const double of_half = fixture.evaluate(first, of_first, at).loss;
      // Without the starts every token sees the documents before its own one.
      BOOST_TEST(std::abs(fixture.evaluate(first, of_first, Ids(n / 2, 0)).loss - of_half) > 1e-4 * of_half);
      fixture.update(ids, targets, 0.0, 0, Ids(n, 0));
      BOOST_TEST(largest_error(fixture.read(&step::Param::grad), expected) > 1e-4);
    }
}

BOOST_DATA_TEST_CASE(updates_follow_the_optimizers_and_clip_by_the_global_norm, kSmallModels, z) {
  const std::size_t n = 2 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  for (Optimizer o : {Optimizer::kAdamW, Optimizer::kSgd, Optimizer::kSgdMomentum, Optimizer::kLion}) {
    RunSpec r = run_of(z, 2, 1);
    r.optimizer = o, r.clip_norm = 0.25;
    CpuModelFixture fixture(z.spec, r, *kernel_tables().back(), 2);
    Weights w = random_weights(z.spec, 3), m, v;
    fixture.load(w);
    for (const auto& [name, x] : w) m[name].assign(x.size(), 0), v[name].assign(x.size(), 0);
    for (std::uint64_t t = 0; t < 3; ++t) {
      Weights g;
      reference::Model(z.spec, z.seq).loss(w, ids, targets, &g);
      double norm = 0;
      for (const auto& [name, x] : g)
        for (double e : x) norm += e * e;
      norm = std::sqrt(norm);
      for (const TensorInfo& info : tensors(z.spec)) {
        Vec& gi = g[info.name];
        for (double& e : gi) e *= std::min(1.0, r.clip_norm / (norm + 1e-6));
        const bool decay = info.rank > 1;
        if (o == Optimizer::kAdamW)
          reference::AdamW{0.01, r.beta1, r.beta2, r.eps, 0.1}.step(static_cast<double>(t) + 1, gi, decay,
                                                                    w[info.name], m[info.name], v[info.name]);
        else if (o == Optimizer::kLion)
          reference::Lion{0.01, r.beta1, r.beta2, 0.1}.step(gi, decay, w[info.name], m[info.name]);
        else
          reference::Sgd{0.01, r.beta1, 0.1}.step(gi, decay, w[info.name],
                                                  o == Optimizer::kSgd ? nullptr : &m[info.name]);
      }
      const executor::UpdateResult out = fixture.update(ids, targets, 0.01, t);
      BOOST_TEST(std::abs(out.grad_norm - norm) <= 1e-4 * norm);
    }
    // Adam divides by the root of the second moment: where a gradient is almost zero, its sign and so the
    // direction of the step are uncertain.
    const double off = largest_error(fixture.read(), w);
    BOOST_TEST(off <= (o == Optimizer::kAdamW ? 2e-3 : 2e-6), name(o) << ": weights are " << off << " off");
  }
}

BOOST_DATA_TEST_CASE(bits_do_not_depend_on_threads_storage_or_recompute, kSmallModels, z) {
  const std::size_t n = 6 * z.seq;
  const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  for (const cpu::Kernels* k : kernel_tables()) {
    Weights first;
    for (std::uint32_t threads = 1; threads <= 4; ++threads)
      for (Recompute recompute :
           {Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kLayers})
        for (bool separate : {false, true}) {
          RunSpec r = run_of(z, 3, 2);
          r.recompute = recompute, r.recompute_layers = {threads % 2, 0, 1 - threads % 2};
          CpuModelFixture fixture(z.spec, r, *k, threads, separate);
          fixture.load(random_weights(z.spec, 3));
          for (std::uint64_t t = 0; t < 3; ++t) fixture.update(ids, targets, 0.01, t);
          if (first.empty())
            first = fixture.read();
          else
            BOOST_TEST((fixture.read() == first), k->name << ", " << threads << " threads, recompute "
                                                          << name(recompute) << ", separate " << separate);
        }
  }
}

BOOST_DATA_TEST_CASE(evaluation_is_the_loss_and_changes_nothing, kSmallModels, z) {
  const Weights w = random_weights(z.spec, 3);
  for (const cpu::Kernels* k : kernel_tables()) {
    CpuModelFixture fixture(z.spec, run_of(z, 3, 1), *k, 2, true);
    fixture.load(w);
    for (std::uint32_t sequences = 1; sequences <= 3; ++sequences) {
      const std::size_t n = sequences * z.seq;
      const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
      const double loss = reference::Model(z.spec, z.seq).loss(w, ids, targets);
      BOOST_TEST(std::abs(fixture.evaluate(ids, targets).loss - loss) <= 2e-6 * loss);
    }
    BOOST_TEST((fixture.read() == w));
  }
}

BOOST_DATA_TEST_CASE(generation_returns_the_logits_of_every_position, kSmallModels, z) {
  const Weights w = random_weights(z.spec, 3);
  const Ids ids = random_tokens(z.seq, z.spec.vocab, 1);
  const Vec expected = reference::Model(z.spec, z.seq).logits(w, ids);
  for (const cpu::Kernels* k : kernel_tables()) {
    CpuModelFixture fixture(z.spec, run_of(z, 1, 1), *k, 2, true);
    fixture.load(w);
    for (int round = 0; round < 2; ++round)  // position 0 restarts the sequence
      for (std::uint32_t p = 0; p < z.seq; ++p) {
        const std::vector<float> logits = fixture.next(ids[p], p);
        const Vec row(expected.begin() + static_cast<long>(p * z.spec.vocab),
                      expected.begin() + static_cast<long>((p + 1) * z.spec.vocab));
        const double off = distance(Vec(logits.begin(), logits.end()), row);
        BOOST_TEST(off <= 5e-6, k->name << ", position " << p << ": " << off << " off");
      }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
