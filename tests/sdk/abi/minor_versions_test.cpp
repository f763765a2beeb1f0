// Plugins and hosts of two minor versions, in all four combinations. Compiled twice: against the current
// host, and (TRAINHOST_NEXT_MINOR) against a host whose headers have more fields; each loads plugins built
// with both headers. The plugins contain no code for version differences.
#include <boost/test/unit_test.hpp>
#include <memory>
#include <string>

#include "core/plugin/registry.hpp"

namespace tp = trainhost::plugin;

namespace {

#ifdef TRAINHOST_NEXT_MINOR
constexpr bool kNextMinor = true;
#else
constexpr bool kNextMinor = false;
#endif

struct Plugins {
  explicit Plugins(const std::string& minor, const std::string& kind)
      : registry({std::string(VERSIONED_PLUGINS) + "/" + minor + "/" + kind}, options()) {
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

/// A run without new settings; with seed 42 the host of the next minor sets its new field (next_minor.cmake).
trainhost::RunSpec run(std::uint64_t seed = 1) {
  trainhost::RunSpec r;
  r.micro_batch = 4, r.seed = seed;
  return r;
}

const std::string kUnknownField =
    "plugin versioned was built for plugin interface 1.1, which does not have th_run.next_minor_ranks";

template <class F>
std::string error_of(F f) {
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

BOOST_AUTO_TEST_SUITE(minor_versions)

BOOST_AUTO_TEST_CASE(a_plugin_of_this_minor_reports_the_same_to_both_hosts) {
  Plugins c("this_minor", "estimator");
  auto& e = c.registry.estimator("versioned");
  BOOST_TEST(e.match(model(), run()) == 7);
  trainhost::MemoryReport r = e.estimate(model(), run(), nullptr);
  BOOST_TEST(r.total_bytes() == 400u);
  BOOST_TEST(r.notes.empty());
  BOOST_TEST(r.entries.at(0).name == (kNextMinor ? "host of the next minor" : "host of this minor"));
}

BOOST_AUTO_TEST_CASE(a_plugin_of_the_next_minor_reads_unknown_fields_as_unset) {
  Plugins c("next_minor", "estimator");
  auto& e = c.registry.estimator("versioned");
  trainhost::MemoryReport r = e.estimate(model(), run(42), nullptr);
  BOOST_TEST(r.total_bytes() == (kNextMinor ? 400u + 3 * 1000u + 77u : 400u));
  BOOST_TEST(r.notes.size() == (kNextMinor ? 1u : 0u));
  if (kNextMinor) BOOST_TEST(r.notes.at(0) == "next_minor 5");
}

BOOST_AUTO_TEST_CASE(a_plugin_is_not_called_for_a_run_with_fields_it_does_not_know) {
  Plugins c("this_minor", "estimator");
  auto& e = c.registry.estimator("versioned");
  const std::string message = error_of([&] { e.estimate(model(), run(42), nullptr); });
  BOOST_TEST(message == (kNextMinor ? "unsupported: " + kUnknownField : ""));
  BOOST_TEST(e.match(model(), run(42)) == (kNextMinor ? 0 : 7));
  BOOST_TEST((c.log.find(kUnknownField) != std::string::npos) ==
             kNextMinor);  // and the log explains why match() returned 0
  Plugins t("this_minor", "trainer");
  auto& trainer = t.registry.trainer("versioned");
  for (auto ask : {+[](tp::Trainer& x) { x.plan(model(), run(42)); },
                   +[](tp::Trainer& x) { x.traits(model(), run(42)); },
                   +[](tp::Trainer& x) { x.create(model(), run(42)); }})
    BOOST_TEST(error_of([&] { ask(trainer); }) == (kNextMinor ? "unsupported: " + kUnknownField : ""));
}

BOOST_AUTO_TEST_CASE(results_that_a_host_does_not_know_are_ignored) {
  Plugins this_minor("this_minor", "trainer"), next_minor("next_minor", "trainer");
  BOOST_TEST(loss(this_minor.registry.trainer("versioned"), run()) == 0.5);
  BOOST_TEST(loss(next_minor.registry.trainer("versioned"), run()) == (kNextMinor ? 500.5 : 0.5));
}

BOOST_AUTO_TEST_CASE(a_function_that_a_plugin_does_not_have_is_null) {
  if (!kNextMinor) return;
  Plugins this_minor("this_minor", "trainer"), next_minor("next_minor", "trainer");
  BOOST_TEST(this_minor.registry.trainer("versioned").create(model(), run())->info("next_minor") ==
             "no slot");
  BOOST_TEST(next_minor.registry.trainer("versioned").create(model(), run())->info("next_minor") == "a slot");
}

BOOST_AUTO_TEST_SUITE_END()
