// Plugins and hosts of two minors in every pairing. Compiled twice: against trainhost as it is, and
// (TRAINHOST_TOMORROW) against a host whose headers have more fields; each meets plugins built with both.
// Neither plugin negotiates anything.
#include <boost/test/unit_test.hpp>
#include <memory>
#include <string>

#include "core/plugin/registry.hpp"

namespace tp = trainhost::plugin;

namespace {

#ifdef TRAINHOST_TOMORROW
constexpr bool kTomorrow = true;
#else
constexpr bool kTomorrow = false;
#endif

struct Crossing {
  explicit Crossing(const std::string& day, const std::string& kind)
      : registry({std::string(CROSSING_PLUGINS) + "/" + day + "/" + kind}, options()) {
    registry.scan();
  }
  tp::HostOptions options() {
    tp::HostOptions o;
    o.log = [this](int, const std::string&, const std::string& text) { log += text + "\n"; };
    return o;
  }
  std::string log;
  tp::Registry registry;
};

trainhost::ModelSpec model() {
  trainhost::ModelSpec m;
  m.vocab = 11, m.hidden = 8, m.layers = 3, m.heads = 2, m.kv_heads = 1, m.head_dim = 4, m.intermediate = 16;
  return m;
}

/// A run that sets nothing new; with seed 42 tomorrow's host sets its new field (tomorrow.cmake).
trainhost::RunSpec run(std::uint64_t seed = 1) {
  trainhost::RunSpec r;
  r.micro_batch = 4, r.seed = seed;
  return r;
}

const std::string kUnseen =
    "plugin crossing was built for interface 1.0 and does not know th_run.tomorrow_ranks";

template <class F>
std::string refusal(F f) {
  try {
    f();
    return "";
  } catch (const tp::PluginError& e) {
    return e.status() + ": " + e.what();
  }
}

double loss(tp::Trainer& t, const trainhost::RunSpec& r) {
  auto s = t.create(model(), r);
  std::vector<std::int32_t> ids(4, 1);
  tp::StepInput in{.tokens = ids, .targets = ids, .batch = 4, .seq = 1, .lr = 0.5};
  s->init(1);
  return s->step(in).loss;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(crossing)

BOOST_AUTO_TEST_CASE(a_plugin_of_today_counts_the_same_under_both_hosts) {
  Crossing c("today", "estimator");
  auto& e = c.registry.estimator("crossing");
  BOOST_TEST(e.match(model(), run()) == 7);
  trainhost::MemoryReport r = e.estimate(model(), run(), nullptr);
  BOOST_TEST(r.total_bytes() == 400u);
  BOOST_TEST(r.notes.empty());
  BOOST_TEST(r.nodes.at(0).name == (kTomorrow ? "tomorrow's host" : "today's host"));
}

BOOST_AUTO_TEST_CASE(a_plugin_of_tomorrow_finds_unset_what_todays_host_does_not_know) {
  Crossing c("tomorrow", "estimator");
  auto& e = c.registry.estimator("crossing");
  trainhost::MemoryReport r = e.estimate(model(), run(42), nullptr);
  BOOST_TEST(r.total_bytes() == (kTomorrow ? 400u + 3 * 1000u + 77u : 400u));
  BOOST_TEST(r.notes.size() == (kTomorrow ? 1u : 0u));
  if (kTomorrow) BOOST_TEST(r.notes.at(0) == "tomorrow 5");
}

BOOST_AUTO_TEST_CASE(a_plugin_is_not_asked_about_a_run_that_it_cannot_see) {
  Crossing c("today", "estimator");
  auto& e = c.registry.estimator("crossing");
  const std::string said = refusal([&] { e.estimate(model(), run(42), nullptr); });
  BOOST_TEST(said == (kTomorrow ? "unsupported: " + kUnseen : ""));
  BOOST_TEST(e.match(model(), run(42)) == (kTomorrow ? 0 : 7));
  BOOST_TEST((c.log.find(kUnseen) != std::string::npos) ==
             kTomorrow);  // and the silence of match() is explained
  Crossing t("today", "trainer");
  auto& trainer = t.registry.trainer("crossing");
  for (auto ask : {+[](tp::Trainer& x) { x.plan(model(), run(42)); },
                   +[](tp::Trainer& x) { x.profile(model(), run(42)); },
                   +[](tp::Trainer& x) { x.create(model(), run(42)); }})
    BOOST_TEST(refusal([&] { ask(trainer); }) == (kTomorrow ? "unsupported: " + kUnseen : ""));
}

BOOST_AUTO_TEST_CASE(results_that_a_host_does_not_know_change_nothing) {
  Crossing today("today", "trainer"), tomorrow("tomorrow", "trainer");
  BOOST_TEST(loss(today.registry.trainer("crossing"), run()) == 0.5);
  BOOST_TEST(loss(tomorrow.registry.trainer("crossing"), run()) == (kTomorrow ? 500.5 : 0.5));
}

BOOST_AUTO_TEST_CASE(a_slot_that_a_plugin_does_not_have_is_null) {
  if (!kTomorrow) return;
  Crossing today("today", "trainer"), tomorrow("tomorrow", "trainer");
  BOOST_TEST(today.registry.trainer("crossing").create(model(), run())->info("tomorrow") == "no slot");
  BOOST_TEST(tomorrow.registry.trainer("crossing").create(model(), run())->info("tomorrow") == "a slot");
}

BOOST_AUTO_TEST_SUITE_END()
