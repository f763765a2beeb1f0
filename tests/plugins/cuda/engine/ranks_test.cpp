// Runs of the CUDA engine on several data-parallel ranks, with threads as ranks, each with a device of its
// own and the fake NCCL between them, against a run of one rank of the CPU trainer with the same global
// batch: losses, norms, weights and optimizer state; memory against the plan; what is sent against the CPU
// trainer.
#include <barrier>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "plugins/cuda/common/nccl_library.hpp"
#include "tests/plugins/cuda/engine/cuda_ranks.hpp"

namespace trainhost {
namespace {

using namespace test;

/// As the fake NCCL in it under another name, which is another library for the loader of NCCL.
#define OTHER_NAME_OF_ENGINE EMULATED_ENGINE_FOLDER "/../engines/cuda-cublas-13.so"

/// Every model with every ZeRO stage; number of ranks, recomputation and precision go round.
std::vector<RankCase> rank_cases() {
  std::vector<RankCase> all;
  std::uint32_t i = 0;
  for (const NamedModel& m : small_models()) {
    for (std::uint32_t zero : {0u, 1u, 2u, 3u}) {
      constexpr Recompute kRecompute[] = {Recompute::kNone, Recompute::kFull, Recompute::kSelective};
      const std::uint32_t n = i + zero;
      all.push_back({m, 2 + n % 3, zero, kRecompute[n / 3 % 3], Optimizer::kAdamW, n % 2 == 1});
    }
    i += 5;
  }
  for (std::uint32_t zero : {0u, 1u, 2u, 3u})
    for (RunMode mode : {RunMode::kLora, RunMode::kQlora})
      for (const bool dora : {false, true})
        all.push_back({small_models()[1 + zero % 2], 2 + zero % 2, zero,
                       dora ? Recompute::kFull : Recompute::kNone, Optimizer::kAdamW, false, mode, dora});
  for (Optimizer o : {Optimizer::kLion, Optimizer::kSgd, Optimizer::kSgdMomentum})
    for (std::uint32_t zero : {0u, 2u}) all.push_back({small_models()[1], 3, zero, Recompute::kNone, o});
  return all;
}

BOOST_AUTO_TEST_SUITE(cuda_ranks)

// bf16 is compared with one rank of the same trainer, as the trainers round differently.
BOOST_DATA_TEST_CASE(ranks_train_as_one_process_does, boost::unit_test::data::make(rank_cases()), c) {
  constexpr std::uint32_t kSteps = 2;
  const RankResult one = c.bf16 ? train<CudaRank>(c, 0, kSteps) : train(c, 0, kSteps),
                   many = train<CudaRank>(c, c.ranks, kSteps);
  trains_alike(one, many, c.bf16 ? Nearness{1e-4, 1e-3, 1e-2} : Nearness{1e-5, 1e-4, 1e-4});
}

BOOST_AUTO_TEST_CASE(the_same_ranks_give_the_same_bits) {
  for (std::uint32_t zero : {0u, 3u}) {
    const RankCase c{small_models()[4], 3, zero, Recompute::kNone, Optimizer::kAdamW, zero == 3};
    const RankResult a = train<CudaRank>(c, 3, 3), b = train<CudaRank>(c, 3, 3);
    BOOST_TEST(a.loss == b.loss);
    BOOST_TEST(a.norm == b.norm);
    BOOST_TEST((a.weights == b.weights));
  }
}

// Which the closed form is compared with in tests/plugins/cpu/ranks_test.cpp.
BOOST_AUTO_TEST_CASE(a_rank_sends_the_bytes_of_the_cpu_trainer) {
  for (std::uint32_t zero : {0u, 1u, 2u, 3u}) {
    const RankCase c{small_models()[0], 3, zero};
    BOOST_TEST(train<CudaRank>(c, 3, 1).bytes == train(c, 3, 1).bytes);
  }
}

BOOST_DATA_TEST_CASE(evaluation_and_generation_are_those_of_one_process,
                     boost::unit_test::data::make({2u, 3u}), zero) {
  const RankCase c{small_models()[1], 3, zero};
  const auto one = evaluate_and_generate<CudaRank>(c, 0), many = evaluate_and_generate<CudaRank>(c, 3);
  for (const auto& rank : many) {
    BOOST_TEST(rank.first == one[0].first);
    BOOST_TEST(rank.second == one[0].second);
  }
}

BOOST_DATA_TEST_CASE(initial_weights_do_not_depend_on_the_ranks, boost::unit_test::data::make({false, true}),
                     bf16) {
  for (const RunMode mode : {RunMode::kFull, RunMode::kLora, RunMode::kQlora}) {
    RankCase c{small_models()[3], 3, 3, Recompute::kNone, Optimizer::kAdamW, bf16, mode};
    c.dora = mode != RunMode::kFull;
    const auto initial = [&](std::uint32_t ranks) {
      std::vector<Tensors> out(ranks_of(c, ranks));
      on_ranks<CudaRank>(c, ranks, [&](PluginSession& session, CudaRank&, std::uint32_t rank) {
        session.init(5);
        out[rank] = session.save();
        if (c.dora) out[rank].merge(session.save(TH_SCOPE_ADAPTER));
      });
      return out;
    };
    const std::vector<Tensors> one = initial(0), many = initial(3);
    for (const Tensors& of_rank : many) BOOST_TEST((of_rank == one[0]), c);
  }
}

// Under ZeRO 1 and 2 the gathered shards make all copies of a weight equal again.
BOOST_DATA_TEST_CASE(a_value_that_is_not_finite_stops_the_update_on_all_ranks,
                     boost::unit_test::data::make({0u, 3u}), zero) {
  const RankCase c{small_models()[0], 2, zero};
  std::vector<std::pair<th_status, std::string>> said(2);
  on_ranks<CudaRank>(c, 2, [&](PluginSession& session, CudaRank&, std::uint32_t rank) {
    // One rank has a weight that its copy lacks: as after a bit that flipped. With ZeRO 3 the others get it.
    Tensors own = weights_of(c.model.spec);
    if (rank == 1 || zero == 3) own.at("lm_head.weight")[3] = INFINITY;
    session.load_all(own);
    session.init(0);
    said[rank] = refused_step(session, c, 2);
    if (!(session.save() == own)) throw std::runtime_error("the update has changed weights");
  });
  for (const auto& [code, message] : said) BOOST_TEST(code == TH_E_NONFINITE, message);
  BOOST_TEST(said[0].second.find(zero == 3 ? "head" : "on another rank") != std::string::npos,
             said[0].second);
  BOOST_TEST(said[1].second.find("head") != std::string::npos, said[1].second);
}

BOOST_AUTO_TEST_CASE(one_rank_that_is_cancelled_stops_all) {
  const RankCase c{small_models()[0], 3, 3};
  std::vector<th_status> codes(3);
  on_ranks<CudaRank>(c, 3, [&](PluginSession& session, CudaRank& host, std::uint32_t rank) {
    session.init(0);
    // Asked before the step and before each micro-batch.
    host.cancel_after = rank == 1 ? host.polls + 2 : UINT64_MAX;
    codes[rank] = refused_step(session, c, 3).first;
  });
  for (th_status s : codes) BOOST_TEST(s == TH_E_CANCELLED);
}

BOOST_AUTO_TEST_CASE(two_ranks_on_one_gpu_are_refused) {
  for (const auto& [code, message] : refused_runs({small_models()[0], 3, 0}, {0, 2, 2})) {
    BOOST_TEST(code == TH_E_ARG);
    BOOST_TEST(message.find("ranks 1 and 2 use one GPU: device 2 on ") != std::string::npos, message);
  }
}

BOOST_AUTO_TEST_CASE(a_missing_or_old_nccl_is_named) {
  engine();
  {
    const Variable missing("TRAINHOST_NCCL", "libnccl-absent.so.2");
    for (const auto& [code, message] : refused_runs({small_models()[0], 2, 0}, {0, 1})) {
      BOOST_TEST(code == TH_E_UNAVAILABLE);
      BOOST_TEST(message.find("libnccl-absent.so.2: cannot open") != std::string::npos, message);
    }
  }
  const Variable old("FAKE_NCCL_VERSION", "21304");
  const Variable file("TRAINHOST_NCCL", OTHER_NAME_OF_ENGINE);  // not loaded yet
  for (const auto& [code, message] : refused_runs({small_models()[0], 2, 0}, {0, 1})) {
    BOOST_TEST(code == TH_E_UNAVAILABLE);
    BOOST_TEST(message.find("is NCCL 2.13.4, supported are 2.14.0 and newer") != std::string::npos, message);
  }
}

// The first operations are those that connect the ranks, before the plan is allocated.
BOOST_AUTO_TEST_CASE(a_rank_that_hangs_or_fails_ends_the_wait_of_the_others) {
  const RankCase c{small_models()[0], 2, 1};
  engine();
  {
    const Variable stall("FAKE_NCCL_STALL", "1:3");
    for (const auto& [code, message] : refused_runs(c, {0, 1}, 1000)) {
      BOOST_TEST(code == TH_E_IO);
      BOOST_TEST(message.find("waited 1 s for other ranks while connecting the ranks") != std::string::npos,
                 message);
    }
  }
  std::vector<std::pair<th_status, std::string>> said(2);
  on_ranks<CudaRank>(
      c, 2,
      [&](PluginSession& session, CudaRank&, std::uint32_t rank) {
        session.init(0);
        static std::barrier<> both(2);
        both.arrive_and_wait();
        if (rank == 0) ::setenv("FAKE_NCCL_STALL", "0:0", 1);
        both.arrive_and_wait();
        said[rank] = refused_step(session, c, 2);
      },
      1000);
  ::unsetenv("FAKE_NCCL_STALL");
  for (const auto& [code, message] : said) {
    BOOST_TEST(code == TH_E_IO);
    BOOST_TEST(message.find("waited 1 s for other ranks while computing a step") != std::string::npos,
               message);
  }
  const Variable fails("FAKE_NCCL_FAIL", "1:0");
  said = refused_runs(c, {0, 1}, 1000);
  BOOST_TEST(said[1].second.find("NCCL failed while starting an operation: unhandled cuda error: fake") !=
                 std::string::npos,
             said[1].second);
  BOOST_TEST(said[0].second.find("waited 1 s") != std::string::npos, said[0].second);
}

// Under ZeRO 3 the order of recomputed layers is that in which weights are gathered.
BOOST_AUTO_TEST_CASE(ranks_with_other_recomputed_layers_are_refused) {
  RankCase c{small_models()[6], 2, 3};
  ThreadRanks together(2);
  std::vector<std::pair<th_status, std::string>> said(2);
  together.each([&](std::uint32_t rank) {
    CudaRank host(rank);
    host.ranks = together.rank(rank);
    RunSpec run = run_of(c, 2, rank);
    run.recompute = Recompute::kLayers, run.recompute_layers.full = rank == 0 ? 0 : 2;
    said[rank] = refusal(
        [&] { PluginSession session(engine(), host, c.model.spec, run, static_cast<std::int32_t>(rank)); });
  });
  for (const auto& [code, message] : said) {
    BOOST_TEST(code == TH_E_ARG);
    BOOST_TEST(message.find("rank 1 recomputes other layers than rank 0") != std::string::npos, message);
  }
}

BOOST_AUTO_TEST_CASE(other_modes_are_refused) {
  const RankCase c{small_models()[0], 2, 1};
  for (const char* mode : {"hybrid", "streamed"}) {
    CudaHost host(mode);
    ThreadRanks two(2);
    host.ranks = two.rank(0);
    CHECK_REFUSED(PluginSession(engine(), host, c.model.spec, run_of(c, 2, 0)), TH_E_ARG,
                  "2 ranks train in mode resident only");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
