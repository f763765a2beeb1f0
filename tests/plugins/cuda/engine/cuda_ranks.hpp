// Several ranks of the CUDA engine, with threads as ranks, each with an emulated device of its own and the
// fake NCCL between them.
#pragma once
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/plugins/cuda/engine/engine_fixture.hpp"
#include "tests/support/rank_runs.hpp"

namespace trainhost::test {

/// The engine in a library, so that the fake NCCL in it is found by name.
inline const Plugin& engine() {
  static const Plugin p = [] {
    ::setenv("FAKE_CUDA_DEVICES", "4", 0);
    ::setenv("FAKE_CUDA_SMS", "2", 0);
    ::setenv("TRAINHOST_NCCL", EMULATED_ENGINE, 1);
    void* library = dlopen(EMULATED_ENGINE, RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    const auto entry = reinterpret_cast<plugins::EngineEntry>(dlsym(library, "trainhost_cuda_engine"));
    return Plugin(entry()->trainer, entry()->generate);
  }();
  return p;
}

struct CudaRank : CudaHost {
  explicit CudaRank(std::uint32_t number) : CudaHost("resident"), number_(number) {}
  static const Plugin& plugin() { return engine(); }
  std::int32_t device_number() const { return static_cast<std::int32_t>(number_); }
  std::uint64_t used() const { return static_cast<std::uint64_t>(device_peak); }
  std::uint64_t planned(const ModelSpec& m, const RunSpec& run) const {
    const step::Program program =
        step::build_program(m, run, cuda::choose(m, run, mode, 2, emu::Machine{}.multiprocessors).traits);
    return placement::place(program).of(Tier::kDevice).arena_bytes;
  }

 private:
  std::uint32_t number_;
};

/// A step of the case on one rank; th_status and message.
inline std::pair<th_status, std::string> refused_step(PluginSession& session, const RankCase& c,
                                                      std::uint32_t ranks) {
  const std::size_t n = std::size_t{kSequences} * c.model.seq / ranks;
  const std::uint64_t vocab = c.model.spec.vocab;
  return refusal([&] { session.step(random_tokens(n, vocab, 1), random_targets(n, vocab, 2), 1e-3, 0); });
}

/// What every rank says of a run that cannot be created; `device` of each.
inline std::vector<std::pair<th_status, std::string>> refused_runs(const RankCase& c, std::vector<int> device,
                                                                   std::uint64_t timeout_ms = 60000) {
  const auto ranks = static_cast<std::uint32_t>(device.size());
  ThreadRanks together(ranks, timeout_ms);
  std::vector<std::pair<th_status, std::string>> said(ranks);
  together.each([&](std::uint32_t rank) {
    CudaRank host(rank);
    host.ranks = together.rank(rank);
    said[rank] = refusal([&] {
      PluginSession session(engine(), host, c.model.spec, run_of(c, ranks / c.tensor, rank), device[rank]);
    });
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

}  // namespace trainhost::test
