// What a run does before its first step: code that takes device memory is loaded before the plan's memory is
// allocated, algorithms of products are chosen once and kept in a file, and graphs are captured only after an
// update without them.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/plugins/cuda/engine/engine_fixture.hpp"
#include "tests/support/files.hpp"

namespace trainhost {
namespace {

using namespace test;

constexpr std::uint32_t kLength = 5, kWords = 19;

struct StartUpCase {
  const char *mode, *precision;
};
std::ostream& operator<<(std::ostream& o, const StartUpCase& c) { return o << c.mode << ", " << c.precision; }
const StartUpCase kStartUpCases[] = {
    {"resident", "fp32"}, {"resident", "bf16"}, {"hybrid", "bf16"}, {"streamed", "tf32"}};

/// A run with biases and two micro-batches per update.
struct StartUpRun {
  explicit StartUpRun(const StartUpCase& c, const std::string& products = "") : host(c.mode, 2) {
    host.products = products;
    model = small_model("qwen2", kWords, 16, 2, 2, 1, 8, 12);
    model.qkv_bias = true;
    run.seq_len = kLength, run.micro_batch = 1, run.accumulate = 2;
    run = in_precision(run, c.precision);
  }
  void create() {
    session.emplace(cuda_engine(), host, model, run);
    session->init(3);
  }
  void step(std::uint64_t t) {
    session->step(random_tokens(2 * kLength, kWords, 1), random_targets(2 * kLength, kWords, 2), 1e-2, t);
  }
  /// Everything that a host may ask for, with full micro-batches.
  void use() {
    for (std::uint64_t t = 0; t < 3; ++t) step(t);
    session->evaluate(random_tokens(kLength, kWords, 1), random_targets(kLength, kWords, 2));
    for (std::uint32_t p = 0; p < 2; ++p) session->next(1, p);
    session->save();
  }
  bool logged(const std::string& part) const { return times_logged(part) != 0; }
  std::size_t times_logged(const std::string& part) const {
    return static_cast<std::size_t>(
        std::count_if(host.lines.begin(), host.lines.end(),
                      [&](const auto& line) { return line.find(part) != std::string::npos; }));
  }

  ModelSpec model;
  RunSpec run;
  CudaHost host;
  std::optional<PluginSession> session;
};

std::uint64_t free_now() {
  std::size_t free = 0, total = 0;
  BOOST_REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  return free;
}

/// A device on which code takes memory.
emu::Machine with_lazy_loading() {
  emu::Machine m;
  m.kernel_bytes = 1 << 20, m.blas_kernel_bytes = 3 << 20, m.blas_handle_bytes = 5 << 20;
  return m;
}

BOOST_AUTO_TEST_SUITE(cuda_start_up)

BOOST_DATA_TEST_CASE(a_device_that_the_plan_fills_has_the_code_before,
                     boost::unit_test::data::make(kStartUpCases), c) {
  emu::reset();
  emu::Machine m = with_lazy_loading();
  emu::set_machine(m);
  std::uint64_t needed = 0;
  {
    StartUpRun r(c);
    const std::uint64_t before = free_now();
    r.create();
    needed = before - free_now();
    BOOST_TEST(needed > static_cast<std::uint64_t>(r.host.device));
    r.use();
    BOOST_TEST(before - free_now() == needed);  // nothing was loaded later
  }
  emu::reset();
  m.memory_bytes = needed;
  emu::set_machine(m);
  {
    StartUpRun r(c);
    r.create();
    r.use();
    BOOST_TEST(!r.logged("without CUDA graphs"));
  }
  // One unit of allocation less: refused at creation, with the difference.
  emu::reset();
  m.memory_bytes = needed - 512;
  emu::set_machine(m);
  {
    StartUpRun r(c);
    try {
      r.create();
      BOOST_ERROR("a device that is too small is accepted");
    } catch (const StatusFailure& e) {
      const std::string text = e.what();
      BOOST_TEST(e.code == TH_E_DEVICE_OOM);
      for (const char* part :
           {" B short", "are free beside the CUDA runtime and its kernels: ", "memory.budget"})
        BOOST_TEST(has(text, part), text);
    }
    r.session.reset();
    BOOST_TEST(r.host.all_freed());
  }
  BOOST_TEST(emu::problems().empty());
  emu::reset();
}

// No product is described, and no algorithm is searched, after the creation of a run.
BOOST_DATA_TEST_CASE(every_product_is_prepared, boost::unit_test::data::make(kStartUpCases), c) {
  emu::reset();
  StartUpRun r(c);
  r.create();
  const auto before = emu::calls();
  r.use();
  for (const char* call : {"cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulDescCreate"})
    BOOST_TEST(emu::calls()[call] == before.at(call), call);
}

// The head of the hybrid mode is computed in pieces of 32 MiB of logits: here 419 of 512 tokens, and 93.
BOOST_AUTO_TEST_CASE(the_products_of_pieces_of_the_head_are_prepared) {
  emu::reset();
  StartUpRun r({"hybrid", "fp32"});
  r.model = small_model("llama", 20'000, 8, 1, 1, 1, 8, 8);
  r.run.seq_len = 512, r.run.accumulate = 1;
  r.create();
  const auto before = emu::calls();
  r.session->step(random_tokens(512, 20'000, 1), random_targets(512, 20'000, 2), 1e-2, 0);
  BOOST_TEST(emu::calls()["cublasLtMatmulAlgoGetHeuristic"] == before.at("cublasLtMatmulAlgoGetHeuristic"));
}

// The last batch of an evaluation may have fewer sequences than a micro-batch: it must neither describe a
// product nor load code, because the plan may have taken all memory.
BOOST_DATA_TEST_CASE(an_evaluation_of_fewer_sequences_needs_no_other_product,
                     boost::unit_test::data::make(kStartUpCases), c) {
  emu::reset();
  emu::set_machine(with_lazy_loading());
  StartUpRun r(c);
  r.run.micro_batch = 3, r.run.accumulate = 1;
  r.create();
  const auto before = emu::calls();
  const std::uint64_t free_before = free_now();
  for (const std::size_t sequences : {1u, 2u, 3u}) {
    const std::size_t n = sequences * kLength;
    const th_step_out out = r.session->evaluate(random_tokens(n, kWords, 1), random_targets(n, kWords, 2));
    BOOST_TEST(out.tokens_counted <= n);
    BOOST_TEST(out.loss > 0);
  }
  for (const char* call : {"cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulDescCreate"})
    BOOST_TEST(emu::calls()[call] == before.at(call), call);
  BOOST_TEST(free_now() == free_before);
}

BOOST_AUTO_TEST_CASE(the_first_update_is_not_captured) {
  emu::reset();
  StartUpRun r(kStartUpCases[0]);
  r.create();
  r.step(0);
  BOOST_TEST(emu::calls()["cudaStreamBeginCapture"] == 0u);
  r.step(1);
  BOOST_TEST(emu::calls()["cudaStreamBeginCapture"] == 2u);  // first micro-batch, later ones
  r.step(2);
  BOOST_TEST(emu::calls()["cudaStreamBeginCapture"] == 2u);
  BOOST_TEST(emu::statistics().graph_launches == 4u);
}

BOOST_AUTO_TEST_CASE(a_run_continues_without_graphs_if_a_capture_fails) {
  emu::reset();
  const auto state_after = [&](const char* failing) {
    emu::reset();
    if (failing) emu::fail(failing, 1, cudaErrorStreamCaptureUnsupported);
    StartUpRun r(kStartUpCases[0]);
    r.create();
    r.use();
    BOOST_TEST(r.times_logged("steps run without CUDA graphs: ") == (failing ? 1u : 0u));
    if (failing) BOOST_TEST(emu::statistics().graph_launches == 0u);
    return state_of(*r.session);
  };
  const TrainState expected = state_after(nullptr);
  for (const char* call : {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"})
    BOOST_TEST(same_bits(state_after(call), expected), call);
  BOOST_TEST(emu::outstanding().nothing());
}

BOOST_AUTO_TEST_CASE(the_host_sleeps_while_it_waits_in_modes_with_work_for_its_threads) {
  for (const auto& [mode, flags] : {std::pair{"resident", cudaDeviceScheduleAuto},
                                    {"hybrid", cudaDeviceScheduleBlockingSync},
                                    {"streamed", cudaDeviceScheduleBlockingSync}}) {
    emu::reset();
    StartUpRun r({mode, "fp32"});
    r.create();
    unsigned now = 0;
    BOOST_TEST(cudaGetDeviceFlags(&now) == cudaSuccess);
    BOOST_TEST(now == static_cast<unsigned>(flags), mode);
  }
}

// ---- algorithms of products

struct ChoicesFile {
  TemporaryDirectory folder;
  std::string path = (folder / "cache/products-1").string();
  std::string text() const {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

struct RunResult {
  TrainState state;
  std::map<std::string, std::uint64_t> algorithms;  // products of the steps, by algorithm
  std::uint64_t products_before_the_steps = 0;
};
RunResult run_with(const StartUpCase& c, const std::string& products) {
  emu::reset();
  StartUpRun r(c, products);
  r.create();
  RunResult result;
  result.products_before_the_steps = emu::statistics().matmuls;
  emu::clear_statistics();
  r.use();
  result.algorithms = emu::statistics().matmuls_of;
  result.state = state_of(*r.session);
  BOOST_TEST(emu::problems().empty());
  return result;
}

BOOST_DATA_TEST_CASE(the_fastest_algorithm_is_kept_in_a_file, boost::unit_test::data::make(kStartUpCases),
                     c) {
  const ChoicesFile file;
  const RunResult timed = run_with(c, file.path);
  // Every product has two algorithms that work; the one that splits its sums is faster. None adds in bf16.
  BOOST_TEST(timed.algorithms.size() == 1u);
  BOOST_TEST(timed.algorithms.contains("split"));
  const std::string text = file.text();
  BOOST_TEST(has(text, "Emulated GPU, sm_90, cuBLASLt 130100, workspace 33554432, forward 5 x 19 x 16, "));
  const RunResult again = run_with(c, file.path);
  BOOST_TEST(again.products_before_the_steps < timed.products_before_the_steps / 4);
  BOOST_TEST(same_bits(again.state, timed.state));
  BOOST_TEST(file.text() == text);

  // The choice of the file is used, not what is fastest now. A device with another name does not use it.
  const RunResult without = run_with(c, "");
  BOOST_TEST(without.algorithms.size() == 1u);
  BOOST_TEST(without.algorithms.contains("plain"));
  BOOST_TEST(!same_bits(without.state, timed.state));
}

BOOST_AUTO_TEST_CASE(lines_that_cannot_be_used_are_replaced) {
  const ChoicesFile file;
  const RunResult timed = run_with(kStartUpCases[1], file.path);
  const std::string text = file.text();
  std::string broken;
  for (char ch : text) broken += ch == '\t' ? "\t00" : std::string(1, ch);  // too long
  for (const std::string& bad : {broken, std::string("\0\xff no line", 10), std::string()}) {
    std::ofstream(file.path) << bad;
    const RunResult r = run_with(kStartUpCases[1], file.path);
    BOOST_TEST(same_bits(r.state, timed.state));
    BOOST_TEST(file.text() == text);
  }
  // Valid lines with an algorithm that this product does not have.
  std::string other = text;
  for (std::size_t at = 0; (at = other.find('\t', at)) != other.npos; ++at) other.replace(at + 1, 4, "ffff");
  std::ofstream(file.path) << other;
  const RunResult r = run_with(kStartUpCases[1], file.path);
  BOOST_TEST(same_bits(r.state, timed.state));
  BOOST_TEST(file.text() == text);
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_written_is_reported) {
  emu::reset();
  StartUpRun r(kStartUpCases[1], "/proc/no/such/file");
  r.create();
  BOOST_TEST(r.times_logged("cannot be kept: cannot write /proc/no/such/file: ") == 1u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
