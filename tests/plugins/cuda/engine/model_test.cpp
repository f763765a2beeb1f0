// Whole models through the CUDA trainer in every mode, compared with the reference model in double: losses,
// norms, weights and moments after updates, evaluation and generation. Results must have the same bits under
// every schedule and with any number of host threads.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "tests/plugins/cuda/engine/engine_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using reference::Ids;
using reference::Vec;
using reference::Weights;

const auto kSmallModels = boost::unit_test::data::make(small_models());

double distance(const std::vector<float>& a, const Vec& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    if (!(d <= worst)) worst = std::isfinite(d) ? d : INFINITY;
  }
  return worst;
}
/// Largest error over all tensors.
double largest_error(const Tensors& a, const Weights& b) {
  double worst = 0;
  for (const auto& [name, v] : b) worst = std::max(worst, distance(a.at(name), v));
  return worst;
}

/// Expected weights and moments after updates, in double.
struct Expected {
  Weights w, m, v;
  double loss = 0, norm = 0;
  std::map<std::int32_t, double> squares;  // of the gradients of a layer; -1: of those outside the layers

  void update(const NamedModel& z, const RunSpec& r, const Ids& ids, const Ids& targets, double lr,
              double t) {
    Weights g;
    loss = reference::Model(z.spec, z.seq).loss(w, ids, targets, &g);
    norm = 0;
    for (const auto& [name, x] : g)
      for (double e : x) norm += e * e;
    norm = std::sqrt(norm);
    squares.clear();
    for (const TensorInfo& info : tensors(z.spec)) {
      Vec& gi = g[info.name];
      for (double e : gi) squares[info.layer] += e * e;
      if (r.clip_norm > 0)
        for (double& e : gi) e *= std::min(1.0, r.clip_norm / (norm + 1e-6));
      const bool decay = info.rank > 1;
      Vec &wi = w[info.name], &mi = m[info.name], &vi = v[info.name];
      mi.resize(wi.size()), vi.resize(wi.size());
      if (r.optimizer == Optimizer::kAdamW)
        reference::AdamW{lr, r.beta1, r.beta2, r.eps, r.weight_decay}.step(t, gi, decay, wi, mi, vi);
      else if (r.optimizer == Optimizer::kLion)
        reference::Lion{lr, r.beta1, r.beta2, r.weight_decay}.step(gi, decay, wi, mi);
      else
        reference::Sgd{lr, r.beta1, r.weight_decay}.step(gi, decay, wi,
                                                         r.optimizer == Optimizer::kSgd ? nullptr : &mi);
    }
  }
};

BOOST_AUTO_TEST_SUITE(cuda_model)

BOOST_DATA_TEST_CASE(updates_match_the_reference, kSmallModels* boost::unit_test::data::make(kModes), z,
                     mode) {
  const Optimizer optimizers[] = {Optimizer::kAdamW, Optimizer::kSgdMomentum, Optimizer::kSgd,
                                  Optimizer::kLion};
  const Recompute recomputes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  for (std::uint32_t accumulate : {1 + z.seq % 2, 3 + z.seq % 2}) {
    emu::reset();
    RunSpec r;
    r.seq_len = z.seq, r.accumulate = accumulate, r.micro_batch = accumulate == 1 ? 3 : 1;
    r.weight_decay = 0.1, r.clip_norm = accumulate % 2 ? 0.25 : 0.0;
    r.optimizer = optimizers[accumulate % 4], r.recompute = recomputes[(accumulate + z.seq) % 3];
    const std::size_t n = r.tokens_per_step();
    const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
    Expected e;
    e.w = random_weights(z.spec, 3);
    CudaHost host(mode);
    PluginSession s(cuda_engine(), host, z.spec, r);
    s.load_all(as_floats(e.w));
    s.init(0);
    BOOST_TEST_CONTEXT("accumulate " << accumulate << ", " << name(r.optimizer) << ", recompute "
                                     << name(r.recompute)) {
      // There is no gradient before the first update.
      BOOST_CHECK_THROW(s.metric("grad_norm.layer.0"), StatusFailure);
      for (std::uint64_t t = 0; t < 2; ++t) {
        e.update(z, r, ids, targets, 0.01, static_cast<double>(t) + 1);
        const th_step_out out = s.step(ids, targets, 0.01, t);
        BOOST_TEST(std::abs(out.loss - e.loss) <= 1e-4 * e.loss, out.loss << " against " << e.loss);
        BOOST_TEST(std::abs(out.grad_norm - e.norm) <= 1e-4 * e.norm, out.grad_norm << " against " << e.norm);
        BOOST_TEST(out.tokens_counted ==
                   n - static_cast<std::size_t>(std::count(targets.begin(), targets.end(), -100)));
        for (const auto& [layer, squares] : e.squares) {
          const std::string key =
              layer < 0 ? "grad_norm.outside_layers" : "grad_norm.layer." + std::to_string(layer);
          BOOST_TEST(std::abs(s.metric(key.c_str()) - std::sqrt(squares)) <= 1e-4 * std::sqrt(squares),
                     key << " " << s.metric(key.c_str()) << " against " << std::sqrt(squares));
        }
        for (const char* key : {"grad_norm.layer.99", "grad_norm_part.layer.0", "grad_norm.layer.x"})
          BOOST_CHECK_THROW(s.metric(key), StatusFailure);
      }
      // Evaluation uses the memory of the gradients.
      s.evaluate(Ids(ids.begin(), ids.begin() + z.seq), Ids(targets.begin(), targets.begin() + z.seq));
      BOOST_CHECK_THROW(s.metric("grad_norm.layer.0"), StatusFailure);
      const bool adam = r.optimizer == Optimizer::kAdamW;
      // Adam divides by the root of the second moment: where a gradient is almost zero, its sign and so the
      // direction of the step are uncertain.
      const double off = largest_error(s.save(), e.w);
      BOOST_TEST(off <= (adam ? 2e-3 : 1e-5), "largest error of the weights: " << off);
      if (r.optimizer != Optimizer::kSgd) BOOST_TEST(largest_error(s.save(TH_SCOPE_MOMENT1), e.m) <= 1e-4);
      if (adam) BOOST_TEST(largest_error(s.save(TH_SCOPE_MOMENT2), e.v) <= 1e-4);
    }
  }
}

// The reference has the documents in sequences of their own, one after the other with micro_batch 1: mean
// losses are weighted by counted targets.
BOOST_DATA_TEST_CASE(packed_documents_have_the_losses_of_separate_ones,
                     kSmallModels* boost::unit_test::data::make(kModes), z, mode) {
  emu::reset();
  RunSpec r;
  r.seq_len = z.seq, r.micro_batch = 2, r.accumulate = 2, r.clip_norm = 0, r.weight_decay = 0;
  r.optimizer = Optimizer::kSgd, r.document_mask = true;
  r.recompute = z.seq % 2 ? Recompute::kFull : Recompute::kNone;
  const std::size_t n = r.tokens_per_step();
  Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2), starts(n);
  const Weights w = random_weights(z.spec, 3);
  double loss = 0, counted = 0;
  Weights gradients;
  for (std::size_t row = 0, document = 0; row < n; ++document) {
    const std::size_t in_sequence = row % z.seq,
                      length = std::min<std::size_t>(2 + document * 3 % 7, z.seq - in_sequence);
    const auto part = [&](const Ids& x) {
      return Ids(x.begin() + static_cast<long>(row), x.begin() + static_cast<long>(row + length));
    };
    std::fill_n(starts.begin() + static_cast<long>(row), length, static_cast<std::int32_t>(in_sequence));
    targets[row + length - 1] = -100;  // the target of the last token is of the next document
    const Ids of_document = part(targets);
    const auto here = static_cast<double>(
        length - static_cast<std::size_t>(std::count(of_document.begin(), of_document.end(), -100)));
    Weights g;
    if (here > 0) loss += here * reference::Model(z.spec, length).loss(w, part(ids), of_document, &g);
    for (const auto& [name, x] : g) {
      gradients[name].resize(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) gradients[name][i] += here * x[i];
    }
    counted += here, row += length;
  }
  CudaHost host(mode);
  PluginSession s(cuda_engine(), host, z.spec, r);
  s.load_all(as_floats(w));
  s.init(0);
  const auto half = static_cast<long>(n / 2);
  const auto evaluate = [&](const Ids& of) {
    return s.step({ids.begin(), ids.begin() + half}, {targets.begin(), targets.begin() + half}, 0, 0,
                  TH_STEP_EVALUATE, of);
  };
  const double packed = evaluate({starts.begin(), starts.begin() + half}).loss;
  BOOST_TEST(std::abs(evaluate(Ids(n / 2, 0)).loss - packed) > 1e-4 * packed);
  const th_step_out out = s.step(ids, targets, 1, 0, 0, starts);
  BOOST_TEST(std::abs(out.loss - loss / counted) <= 1e-5 * out.loss);
  Weights expected = w;
  for (auto& [name, x] : expected)
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= gradients[name][i] / counted;
  BOOST_TEST(largest_error(s.save(), expected) <= 1e-5);
  BOOST_CHECK_THROW(s.step(ids, targets, 1, 1), StatusFailure);  // no starts
  Ids wrong = starts;
  wrong[z.seq - 1] = static_cast<std::int32_t>(z.seq);
  BOOST_CHECK_THROW(s.step(ids, targets, 1, 1, 0, wrong), StatusFailure);
}

BOOST_DATA_TEST_CASE(bits_do_not_depend_on_schedule_or_threads,
                     kSmallModels* boost::unit_test::data::make(kModes), z, mode) {
  const bool bf16 = z.seq % 2 == 0;
  RunSpec r;
  r.seq_len = z.seq, r.micro_batch = 1, r.accumulate = 3;
  r = in_precision(r, bf16 ? "bf16" : "fp32");
  const Ids ids = random_tokens(3 * z.seq, z.spec.vocab, 1),
            targets = random_targets(3 * z.seq, z.spec.vocab, 2);
  TrainState first;
  std::vector<double> losses;
  std::uint32_t threads = 0;
  for (const emu::Schedule& schedule : emu::every_schedule()) {
    if ((schedule.seed + z.seq) % 2) continue;  // half of the schedules per model
    emu::reset();
    emu::set_schedule(schedule);
    CudaHost host(mode, 1 + threads++ % 3);
    PluginSession s(cuda_engine(), host, z.spec, r);
    s.load_all(as_floats(random_weights(z.spec, 3)));
    s.init(0);
    std::vector<double> mine;
    for (std::uint64_t t = 0; t < 2; ++t) mine.push_back(s.step(ids, targets, 0.01, t).loss);
    const Ids short_ids(ids.begin(), ids.begin() + z.seq),
        short_targets(targets.begin(), targets.begin() + z.seq);
    mine.push_back(s.evaluate(short_ids, short_targets).loss);
    mine.push_back(s.next(ids[0], 0)[0]);
    const TrainState state = state_of(s);
    if (first.empty()) first = state, losses = mine;
    BOOST_TEST(same_bits(state, first), "schedule " << schedule.seed << ", threads " << host.thread_budget);
    BOOST_TEST((mine == losses), "schedule " << schedule.seed);
    BOOST_TEST(s.metric("sync_mismatch") == 0.0);
    BOOST_TEST(emu::problems().empty());
  }
}

BOOST_DATA_TEST_CASE(evaluation_is_the_loss_and_changes_nothing,
                     kSmallModels* boost::unit_test::data::make(kModes), z, mode) {
  emu::reset();
  const Weights w = random_weights(z.spec, 3);
  RunSpec r;
  r.seq_len = z.seq, r.micro_batch = 3, r.accumulate = 1 + z.seq % 2;
  CudaHost host(mode);
  PluginSession s(cuda_engine(), host, z.spec, r);
  s.load_all(as_floats(w));
  s.init(0);
  const TrainState before = state_of(s);
  const th_counters transfers = counters(s);
  for (std::uint32_t sequences = 1; sequences <= 3; ++sequences) {
    const std::size_t n = sequences * z.seq;
    const Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
    const double loss = reference::Model(z.spec, z.seq).loss(w, ids, targets);
    const th_step_out out = s.evaluate(ids, targets);
    BOOST_TEST(std::abs(out.loss - loss) <= 1e-5 * loss,
               sequences << " sequences: " << out.loss << " against " << loss);
  }
  BOOST_TEST(s.evaluate(random_tokens(z.seq, z.spec.vocab, 1), Ids(z.seq, -100)).tokens_counted == 0u);
  BOOST_TEST(same_bits(state_of(s), before));
  BOOST_TEST(counters(s).h2d_count == transfers.h2d_count);
}

BOOST_DATA_TEST_CASE(generation_returns_the_logits_of_every_position,
                     kSmallModels* boost::unit_test::data::make(kModes), z, mode) {
  const Weights w = random_weights(z.spec, 3);
  const Ids ids = random_tokens(z.seq, z.spec.vocab, 1);
  const Vec expected = reference::Model(z.spec, z.seq).logits(w, ids);
  for (const char* precision : {"fp32", "bf16"}) {
    emu::reset();
    RunSpec r;
    r.seq_len = z.seq, r.micro_batch = 2;
    CudaHost host(mode);
    PluginSession s(cuda_engine(), host, z.spec, in_precision(r, precision));
    s.load_all(as_floats(w));
    s.init(0);
    const double allowed = std::string(precision) == "bf16" ? 0.2 : 2e-5;
    for (int round = 0; round < 2; ++round)  // position 0 restarts the sequence
      for (std::uint32_t p = 0; p < z.seq; ++p) {
        const Vec row(expected.begin() + static_cast<long>(p * z.spec.vocab),
                      expected.begin() + static_cast<long>((p + 1) * z.spec.vocab));
        const double off = distance(s.next(ids[p], p), row);
        BOOST_TEST(off <= allowed, precision << ", position " << p << ": error " << off);
      }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
