// Which trainer is chosen when plugins before it in the order fail. A misbehaving plugin simulates missing
// devices.
#include "core/planning/choose_backend.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/core/plugin/plugin_fixture.hpp"

using namespace plugin_fixture;
using trainhost::Exit;
using trainhost::planning::choose_backend;

BOOST_AUTO_TEST_SUITE(backend)

BOOST_AUTO_TEST_CASE(the_order_of_the_run_file_is_followed_and_traced) {
  Directory d;
  d.copy("toy");
  tp::HostOptions o = with_do_option("toy", "no device");
  Host host(d, o);
  BOOST_CHECK_EXCEPTION(choose_backend(*host.registry, "auto", true, {"ghost", "toy"}), trainhost::Error,
                        [](const trainhost::Error& e) {
                          const std::string why = e.what();
                          return e.code() == Exit::kNoBackend &&
                                 why.find("ghost: no installed plugin") != why.npos &&
                                 why.find("toy: no device found") != why.npos;
                        });
  Host well(d);
  const auto choice = choose_backend(*well.registry, "auto", true, {"ghost", "toy"});
  BOOST_TEST(choice.id == "toy");
  BOOST_TEST(choice.trace == "ghost: no installed plugin provides the ghost backend\ntoy: used\n");
  BOOST_TEST(choice.fallback_reason == "");  // "auto" has no fallback reason
  const auto fell = choose_backend(*well.registry, "ghost", true, {"ghost", "toy"});
  BOOST_TEST(fell.id == "toy");
  BOOST_TEST(fell.fallback_reason == "no installed plugin provides the ghost backend");
}

BOOST_AUTO_TEST_CASE(a_misspelt_backend_is_rejected_and_an_unknown_one_is_skipped) {
  Directory d;
  d.copy("toy");
  Host host(d);
  trainhost::runfile::RunConfig c;
  c.backend_order_at = {"run.toml", 3, 1};
  for (const auto& [name, meant] : {std::pair{"toyy", "'toy'"}, {"cudda", "'cuda'"}, {"cpuu", "'cpu'"}}) {
    c.backend_order = {name};
    BOOST_CHECK_EXCEPTION(trainhost::planning::validate_backend_order(c, *host.registry), trainhost::Error,
                          [&](const trainhost::Error& e) {
                            BOOST_TEST(e.full().find(meant) != std::string::npos, e.full());
                            return e.code() == Exit::kUsage &&
                                   e.full().starts_with("run.toml:3:1: plugins.order: ");
                          });
  }
  c.backend_order = {"xpu", "cpu"};  // similar to another name in the list: not a misspelling of it
  BOOST_CHECK_NO_THROW(trainhost::planning::validate_backend_order(c, *host.registry));
  for (const char* name : {"cuda", "cpu", "toy", "acme-npu-2"}) {
    c.backend_order = {name};
    BOOST_CHECK_NO_THROW(trainhost::planning::validate_backend_order(c, *host.registry));
  }
}

BOOST_AUTO_TEST_CASE(without_fallback_the_requested_backend_must_work) {
  Directory d;
  d.copy("toy");
  Host host(d);
  BOOST_CHECK_EXCEPTION(choose_backend(*host.registry, "ghost", false, {"ghost", "toy"}), trainhost::Error,
                        [](const trainhost::Error& e) { return e.code() == Exit::kNoBackend; });
}

BOOST_AUTO_TEST_CASE(only_unavailable_backends_fall_back) {
  for (const char* code : {"unavailable", "unsupported"}) {
    Directory d;
    d.copy("toy");
    d.write("good.so", "no library");
    Host host(d, with_do_option("toy", std::string("probe ") + code));
    BOOST_CHECK_EXCEPTION(choose_backend(*host.registry, "auto", true, {"toy", "good"}), trainhost::Error,
                          [](const trainhost::Error& e) {  // both were tried
                            return e.code() == Exit::kNoBackend &&
                                   std::string(e.what()).find("; good: ") != std::string::npos;
                          });
  }
  for (const char* code : {"device_oom", "internal", "io", "argument"}) {
    Directory d;
    d.copy("toy");
    Host host(d, with_do_option("toy", std::string("probe ") + code));
    BOOST_CHECK_EXCEPTION(choose_backend(*host.registry, "auto", true, {"toy", "cpu"}), tp::PluginError,
                          [code](const tp::PluginError& e) { return e.status() == code; });
  }
}

BOOST_AUTO_TEST_SUITE_END()
