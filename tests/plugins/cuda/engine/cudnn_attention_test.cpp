// plugin.cuda.attention = "cudnn" with a fake libcudnn that evaluates graphs on the emulation: the graphs
// compute the same as the own kernels, memory equals the plan, results have the same bits in every run, and
// every failure is one clear error. Golden runs: golden_test.cpp; the real library: cudnn_plans_test.cpp.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <random>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/engine/cudnn_attention.hpp"
#include "tests/plugins/cuda/engine/engine_fixture.hpp"
#include "tests/plugins/cuda/engine/fake_cudnn_library.hpp"

namespace trainhost {
namespace {

using namespace test;
using cuda::AttentionShape;
using cuda::Bf16;

ModelSpec model_of(std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t d, std::uint32_t window) {
  ModelSpec m = small_model(window ? "mistral" : "llama", 40, 32, 2, heads, kv_heads, d, 24);
  m.sliding_window = window, m.first_window_layer = window ? 1 : 0;
  return m;
}
RunSpec run_of(std::uint32_t sequences, std::uint32_t tokens) {
  RunSpec r;
  r.micro_batch = sequences, r.seq_len = tokens, r.accumulate = 2;
  return in_precision(r, "bf16");
}
cuda::Choice choice(const ModelSpec& m, const RunSpec& r, const char* mode = "resident") {
  return cuda::choose(m, r, mode, 2, emu::Machine{}.multiprocessors, cuda::choose_attention(m, r, "cudnn"));
}

/// Device memory, NaN unless values are given.
template <class T>
struct Array {
  T* p = nullptr;
  std::size_t n;
  explicit Array(std::size_t count) : n(count) {
    BOOST_REQUIRE(cudaMalloc(reinterpret_cast<void**>(&p), n * sizeof(T)) == cudaSuccess);
    std::memset(static_cast<void*>(p), 0xff, n * sizeof(T));
  }
  Array(std::size_t count, unsigned seed) : Array(count) {
    std::mt19937 g(seed);
    for (std::size_t i = 0; i < n; ++i)
      p[i] = __float2bfloat16_rn(static_cast<float>(g()) / 2147483648.0f - 1.0f);
  }
  ~Array() { (void)cudaFree(p); }
  Array(const Array&) = delete;
};
double value(Bf16 x) { return __bfloat162float(x); }

template <class T>
void require_close(const Array<T>& a, const Array<T>& b, double tolerance, const char* what) {
  double worst = 0;
  for (std::size_t i = 0; i < a.n; ++i) {
    const double difference = std::abs(value(a.p[i]) - value(b.p[i]));
    worst = std::isnan(difference) ? 1e30 : std::max(worst, difference);
  }
  BOOST_TEST(worst <= tolerance, what << ": largest difference " << worst);
}

void compare_with_own_kernels(const AttentionShape& s, std::uint32_t backward_sequences) {
  emu::reset();
  const FakeCudnnLibrary fake;
  const ModelSpec m = model_of(s.heads, s.kv_heads, s.d, s.window);
  const RunSpec r = run_of(s.sequences, s.seq);
  const step::Program program = step::build_program(m, r, choice(m, r).traits);
  {
    cuda::CudnnAttention cudnn(program, 90, backward_sequences);
    const std::size_t tokens = std::size_t{s.sequences} * s.seq, rows = tokens * s.heads;
    const Array<Bf16> qkv(tokens * s.width(), 1), d_o(rows * s.d, 2);
    const Array<Bf16> o(rows * s.d), own_o(rows * s.d), dqkv(tokens * s.width()),
        own_dqkv(tokens * s.width());
    const Array<float> lse(rows), own_lse(rows), delta(rows), own_delta(rows);
    const Array<char> workspace(1 << 20);
    cudnn.use_workspace(workspace.p);
    cuda::attention<Bf16>(nullptr, s, cuda::F32Products::kExact, qkv.p, own_o.p, own_lse.p);
    cuda::attention_bwd<Bf16>(nullptr, s, cuda::F32Products::kExact, d_o.p, own_o.p, own_lse.p, qkv.p,
                              own_delta.p, own_dqkv.p);
    cudnn.forward(nullptr, s, qkv.p, o.p, lse.p);
    cudnn.backward(nullptr, s, d_o.p, o.p, lse.p, qkv.p, delta.p, dqkv.p);
    BOOST_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    BOOST_TEST(fake->executed == 1 + s.sequences / backward_sequences);
    require_close(o, own_o, 2e-2, "o");
    require_close(dqkv, own_dqkv, 6e-2, "dqkv");
    // lse is [sequences, heads, seq] for cuDNN, [sequences, seq, heads] for the own kernels.
    double worst = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t b = i / (s.seq * s.heads), h = i / s.seq % s.heads, t = i % s.seq;
      worst = std::max(worst, std::abs(double{lse.p[i]} - double{own_lse.p[(b * s.seq + t) * s.heads + h]}));
    }
    BOOST_TEST(worst <= 1e-3, "lse: largest difference " << worst);
  }
  BOOST_TEST(fake->objects == 0);
  BOOST_TEST(emu::problems().empty());
}

BOOST_AUTO_TEST_SUITE(cuda_cudnn_attention)

BOOST_AUTO_TEST_CASE(the_graphs_compute_what_the_own_kernels_compute) {
  // sequences, seq, heads, kv_heads, d, window
  for (const AttentionShape& s : {AttentionShape{2, 20, 2, 2, 16, 0}, AttentionShape{2, 17, 4, 2, 8, 0},
                                  AttentionShape{4, 12, 3, 1, 16, 5}, AttentionShape{1, 2, 1, 1, 24, 1},
                                  AttentionShape{2, 9, 2, 1, 8, 9}})
    for (std::uint32_t group : {s.sequences, 1u})
      BOOST_TEST_CONTEXT("seq " << s.seq << ", heads " << s.heads << "/" << s.kv_heads << ", window "
                                << s.window << ", " << group << " sequences per backward call")
  compare_with_own_kernels(s, group);
}

BOOST_AUTO_TEST_CASE(memory_equals_the_plan_and_runs_repeat_their_bits) {
  const ModelSpec m = model_of(4, 2, 16, 7);
  const RunSpec r = run_of(2, 24);
  for (const char* mode : kModes) {
    std::vector<TrainState> states;
    for (int repeat = 0; repeat < 2; ++repeat) {
      emu::reset();
      const FakeCudnnLibrary fake;
      const placement::MemoryPlan plan =
          placement::place(step::build_program(m, r, choice(m, r, mode).traits));
      CudaHost host(mode);
      host.attention = "cudnn";
      {
        PluginSession session(cuda_engine(), host, m, r);
        BOOST_TEST(session.info("kernel_set").ends_with(", attention by cuDNN 9.19.0"),
                   session.info("kernel_set"));
        session.init(1);
        const std::size_t n = r.tokens_per_step();
        const std::int64_t objects = fake->objects;
        for (std::uint64_t t = 0; t < 2; ++t)
          session.step(random_tokens(n, m.vocab, 1), random_tokens(n, m.vocab, 2), 1e-3, t);
        // An evaluation of fewer sequences than planned, and generation by the own kernel.
        session.evaluate(random_tokens(r.seq_len, m.vocab, 1), random_tokens(r.seq_len, m.vocab, 2));
        BOOST_TEST(fake->objects == objects);
        session.next(0, 0);
        states.push_back(state_of(session));
      }
      BOOST_TEST(fake->executed > 0);
      BOOST_TEST(fake->objects == 0);
      BOOST_TEST(emu::peak_device_bytes() == plan.of(Tier::kDevice).arena_bytes);
      BOOST_TEST(emu::peak_pinned_bytes() == plan.of(Tier::kPinned).arena_bytes);
      BOOST_TEST(host.all_freed());
      BOOST_TEST(emu::outstanding().nothing());
      BOOST_TEST(emu::problems().empty());
    }
    BOOST_TEST(same_bits(states[0], states[1]), mode);
  }
}

BOOST_AUTO_TEST_CASE(the_planned_workspace_does_not_depend_on_an_installed_library) {
  setenv("TRAINHOST_CUDNN", "/nowhere/libcudnn.so.9", 1);
  ModelSpec m = model_of(16, 8, 64, 0);
  RunSpec r = run_of(8, 1024);
  // 8 sequences need 288 MiB, so one call computes the gradients of 4.
  BOOST_TEST(cuda::cudnn_workspace_bytes(m, r, 8) == 301990144u);
  BOOST_TEST(cuda::cudnn_backward_sequences(m, r) == 4u);
  BOOST_TEST(choice(m, r).traits.workspace_bytes == cuda::cudnn_workspace_bytes(m, r, 4));
  BOOST_TEST(choice(m, r, "auto").traits.workspace_bytes == cuda::cudnn_workspace_bytes(m, r, 4));
  BOOST_TEST(cuda::choose(m, r, "auto", 2).traits.workspace_bytes == cuda::kBlasWorkspaceBytes);
  r.micro_batch = 1, r.seq_len = 64;
  BOOST_TEST(choice(m, r).traits.workspace_bytes == cuda::kBlasWorkspaceBytes);
  r.seq_len = 32768;  // one sequence exceeds the goal
  BOOST_TEST(cuda::cudnn_backward_sequences(m, r) == 1u);
  BOOST_TEST(choice(m, r).traits.workspace_bytes > cuda::kCudnnWorkspaceGoal);
  // Each sequence exceeds the goal, but the statistics of one have 14 * 4097 numbers, no multiple of 16
  // bytes.
  BOOST_TEST(cuda::cudnn_backward_sequences(model_of(14, 2, 64, 0), run_of(8, 4097)) == 2u);
  unsetenv("TRAINHOST_CUDNN");
}

BOOST_AUTO_TEST_CASE(what_cudnn_does_not_support_is_an_error_of_the_plan) {
  const auto refusal = [](const ModelSpec& m, const RunSpec& r) {
    try {
      cuda::choose_attention(m, r, "cudnn");
    } catch (const abi::StatusError& e) {
      BOOST_TEST(e.code == TH_E_UNSUPPORTED);
      BOOST_TEST(e.hint == "set plugin.cuda.attention = \"own\"");
      return std::string(e.what());
    }
    return std::string("supported");
  };
  const std::string start = "plugin.cuda.attention = \"cudnn\": ";
  BOOST_TEST(refusal(model_of(4, 2, 16, 0), run_of(2, 24)) == "supported");
  BOOST_TEST(refusal(model_of(4, 2, 16, 0), in_precision(RunSpec(), "tf32")) ==
             start + "cuDNN attention needs train.precision = \"bf16\"");
  for (std::uint32_t d : {4u, 20u, 136u, 256u})
    BOOST_TEST(refusal(model_of(4, 2, d, 0), run_of(2, 24)) ==
               start + "head_dim = " + std::to_string(d) +
                   ": cuDNN attention needs a multiple of 8 up to 128");
  BOOST_TEST(refusal(model_of(4, 2, 16, 0), run_of(2, 1)) ==
             start + "train.seq_len = 1: cuDNN attention needs at least 2");
  for (const char* own : {"auto", "own"})
    BOOST_TEST((cuda::choose_attention(model_of(4, 2, 16, 0), run_of(2, 24), own) == cuda::Attention::kOwn));
}

struct ErrorOf {
  th_status code;
  std::string message;
};
/// The error of creating a run with attention = "cudnn". Nothing may be left allocated.
ErrorOf error_of_a_run(const FakeCudnnLibrary& fake) {
  const ModelSpec m = model_of(4, 2, 16, 0);
  const ErrorOf e = [&] {
    CudaHost host("resident");
    host.attention = "cudnn";
    try {
      PluginSession session(cuda_engine(), host, m, run_of(2, 24));
      session.init(1);
      session.step(random_tokens(96, m.vocab, 1), random_tokens(96, m.vocab, 2), 1e-3, 0);
    } catch (const StatusFailure& f) {
      return ErrorOf{f.code, f.what()};
    }
    return ErrorOf{TH_OK, ""};
  }();
  BOOST_TEST(fake->objects == 0);
  BOOST_TEST(emu::outstanding().nothing());
  return e;
}

BOOST_AUTO_TEST_CASE(a_library_that_is_missing_or_old_is_one_error_with_what_to_install) {
  emu::reset();
  const FakeCudnnLibrary fake;
  setenv("TRAINHOST_CUDNN", "/nowhere/libcudnn.so.9", 1);
  ErrorOf e = error_of_a_run(fake);
  BOOST_TEST(e.code == TH_E_UNAVAILABLE);
  BOOST_TEST(e.message.find("plugin.cuda.attention = \"cudnn\": /nowhere/libcudnn.so.9: cannot open") !=
                 std::string::npos,
             e.message);
  BOOST_TEST(e.message.find("pip install nvidia-cudnn-cu13") != std::string::npos, e.message);
  setenv("TRAINHOST_CUDNN", FAKE_LIBCUDA, 1);
  e = error_of_a_run(fake);
  BOOST_TEST(e.code == TH_E_UNAVAILABLE);
  BOOST_TEST(e.message.find("has no function cudnnGetVersion") != std::string::npos, e.message);
  // A library that was loaded is not examined again, so another name for the same file.
  const std::string other = std::string(FAKE_CUDNN).insert(std::string(FAKE_CUDNN).rfind('/'), "/.");
  setenv("TRAINHOST_CUDNN", other.c_str(), 1);
  for (const auto& [version, text] :
       {std::pair<std::size_t, const char*>{91801, "9.18.1"}, {100000, "10.0.0"}}) {
    fake->version = version;
    e = error_of_a_run(fake);
    BOOST_TEST(e.code == TH_E_UNAVAILABLE);
    BOOST_TEST(e.message.find(std::string(" is cuDNN ") + text +
                              ", supported are 9.19.0 and newer versions of cuDNN 9") != std::string::npos,
               e.message);
  }
  fake->version = 92300;
  BOOST_TEST(error_of_a_run(fake).code == TH_OK);
}

BOOST_AUTO_TEST_CASE(a_plan_that_cannot_be_made_is_one_error) {
  const std::string start =
      "attention forward of 2 sequences of 24 tokens, 4 heads, 2 key/value heads of size 16: ";
  const auto expect = [&](const char* reason, auto&& prepare) {
    emu::reset();
    const FakeCudnnLibrary fake;
    prepare(*fake.operator->());
    const ErrorOf e = error_of_a_run(fake);
    BOOST_TEST(e.code == TH_E_UNSUPPORTED);
    BOOST_TEST(!emu::calls().contains("cudaMalloc"));  // plans load kernels, so they come before the arena
    BOOST_TEST(e.message.find(start + reason) != std::string::npos, e.message);
    BOOST_TEST(e.message.find("set plugin.cuda.attention = \"own\"") != std::string::npos, e.message);
  };
  expect("cuDNN proposes no engine", [](FakeCudnn& f) { f.proposes = false; });
  expect("the fake library refuses", [](FakeCudnn& f) { f.failing_plans = 1; });
  expect("the engine is not deterministic", [](FakeCudnn& f) { f.unsuitable = 100; });
  // 2 sequences of 4 heads: scores of 64 x 128 in bf16 and the gradients of every head's keys and values
  expect("the engine needs 1048576 bytes of workspace, planned are 143616",
         [](FakeCudnn& f) { f.workspace_bytes = 1 << 20; });
}

BOOST_AUTO_TEST_CASE(a_failing_call_is_classified_like_other_errors_of_the_device) {
  emu::reset();
  const FakeCudnnLibrary fake;
  fake->execute_status = 5000;
  ErrorOf e = error_of_a_run(fake);
  BOOST_TEST(e.code == TH_E_INTERNAL);
  BOOST_TEST(e.message.find("attention forward of 2 sequences") != std::string::npos, e.message);
  BOOST_TEST(e.message.find("CUDNN_STATUS_EXECUTION_FAILED") != std::string::npos, e.message);
  fake->execute_status = 4004;
  BOOST_TEST(error_of_a_run(fake).code == TH_E_DEVICE_OOM);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
