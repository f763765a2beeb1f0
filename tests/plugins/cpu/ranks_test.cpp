// Data-parallel runs of the CPU trainer, with threads as ranks, against a run of one rank with the same
// global batch: losses, norms, weights and optimizer state; memory against the plan; what is sent against the
// closed form.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "core/model/shards.hpp"
#include "tests/support/golden_run.hpp"
#include "tests/support/rank_runs.hpp"
#include "tests/support/tensor_cases.hpp"

namespace trainhost {
namespace {

using namespace test;

std::vector<RankCase> rank_cases() {
  std::vector<RankCase> all;
  for (const NamedModel& m : small_models())
    for (std::uint32_t ranks : {2u, 3u, 4u})
      for (std::uint32_t zero : {0u, 1u, 2u, 3u})
        for (Recompute r : {Recompute::kNone, Recompute::kFull}) all.push_back({m, ranks, zero, r});
  for (const NamedModel& m : small_models())
    for (std::uint32_t zero : {0u, 1u, 2u, 3u})
      all.push_back({m, 2, zero, Recompute::kSelective, Optimizer::kAdamW, true});
  for (const NamedModel& m : small_models())
    for (std::uint32_t zero : {1u, 2u, 3u})
      for (RunMode mode : {RunMode::kLora, RunMode::kQlora})
        for (bool dora : {false, true})
          all.push_back({m, zero == 1 ? 4u : zero, zero, dora ? Recompute::kFull : Recompute::kNone,
                         Optimizer::kAdamW, false, mode, dora});
  for (Optimizer o : {Optimizer::kLion, Optimizer::kSgd, Optimizer::kSgdMomentum})
    for (std::uint32_t zero : {0u, 1u, 2u, 3u})
      all.push_back({small_models()[1], 3, zero, Recompute::kNone, o});
  for (Optimizer o : {Optimizer::kMuon, Optimizer::kAdafactor, Optimizer::kAdamW8bit})
    all.push_back({small_models()[1], 2, 0, Recompute::kNone, o});
  return all;
}

BOOST_AUTO_TEST_SUITE(cpu_ranks)

// Each is trained below, with the memory of every rank as planned and losses within 1e-5 of one process.
BOOST_AUTO_TEST_CASE(there_are_at_least_120_combinations) {
  const std::size_t found = combinations_of(rank_cases());
  BOOST_TEST_MESSAGE(found << " combinations of data-parallel ranks");
  BOOST_TEST(found >= 120u);
}

/// Losses and norms of all ranks together, and memory of each, against one process and the plan.
void compare_with_one_process(const RankCase& c) {
  constexpr std::uint32_t kSteps = 6;
  const RankResult one = train(c, 0, kSteps), many = train(c, c.ranks, kSteps);
  // Products of bf16 round sums of other micro-batches alike, so it has no larger tolerance of losses; a
  // gradient may differ by a rounding of an operand.
  trains_alike(one, many,
               c.optimizer == Optimizer::kAdamW8bit ? Nearness{1e-3, 0, 0}
                                                    : Nearness{1e-5, 1e-4, c.bf16 ? 1e-3 : 1e-4});
}

BOOST_DATA_TEST_CASE(ranks_train_as_one_process_does, boost::unit_test::data::make(rank_cases()), c) {
  compare_with_one_process(c);
}

// Gradients then use the bytes of activations, as parts of ZeRO too.
BOOST_AUTO_TEST_CASE(ranks_with_one_micro_batch_train_as_one_process_does) {
  for (const std::uint32_t zero : {0u, 1u, 2u, 3u})
    for (const RunMode mode : {RunMode::kFull, RunMode::kLora})
      for (const std::uint32_t tensor : {1u, 2u}) {
        RankCase c{divided_model(3, tensor), 3, zero};
        c.mode = mode, c.tensor = tensor, c.one_micro_batch = true;
        BOOST_TEST_CONTEXT(c) compare_with_one_process(c);
      }
}

BOOST_AUTO_TEST_CASE(the_same_ranks_give_the_same_bits) {
  for (std::uint32_t zero : {0u, 1u, 2u, 3u}) {
    const RankCase c{small_models()[4], 3, zero};
    const RankResult a = train(c, 3, 5), b = train(c, 3, 5);
    BOOST_TEST(a.loss == b.loss);
    BOOST_TEST(a.norm == b.norm);
    BOOST_TEST((a.weights == b.weights));
  }
}

// Per rank, of G bytes of gradients or weights: 2(N-1)/N G per step. ZeRO 2 sends gradients after each of A
// micro-batches: (A+1)(N-1)/N G, the same with one micro-batch. ZeRO 3 gathers the weights of the layers
// twice per micro-batch, and those outside them once: at most 3(N-1)/N G. And the scalars: two sums of 16
// bytes per micro-batch and update.
BOOST_AUTO_TEST_CASE(what_a_rank_sends_is_the_closed_form) {
  for (std::uint32_t zero : {0u, 1u, 2u, 3u}) {
    RankCase c{small_models()[0], 2, zero};
    c.model.spec.vocab = 32, c.model.spec.hidden = 32, c.model.spec.intermediate = 32,
    c.model.spec.head_dim = 8;
    const RankResult r = train(c, 2, 4);
    std::uint64_t elements = 0, in_layers = 0;
    for (const TensorInfo& t : tensors(c.model.spec))
      elements += t.elements(), in_layers += t.layer < 0 ? 0 : t.elements();
    const double all = 4.0 * static_cast<double>(elements), layers = 4.0 * static_cast<double>(in_layers);
    const double micro_batches = run_of(c, 2, 0).accumulate, scalars = 16.0 * (micro_batches + 1);
    const double sent = zero < 2    ? 2 * all
                        : zero == 2 ? (micro_batches + 1) * all
                                    : micro_batches * (2 * all + layers);
    BOOST_TEST(r.bytes == 4 * (sent / 2 + scalars));
  }
}

BOOST_DATA_TEST_CASE(evaluation_and_generation_are_those_of_one_process,
                     boost::unit_test::data::make({2u, 3u}), zero) {
  for (const std::size_t model : {std::size_t{1}, std::size_t{4}}) {
    const RankCase c{small_models()[model], 3, zero};
    const auto one = evaluate_and_generate(c, 0), many = evaluate_and_generate(c, 3);
    for (const auto& rank : many) {
      BOOST_TEST(rank.first == one[0].first);
      BOOST_TEST(rank.second == one[0].second);
    }
  }
}

// An initial weight depends on its element and the seed; so do the magnitudes of DoRA.
BOOST_AUTO_TEST_CASE(initial_weights_do_not_depend_on_the_ranks) {
  RankCase c{small_models()[3], 3, 3, Recompute::kNone, Optimizer::kAdamW, false, RunMode::kLora, true};
  for (const RunMode mode : {RunMode::kFull, RunMode::kLora, RunMode::kQlora}) {
    c.mode = mode, c.dora = mode != RunMode::kFull;
    const auto initial = [&](std::uint32_t ranks) {
      std::vector<Tensors> out(ranks);
      ThreadRanks together(ranks);
      together.each([&](std::uint32_t rank) {
        CountingHost host(1);
        if (ranks > 1) host.ranks = together.rank(rank);
        PluginSession session(cpu_plugin(), host, c.model.spec, run_of(c, ranks > 1 ? ranks : 0, rank));
        session.init(5);
        out[rank] = session.save(mode == RunMode::kFull ? TH_SCOPE_WEIGHTS : TH_SCOPE_ADAPTER);
      });
      return out;
    };
    const std::vector<Tensors> one = initial(1), many = initial(3);
    for (const Tensors& of_rank : many) BOOST_TEST((of_rank == one[0]), c);
  }
}

BOOST_DATA_TEST_CASE(a_value_that_is_not_finite_stops_the_update_on_all_ranks,
                     boost::unit_test::data::make({1u, 2u, 3u}), zero) {
  const RankCase c{small_models()[0], 2, zero};
  const ModelSpec& m = c.model.spec;
  Tensors weights;
  for (const auto& [name, values] : random_weights(m, 7)) weights[name].assign(values.begin(), values.end());
  ThreadRanks together(2);
  std::vector<std::string> said(2);
  together.each([&](std::uint32_t rank) {
    const RunSpec run = run_of(c, 2, rank);
    CountingHost host(1);
    host.ranks = together.rank(rank);
    PluginSession session(cpu_plugin(), host, m, run);
    // One rank has a weight that its copy lacks: as after a bit that flipped. With ZeRO 3 the others get it.
    Tensors own = weights;
    if (rank == 1 || zero == 3) own.at("lm_head.weight")[3] = INFINITY;
    session.load_all(own);
    session.init(0);
    const std::size_t n = std::size_t{kSequences} * run.seq_len / 2;
    const auto ids = random_tokens(n, m.vocab, 1), targets = random_targets(n, m.vocab, 2);
    const auto [code, message] = refusal([&] { session.step(ids, targets, 1e-3, 0); });
    said[rank] = (code == TH_E_NONFINITE ? "not finite: " : "other: ") + message;
    Tensors after = session.save();
    if (!(after == own)) throw std::runtime_error("the update has changed weights");
  });
  BOOST_TEST(said[0].starts_with("not finite: "));
  BOOST_TEST(said[0].find(zero == 3 ? "head" : "on another rank") != std::string::npos, said[0]);
  BOOST_TEST(said[1].starts_with("not finite: "));
  BOOST_TEST(said[1].find("head") != std::string::npos, said[1]);
}

BOOST_AUTO_TEST_CASE(one_rank_that_is_cancelled_stops_all_and_changes_nothing) {
  const RankCase c{small_models()[0], 3, 3};
  const ModelSpec& m = c.model.spec;
  ThreadRanks together(3);
  std::vector<th_status> codes(3);
  together.each([&](std::uint32_t rank) {
    const RunSpec run = run_of(c, 3, rank);
    CountingHost host(1);
    host.ranks = together.rank(rank);
    host.cancel = rank == 1;
    PluginSession session(cpu_plugin(), host, m, run);
    session.init(0);
    const std::size_t n = std::size_t{kSequences} * run.seq_len / 3;
    codes[rank] = refusal([&] {
                    session.step(random_tokens(n, m.vocab, 1), random_targets(n, m.vocab, 2), 1e-3, 0);
                  }).first;
  });
  for (th_status s : codes) BOOST_TEST(s == TH_E_CANCELLED);
}

BOOST_AUTO_TEST_CASE(runs_that_ranks_cannot_share_are_refused) {
  const RankCase c{small_models()[0], 2, 1};
  CountingHost host(1);
  const auto said = [&](RunSpec r) {
    return refusal([&] { PluginSession session(cpu_plugin(), host, c.model.spec, r); }).second;
  };
  RunSpec r = run_of(c, 2, 0);
  BOOST_TEST(said(r).find("needs a communicator") != std::string::npos, said(r));
  ThreadRanks three(3);
  host.ranks = three.rank(1);
  BOOST_TEST(said(r).find("rank 1 of 3 in the communicator is not rank 0 of 2") != std::string::npos,
             said(r));
  r.optimizer = Optimizer::kMuon;
  BOOST_TEST(said(r).find("\"muon\" cannot be divided among ranks") != std::string::npos, said(r));
  r = run_of(c, 2, 0), r.parallel.data = 1;
  BOOST_TEST(said(r).find("divides state among ranks, but there is one") != std::string::npos, said(r));
  r = run_of(c, 2, 5);
  BOOST_TEST(said(r).find("rank 6 of parallel.data = 2") != std::string::npos, said(r));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
