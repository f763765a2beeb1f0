// A trainer that consists of the reference kernels, through its C tables: what an author has before writing
// the first kernel, and how core/executor handles errors of kernels and of the host.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include "core/executor/trainer.hpp"
#include "tests/support/files.hpp"
#include "tests/support/golden_run.hpp"
#include "tests/support/plugin_session.hpp"

namespace trainhost {
namespace {

using namespace test;
using executor::KernelTrainer;

struct First : executor::ReferenceKernels {
  static constexpr const char *id = "first", *version = "0.1";
};

// Kernels with their own allocator, workspace, number of devices and supports().
struct Everything : First {
  static constexpr const char* id = "everything";
  static inline std::uint64_t allocated = 0, freed = 0, workspace_bytes = 0;
  static inline std::int32_t device = -1;
  explicit Everything(const executor::Setup& s) { device = s.device; }
  static inline bool plugged = false;
  static std::uint32_t probe(const th_host*) {
    if (!plugged) throw th::Error(TH_E_UNAVAILABLE, "no such chip here", "plug one in");
    return 1;
  }
  static void traits(const ModelSpec&, const RunSpec&, std::uint32_t threads, TrainerTraits& p) {
    p.alignment = 256, p.workspace_bytes = 1024, p.threads = threads;
  }
  static void supports(const RunSpec& r) {
    if (r.seq_len > 64) throw th::Error(TH_E_UNSUPPORTED, "64 positions at most");
  }
  void workspace(void* p, std::uint64_t bytes) { workspace_bytes = p ? bytes : 0; }
  void* take(std::uint64_t bytes, std::uint64_t alignment) {
    allocated = bytes;
    void* p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    return std::memset(p, 0, bytes);
  }
  void give_back(void* p) { freed = allocated, std::free(p); }
};

// Throws at the nth call of the optimizer, counted over all parameters.
struct Breaks : First {
  static inline int left = -1;
  void adamw(const executor::AdamW& a) {
    if (left >= 0 && left-- == 0) throw std::runtime_error("the chip is gone");
    First::adamw(a);
  }
};

// Loss of NaN while `poison` is set.
struct Poisoned : First {
  static inline bool poison = false;
  double cross_entropy(const executor::CrossEntropy& a) {
    const double loss = First::cross_entropy(a);
    return poison ? std::numeric_limits<double>::quiet_NaN() : loss;
  }
};

// Every n-th call of one kernel gives an infinite gradient, with finite weights; 0: never.
struct Overflows : First {
  static inline int every = 0, calls = 0;
  void swiglu_bwd(const executor::SwiGluBwd& a) {
    First::swiglu_bwd(a);
    if (every && ++calls % every == 0) a.gate_up[3] = HUGE_VALF;
  }
};

template <class K>
Plugin plugin() {
  return {KernelTrainer<K>::trainer(), KernelTrainer<K>::generate()};
}

struct RunFixture {
  GoldenRun g = read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/mha");
  CountingHost host{2};
  std::vector<std::int32_t> ids, targets;
  RunFixture() { g.samples(0, std::uint64_t{g.run.micro_batch} * g.run.accumulate, ids, targets); }
  void start(PluginSession& s) {
    s.load_all(g.weights);
    s.init(0);
  }
  th_step_out step(PluginSession& s, std::uint64_t t = 0) { return s.step(ids, targets, g.lr[0], t); }
};

th_status code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const StatusFailure& e) {
    return e.code;
  }
  return TH_OK;
}

/// The message of the failure; "" if there is none.
std::string text_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const StatusFailure& e) {
    return e.what();
  }
  return {};
}

BOOST_AUTO_TEST_SUITE(executor_run)

BOOST_AUTO_TEST_CASE(the_reference_kernels_reproduce_a_golden_run) {
  RunFixture fixture;
  const Plugin p = plugin<First>();
  PluginSession s(p, fixture.host, fixture.g.model, fixture.g.run);
  fixture.start(s);
  const std::uint64_t sequences = std::uint64_t{fixture.g.run.micro_batch} * fixture.g.run.accumulate;
  for (std::uint32_t t = 0; t < fixture.g.steps; ++t) {
    fixture.g.samples(t * sequences, sequences, fixture.ids, fixture.targets);
    const th_step_out out = s.step(fixture.ids, fixture.targets, fixture.g.lr[t], t);
    BOOST_TEST(std::abs(out.loss - fixture.g.loss[t]) <= 2e-5);
    BOOST_TEST(std::abs(out.grad_norm - fixture.g.grad_norm[t]) <= 1e-3 * fixture.g.grad_norm[t]);
  }
  BOOST_TEST(s.info("kernel_set").starts_with("first 0.1, of the reference: embed embed_bwd"));
}

BOOST_AUTO_TEST_CASE(every_optimizer_and_every_family_trains) {
  RunFixture fixture;
  fixture.host.limit = 1u << 30;
  for (Optimizer o : {Optimizer::kAdamW, Optimizer::kSgd, Optimizer::kSgdMomentum, Optimizer::kLion})
    for (bool qk_norm : {false, true}) {
      fixture.g.run.optimizer = o;
      fixture.g.model.qk_norm = qk_norm, fixture.g.model.family = qk_norm ? "qwen3" : "llama";
      const Plugin p = plugin<First>();
      PluginSession s(p, fixture.host, fixture.g.model, fixture.g.run);
      s.init(7);
      const double before = fixture.step(s, 0).loss;
      double after = before;
      for (std::uint64_t t = 1; t < 4; ++t)
        after = s.step(fixture.ids, fixture.targets,
                       o == Optimizer::kAdamW  ? 1e-2
                       : o == Optimizer::kLion ? 1e-3
                                               : 0.1,
                       t)
                    .loss;
      BOOST_TEST(after < before, name(o) << (qk_norm ? ", qwen3" : ", llama"));
    }
}

BOOST_AUTO_TEST_CASE(traits_of_an_author_are_passed_on) {
  RunFixture fixture;
  const Plugin p = plugin<Everything>();
  th_error e = empty_error();
  std::uint32_t devices = 5;
  BOOST_TEST(p.trainer->probe(&fixture.host, &devices, &e) == TH_E_UNAVAILABLE);
  BOOST_TEST(std::string(e.message) == "no such chip here");
  BOOST_TEST(std::string(e.hint) == "plug one in");
  BOOST_TEST(code_of([&] { PluginSession s(p, fixture.host, fixture.g.model, fixture.g.run); }) ==
             TH_E_UNAVAILABLE);
  Everything::plugged = true;
  BOOST_TEST(p.profile(fixture.host, fixture.g.model, fixture.g.run).alignment == 256u);
  {
    PluginSession s(p, fixture.host, fixture.g.model, fixture.g.run);
    BOOST_TEST(Everything::workspace_bytes == 1024u);
    BOOST_TEST(Everything::device == 0);
    BOOST_TEST(fixture.host.now == 0u);  // allocated by take() of the kernels
    fixture.start(s);
    BOOST_TEST(std::isfinite(fixture.step(s).loss));
    th_model m = abi::to_c(fixture.g.model);
    th_run r = abi::to_c(fixture.g.run);
    abi::Collector c;
    BOOST_TEST(p.trainer->plan(&fixture.host, &m, &r, c.sink(), c.summary(), &e) == TH_OK);
    BOOST_TEST(c.take("everything").total_bytes() == Everything::allocated);
  }
  BOOST_TEST(Everything::freed == Everything::allocated);
  fixture.g.run.seq_len = 65;
  BOOST_TEST(code_of([&] { PluginSession s(p, fixture.host, fixture.g.model, fixture.g.run); }) ==
             TH_E_UNSUPPORTED);
}

BOOST_AUTO_TEST_CASE(a_non_finite_loss_changes_nothing) {
  RunFixture fixture;
  const Plugin p = plugin<Poisoned>();
  PluginSession s(p, fixture.host, fixture.g.model, fixture.g.run);
  fixture.start(s);
  fixture.step(s);
  const Tensors w = s.save(), m = s.save(TH_SCOPE_MOMENT1), v = s.save(TH_SCOPE_MOMENT2);
  Poisoned::poison = true;
  BOOST_TEST(code_of([&] { fixture.step(s, 1); }) == TH_E_NONFINITE);
  Poisoned::poison = false;
  BOOST_TEST((s.save() == w && s.save(TH_SCOPE_MOMENT1) == m && s.save(TH_SCOPE_MOMENT2) == v));
  BOOST_TEST(std::isfinite(fixture.step(s, 1).loss));
  BOOST_TEST((s.save() != w));
}

BOOST_AUTO_TEST_CASE(the_first_tensor_that_is_not_finite_is_named) {
  RunFixture fixture;
  fixture.g.run.accumulate = 2;
  fixture.g.samples(0, std::uint64_t{fixture.g.run.micro_batch} * 2, fixture.ids, fixture.targets);
  const int calls = 2 * static_cast<int>(fixture.g.model.layers);  // of a kernel, in one computation
  const Plugin loss = plugin<Poisoned>(), gradient = plugin<Overflows>();
  {
    PluginSession s(loss, fixture.host, fixture.g.model, fixture.g.run);
    fixture.start(s);
    Poisoned::poison = true;
    const std::string text = text_of([&] { fixture.step(s); });
    Poisoned::poison = false;
    BOOST_TEST(has(text,
                   "the first value that is not finite is the loss, made by 'head_loss head' in micro-batch "
                   "1 of 2 ("),
               text);
  }
  PluginSession s(gradient, fixture.host, fixture.g.model, fixture.g.run);
  fixture.start(s);
  // The last micro-batch, the first layer: the last call of each computation.
  Overflows::every = calls, Overflows::calls = 0;
  std::string text = text_of([&] { fixture.step(s); });
  BOOST_TEST(has(text, "is in layers.0.gate_up, made by 'layers.0 swiglu_bwd' in micro-batch 2 of 2 ("),
             text);
  // Only in the first computation: a fault of the machine, not of the model.
  Overflows::every = 2 * calls, Overflows::calls = calls;
  text = text_of([&] { fixture.step(s); });
  BOOST_TEST(has(text, "computed again, all values are finite"), text);
  Overflows::every = 0;
  BOOST_TEST(std::isfinite(fixture.step(s).loss));
}

BOOST_AUTO_TEST_CASE(cancelling_changes_nothing) {
  RunFixture fixture;
  const Plugin p = plugin<First>();
  PluginSession s(p, fixture.host, fixture.g.model, fixture.g.run);
  fixture.start(s);
  const Tensors w = s.save();
  fixture.host.cancel_after = fixture.host.polls + 5;
  BOOST_TEST(code_of([&] { fixture.step(s); }) == TH_E_CANCELLED);
  BOOST_TEST((s.save() == w));
}

BOOST_AUTO_TEST_CASE(partially_updated_weights_are_not_saved) {
  RunFixture fixture;
  const Plugin p = plugin<Breaks>();
  PluginSession s(p, fixture.host, fixture.g.model, fixture.g.run);
  fixture.start(s);
  Breaks::left = 3;
  BOOST_TEST(code_of([&] { fixture.step(s); }) == TH_E_INTERNAL);
  for (const std::function<void()>& call :
       std::vector<std::function<void()>>{[&] { s.save(); }, [&] { fixture.step(s); }, [&] { s.next(1, 0); }})
    BOOST_TEST(code_of(call) == TH_E_STATE);
}

BOOST_AUTO_TEST_CASE(a_failed_allocation_is_an_error_code_and_leaks_nothing) {
  RunFixture fixture;
  fixture.host.limit = 1000;
  const Plugin p = plugin<First>();
  BOOST_TEST(code_of([&] { PluginSession s(p, fixture.host, fixture.g.model, fixture.g.run); }) ==
             TH_E_HOST_OOM);
  BOOST_TEST(fixture.host.now == 0u);
}

BOOST_AUTO_TEST_CASE(invalid_calls_are_rejected) {
  RunFixture fixture;
  const Plugin p = plugin<First>();
  PluginSession s(p, fixture.host, fixture.g.model, fixture.g.run);
  fixture.start(s);
  auto ids = fixture.ids;
  ids[3] = static_cast<std::int32_t>(fixture.g.model.vocab);
  BOOST_TEST(code_of([&] { s.step(ids, fixture.targets, 0.1, 0); }) == TH_E_ARG);
  BOOST_TEST(code_of([&] {
               s.step(fixture.ids, std::vector<std::int32_t>(fixture.ids.size(), -100), 0.1, 0);
             }) == TH_E_ARG);
  BOOST_TEST(code_of([&] { s.next(0, 1); }) == TH_E_ARG);  // no position 0 before it
  s.next(0, 0);
  s.next(0, 1);
  fixture.step(s);
  BOOST_TEST(code_of([&] { s.next(0, 2); }) == TH_E_ARG);  // the step has overwritten the caches
  BOOST_TEST(code_of([&] { s.metric("peak_flops"); }) == TH_E_UNSUPPORTED);
  TensorInfo t = tensors(fixture.g.model)[0];
  t.name = "model.embed";
  BOOST_TEST(code_of([&] { s.load(t, {1.0f}); }) == TH_E_ARG);
  fixture.g.run.compute = fixture.g.run.weight = DType::kBF16, fixture.g.run.master = DType::kF32;
  BOOST_TEST(code_of([&] { PluginSession other(p, fixture.host, fixture.g.model, fixture.g.run); }) ==
             TH_E_UNSUPPORTED);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
