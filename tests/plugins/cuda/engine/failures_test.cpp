// Makes every call of the CUDA runtime and of cuBLAS fail in turn, in every mode, with every kind of error.
// The trainer must report the operation and the library's error under the right status code, reject all calls
// of the instance afterwards, and free all memory and handles.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cublasLt.h>

#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"
#include "tests/plugins/cuda/engine/engine_fixture.hpp"
#include "tests/support/files.hpp"

namespace trainhost {
namespace {

using namespace test;

struct Error {
  int code;
  const char* text;  // part of the message
  th_status status;
  bool sticky;
};
const Error kCudaErrors[] = {
    {2, "memory", TH_E_DEVICE_OOM, false},
    {1, "cudaErrorInvalidValue", TH_E_INTERNAL, false},
    {719, "cudaErrorLaunchFailure", TH_E_DEVICE_LOST, true},
    {700, "cudaErrorIllegalAddress", TH_E_DEVICE_LOST, true},
    {214, "cudaErrorECCUncorrectable", TH_E_DEVICE_LOST, true},
    {999, "cudaErrorUnknown", TH_E_DEVICE_LOST, true},
};
const Error kBlasErrors[] = {
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", TH_E_DEVICE_OOM, false},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", TH_E_INTERNAL, false},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", TH_E_INTERNAL, false},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", TH_E_INTERNAL, false},
};

struct Kind {
  const char* mode;
  bool tied, bf16;
};
std::ostream& operator<<(std::ostream& o, const Kind& k) {
  return o << k.mode << (k.tied ? ", tied" : "") << (k.bf16 ? ", bf16" : "");
}
const Kind kKinds[] = {{"resident", false, false},
                       {"hybrid", false, true},
                       {"hybrid", true, false},
                       {"streamed", false, true},
                       {"streamed", true, false}};

ModelSpec tiny(const Kind& k) {
  ModelSpec m = small_model("qwen2", 16, 8, 1, 2, 1, 4, 8);
  m.tied = k.tied, m.qkv_bias = true;
  return m;
}
RunSpec tiny_run(const Kind& k) {
  RunSpec r;
  r.seq_len = 4, r.micro_batch = 1, r.accumulate = 2;
  return in_precision(r, k.bf16 ? "bf16" : "fp32");
}

/// The run in which a call fails: makes every kind of call that a host makes. Throws StatusFailure from the
/// call that failed.
class FailingRun {
 public:
  explicit FailingRun(const Kind& k) : model_(tiny(k)), run_(tiny_run(k)), host_(k.mode, 2) {
    const std::size_t n = run_.tokens_per_step();
    ids_ = random_tokens(n, model_.vocab, 1), targets_ = random_targets(n, model_.vocab, 2);
    for (const TensorInfo& t : tensors(model_)) {
      std::vector<float>& w = weights_[t.name];
      w.resize(t.elements());
      init_tensor(model_, t, 5, 0, w);
    }
  }

  /// Runs until the first failure. Afterwards at() is the number of completed updates.
  void until_failure() {
    create();
    for (; at_ < 2; ++at_) {
      if (at_ == 1) session_->save(TH_SCOPE_MOMENT1);
      step(at_);
    }
    evaluate_and_generate();
    for (std::uint32_t scope : {TH_SCOPE_WEIGHTS, TH_SCOPE_MOMENT1}) session_->save(scope);
  }

  bool has_session() const { return session_.has_value(); }
  std::uint64_t at() const { return at_; }
  PluginSession& session() { return *session_; }
  th_step_out step(std::uint64_t t) { return session_->step(ids_, targets_, 1e-2, t); }
  void end() { session_.reset(); }
  CudaHost& host() { return host_; }
  std::uint64_t products_at_creation() const { return products_at_creation_; }

 private:
  void create() {
    session_.emplace(cuda_engine(), host_, model_, run_);
    products_at_creation_ = emu::calls()["cublasLtMatmul"];
    const TensorInfo first = tensors(model_).front();
    for (const TensorInfo& t : tensors(model_))
      if (t.name != first.name) session_->load(t, weights_.at(t.name));
    session_->init(5);
  }
  void evaluate_and_generate() {
    const std::size_t n = run_.tokens_per_micro_batch();
    session_->evaluate({ids_.begin(), ids_.begin() + static_cast<long>(n)},
                       {targets_.begin(), targets_.begin() + static_cast<long>(n)});
    for (std::uint32_t p = 0; p < 2; ++p) session_->next(ids_[p], p);
    session_->metric("sync_mismatch");
  }

  ModelSpec model_;
  RunSpec run_;
  CudaHost host_;
  std::vector<std::int32_t> ids_, targets_;
  Tensors weights_;
  std::optional<PluginSession> session_;
  std::uint64_t at_ = 0, products_at_creation_ = 0;
};

/// Calls whose failure is ignored: those that free something, and reading a clock for a report.
bool may_fail_silently(const std::string& call) {
  return call.find("Destroy") != std::string::npos || call.starts_with("cudaFree") ||
         call == "cudaEventElapsedTime";
}
bool of_blas(const std::string& call) { return call.starts_with("cublas"); }

/// The numbers of the calls to fail, of `calls` calls: the first four, and some spread over the rest.
std::vector<std::uint64_t> selected_calls(std::uint64_t calls) {
  std::set<std::uint64_t> n;
  for (std::uint64_t i = 1; i <= std::min<std::uint64_t>(calls, 4); ++i) n.insert(i);
  for (std::uint64_t i : {calls / 4, calls / 2, calls * 3 / 4, calls * 7 / 8, calls})
    n.insert(std::max<std::uint64_t>(i, 1));
  return {n.begin(), n.end()};
}

struct Count {
  std::uint64_t cases = 0, reported = 0, rejected = 0;  // calls failed; errors thrown; later calls rejected
};

/// Kernels write nothing then, except the decision whether an update is applied.
void reset_without_computing() {
  emu::reset();
  emu::Machine m;
  m.only_kernel = "finish_norm_kernel";
  emu::set_machine(m);
}

/// Fails the nth call of one run and checks the result.
void run_with_failure(const Kind& k, const std::string& call, std::uint64_t nth, const Error& e,
                      Count& count) {
  ++count.cases;
  reset_without_computing();
  emu::fail(call, nth, e.code, e.sticky);
  const auto describe = [&](const std::string& what) {
    return call + " #" + std::to_string(nth) + " fails with " + e.text + ": " + what;
  };
  FailingRun run(k);
  std::optional<StatusFailure> failure;
  try {
    run.until_failure();
  } catch (const StatusFailure& f) {
    failure = f;
  }
  if (failure) {
    ++count.reported;
    const std::string text = failure->what();
    const bool pinned = call == "cudaHostAlloc" && e.code == 2;
    BOOST_TEST(failure->code == (pinned ? TH_E_HOST_OOM : e.status), describe(text));
    BOOST_TEST(text.find(e.text) != std::string::npos, describe(text));
    if (run.has_session()) {
      // After each of these codes only destroy() is allowed.
      for (const std::function<void()>& again : {std::function<void()>([&] { run.session().save(); }),
                                                 std::function<void()>([&] { run.step(run.at()); })})
        try {
          again();
          BOOST_ERROR(describe("a call of a lost instance succeeds"));
        } catch (const StatusFailure& later) {
          ++count.rejected;
          BOOST_TEST(later.code == TH_E_STATE, describe(later.what()));
          BOOST_TEST(std::string(later.what()).find("of a lost instance") != std::string::npos,
                     describe(later.what()));
        }
    }
  } else {
    // A failed capture is repeated without capturing, and a product is tried with the next algorithm before
    // it has run once.
    const bool repeated = std::any_of(
        run.host().lines.begin(), run.host().lines.end(),
        [](const std::string& line) { return line.find("steps run without CUDA graphs") != line.npos; });
    const bool another_algorithm = call == "cublasLtMatmul" && nth <= run.products_at_creation();
    BOOST_TEST((may_fail_silently(call) || repeated || another_algorithm), describe("no error was reported"));
  }
  run.end();
  BOOST_TEST(run.host().all_freed(), describe("memory was not freed"));
  BOOST_TEST(emu::outstanding().nothing(), describe("a handle or allocation was not freed"));
}

BOOST_AUTO_TEST_SUITE(cuda_failures)

BOOST_DATA_TEST_CASE(every_call_may_fail, boost::unit_test::data::make(kKinds), k) {
  reset_without_computing();
  std::map<std::string, std::uint64_t> calls;  // before the run ends: its end only frees
  {
    FailingRun run(k);
    run.until_failure();
    calls = emu::calls();
  }
  for (const auto& [call, n] : emu::calls())
    if (may_fail_silently(call)) calls[call] = n;
  BOOST_TEST_REQUIRE(emu::problems().empty());
  Count count;
  for (const auto& [call, n] : calls) {
    if (call == "cudaGetLastError" || call == "cublasLtGetVersion") continue;
    const std::span<const Error> errors =
        of_blas(call) ? std::span<const Error>(kBlasErrors) : std::span<const Error>(kCudaErrors);
    for (std::uint64_t nth : selected_calls(n)) {
      const bool all = nth == 1 || nth == n / 2;  // all errors for these two, else two of them in turn
      for (std::size_t i = 0; i < errors.size(); ++i)
        if (all || (i + nth) % (errors.size() / 2) == 0) run_with_failure(k, call, nth, errors[i], count);
    }
  }
  BOOST_TEST_MESSAGE(k << ": " << count.cases << " cases, " << count.reported << " reported, "
                       << count.rejected << " later calls rejected");
  BOOST_TEST(count.cases >= 400u);
  BOOST_TEST(count.rejected > 300u);
}

BOOST_DATA_TEST_CASE(every_kernel_and_copy_may_fail_while_it_runs, boost::unit_test::data::make(kKinds), k) {
  reset_without_computing();
  {
    FailingRun run(k);
    run.until_failure();
  }
  const emu::Statistics done = emu::statistics();
  Count count;
  for (const auto& [name, n] : {std::pair<std::string, std::uint64_t>{"kernel", done.launches},
                                {"copy", done.h2d.count + done.d2h.count + done.d2d.count}})
    for (std::uint64_t nth : selected_calls(n))
      for (const Error& e : kCudaErrors)
        if (e.sticky) run_with_failure(k, name, nth, e, count);
  BOOST_TEST(count.reported == count.cases);
}

BOOST_DATA_TEST_CASE(out_of_memory_reports_the_missing_bytes, boost::unit_test::data::make(kKinds), k) {
  emu::reset();
  FailingRun run(k);
  run.until_failure();
  const std::uint64_t device = emu::peak_device_bytes(), pinned = emu::peak_pinned_bytes();
  run.end();
  const auto create = [&](th_status expected, std::uint64_t missing) {
    const ModelSpec m = tiny(k);
    const RunSpec r = tiny_run(k);
    CudaHost host(k.mode);
    th_model cm = abi::to_c(m);
    th_run cr = abi::to_c(r);
    th_trainer_inst* instance = nullptr;
    th_error e = empty_error();
    BOOST_TEST(trainhost_cuda_engine()->trainer->create(&host, 0, &cm, &cr, &instance, &e) == expected);
    BOOST_TEST(e.bytes_needed == missing, e.message << ": " << e.bytes_needed << " bytes");
    BOOST_TEST(host.all_freed());
    BOOST_TEST(emu::outstanding().nothing());
  };
  emu::reset();
  emu::Machine m;
  m.memory_bytes = device - 512;
  emu::set_machine(m);
  create(TH_E_DEVICE_OOM, 512);
  emu::reset();
  m = {}, m.pinned_bytes = pinned - 1;
  emu::set_machine(m);
  create(TH_E_HOST_OOM, pinned);
}

// The device may be lost by work of another thread, which also receives the error. cuBLAS then returns an
// unrelated status.
BOOST_AUTO_TEST_CASE(a_lost_device_is_reported_after_a_cublas_error) {
  emu::reset();
  emu::fail("cudaStreamQuery", 1, cudaErrorIllegalAddress, true);
  std::thread([] { (void)cudaStreamQuery(nullptr); }).join();
  BOOST_TEST(cudaPeekAtLastError() == cudaSuccess);
  BOOST_CHECK_EXCEPTION(cuda::check(CUBLAS_STATUS_NOT_INITIALIZED, "describing a matrix product"),
                        abi::StatusError, [](const abi::StatusError& e) {
                          return e.code == TH_E_DEVICE_LOST &&
                                 std::string(e.what()).find("cudaErrorIllegalAddress") != std::string::npos;
                        });
  emu::reset();
}

// Without access to the device a run cannot begin: unavailable, exit code 4. The same errors during a run
// mean that the device is lost: the run ends with its last checkpoint, exit code 75.
BOOST_AUTO_TEST_CASE(no_access_is_unavailable_before_a_run_and_a_lost_device_during_it) {
  for (const auto& [code, text] :
       {std::pair{46,
                  "selecting device 0: the device is busy or in exclusive mode: cudaErrorDevicesUnavailable"},
        {100, "selecting device 0: the driver has no device: cudaErrorNoDevice"},
        {101, "selecting device 0: the driver has no such device: cudaErrorInvalidDevice"},
        {304, "selecting device 0: the driver cannot open the device"},
        {802, "selecting device 0: the driver is not ready"}}) {
    const auto failure_of = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const StatusFailure& f) {
        return std::pair{f.code, std::string(f.what())};
      }
      return std::pair{th_status{TH_OK}, std::string("no error")};
    };
    emu::reset();
    emu::fail("cudaSetDevice", 1, code, true);
    {
      FailingRun run(kKinds[0]);
      const auto [status, message] = failure_of([&] { run.until_failure(); });
      BOOST_TEST(status == TH_E_UNAVAILABLE, message);
      BOOST_TEST(has(message, text), message);
      BOOST_TEST(!run.has_session());
    }
    emu::reset();
    FailingRun run(kKinds[0]);
    run.until_failure();
    emu::fail("cudaMemcpyAsync", 1, code, true);
    const auto [status, message] = failure_of([&] { run.step(run.at()); });
    BOOST_TEST(status == TH_E_DEVICE_LOST, message);
    BOOST_TEST(has(message, "device 0 (Emulated GPU) is lost while "), message);
    BOOST_TEST(failure_of([&] { run.step(run.at()); }).first == TH_E_STATE);
    run.end();
    BOOST_TEST(emu::outstanding().nothing());
  }
  emu::reset();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
