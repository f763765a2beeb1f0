// Tensor-parallel runs of the CUDA engine, alone and with data-parallel ranks and ZeRO, against a run of one
// rank of the CPU trainer; bf16 against one rank of the same trainer.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "tests/plugins/cuda/engine/cuda_ranks.hpp"
#include "tests/support/golden_ranks.hpp"
#include "tests/support/tensor_cases.hpp"

namespace trainhost {
namespace {

using namespace test;

/// Every model with every recompute policy; ZeRO stages, sequence parallelism and bf16 go round.
std::vector<RankCase> tensor_cases() {
  constexpr Recompute kPolicies[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  std::vector<RankCase> all;
  for (std::uint32_t m = 0; m < small_models().size(); ++m) {
    all.push_back(tensor_case(m, 2 + m % 3, 1, 0, kPolicies[m % 3]));
    all.push_back(tensor_case(m, 2, 2, m % 4, kPolicies[(m + 1) % 3]));
    all.push_back(tensor_case(m, 2, 1 + m % 2, m % 2 ? (m / 2 + 2) % 4 : 0, kPolicies[(m + 2) % 3]));
    all.back().bf16 = true;
    all.push_back(
        with_sequence(tensor_case(m, 2, 1 + (m + 1) % 2, m % 2 ? 0u : (m / 2 + 1) % 4, kPolicies[m % 3])));
  }
  for (const std::uint32_t zero : {0u, 1u, 2u, 3u}) all.push_back(tensor_case(4, 2, 2, zero));
  all.push_back(with_sequence(tensor_case(4, 4, 1, 0, Recompute::kFull)));
  all.push_back(with_sequence(tensor_case(2, 2, 2, 3, Recompute::kSelective)));
  all.back().bf16 = true;
  const auto with_adapters = [&](RankCase c, RunMode mode, double dropout = 0, bool dora = false) {
    c.mode = mode, c.dropout = dropout, c.dora = dora;
    if (mode == RunMode::kQlora) c.model = model_of_blocks();
    all.push_back(c);
  };
  with_adapters(tensor_case(0, 2, 1, 0), RunMode::kLora);
  with_adapters(tensor_case(2, 3, 1, 0, Recompute::kFull), RunMode::kLora, 0.25);
  with_adapters(tensor_case(1, 2, 2, 2, Recompute::kSelective), RunMode::kLora, 0.25);
  with_adapters(with_sequence(tensor_case(3, 2, 2, 3, Recompute::kFull)), RunMode::kLora, 0.25);
  with_adapters(tensor_case(1, 2, 1, 0), RunMode::kQlora);
  with_adapters(tensor_case(1, 2, 2, 3, Recompute::kFull), RunMode::kQlora);
  with_adapters(tensor_case(2, 2, 1, 0), RunMode::kLora, 0, true);
  with_adapters(tensor_case(4, 3, 1, 0, Recompute::kFull), RunMode::kLora, 0.25, true);
  with_adapters(tensor_case(1, 2, 2, 3, Recompute::kSelective), RunMode::kLora, 0.25, true);
  with_adapters(with_sequence(tensor_case(3, 2, 2, 1, Recompute::kFull)), RunMode::kLora, 0, true);
  with_adapters(with_sequence(tensor_case(2, 2, 1, 0)), RunMode::kLora, 0.25, true);
  with_adapters(tensor_case(1, 2, 1, 0), RunMode::kQlora, 0, true);
  with_adapters(tensor_case(1, 2, 2, 2, Recompute::kFull), RunMode::kQlora, 0.25, true);
  with_adapters(tensor_case(2, 2, 2, 3), RunMode::kLora, 0, true);
  all.back().bf16 = true;
  // Of embedding and LM head too, which are one tensor in half of the models.
  const std::size_t without = all.size();
  for (const bool dora : {false, true}) {
    with_adapters(tensor_case(0, 2, 1, 0), RunMode::kLora, 0, dora);
    with_adapters(tensor_case(1, 2, 2, 3, Recompute::kSelective), RunMode::kLora, 0.25, dora);
    with_adapters(with_sequence(tensor_case(3, 2, 2, 2, Recompute::kFull)), RunMode::kLora, 0, dora);
    with_adapters(with_sequence(tensor_case(2, 2, 1, 0)), RunMode::kLora, 0.25, dora);
    with_adapters(tensor_case(4, 3, 1, 0), RunMode::kLora, 0, dora);
    all.back().bf16 = true;
  }
  for (std::size_t i = without; i < all.size(); ++i)
    all[i].targets = all[i].model.spec.tied && i % 2 ? 0x7f | kTargetEmbedding | kTiedAdapter : 0x1ffu;
  for (const std::uint32_t data : {1u, 2u}) {
    all.push_back(tensor_case(1, 2, data, 0));
    all.back().model = model_of_blocks(), all.back().optimizer = Optimizer::kAdamW8bit;
  }
  // Matrices that the ranks divide by rows and by columns; with adapters also some that they have whole.
  for (const std::uint32_t m : {1u, 2u, 4u}) {
    all.push_back(tensor_case(m, m == 1 ? 2 : 1 + m / 2 + m % 4, m == 1 ? 2 : 1, 0));
    all.back().optimizer = Optimizer::kMuon;
  }
  with_adapters(tensor_case(2, 2, 1, 0), RunMode::kLora);
  all.back().optimizer = Optimizer::kMuon;
  all.push_back(with_sequence(tensor_case(3, 2, 2, 0, Recompute::kFull)));
  all.back().optimizer = Optimizer::kMuon, all.back().bf16 = true;
  for (const RankCase& c : adafactor_cases()) all.push_back(c);
  for (const Optimizer o : {Optimizer::kLion, Optimizer::kSgd, Optimizer::kSgdMomentum}) {
    all.push_back(tensor_case(1, 2, 2, o == Optimizer::kLion ? 3 : 0));
    all.back().optimizer = o;
  }
  return all;
}

RankCase alone(RankCase c) {
  c.tensor = 1;
  return c;
}

void losses_agree(const RankCase& c, std::uint32_t steps) {
  const RankResult one = c.bf16 ? train<CudaRank>(alone(c), 0, steps) : train(alone(c), 0, steps),
                   many = train<CudaRank>(c, c.ranks, steps);
  trains_alike(one, many, {c.bf16 ? 3e-3 : 1e-5, 0, 0});
}

BOOST_AUTO_TEST_SUITE(cuda_tensor_ranks)

// With the memory of every rank as planned, and each element of a checkpoint written by one rank.
BOOST_DATA_TEST_CASE(tensor_ranks_train_as_one_process_does, boost::unit_test::data::make(tensor_cases()),
                     c) {
  constexpr std::uint32_t kSteps = 2;
  const RankResult one = c.bf16 ? train<CudaRank>(alone(c), 0, kSteps) : train(alone(c), 0, kSteps),
                   many = train<CudaRank>(c, c.ranks, kSteps);
  trains_alike(one, many, of_tensor_ranks(c));
}

// Two steps of every case are above, twenty of the CPU trainer in tests/plugins/cpu/tensor_ranks_test.cpp.
BOOST_AUTO_TEST_CASE(ten_steps_of_adafactor_agree_with_one_process) {
  losses_agree(adafactor_cases()[1], 10);
  losses_agree(adafactor_cases()[5], 10);
}

std::vector<RanksOfGolden> golden_rank_cases() {
  std::vector<RanksOfGolden> all;
  for (const char* n : {"mha", "gqa-tied"}) {
    all.push_back({n, 1, 2, 0});
    all.push_back({n, 2, 2, 3, false, 3});
    all.push_back({n, 1, 2, 0, true, 3});
  }
  return all;
}

BOOST_DATA_TEST_CASE(golden_runs_are_reproduced_by_tensor_ranks,
                     boost::unit_test::data::make(golden_rank_cases()), c) {
  reproduce_golden<CudaRank>(c);
}

BOOST_AUTO_TEST_CASE(the_same_tensor_ranks_give_the_same_bits) {
  for (const std::uint32_t zero : {0u, 3u}) {
    RankCase c = tensor_case(4, 2, 2, zero);
    c.bf16 = zero == 0;
    if (zero == 3) c = with_sequence(c);
    const RankResult a = train<CudaRank>(c, 2, 3), b = train<CudaRank>(c, 2, 3);
    BOOST_TEST(a.loss == b.loss);
    BOOST_TEST(a.norm == b.norm);
    BOOST_TEST((a.weights == b.weights));
  }
}

// The closed form is that of tests/plugins/cpu/tensor_ranks_test.cpp, with 4 bytes per number of the residual
// stream; in bf16 2, and the same numbers of the head and of the norm.
BOOST_AUTO_TEST_CASE(what_a_tensor_rank_sends_is_the_closed_form) {
  RankCase c = tensor_case(0, 2, 1, 0);
  c.model.seq = 16, c.model.spec.hidden = 32;
  const double numbers = 16 * 32, layers = c.model.spec.layers;
  for (const double bytes : {4.0, 2.0}) {
    c.bf16 = bytes == 2.0;
    BOOST_TEST(train<CudaRank>(c, 1, 2).bytes ==
               2 * (kSequences * ((4 * layers + 2) * bytes * numbers + 12.0 * 16) +
                    16 * (run_of(c, 1, 0).accumulate + 1)));
  }
}

BOOST_AUTO_TEST_CASE(a_tensor_rank_sends_the_bytes_of_the_cpu_trainer) {
  for (std::uint32_t zero : {0u, 1u, 2u, 3u}) {
    RankCase c = tensor_case(1, 2, 2, zero, Recompute::kFull);
    if (zero % 2) c = with_sequence(c);
    BOOST_TEST(train<CudaRank>(c, 2, 1).bytes == train(c, 2, 1).bytes, c);
  }
}

BOOST_AUTO_TEST_CASE(tensor_ranks_evaluate_and_generate_as_one_process_does) {
  for (const std::size_t model : {std::size_t{1}, std::size_t{4}})
    for (const std::uint32_t zero : {0u, 3u}) {
      RankCase c = tensor_case(model, 2, 2, zero);
      if (zero == 3) c = with_sequence(c);
      const auto one = evaluate_and_generate<CudaRank>(c, 0), many = evaluate_and_generate<CudaRank>(c, 2);
      for (const auto& rank : many) {
        BOOST_TEST(std::abs(rank.first - one[0].first) <= 1e-6 * one[0].first);
        BOOST_REQUIRE(rank.second.size() == c.model.spec.vocab);
        for (std::size_t i = 0; i < rank.second.size(); ++i)
          BOOST_TEST(std::abs(rank.second[i] - one[0].second[i]) <= 1e-4);
        BOOST_TEST(rank.second == many[0].second);
      }
    }
}

// What a checkpoint has is that of one process: loaded by any ranks, saved by all of them.
BOOST_AUTO_TEST_CASE(tensors_are_loaded_and_saved_whole) {
  std::vector<RankCase> cases;
  for (const std::uint32_t zero : {0u, 1u, 3u}) {
    cases.push_back(tensor_case(2, 2, 2, zero));  // all biases
    cases.push_back(tensor_case(2, 2, 2, zero));
    cases.back().bf16 = true;
  }
  cases.push_back(tensor_case(1, 2, 1, 0));
  cases.back().model = model_of_blocks(), cases.back().optimizer = Optimizer::kAdamW8bit;
  cases.push_back(tensor_case(1, 2, 2, 0));
  cases.back().model = model_of_blocks(), cases.back().mode = RunMode::kQlora;
  for (const RankCase& c : cases) {
    const ModelSpec& m = c.model.spec;
    const auto states = [&](std::uint32_t data) {
      std::vector<std::vector<Tensors>> out(ranks_of(c, data));
      on_ranks<CudaRank>(c, data, [&](PluginSession& session, CudaRank&, std::uint32_t rank) {
        session.init(5);
        out[rank].push_back(session.save());
        for (const int moment : {1, 2}) {
          const std::uint32_t scope = moment == 1 ? TH_SCOPE_MOMENT1 : TH_SCOPE_MOMENT2;
          for (const TensorInfo& t : state_tensors(m, run_of(c, data, rank), moment)) {
            std::vector<float> values(t.elements());
            for (std::size_t i = 0; i < values.size(); ++i)
              values[i] = c.optimizer == Optimizer::kAdamW8bit && t.state == StatePart::kElements &&
                                  t.elements() >= kSmallest8bitTensor
                              ? static_cast<float>(i % 3 == 0)
                              : static_cast<float>(i) + 0.25f * static_cast<float>(moment);
            session.load(t, values, scope, 37);
          }
          out[rank].push_back(session.save(scope));
        }
      });
      return out;
    };
    const auto one = states(0), many = states(c.ranks);
    for (const auto& of_rank : many) BOOST_TEST((of_rank == one[0]), c);
  }
}

BOOST_DATA_TEST_CASE(a_value_that_is_not_finite_stops_all_tensor_ranks,
                     boost::unit_test::data::make({0u, 3u}), zero) {
  const RankCase c = tensor_case(0, 2, 2, zero);
  Tensors weights = weights_of(c.model.spec);
  weights.at("model.layers.1.mlp.down_proj.weight")[1] = INFINITY;  // of the first TP rank
  std::vector<std::pair<th_status, std::string>> said(4);
  on_ranks<CudaRank>(c, 2, [&](PluginSession& session, CudaRank&, std::uint32_t rank) {
    session.load_all(weights);
    session.init(0);
    said[rank] = refused_step(session, c, 2);
    if (!(session.save() == weights)) throw std::runtime_error("the update has changed weights");
  });
  for (const auto& [code, message] : said) BOOST_TEST(code == TH_E_NONFINITE, message);
  for (const std::size_t first : {std::size_t{0}, std::size_t{2}})
    BOOST_TEST(said[first].second.find("layers.1 linear down") != std::string::npos, said[first].second);
}

BOOST_AUTO_TEST_CASE(one_tensor_rank_that_is_cancelled_stops_all) {
  const RankCase c = tensor_case(0, 2, 2, 0);
  std::vector<th_status> codes(4);
  on_ranks<CudaRank>(c, 2, [&](PluginSession& session, CudaRank& host, std::uint32_t rank) {
    session.init(0);
    host.cancel_after = rank == 3 ? host.polls + 2 : UINT64_MAX;
    codes[rank] = refused_step(session, c, 2).first;
  });
  for (th_status s : codes) BOOST_TEST(s == TH_E_CANCELLED);
}

// A rank that stalls in one group is waited for by all ranks: those of other groups wait for its members.
BOOST_AUTO_TEST_CASE(a_tensor_rank_that_hangs_ends_the_wait_of_all) {
  engine();
  const Variable stall("FAKE_NCCL_STALL", "1:4");
  for (const auto& [code, message] : refused_runs(tensor_case(0, 2, 2, 1), {0, 1, 2, 3}, 1000)) {
    BOOST_TEST(code == TH_E_IO);
    BOOST_TEST(message.find("waited 1 s for other ranks while connecting the ranks") != std::string::npos,
               message);
  }
}

struct Refusal {
  const char* says;
  void (*change)(RankCase&, RunSpec&, std::string& mode);
};
std::ostream& operator<<(std::ostream& o, const Refusal& r) { return o << r.says; }
const Refusal kRefusals[] = {
    {"parallel.sequence: parallel.tensor = 2 does not divide 7 tokens of a micro-batch",
     [](RankCase&, RunSpec& r, std::string&) { r.parallel.sequence = true, r.micro_batch = 1; }},
    {"parallel.tensor = 2 does not divide 3 attention heads (num_attention_heads) (use 1 or 3)",
     [](RankCase& c, RunSpec&, std::string&) { c.model.spec.heads = c.model.spec.kv_heads = 3; }},
    {"parallel.tensor = 2 does not divide 37 tokens of the vocabulary",
     [](RankCase& c, RunSpec&, std::string&) { c.model.spec.vocab = 37; }},
    {"plugin.cuda.mode = \"hybrid\": 2 ranks train in mode resident only",
     [](RankCase&, RunSpec&, std::string& mode) { mode = "hybrid"; }},
    {"plugin.cuda.mode = \"streamed\": 2 ranks train in mode resident only",
     [](RankCase&, RunSpec&, std::string& mode) { mode = "streamed"; }},
    {"a run on 2 ranks needs a communicator", [](RankCase&, RunSpec&, std::string&) {}},
};

BOOST_DATA_TEST_CASE(runs_that_tensor_ranks_cannot_share_are_refused, boost::unit_test::data::make(kRefusals),
                     r) {
  RankCase c = tensor_case(0, 2, 1, 0);
  RunSpec run = run_of(c, 1, 0);
  std::string mode = "resident";
  r.change(c, run, mode);
  CudaHost host(mode);
  const std::string said = refusal([&] { PluginSession session(engine(), host, c.model.spec, run); }).second;
  BOOST_TEST(said.find(r.says) != std::string::npos, said);
}

BOOST_AUTO_TEST_SUITE_END()

// Takes a minute: runs only if selected by name (label slow).
BOOST_AUTO_TEST_SUITE(cuda_tensor_ranks_all, *boost::unit_test::disabled())
BOOST_DATA_TEST_CASE(twenty_steps_of_adafactor, boost::unit_test::data::make(adafactor_cases()), c) {
  losses_agree(c, 20);
}
BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
