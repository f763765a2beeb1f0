// Every call of the CUDA runtime and of cuBLAS made to fail in turn, in every mode, with every kind of error:
// the trainer says what it was doing and what the library said, under the right code; the instance answers
// nothing afterwards; and everything is given back.
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

namespace trainhost {
namespace {

using namespace test;

struct Error {
  int code;
  const char* words;  // in the message
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

/// The run that is disturbed: everything that a host asks of a trainer. Throws StatusFailure from the call
/// that failed.
class Run {
 public:
  explicit Run(const Kind& k) : model_(tiny(k)), run_(tiny_run(k)), host_(k.mode, 2) {
    const std::size_t n = run_.tokens_per_step();
    ids_ = random_tokens(n, model_.vocab, 1), targets_ = random_targets(n, model_.vocab, 2);
    for (const TensorInfo& t : tensors(model_)) {
      std::vector<float>& w = weights_[t.name];
      w.resize(t.elements());
      init_tensor(model_, t, 5, 0, w);
    }
  }

  /// Ended by the first failure. Afterwards at() tells how many updates were done.
  void until_failure() {
    create();
    for (; at_ < 2; ++at_) {
      if (at_ == 1) session_->save(TH_SCOPE_MOMENT1);
      step(at_);
    }
    ask();
    for (std::uint32_t scope : {TH_SCOPE_WEIGHTS, TH_SCOPE_MOMENT1}) session_->save(scope);
  }

  bool alive() const { return session_.has_value(); }
  std::uint64_t at() const { return at_; }
  PluginSession& session() { return *session_; }
  th_step_out step(std::uint64_t t) { return session_->step(ids_, targets_, 1e-2, t); }
  void end() { session_.reset(); }
  CudaHost& host() { return host_; }

 private:
  void create() {
    session_.emplace(cuda_engine(), host_, model_, run_);
    const TensorInfo first = tensors(model_).front();
    for (const TensorInfo& t : tensors(model_))
      if (t.name != first.name) session_->load(t, weights_.at(t.name));
    session_->init(5);
  }
  void ask() {
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
  std::uint64_t at_ = 0;
};

/// Calls whose failure changes nothing: those that give something back, and reading a clock.
bool may_fail_silently(const std::string& call) {
  return call.find("Destroy") != std::string::npos || call.starts_with("cudaFree") ||
         call == "cudaEventElapsedTime";
}
bool of_blas(const std::string& call) { return call.starts_with("cublas"); }

std::vector<std::uint64_t> which(std::uint64_t calls) {
  std::set<std::uint64_t> n;
  for (std::uint64_t i = 1; i <= std::min<std::uint64_t>(calls, 4); ++i) n.insert(i);
  for (std::uint64_t i : {calls / 4, calls / 2, calls * 3 / 4, calls * 7 / 8, calls})
    n.insert(std::max<std::uint64_t>(i, 1));
  return {n.begin(), n.end()};
}

struct Count {
  std::uint64_t cases = 0, told = 0, refused = 0;
};

void disturb(const Kind& k, const std::string& call, std::uint64_t nth, const Error& e, Count& count) {
  ++count.cases;
  emu::reset();
  emu::fail(call, nth, e.code, e.sticky);
  const auto said = [&](const std::string& what) {
    return call + " #" + std::to_string(nth) + " fails with " + e.words + ": " + what;
  };
  Run run(k);
  std::optional<StatusFailure> failure;
  try {
    run.until_failure();
  } catch (const StatusFailure& f) {
    failure = f;
  }
  if (failure) {
    ++count.told;
    const std::string text = failure->what();
    const bool pinned = call == "cudaHostAlloc" && e.code == 2;
    BOOST_TEST(failure->code == (pinned ? TH_E_HOST_OOM : e.status), said(text));
    BOOST_TEST(text.find(e.words) != std::string::npos, said(text));
    if (run.alive()) {
      // Whatever is left of it is handed to nobody: after each of these codes there is destroy() alone.
      for (const std::function<void()>& again : {std::function<void()>([&] { run.session().save(); }),
                                                 std::function<void()>([&] { run.step(run.at()); })})
        try {
          again();
          BOOST_ERROR(said("a lost instance goes on"));
        } catch (const StatusFailure& refused) {
          ++count.refused;
          BOOST_TEST(refused.code == TH_E_STATE, said(refused.what()));
          BOOST_TEST(std::string(refused.what()).find("of a lost instance") != std::string::npos,
                     said(refused.what()));
        }
    }
  } else {
    BOOST_TEST(may_fail_silently(call), said("nobody was told"));
  }
  run.end();
  BOOST_TEST(run.host().all_back(), said("memory is left"));
  BOOST_TEST(emu::outstanding().nothing(), said("something is left"));
}

BOOST_AUTO_TEST_SUITE(cuda_failures)

BOOST_DATA_TEST_CASE(every_call_may_fail, boost::unit_test::data::make(kKinds), k) {
  emu::reset();
  std::map<std::string, std::uint64_t> calls;  // the end of a run only gives back
  {
    Run run(k);
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
    for (std::uint64_t nth : which(n)) {
      const bool all = nth == 1 || nth == n / 2;  // elsewhere two kinds of them, in turn
      for (std::size_t i = 0; i < errors.size(); ++i)
        if (all || (i + nth) % (errors.size() / 2) == 0) disturb(k, call, nth, errors[i], count);
    }
  }
  BOOST_TEST_MESSAGE(k << ": " << count.cases << " cases, " << count.told << " told, " << count.refused
                       << " calls refused afterwards");
  BOOST_TEST(count.cases >= 400u);
  BOOST_TEST(count.refused > 400u);
}

BOOST_DATA_TEST_CASE(work_may_fail_while_it_runs, boost::unit_test::data::make(kKinds), k) {
  emu::reset();
  {
    Run run(k);
    run.until_failure();
  }
  const emu::Statistics done = emu::statistics();
  Count count;
  for (const auto& [name, n] : {std::pair<std::string, std::uint64_t>{"kernel", done.launches},
                                {"copy", done.h2d.count + done.d2h.count + done.d2d.count}})
    for (std::uint64_t nth : which(n))
      for (const Error& e : kCudaErrors)
        if (e.sticky) disturb(k, name, nth, e, count);
  BOOST_TEST(count.told == count.cases);
}

BOOST_DATA_TEST_CASE(too_little_memory_is_said_with_the_bytes_that_are_missing,
                     boost::unit_test::data::make(kKinds), k) {
  emu::reset();
  Run run(k);
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
    BOOST_TEST(host.all_back());
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

// What faulted may have been queued, and told to, another thread: cuBLAS then only says that it is not
// initialized.
BOOST_AUTO_TEST_CASE(cublas_hears_of_a_lost_device_before_this_thread_does) {
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

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
