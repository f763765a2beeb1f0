// Runs of the CUDA engine on several data-parallel ranks, with threads as ranks, each with a device of its
// own and the fake NCCL between them, against a run of one rank of the CPU trainer with the same global
// batch: losses, norms, weights and optimizer state; memory against the plan; what is sent against the CPU
// trainer.
#include <barrier>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "core/model/optimizer_state.hpp"
#include "plugins/cuda/common/nccl_library.hpp"
#include "tests/plugins/cuda/engine/engine_fixture.hpp"
#include "tests/support/thread_ranks.hpp"

namespace trainhost {
namespace {

using namespace test;

constexpr std::uint32_t kSequences = 12;  // of a step, of all ranks

/// As the fake NCCL in it under another name, which is another library for the loader of NCCL.
#define OTHER_NAME_OF_ENGINE EMULATED_ENGINE_FOLDER "/../engines/cuda-cublas-13.so"

/// The engine in a library, so that the fake NCCL in it is found by name.
const Plugin& engine() {
  static const Plugin p = [] {
    ::setenv("FAKE_CUDA_DEVICES", "4", 0);
    ::setenv("FAKE_CUDA_SMS", "4", 0);
    ::setenv("TRAINHOST_NCCL", EMULATED_ENGINE, 1);
    void* library = dlopen(EMULATED_ENGINE, RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    const auto entry = reinterpret_cast<plugins::EngineEntry>(dlsym(library, "trainhost_cuda_engine"));
    return Plugin(entry()->trainer, entry()->generate);
  }();
  return p;
}

struct RankCase {
  NamedModel model;
  std::uint32_t ranks, zero;
  Recompute recompute = Recompute::kNone;
  Optimizer optimizer = Optimizer::kAdamW;
  bool bf16 = false;
  RunMode mode = RunMode::kFull;
};
std::ostream& operator<<(std::ostream& o, const RankCase& c) {
  return o << c.model.what << ", " << c.ranks << " ranks, ZeRO " << c.zero << ", recompute "
           << name(c.recompute) << ", " << name(c.optimizer) << (c.bf16 ? ", bf16" : "")
           << (c.mode == RunMode::kLora    ? ", LoRA"
               : c.mode == RunMode::kQlora ? ", QLoRA"
                                           : "");
}

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
      all.push_back({small_models()[1 + zero % 2], 2 + zero % 2, zero, Recompute::kNone, Optimizer::kAdamW,
                     false, mode});
  for (Optimizer o : {Optimizer::kLion, Optimizer::kSgd, Optimizer::kSgdMomentum})
    for (std::uint32_t zero : {0u, 2u}) all.push_back({small_models()[1], 3, zero, Recompute::kNone, o});
  return all;
}

RunSpec run_of(const RankCase& c, std::uint32_t ranks, std::uint32_t rank) {
  RunSpec r;
  r.seq_len = c.model.seq, r.micro_batch = 1, r.accumulate = kSequences / ranks;
  r.recompute = c.recompute, r.optimizer = c.optimizer;
  r.mode = c.mode;
  if (c.mode != RunMode::kFull) r.lora_rank = 2, r.lora_targets = 0x7f, r.lora_alpha = 4;
  if (c.bf16) r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  if (ranks > 1) r.parallel.data = ranks, r.parallel.data_rank = rank + 1, r.parallel.zero = c.zero;
  return r;
}

/// What a run of some steps gives.
struct Result {
  std::vector<double> loss, norm;
  Tensors weights, first_moments;
  double bytes = 0;  // that rank 0 sent, as the trainer counts it
};

/// The part of a rank of what all are given.
std::vector<std::int32_t> part_of(const reference::Ids& all, std::uint32_t rank, std::uint32_t ranks) {
  const auto own = static_cast<std::ptrdiff_t>(all.size() / ranks);
  return {all.begin() + rank * own, all.begin() + (rank + 1) * own};
}

Tensors weights_of(const ModelSpec& m) {
  Tensors weights;
  for (const auto& [name, values] : random_weights(m, 7)) weights[name].assign(values.begin(), values.end());
  return weights;
}

template <class Host>
Result train(const Plugin& plugin, const RankCase& c, std::uint32_t ranks, std::uint32_t steps) {
  constexpr bool kOnDevice = std::is_base_of_v<CudaHost, Host>;
  const ModelSpec& m = c.model.spec;
  const Tensors weights = weights_of(m);
  Result out;
  ThreadRanks together(ranks);
  std::vector<Tensors> moments(ranks), saved(ranks);
  together.each([&](std::uint32_t rank) {
    const RunSpec run = run_of(c, ranks, rank);
    Host host;
    if (ranks > 1) host.ranks = together.rank(rank);
    {
      PluginSession session(plugin, host, m, run, kOnDevice ? static_cast<std::int32_t>(rank) : 0);
      session.load_all(weights);
      session.init(0);
      for (std::uint32_t t = 0; t < steps; ++t) {
        const std::size_t n = std::size_t{kSequences} * run.seq_len;
        const auto ids = random_tokens(n, m.vocab, 100 + t), targets = random_targets(n, m.vocab, 200 + t);
        const th_step_out step =
            session.step(part_of(ids, rank, ranks), part_of(targets, rank, ranks), 1e-3, t);
        if (rank == 0) out.loss.push_back(step.loss), out.norm.push_back(step.grad_norm);
      }
      if (moment_count(c.optimizer) > 0) moments[rank] = session.save(TH_SCOPE_MOMENT1);
      saved[rank] = session.save(trains_adapters(run) ? TH_SCOPE_ADAPTER : TH_SCOPE_WEIGHTS);
      if (rank == 0) {
        th_counters counters{};
        counters.struct_size = sizeof counters;
        th_error e = empty_error();
        check(plugin.trainer->counters(session.handle(), &counters, &e), e);
        out.bytes = static_cast<double>(counters.communication_bytes);
      }
    }
    if constexpr (kOnDevice) {
      const TrainerTraits traits = cuda::choose(m, run, "resident", 2, 4).traits;
      const step::Program program = step::build_program(m, run, traits);
      const placement::MemoryPlan plan = placement::place(program);
      const auto planned = static_cast<std::int64_t>(plan.of(Tier::kDevice).arena_bytes);
      if (host.device_peak != planned)
        throw std::runtime_error("rank " + std::to_string(rank) + " used " +
                                 std::to_string(host.device_peak) + " bytes, the plan is " +
                                 std::to_string(planned));
      if (!host.all_freed()) throw std::runtime_error("memory was not freed");
    }
  });
  // Every rank sends the state and the weights of all of them.
  for (std::uint32_t r = 0; r < ranks; ++r)
    if (!(moments[r] == moments[0]) || !(saved[r] == saved[0]))
      throw std::runtime_error("the ranks have saved different state");
  out.first_moments = moments[0], out.weights = saved[0];
  return out;
}

struct Resident : CudaHost {
  Resident() : CudaHost("resident") {}
};
Result train_cuda(const RankCase& c, std::uint32_t ranks, std::uint32_t steps) {
  return train<Resident>(engine(), c, ranks, steps);
}

double largest_difference(const Tensors& a, const Tensors& b) {
  double worst = 0, scale = 0;
  for (const auto& [name, values] : a) {
    BOOST_REQUIRE(values.size() == b.at(name).size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      BOOST_REQUIRE_MESSAGE(std::isfinite(b.at(name)[i]), name << '[' << i << "] has no state");
      worst = std::max(worst, static_cast<double>(std::abs(values[i] - b.at(name)[i])));
      scale = std::max(scale, static_cast<double>(std::abs(values[i])));
    }
  }
  return scale > 0 ? worst / scale : 0;
}

BOOST_AUTO_TEST_SUITE(cuda_ranks)

// bf16 is compared with one rank of the same trainer, as the trainers round differently.
BOOST_DATA_TEST_CASE(ranks_train_as_one_process_does, boost::unit_test::data::make(rank_cases()), c) {
  constexpr std::uint32_t kSteps = 2;
  const Result one = c.bf16 ? train_cuda(c, 1, kSteps) : train<CountingHost>(cpu_plugin(), c, 1, kSteps),
               many = train_cuda(c, c.ranks, kSteps);
  const double tolerance = c.bf16 ? 1e-4 : 1e-5;
  for (std::uint32_t t = 0; t < kSteps; ++t) {
    BOOST_TEST(std::abs(many.loss[t] - one.loss[t]) <= tolerance * one.loss[t],
               "step " << t << ": " << many.loss[t] << " against " << one.loss[t]);
    BOOST_TEST(std::abs(many.norm[t] - one.norm[t]) <= 10 * tolerance * one.norm[t],
               "step " << t << ": norm " << many.norm[t] << " against " << one.norm[t]);
  }
  BOOST_TEST(largest_difference(one.weights, many.weights) <= 10 * tolerance);
  BOOST_TEST(largest_difference(one.first_moments, many.first_moments) <= (c.bf16 ? 1e-2 : 1e-4));
}

BOOST_AUTO_TEST_CASE(the_same_ranks_give_the_same_bits) {
  for (std::uint32_t zero : {0u, 3u}) {
    const RankCase c{small_models()[4], 3, zero, Recompute::kNone, Optimizer::kAdamW, zero == 3};
    const Result a = train_cuda(c, 3, 3), b = train_cuda(c, 3, 3);
    BOOST_TEST(a.loss == b.loss);
    BOOST_TEST(a.norm == b.norm);
    BOOST_TEST((a.weights == b.weights));
  }
}

// Which the closed form is compared with in tests/plugins/cpu/ranks_test.cpp.
BOOST_AUTO_TEST_CASE(a_rank_sends_the_bytes_of_the_cpu_trainer) {
  for (std::uint32_t zero : {0u, 1u, 2u, 3u}) {
    const RankCase c{small_models()[0], 3, zero};
    BOOST_TEST(train_cuda(c, 3, 1).bytes == train<CountingHost>(cpu_plugin(), c, 3, 1).bytes);
  }
}

/// Calls f(session, host, rank) on every rank of the case.
template <class F>
void on_ranks(const RankCase& c, std::uint32_t ranks, F&& f, std::uint64_t timeout_ms = 60000) {
  ThreadRanks together(ranks, timeout_ms);
  together.each([&](std::uint32_t rank) {
    Resident host;
    if (ranks > 1) host.ranks = together.rank(rank);
    PluginSession session(engine(), host, c.model.spec, run_of(c, ranks, rank),
                          static_cast<std::int32_t>(rank));
    f(session, host, rank);
  });
}

BOOST_DATA_TEST_CASE(evaluation_and_generation_are_those_of_one_process,
                     boost::unit_test::data::make({2u, 3u}), zero) {
  const RankCase c{small_models()[1], 3, zero};
  const ModelSpec& m = c.model.spec;
  const auto run = [&](std::uint32_t ranks) {
    std::vector<std::pair<double, std::vector<float>>> out(ranks);
    on_ranks(c, ranks, [&](PluginSession& session, CudaHost&, std::uint32_t rank) {
      session.load_all(weights_of(m));
      session.init(0);
      const std::size_t n = c.model.seq;
      out[rank].first = session.evaluate(random_tokens(n, m.vocab, 1), random_targets(n, m.vocab, 2)).loss;
      session.next(1, 0);
      out[rank].second = session.next(2, 1);
    });
    return out;
  };
  const auto one = run(1), many = run(3);
  for (const auto& rank : many) {
    BOOST_TEST(rank.first == one[0].first);
    BOOST_TEST(rank.second == one[0].second);
  }
}

BOOST_DATA_TEST_CASE(initial_weights_do_not_depend_on_the_ranks, boost::unit_test::data::make({false, true}),
                     bf16) {
  const RankCase c{small_models()[3], 3, 3, Recompute::kNone, Optimizer::kAdamW, bf16};
  const auto initial = [&](std::uint32_t ranks) {
    std::vector<Tensors> out(ranks);
    on_ranks(c, ranks, [&](PluginSession& session, CudaHost&, std::uint32_t rank) {
      session.init(5);
      out[rank] = session.save();
    });
    return out;
  };
  const std::vector<Tensors> one = initial(1), many = initial(3);
  for (const Tensors& of_rank : many) BOOST_TEST((of_rank == one[0]));
}

/// A step of the case on one rank; th_status and message.
std::pair<th_status, std::string> refused_step(PluginSession& session, const RankCase& c,
                                               std::uint32_t ranks) {
  const std::size_t n = std::size_t{kSequences} * c.model.seq / ranks;
  const std::uint64_t vocab = c.model.spec.vocab;
  return refusal([&] { session.step(random_tokens(n, vocab, 1), random_targets(n, vocab, 2), 1e-3, 0); });
}

// Under ZeRO 1 and 2 the gathered shards make all copies of a weight equal again.
BOOST_DATA_TEST_CASE(a_value_that_is_not_finite_stops_the_update_on_all_ranks,
                     boost::unit_test::data::make({0u, 3u}), zero) {
  const RankCase c{small_models()[0], 2, zero};
  std::vector<std::pair<th_status, std::string>> said(2);
  on_ranks(c, 2, [&](PluginSession& session, CudaHost&, std::uint32_t rank) {
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
  on_ranks(c, 3, [&](PluginSession& session, CudaHost& host, std::uint32_t rank) {
    session.init(0);
    // Asked before the step and before each micro-batch.
    host.cancel_after = rank == 1 ? host.polls + 2 : UINT64_MAX;
    codes[rank] = refused_step(session, c, 3).first;
  });
  for (th_status s : codes) BOOST_TEST(s == TH_E_CANCELLED);
}

/// What every rank says of a run that cannot be created; `device` of each.
std::vector<std::pair<th_status, std::string>> refused_runs(const RankCase& c, std::vector<int> device,
                                                            std::uint64_t timeout_ms = 60000) {
  const auto ranks = static_cast<std::uint32_t>(device.size());
  ThreadRanks together(ranks, timeout_ms);
  std::vector<std::pair<th_status, std::string>> said(ranks);
  together.each([&](std::uint32_t rank) {
    Resident host;
    host.ranks = together.rank(rank);
    said[rank] = refusal(
        [&] { PluginSession session(engine(), host, c.model.spec, run_of(c, ranks, rank), device[rank]); });
  });
  return said;
}

/// A variable of the environment while the object exists.
struct Variable {
  Variable(const char* n, const char* value) : name(n) {
    if (const char* text = std::getenv(n)) before = text;
    ::setenv(n, value, 1);
  }
  ~Variable() { before.empty() ? ::unsetenv(name) : ::setenv(name, before.c_str(), 1); }
  const char* name;
  std::string before;
};

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
  on_ranks(
      c, 2,
      [&](PluginSession& session, CudaHost&, std::uint32_t rank) {
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
    Resident host;
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
