// Tensor-parallel runs of the CPU trainer, alone and with data-parallel ranks and ZeRO, with threads as
// ranks, against a run of one rank.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/support/tensor_cases.hpp"

namespace trainhost {
namespace {

using namespace test;

std::vector<RankCase> tensor_cases() {
  std::vector<RankCase> all;
  for (std::size_t m = 0; m < small_models().size(); ++m) {
    for (const Recompute r : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
      all.push_back(tensor_case(m, 2 + m % 2, 1, 0, r));
    for (const std::uint32_t zero : {0u, 1u, 2u, 3u})
      all.push_back(tensor_case(m, 2, 2 + m % 2, zero, m % 3 ? Recompute::kNone : Recompute::kFull));
    all.push_back(tensor_case(m, 2, 2, static_cast<std::uint32_t>(m % 4), Recompute::kFull));
    all.back().bf16 = true;
    // One case with sequence parallelism per model: every policy, ZeRO stage, and 2 to 4 ranks.
    constexpr Recompute kPolicies[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
    all.push_back(
        with_sequence(tensor_case(m, 2 + m % 2, 1 + (m + 1) % 2, m % 2 ? 0u : m / 2 % 4, kPolicies[m % 3])));
  }
  all.push_back(with_sequence(tensor_case(4, 4, 1, 0, Recompute::kFull)));
  all.push_back(with_sequence(tensor_case(2, 2, 2, 3, Recompute::kSelective)));
  all.push_back(with_sequence(tensor_case(4, 2, 1, 0)));
  all.back().bf16 = true;
  // Adapters of all matrices.
  for (const RankCase& c :
       {tensor_case(0, 2, 1, 0), tensor_case(1, 2, 2, 2, Recompute::kSelective),
        tensor_case(2, 3, 1, 0, Recompute::kFull), tensor_case(4, 2, 2, 3, Recompute::kFull),
        with_sequence(tensor_case(2, 2, 1, 0)), with_sequence(tensor_case(3, 2, 2, 1, Recompute::kFull))}) {
    all.push_back(c);
    all.back().mode = RunMode::kLora;
  }
  // With dropout, of which ranks with a part of the columns have a part of the mask; with magnitudes, of
  // which they have a part of every norm.
  const auto with_adapters = [&](RankCase c, bool dora, double dropout) {
    c.mode = RunMode::kLora, c.dora = dora, c.dropout = dropout;
    all.push_back(c);
  };
  with_adapters(tensor_case(0, 2, 1, 0), false, 0.25);
  with_adapters(tensor_case(2, 3, 1, 0, Recompute::kFull), false, 0.25);
  with_adapters(with_sequence(tensor_case(3, 2, 2, 2, Recompute::kSelective)), false, 0.25);
  with_adapters(tensor_case(2, 2, 1, 0), true, 0);  // with all biases
  with_adapters(tensor_case(4, 3, 1, 0, Recompute::kFull), true, 0);
  with_adapters(tensor_case(1, 2, 2, 3, Recompute::kSelective), true, 0);
  with_adapters(with_sequence(tensor_case(2, 2, 2, 1, Recompute::kFull)), true, 0);
  with_adapters(tensor_case(2, 2, 1, 0), true, 0.25);
  with_adapters(with_sequence(tensor_case(3, 2, 2, 3, Recompute::kFull)), true, 0.25);
  // Of embedding and LM head too, which are one tensor in half of the models.
  const std::size_t without = all.size();
  for (const bool dora : {false, true}) {
    with_adapters(tensor_case(0, 2, 1, 0), dora, 0);
    with_adapters(tensor_case(1, 2, 2, 3, Recompute::kSelective), dora, 0.25);
    with_adapters(tensor_case(4, 3, 1, 0, Recompute::kFull), dora, 0.25);
    with_adapters(with_sequence(tensor_case(3, 2, 2, 2, Recompute::kFull)), dora, 0);
    with_adapters(with_sequence(tensor_case(2, 2, 1, 0)), dora, 0.25);
    with_adapters(tensor_case(3, 2, 1, 0), dora, 0);
    all.back().bf16 = true;
  }
  for (std::size_t i = without; i < all.size(); ++i)
    all[i].targets = all[i].model.spec.tied && i % 2 ? 0x7f | kTargetEmbedding | kTiedAdapter : 0x1ffu;
  all.push_back(tensor_case(4, 4, 1, 0));
  for (const std::uint32_t data : {1u, 2u}) {
    all.push_back(tensor_case(1, 2, data, 0));
    all.back().model = model_of_blocks(), all.back().optimizer = Optimizer::kAdamW8bit;
    all.push_back(tensor_case(1, 2, data, data == 2 ? 3 : 0, Recompute::kFull));
    all.back().model = model_of_blocks(), all.back().mode = RunMode::kQlora, all.back().dora = data == 1;
  }
  // Matrices that the ranks divide by rows and by columns; with adapters also some that they have whole.
  for (const RankCase& c : {tensor_case(1, 2, 2, 0), tensor_case(2, 3, 1, 0, Recompute::kFull),
                            with_sequence(tensor_case(3, 2, 1, 0)), tensor_case(4, 4, 1, 0)}) {
    all.push_back(c);
    all.back().optimizer = Optimizer::kMuon;
  }
  with_adapters(tensor_case(2, 2, 1, 0), false, 0);
  all.back().optimizer = Optimizer::kMuon;
  // In bf16 with adapters, magnitudes and dropout, and with Muon.
  for (const RankCase& c : {tensor_case(2, 2, 1, 0), with_sequence(tensor_case(3, 2, 2, 2))}) {
    with_adapters(c, false, 0);
    all.back().bf16 = true;
    with_adapters(c, true, 0.25);
    all.back().bf16 = true;
  }
  all.push_back(tensor_case(1, 2, 2, 0));
  all.back().optimizer = Optimizer::kMuon, all.back().bf16 = true;
  for (const RankCase& c : adafactor_cases()) all.push_back(c);
  for (const Optimizer o : {Optimizer::kLion, Optimizer::kSgd, Optimizer::kSgdMomentum})
    for (const std::uint32_t zero : {0u, 3u}) {
      all.push_back(tensor_case(1, 2, 2, zero));
      all.back().optimizer = o;
    }
  return all;
}

BOOST_AUTO_TEST_SUITE(cpu_tensor_ranks)

// Each is trained below, with the memory of every rank as planned and losses within 1e-5 of one process;
// those of data-parallel ranks alone are in ranks_test.cpp.
BOOST_AUTO_TEST_CASE(there_are_at_least_60_combinations) {
  const std::size_t found = combinations_of(tensor_cases());
  BOOST_TEST_MESSAGE(found << " combinations with tensor-parallel ranks");
  BOOST_TEST(found >= 60u);
}

BOOST_DATA_TEST_CASE(tensor_ranks_train_as_one_process_does, boost::unit_test::data::make(tensor_cases()),
                     c) {
  constexpr std::uint32_t kSteps = 6;
  RankCase alone = c;
  alone.tensor = 1;
  const RankResult one = train(alone, 0, kSteps), many = train(c, c.ranks, kSteps);
  trains_alike(one, many, of_tensor_ranks(c));
}

// Twenty steps of Adafactor, whose means of rows and columns are sums over the ranks.
BOOST_DATA_TEST_CASE(twenty_steps_of_adafactor_agree_with_one_process,
                     boost::unit_test::data::make(adafactor_cases()), c) {
  RankCase alone = c;
  alone.tensor = 1;
  trains_alike(train(alone, 0, 20), train(c, c.ranks, 20), {c.bf16 ? 3e-3 : 1e-5, 0, 0});
}

BOOST_AUTO_TEST_CASE(the_same_tensor_ranks_give_the_same_bits) {
  for (const std::uint32_t zero : {0u, 3u}) {
    RankCase c = tensor_case(4, 2, 2, zero);
    c.sequence = zero == 3;
    const RankResult a = train(c, 2, 5), b = train(c, 2, 5);
    BOOST_TEST(a.loss == b.loss);
    BOOST_TEST(a.norm == b.norm);
    BOOST_TEST((a.weights == b.weights));
  }
}

BOOST_AUTO_TEST_CASE(tensor_ranks_in_bf16_give_the_same_bits_with_any_number_of_threads) {
  for (RankCase c : {tensor_case(1, 2, 2, 1), with_sequence(tensor_case(3, 2, 1, 0, Recompute::kFull))}) {
    c.bf16 = true;
    const RankResult one = train<CpuRankOf<1>>(c, c.ranks, 3);
    for (const RankResult& r : {train<CpuRankOf<2>>(c, c.ranks, 3), train<CpuRankOf<3>>(c, c.ranks, 3),
                                train<CpuRankOf<4>>(c, c.ranks, 3)}) {
      BOOST_TEST(r.loss == one.loss);
      BOOST_TEST(r.norm == one.norm);
      BOOST_TEST((r.weights == one.weights));
    }
  }
}

// Of a run that stores bf16, which sends it too.
BOOST_AUTO_TEST_CASE(a_tensor_rank_in_bf16_sends_half_and_evaluates_as_one_process_does) {
  RankCase c = tensor_case(0, 2, 1, 0);
  c.model.seq = 16, c.model.spec.hidden = 32, c.bf16 = true;
  const RankResult r = train(c, 1, 4);
  const double residual = 2.0 * 16 * 32, layers = c.model.spec.layers;
  BOOST_TEST(r.bytes == 4 * (kSequences * ((4 * layers + 2) * residual + 12.0 * 16) +
                             16 * (run_of(c, 1, 0).accumulate + 1)));
  const auto one = evaluate_and_generate(c, 0), many = evaluate_and_generate(c, 1);
  for (const auto& rank : many) {
    BOOST_TEST(std::abs(rank.first - one[0].first) <= 3e-3 * one[0].first);
    for (std::size_t i = 0; i < c.model.spec.vocab; ++i)
      BOOST_TEST(std::abs(rank.second[i] - one[0].second[i]) <= 0.05);
    BOOST_TEST(rank.second == many[0].second);
  }
}

// Per micro-batch, of X bytes of the residual stream: two sums per layer in each direction, one of the
// embedding and one of the gradient of the head's input, 2(T-1)/T X each; and 12 bytes per token from each
// rank to the others. Two sums of 16 bytes per micro-batch and update.
BOOST_AUTO_TEST_CASE(what_a_tensor_rank_sends_is_the_closed_form) {
  RankCase c = tensor_case(0, 2, 1, 0);
  c.model.seq = 16, c.model.spec.hidden = 32;
  const RankResult r = train(c, 1, 4);
  const double residual = 4.0 * 16 * 32, layers = c.model.spec.layers;
  BOOST_TEST(r.bytes == 4 * (kSequences * ((4 * layers + 2) * residual + 12.0 * 16) +
                             16 * (run_of(c, 1, 0).accumulate + 1)));
}

BOOST_AUTO_TEST_CASE(tensor_ranks_evaluate_and_generate_as_one_process_does) {
  for (const std::size_t model : {std::size_t{1}, std::size_t{4}})
    for (const std::uint32_t zero : {0u, 3u}) {
      RankCase c = tensor_case(model, 2, 2, zero);
      if (zero == 3) c = with_sequence(c);
      const auto one = evaluate_and_generate(c, 0), many = evaluate_and_generate(c, 2);
      for (const auto& rank : many) {
        BOOST_TEST(std::abs(rank.first - one[0].first) <= 1e-6 * one[0].first);
        BOOST_REQUIRE(rank.second.size() == c.model.spec.vocab);
        for (std::size_t i = 0; i < rank.second.size(); ++i)
          BOOST_TEST(std::abs(rank.second[i] - one[0].second[i]) <= 1e-4);
        BOOST_TEST(rank.second == many[0].second);
      }
    }
  RankCase c = tensor_case(2, 2, 1, 0);
  c.mode = RunMode::kLora, c.dora = true, c.dropout = 0.25;
  const auto one = evaluate_and_generate(c, 0), many = evaluate_and_generate(c, 1);
  BOOST_TEST(std::abs(many[1].first - one[0].first) <= 1e-6 * one[0].first);
  for (std::size_t i = 0; i < c.model.spec.vocab; ++i)
    BOOST_TEST(std::abs(many[1].second[i] - one[0].second[i]) <= 1e-4);
}

// The same bytes as without: an all-reduce is a reduce-scatter and an all-gather. In the backward pass rows
// are gathered again, for the gradients of weights: once per norm of a layer more.
BOOST_AUTO_TEST_CASE(sequence_parallelism_sends_one_gather_per_norm_more) {
  RankCase c = tensor_case(0, 2, 1, 0);
  c.model.seq = 16, c.model.spec.hidden = 32;
  const std::uint64_t plain = train(c, 1, 1).bytes;
  c.sequence = true;
  const std::uint64_t residual = 4 * 16 * 32, layers = c.model.spec.layers, norms = (2 * layers + 1) * 4 * 32;
  BOOST_TEST(train(c, 1, 1).bytes == plain + kSequences * 2 * layers * residual / 2 + norms);
}

// What a checkpoint has is that of one process: loaded by any ranks, saved by all of them.
BOOST_AUTO_TEST_CASE(tensors_are_loaded_and_saved_whole) {
  std::vector<RankCase> cases;
  for (const std::uint32_t zero : {0u, 1u, 3u}) cases.push_back(tensor_case(2, 2, 2, zero));  // all biases
  cases.push_back(tensor_case(1, 2, 1, 0));
  cases.back().model = model_of_blocks(), cases.back().optimizer = Optimizer::kAdamW8bit;
  for (const RankCase& c : cases) {
    const ModelSpec& m = c.model.spec;
    const auto states = [&](std::uint32_t data) {
      const std::uint32_t ranks = std::max(1u, data * c.tensor);
      std::vector<std::vector<Tensors>> out(ranks);
      ThreadRanks together(ranks);
      together.each([&](std::uint32_t rank) {
        CountingHost host(1);
        if (data) host.ranks = together.rank(rank);
        const RunSpec run = run_of(c, data, rank);
        PluginSession session(cpu_plugin(), host, m, run);
        session.init(5);
        out[rank].push_back(session.save());
        for (const int moment : {1, 2}) {
          const std::uint32_t scope = moment == 1 ? TH_SCOPE_MOMENT1 : TH_SCOPE_MOMENT2;
          for (const TensorInfo& t : state_tensors(m, run, moment)) {
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
  const ModelSpec& m = c.model.spec;
  Tensors weights;
  for (const auto& [name, values] : random_weights(m, 7)) weights[name].assign(values.begin(), values.end());
  weights.at("model.layers.1.mlp.down_proj.weight")[1] = INFINITY;  // of the first TP rank
  ThreadRanks together(4);
  std::vector<std::string> said(4);
  together.each([&](std::uint32_t rank) {
    const RunSpec run = run_of(c, 2, rank);
    CountingHost host(1);
    host.ranks = together.rank(rank);
    PluginSession session(cpu_plugin(), host, m, run);
    session.load_all(weights);
    session.init(0);
    const std::size_t n = std::size_t{kSequences} * run.seq_len / 2;
    const auto ids = random_tokens(n, m.vocab, 1), targets = random_targets(n, m.vocab, 2);
    const auto [code, message] = refusal([&] { session.step(ids, targets, 1e-3, 0); });
    said[rank] = (code == TH_E_NONFINITE ? "not finite: " : "other: ") + message;
    if (!(session.save() == weights)) throw std::runtime_error("the update has changed weights");
  });
  for (const std::string& s : said) BOOST_TEST(s.starts_with("not finite: "), s);
  for (const std::size_t first : {std::size_t{0}, std::size_t{2}})
    BOOST_TEST(said[first].find("layers.1 linear down") != std::string::npos, said[first]);
}

struct Refusal {
  const char* says;
  void (*change)(RankCase&, RunSpec&);
};
std::ostream& operator<<(std::ostream& o, const Refusal& r) { return o << r.says; }
const Refusal kRefusals[] = {
    {"parallel.sequence: parallel.tensor = 2 does not divide 7 tokens of a micro-batch",
     [](RankCase&, RunSpec& r) { r.parallel.sequence = true, r.micro_batch = 1; }},
    {"parallel.tensor = 2 does not divide 3 attention heads (num_attention_heads) (use 1 or 3)",
     [](RankCase& c, RunSpec&) { c.model.spec.heads = c.model.spec.kv_heads = 3; }},
    {"parallel.tensor = 2 does not divide 1 key/value heads",
     [](RankCase& c, RunSpec&) { c.model.spec.kv_heads = 1; }},
    {"parallel.tensor = 2 does not divide 37 tokens of the vocabulary",
     [](RankCase& c, RunSpec&) { c.model.spec.vocab = 37; }},
    {"parallel.tensor = 2 does not divide 19 outputs of gate and up",
     [](RankCase& c, RunSpec&) { c.model.spec.intermediate = 19; }},
    {"parallel.tensor = 2 is not supported with lora.double_quant = true, which quantizes",
     [](RankCase&, RunSpec& r) {
       r.mode = RunMode::kQlora, r.lora_rank = 2, r.lora_targets = 1, r.memory.frozen = DType::kNF4;
       r.memory.double_quantized = true;
     }},
    {"parallel.tensor = 2 divides a block of 64 weights in NF4 of model.layers.0.self_attn.q_proj.weight",
     [](RankCase&, RunSpec& r) {
       r.mode = RunMode::kQlora, r.lora_rank = 2, r.lora_targets = 1, r.memory.frozen = DType::kNF4;
     }},
    {"parallel.tensor = 2 divides a block of 256 moments in 8 bits (optimizer.name = \"adamw-8bit\") of "
     "model.layers.0.self_attn.o_proj.weight [16, 256]",
     [](RankCase& c, RunSpec& r) {
       c.model = model_of_blocks();
       c.model.spec.head_dim = 64;
       r.optimizer = Optimizer::kAdamW8bit;
     }},
    {"rank 3 of parallel.tensor = 2", [](RankCase&, RunSpec& r) { r.parallel.tensor_rank = 3; }},
    {"parallel.tensor = 2", [](RankCase&, RunSpec& r) { r.parallel.tensor_rank = 0; }},
    {"a run on 2 ranks needs a communicator", [](RankCase&, RunSpec&) {}},
};

BOOST_DATA_TEST_CASE(runs_that_tensor_ranks_cannot_share_are_refused, boost::unit_test::data::make(kRefusals),
                     r) {
  RankCase c = tensor_case(0, 2, 1, 0);
  RunSpec run = run_of(c, 1, 0);
  r.change(c, run);
  CountingHost host(1);
  const std::string said =
      refusal([&] { PluginSession session(cpu_plugin(), host, c.model.spec, run); }).second;
  BOOST_TEST(said.find(r.says) != std::string::npos, said);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
