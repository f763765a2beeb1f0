// The adapters: correct plugins work through them, and misbehaving ones become PluginErrors.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "plugin_fixture.hpp"

using namespace plugin_fixture;
using trainhost::Exit;
using trainhost::Tier;

namespace {

struct Fault {
  const char* what;
  Exit exit;
  const char *status, *message;
};
std::ostream& operator<<(std::ostream& os, const Fault& f) { return os << f.what; }

const Fault kFaults[] = {
    {"throw", Exit::kFailed, "internal", "thrown by the plugin"},
    {"throw 42", Exit::kFailed, "internal", "an exception that is not a std::exception"},
    {"throw Error", Exit::kNoBackend, "unavailable", "no licence"},
    {"throw raw", Exit::kFailed, "internal", "estimate() of plugin misbehave threw an exception"},
    {"throw 42 raw", Exit::kFailed, "internal", "estimate() of plugin misbehave threw an exception"},
    {"code 7", Exit::kFailed, "internal",
     "plugin misbehave returned the undocumented code 7 from estimate()"},
    {"code -99", Exit::kFailed, "internal",
     "plugin misbehave returned the undocumented code -99 from estimate()"},
    {"no message", Exit::kFailed, "io", "estimate() of plugin misbehave failed without a message: io"},
    {"escape", Exit::kFailed, "io", "red \\x1b[31m"},
    {"out of device memory", Exit::kDoesNotFit, "device_oom", "too big"},
    {"with number", Exit::kFailed, "io", "errno 28: the disk is full"},
    {"number without message", Exit::kFailed, "device_lost",
     "code -719: estimate() of plugin misbehave failed without a message: device_lost"},
    {"unprintable domain", Exit::kFailed, "io", "\\x1b[31mmmmmmmmmmmm 5: x"},
    {"bad node", Exit::kFailed, "internal",
     "plugin misbehave sent an invalid report from estimate(): memory node 1 has id 3: ids count from 1 in "
     "the "
     "order of the calls"},
    {"bad node returned", Exit::kFailed, "internal",
     "plugin misbehave sent an invalid report from estimate(): memory node 1 has id 3: ids count from 1 in "
     "the "
     "order of the calls"},
    {"bad sum", Exit::kFailed, "internal",
     "plugin misbehave sent an invalid report from estimate(): the entries of tier host sum to 10 bytes at "
     "the "
     "peak, but its total is 11"},
};

/// A toy session over a registry of its own.
struct Toy {
  explicit Toy(tp::HostOptions options = {}) : host((d.copy("toy"), d), std::move(options)) {}
  std::unique_ptr<tp::Session> create() { return host->trainer("toy").create(small_model(), {}); }
  Directory d;
  Host host;
};

std::vector<tp::TensorPiece> saved(tp::Session& s, std::vector<float>* values = nullptr) {
  std::vector<tp::TensorPiece> out;
  s.save(tp::Scope::kWeights, [&](const tp::TensorPiece& p) {
    out.push_back(p);
    if (values)
      values->assign(static_cast<const float*>(p.data), static_cast<const float*>(p.data) + p.count);
  });
  return out;
}

template <class F>
std::string status_of(F f) {
  try {
    f();
    return "ok";
  } catch (const tp::PluginError& e) {
    return e.status() + ": " + e.what();
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(adapt)

BOOST_DATA_TEST_CASE(a_fault_becomes_an_error_with_status_exit_code_and_message,
                     boost::unit_test::data::make(kFaults), fault) {
  Directory d;
  d.copy("misbehave");
  Host host(d, with_do_option("misbehave", fault.what));
  BOOST_CHECK_EXCEPTION(host->estimator("misbehave").estimate(small_model(), {}, nullptr), tp::PluginError,
                        [&](const tp::PluginError& e) {
                          BOOST_TEST((e.code() == fault.exit));
                          BOOST_TEST(e.status() == fault.status);
                          BOOST_TEST(std::string(e.what()) == fault.message);
                          return true;
                        });
}

BOOST_AUTO_TEST_CASE(an_unterminated_message_stops_at_its_field) {
  Directory d;
  d.copy("misbehave");
  Host host(d, with_do_option("misbehave", "unterminated"));
  BOOST_CHECK_EXCEPTION(host->estimator("misbehave").estimate(small_model(), {}, nullptr), tp::PluginError,
                        [](const tp::PluginError& e) {
                          BOOST_TEST(std::string(e.what()) == std::string(320, 'm'));
                          BOOST_TEST(e.hint() == std::string(160, 'h'));
                          return (e.code() == Exit::kUsage);
                        });
}

BOOST_AUTO_TEST_CASE(bytes_needed_and_hint_are_passed_on) {
  Directory d;
  d.copy("misbehave");
  Host host(d, with_do_option("misbehave", "out of device memory"));
  BOOST_CHECK_EXCEPTION(
      host->estimator("misbehave").estimate(small_model(), {}, nullptr), tp::PluginError,
      [](const tp::PluginError& e) { return e.bytes_needed() == 12345 && e.hint() == "use less"; });
}

BOOST_AUTO_TEST_CASE(a_vendor_error_number_is_passed_on_with_the_message) {
  Directory d;
  d.copy("misbehave");
  Host host(d, with_do_option("misbehave", "with number"));
  BOOST_CHECK_EXCEPTION(
      host->estimator("misbehave").estimate(small_model(), {}, nullptr), tp::PluginError,
      [](const tp::PluginError& e) { return e.native().domain == "errno" && e.native().code == 28; });
}

BOOST_AUTO_TEST_CASE(a_call_from_inside_another_on_the_same_instance_is_rejected) {
  Toy toy;
  const std::unique_ptr<tp::Session> s = toy.create(), second = toy.create();
  s->init(1), second->init(1);
  int rejected = 0;
  s->save(tp::Scope::kWeights, [&](const tp::TensorPiece&) {
    BOOST_CHECK_EXCEPTION(s->init(2), tp::PluginError, [](const tp::PluginError& e) {
      return e.status() == "state" && std::string(e.what()).find("init() was called while save() ran") == 0;
    });
    second->counters();  // other instances are independent
    ++rejected;
  });
  BOOST_TEST(rejected > 0);
  s->counters();
}

BOOST_AUTO_TEST_CASE(an_estimate_arrives_complete) {
  Directory d;
  d.copy("misbehave");
  tp::HostOptions options;
  options.thread_budget = 3;
  Host host(d, options);
  auto& e = host->estimator("misbehave");
  BOOST_TEST(e.match(small_model(), {}) == 1000);  // 100000 is limited to 1000
  trainhost::MemoryReport r = e.estimate(small_model(), {}, nullptr);
  BOOST_TEST(r.source == "misbehave");
  BOOST_TEST(r.tier_bytes(Tier::kDevice) == 100u);
  BOOST_TEST(r.tier_bytes(Tier::kHost) == 3u);
  BOOST_TEST((r.claim == trainhost::Claim::kApproximation));
  BOOST_TEST(r.notes.at(0) == "host trainhost");
}

BOOST_AUTO_TEST_CASE(memory_from_the_host_is_counted_and_limited) {
  Directory d;
  d.copy("misbehave");
  Host host(d, with_do_option("misbehave", "alloc"));
  BOOST_TEST(host->estimator("misbehave").estimate(small_model(), {}, nullptr).total_bytes() == 1000u);
  BOOST_TEST(host->ledger().peak(Tier::kHost) == 1000u);
  BOOST_TEST(host->ledger().in_use(Tier::kHost) == 0u);
  BOOST_TEST(host->ledger().in_use(Tier::kDevice) == 77u);
}

BOOST_AUTO_TEST_CASE(a_plugin_sees_only_its_own_options) {
  Directory d;
  d.copy("misbehave");
  tp::HostOptions options = with_do_option("another", "throw");
  options.plugin_options["misbehave"]["colour"] = "green";
  Host host(d, options);
  BOOST_CHECK_NO_THROW(host->estimator("misbehave").estimate(small_model(), {}, nullptr));
}

BOOST_AUTO_TEST_CASE(a_plugin_reads_the_models_config_by_key) {
  Directory d;
  d.copy("misbehave");
  Host host(d, with_do_option("misbehave", "config"));
  auto& e = host->estimator("misbehave");
  trainhost::ModelSpec m = small_model();
  trainhost::MemoryReport r = e.estimate(m, {}, nullptr);  // without config.json: defaults
  BOOST_TEST(r.total_bytes() == 10u);
  BOOST_TEST(r.notes == (std::vector<std::string>{"none", "1.000000"}), boost::test_tools::per_element());
  m.config_json =
      R"({"num_experts": 8, "layer_types": ["full", "ssm"], "rope_scaling": {"type": "yarn", "factor": 4}})";
  r = e.estimate(m, {}, nullptr);
  BOOST_TEST(r.total_bytes() == 10u);
  BOOST_TEST((r.entries.at(0).bytes == 8 && r.entries.at(1).bytes == 2));
  BOOST_TEST(r.notes == (std::vector<std::string>{"yarn", "4.000000"}), boost::test_tools::per_element());
  m.config_json = R"({"num_experts": "eight"})";
  BOOST_TEST(status_of([&] { e.estimate(m, {}, nullptr); }) ==
             "argument: config.json: num_experts is not an integer");
}

BOOST_AUTO_TEST_CASE(progress_is_logged_once_per_per_cent) {
  Directory d;
  d.copy("misbehave");
  Host host(d, with_do_option("misbehave", "progress"));
  host->estimator("misbehave").estimate(small_model(), {}, nullptr);
  BOOST_TEST(host.log->size() == 3u);
  BOOST_TEST(host.log->at(0).text == "counting 0 %");
  BOOST_TEST(host.log->at(1).text == "counting 1 %");
  BOOST_TEST(host.log->at(2).text == "waiting");
}

BOOST_AUTO_TEST_CASE(a_cancelled_host_stops_a_plugin) {
  Directory d;
  d.copy("misbehave");
  tp::HostOptions options = with_do_option("misbehave", "cancelled");
  bool stop = false;
  options.cancelled = [&] { return stop; };
  Host host(d, options);
  auto& e = host->estimator("misbehave");
  BOOST_CHECK_NO_THROW(e.estimate(small_model(), {}, nullptr));
  stop = true;
  BOOST_CHECK_EXCEPTION(
      e.estimate(small_model(), {}, nullptr), tp::PluginError,
      [](const tp::PluginError& x) { return x.code() == Exit::kStopped && x.status() == "cancelled"; });
}

BOOST_AUTO_TEST_CASE(a_trainer_answers_before_it_is_created) {
  Toy toy;
  auto& t = toy.host->trainer("toy");
  BOOST_CHECK_NO_THROW(t.probe());
  BOOST_TEST(t.traits(small_model(), {}).alignment == 128u);
  BOOST_TEST(t.traits(small_model(), {}).trainer == "toy");
  trainhost::MemoryReport r = t.plan(small_model(), {});
  BOOST_TEST(r.total_bytes() == 24u);
  BOOST_TEST(r.digest == 42u);
  BOOST_TEST((r.tiers.at(0).peak_at == trainhost::kUpdate && r.claim == trainhost::Claim::kExact));
  BOOST_TEST(toy.host->ledger().peak_total() == 0u);
}

BOOST_AUTO_TEST_CASE(a_session_loads_steps_and_saves) {
  Toy toy;
  auto s = toy.create();
  s->init(5);
  const float values[] = {10, 20};
  tp::TensorPiece piece{.name = "w", .rank = 2, .dim = {2, 3}, .data = values, .first = 4, .count = 2};
  s->load(tp::Scope::kWeights, piece);
  std::vector<std::int32_t> tokens{3, 4}, targets{5, 6};
  tp::StepInput in{.tokens = tokens, .targets = targets, .batch = 1, .seq = 2, .lr = 0.5, .step_index = 9};
  BOOST_TEST(s->evaluate(in).loss == 50.0);
  tp::StepResult r = s->step(in);
  BOOST_TEST(r.loss == 53.0);
  BOOST_TEST(r.grad_norm == 9.0);
  BOOST_TEST(r.tokens_counted == 2u);
  BOOST_TEST(r.wall_ns == 9u);
  std::vector<float> after;
  auto pieces = saved(*s, &after);
  BOOST_REQUIRE_EQUAL(pieces.size(), 1u);
  BOOST_TEST(pieces[0].name == "w");
  BOOST_TEST((pieces[0].dim == std::array<std::uint64_t, 2>{2, 3} && pieces[0].count == 6));
  BOOST_TEST(after == (std::vector<float>{5.5, 5.5, 5.5, 5.5, 10.5, 20.5}), boost::test_tools::per_element());
  BOOST_TEST(s->counters().h2d_bytes == 5u);
  BOOST_TEST(s->counters().launches == 9u);
  BOOST_TEST(s->info("kernel_set") == "plain loops");
  BOOST_TEST(s->info("colour") == "");
  BOOST_TEST(s->metric("peak_flops").value() == 12.5);
  BOOST_TEST(!s->metric("colour"));
  BOOST_TEST(s->can_generate());
  std::vector<float> logits(11);
  s->next_logits(7, 2, logits);
  BOOST_TEST((logits[0] == 7 && logits[1] == 2));
}

BOOST_AUTO_TEST_CASE(a_session_frees_its_memory_when_it_ends) {
  Toy toy;
  auto s = toy.create();
  BOOST_TEST(toy.host->ledger().in_use(Tier::kHost) == 4096u);
  s.reset();
  BOOST_TEST(toy.host->ledger().in_use(Tier::kHost) == 0u);
  BOOST_TEST(toy.host.logged("destroyed"));
}

BOOST_AUTO_TEST_CASE(a_session_outlives_the_registry) {
  Toy toy;
  auto s = toy.create();
  toy.host.registry.reset();
  s->init(1);
  std::vector<std::int32_t> ids{0, 0};
  BOOST_TEST(s->evaluate({.tokens = ids, .targets = ids, .batch = 1, .seq = 2}).loss == 6.0);
  s.reset();
  BOOST_TEST(toy.host.logged("destroyed"));
}

BOOST_AUTO_TEST_CASE(failures_of_a_trainer_keep_their_codes) {
  BOOST_TEST(status_of([] { Toy(with_do_option("toy", "no device")).host->trainer("toy").probe(); }) ==
             "unavailable: no device found");
  BOOST_TEST(status_of([] { Toy(with_do_option("toy", "zero devices")).host->trainer("toy").probe(); }) ==
             "unavailable: plugin toy found no device");
  BOOST_TEST(status_of([] { Toy(with_do_option("toy", "oom")).create(); }) == "host_oom: no memory for w");
  Toy toy(with_do_option("toy", "nonfinite"));
  auto s = toy.create();
  std::vector<std::int32_t> ids{0, 0};
  tp::StepInput in{.tokens = ids, .targets = ids, .batch = 1, .seq = 2};
  BOOST_TEST(status_of([&] { s->step(in); }) == "nonfinite: loss is not finite");
  BOOST_TEST(status_of([&] { s->load(tp::Scope::kMoment1, {}); }) ==
             "argument: the optimizer has no moments");
  in.seq = 3;
  BOOST_TEST(status_of([&] { s->step(in); }) ==
             "argument: a step of 1 x 3 tokens got 2 tokens and 2 targets");
}

#if defined(__SSE2__)
BOOST_AUTO_TEST_CASE(a_changed_floating_point_mode_is_restored_and_logged_once) {
  Toy toy(with_do_option("toy", "flush denormals"));
  auto s = toy.create();
  std::vector<std::int32_t> ids{0, 0};
  tp::StepInput in{.tokens = ids, .targets = ids, .batch = 1, .seq = 2};
  for (int i = 0; i < 2; ++i) {
    s->step(in);
    BOOST_TEST((_mm_getcsr() & 0x8040u) == 0u);
  }
  BOOST_TEST(toy.host.log->size() == 1u);
  BOOST_TEST(toy.host.logged("changed the floating-point mode in step"));
}
#endif

BOOST_AUTO_TEST_CASE(a_saved_tensor_is_checked_before_it_is_passed_on) {
  for (auto [what, message] : {std::pair{"save rank 3", "a tensor whose rank is neither 1 nor 2"},
                               {"save outside", "a piece outside its tensor"},
                               {"save without name", "a truncated tensor or one without a name"},
                               {"save type", "a tensor of an unknown type"}}) {
    Toy toy(with_do_option("toy", what));
    auto s = toy.create();
    BOOST_TEST(status_of([&] { saved(*s); }) ==
               std::string("internal: plugin toy sent ") + message + " from save()");
  }
}

BOOST_AUTO_TEST_CASE(an_exception_of_the_save_receiver_passes_through_the_plugin) {
  Toy toy;
  auto s = toy.create();
  BOOST_CHECK_THROW(
      s->save(tp::Scope::kWeights, [](const tp::TensorPiece&) { throw std::range_error("disk"); }),
      std::range_error);
}

BOOST_AUTO_TEST_SUITE_END()
