// Plugins of other languages, compilers and run-time libraries: exceptions and panics that leave them, and
// symbols that several libraries define. They must not harm the host or each other. Plugins that this
// machine cannot build are skipped.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <thread>

#include "plugin_fixture.hpp"

using namespace plugin_fixture;

namespace {

bool here(const char* name, const char* needs) {
  if (fs::exists(plugin_file(name))) return true;
  BOOST_TEST_MESSAGE("skipped: " << name << " (no " << needs << ")");
  return false;
}

std::uint64_t bytes(Host& host, const char* id) {
  return host->estimator(id).estimate(small_model(), {}, nullptr).total_bytes();
}

struct Escape {
  const char *plugin, *needs, *what;
};
std::ostream& operator<<(std::ostream& os, const Escape& e) { return os << e.plugin << " " << e.what; }
const Escape kEscapes[] = {
    {"escapes", "C++", "runtime_error"},
    {"escapes", "C++", "42"},
    {"escapes", "C++", "own"},
    {"escapes_libcxx", "clang++ with libc++", "runtime_error"},
    {"escapes_libcxx", "clang++ with libc++", "42"},
    {"escapes_libcxx", "clang++ with libc++", "own"},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(runtime_isolation)

BOOST_DATA_TEST_CASE(an_exception_of_any_cpp_library_is_caught, boost::unit_test::data::make(kEscapes), row) {
  if (!here(row.plugin, row.needs)) return;
  Directory d;
  d.copy(row.plugin);
  Host host(d, with_do_option("sample", std::string("estimate ") + row.what));
  for (int again = 0; again < 2; ++again)
    BOOST_CHECK_EXCEPTION(bytes(host, "sample"), tp::PluginError, [](const tp::PluginError& e) {
      return e.status() == "internal" &&
             std::string(e.what()) == "estimate() of plugin sample threw an exception";
    });
  tp::HostOptions o = with_trial_loads();
  o.plugin_options["sample"]["do"] = std::string("start ") + row.what;
  Host first(d, o);
  first->probe_all();
  BOOST_TEST(verdict(*first.registry).starts_with("start/exception: "), verdict(*first.registry));
}

BOOST_AUTO_TEST_CASE(a_rust_panic_ends_only_the_child) {
  if (!here("panics", "rustc")) return;
  Directory d;
  d.copy("panics");
  Host host(d, with_trial_loads());
  host->probe_all();
  const std::string v = verdict(*host.registry);  // old Rust unwinds into the host, new Rust aborts
  BOOST_TEST((v.starts_with("start/exception: ") ||
              v.starts_with("start/crashed: its trial load was ended by signal 6")),
             v);
}

BOOST_AUTO_TEST_CASE(a_longjmp_into_a_returned_call_ends_only_the_child) {
  Directory d;
  d.copy("jumps");
  Host host(d, with_trial_loads(5));
  host->probe_all();
  BOOST_TEST(verdict(*host.registry).starts_with("start/crashed: its trial load was ended by signal "),
             verdict(*host.registry));
}

BOOST_AUTO_TEST_CASE(a_second_start_that_fails_is_reported) {
  Directory d;
  d.copy("starts_once");
  {
    Host host(d, with_trial_loads());  // the start() of the trial load ran in another process
    BOOST_TEST(host->estimator("sample").match(small_model(), {}) == 7);
  }
  Host again(d, with_trial_loads());
  BOOST_CHECK_EXCEPTION(again->estimator("sample"), tp::PluginError, [](const tp::PluginError& e) {
    return std::string(e.what()).find("start() was called twice (start/state)") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(sessions_are_destroyed_before_stop) {
  Directory d;
  d.copy("toy_ordered");
  Host host(d);
  {
    std::unique_ptr<tp::Session> one = host->trainer("toy").create(small_model(), {});
    std::unique_ptr<tp::Session> two = host->trainer("toy").create(small_model(), {});
    host.registry.reset();
    one.reset();
    BOOST_TEST(host.log->back().text == "destroyed");
  }
  std::vector<std::string> said;
  for (const LogLine& l : *host.log) said.push_back(l.text);
  BOOST_TEST(said == (std::vector<std::string>{"destroyed", "destroyed", "stopped"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(thread_local_destructors_run_after_the_registry_is_gone) {
  Directory d;
  d.copy("thread_local");
  auto host = std::make_unique<Host>(d);
  std::uint64_t reported = 0;
  std::thread([&] {
    reported = bytes(*host, "sample");
    host.reset();
  }).join();  // the thread ends and calls the destructor, which must still be mapped
  BOOST_TEST(reported == 62u);
}

BOOST_AUTO_TEST_CASE(plugins_with_equal_symbol_names_use_their_own) {
  Directory d;
  for (const char* name : {"helper_1", "helper_2", "weak"}) d.copy(name);
  Host host(d);
  BOOST_TEST(bytes(host, "helper-1") == 1u);
  BOOST_TEST(bytes(host, "helper-2") == 2u);
  BOOST_TEST(bytes(host, "sample") == 502u);
  BOOST_TEST(bytes(host, "helper-1") == 1u);
}

BOOST_AUTO_TEST_CASE(the_plugin_with_weak_symbols_exports_hundreds) {
  std::unique_ptr<FILE, int (*)(FILE*)> nm(
      ::popen(("nm -D --defined-only " + plugin_file("weak").string() + " 2>/dev/null").c_str(), "r"),
      &::pclose);
  int weak = 0, all = 0;
  for (char line[1024]; nm && std::fgets(line, sizeof line, nm.get()); ++all)
    weak += std::string(line).find(" W ") != std::string::npos;
  if (all == 0) {
    BOOST_TEST_MESSAGE("skipped: nm is not installed");
    return;
  }
  BOOST_TEST(weak >= 500);
}

BOOST_AUTO_TEST_CASE(a_unique_symbol_is_shared_by_two_plugins) {
  Directory d;
  d.copy("unique_1"), d.copy("unique_2");
  Host host(d);
  const bool unique = std::string(BOOST_COMPILER).find("GNU") != std::string::npos;
  BOOST_TEST(bytes(host, "unique-1") == 1u);
  BOOST_TEST(bytes(host, "unique-2") == (unique ? 1u : 2u));  // why C-013 of the check rejects them
}

BOOST_AUTO_TEST_CASE(two_openmp_libraries_work_in_one_process) {
  Directory d;
  d.copy("openmp");
  const bool other = here("openmp_other", "clang++ with libomp");
  if (other) d.copy("openmp_other");
  Host host(d);
  std::uint64_t expected = 0;
  for (unsigned i = 0; i < 1000; ++i) expected += i % 7;
  for (int again = 0; again < 3; ++again) {
    BOOST_TEST(bytes(host, "openmp") == expected);
    if (other) BOOST_TEST(bytes(host, "openmp-other") == expected);
  }
}

BOOST_AUTO_TEST_SUITE_END()
