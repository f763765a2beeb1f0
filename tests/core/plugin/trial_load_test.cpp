// Plugins that harm the process that loads them: the host loads them only in a child, survives, and lists
// the reason. Each row is one small library; the last column is what a user reads.
#include <unistd.h>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>

#include "core/process/child.hpp"
#include "core/process/orphans.hpp"
#include "plugin_fixture.hpp"

using namespace plugin_fixture;

namespace {

struct HarmfulPlugin {
  const char *plugin, *verdict;
};
std::ostream& operator<<(std::ostream& os, const HarmfulPlugin& w) { return os << w.plugin; }

const HarmfulPlugin kHarmful[] = {
    {"aborts", "load/crashed: its trial load was ended by signal 6 (SIGABRT) while loading"},
    {"segfaults", "load/crashed: its trial load was ended by signal 11 (SIGSEGV) while loading"},
    {"bus_error", "load/crashed: its trial load was ended by signal 7 (SIGBUS) while loading"},
    {"exits", "load/exited: its trial load exited with code 0 before it had finished while loading"},
    {"loops", "load/hung: its trial load was not done after 1 s while loading"},
    {"sleeps", "load/hung: its trial load was not done after 1 s while loading"},
    {"stops",
     "load/stopped: its trial load was stopped by signal 19 (SIGSTOP) and did not go on while loading"},
    {"throws",
     "load/crashed: its trial load was ended by signal 6 (SIGABRT) while loading; it wrote: terminate called "
     "after "
     "throwing an instance of 'int'"},
    {"aborts_in_start", "start/crashed: its trial load was ended by signal 6 (SIGABRT) in start()"},
    {"loops_in_start", "start/hung: its trial load was not done after 1 s in start()"},
    {"daemonizes", "hygiene/processes: it left 1 process(es) running after stop()"},
    {"prints_1_gib", "hygiene/noise: it wrote 1.00 GiB to standard output or error during the trial load"},
    {"closes", "hygiene/streams: it closed or replaced a standard stream"},
    {"changes_cwd", "hygiene/cwd: it changed the working directory to /"},
    {"changes_umask", "hygiene/umask: it changed the umask from 022 to 000"},
    {"changes_locale", "hygiene/locale: it changed the locale to C.UTF-8"},
    {"takes_sigterm", "hygiene/signals: it replaced or blocked SIGTERM, which the host handles"},
    {"lowers_limit", "hygiene/limits: it lowered the limit of open files (RLIMIT_NOFILE) to 16"},
    {"lists_interface",
     "abi/interfaces: its manifest lists the interface acme.missing/1, but get() returns null for it"},
    {"requires_abi_1_7", "abi/minor: it uses plugin interface 1.1, but its manifest requires 1.7"},
    {"no_entry", "load/no_entry: it has no function trainhost_plugin_v1"},
    {"start_fails", "start/unavailable: the license has expired"},
    {"start_fails_with_number", "start/io: errno 28: the tables cannot be written"},
    {"needs_abi_9", "manifest/abi: it requires plugin interface 9.0; this program supports 1.1"},
    {"needs_cpu",
     "validation/cpu_feature: it requires the processor feature no_such_feature, which this machine does not "
     "have"},
    {"needs_soname",
     "validation/missing_library: it requires the library libnowhere.so.9, which is not installed"},
    {"missing_library",
     "validation/missing_library: it requires the library libtest_plugin_provider.so, which is not "
     "installed"},
    {"run_path_tmp", "validation/run_path: its RUNPATH names /tmp, where other users can add libraries"},
    {"run_path_relative", "validation/run_path: its RUNPATH has the relative element 'lib'"},
    {"run_path_empty",
     "validation/run_path: its RUNPATH has an empty element, which means the working directory"},
    {"good", "ok"},
    {"keeps_thread", "ok"},
    {"minor_99", "ok"},
    {"fast_math", "ok"},
};

struct Warned {
  const char *plugin, *warning;
};
std::ostream& operator<<(std::ostream& os, const Warned& w) { return os << w.plugin; }
const Warned kWarned[] = {
    {"prints_hello", "it wrote 6 bytes to standard output or error: hello"},
    {"changes_variable", "it changed the environment: TEST_PLUGIN"},
    {"takes_sigusr1", "it replaced or blocked SIGUSR1"},
    {"keeps_file", "it left 1 file(s) open after stop()"},
    {"fast_math",
     "it changed the floating-point mode while loading (flush denormals to zero, probably -ffast-math); the "
     "host restored it"},
};

/// Processes that run the prober for this test: the mark that run_child() sets begins with the pid of its
/// caller. Other tests that run at the same time start probers of their own. A dead process has no
/// environment.
int running_child_processes() {
  const std::string mark = std::string(trainhost::kChildMark) + "=" + std::to_string(::getpid()) + ".";
  int n = 0;
  std::error_code failed;
  for (const auto& e : fs::directory_iterator("/proc", failed)) {
    if (fs::read_symlink(e.path() / "exe", failed) != TRIAL_LOADER || failed) continue;
    std::ifstream in(e.path() / "environ", std::ios::binary);
    const std::string environment{std::istreambuf_iterator<char>(in), {}};
    n += ('\0' + environment).find('\0' + mark) != std::string::npos;
  }
  return n;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trial_load)

BOOST_DATA_TEST_CASE(a_harmful_plugin_is_rejected_and_the_host_is_unharmed,
                     boost::unit_test::data::make(kHarmful), row) {
  if (!fs::exists(plugin_file(row.plugin))) return;  // fast_math is for x86-64
  Directory d;
  d.copy(row.plugin);
  const mode_t mask = ::umask(022);
  const bool late = std::string(row.verdict).find("after 1 s") != std::string::npos;
  Host host(d, with_trial_loads(late ? 1 : 60));
  const auto begin = std::chrono::steady_clock::now();
  host->probe_all();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ::umask(mask);
  // glibc declares dlopen() as not throwing: whether an exception passes through it depends on how the
  // compiler laid out the caller. Either way the plugin is rejected in the child process.
  const bool caught =
      std::string(row.plugin) == "throws" &&
      verdict(*host.registry) == "load/exception: its static initialisation threw an exception";
  if (!caught) BOOST_TEST(verdict(*host.registry) == row.verdict);
  BOOST_TEST((host->candidates()[0].hint != "" || std::string(row.verdict) == "ok"));  // what to do about it
  if (late) BOOST_TEST((seconds >= 1 && seconds < 10), seconds << " s");
  BOOST_TEST(running_child_processes() == 0);
  BOOST_TEST(host->ids("estimator").size() == (std::string(row.verdict) == "ok" ? 1u : 0u));
}

BOOST_DATA_TEST_CASE(a_harmless_fault_is_a_warning, boost::unit_test::data::make(kWarned), row) {
  if (!fs::exists(plugin_file(row.plugin))) return;  // fast_math is for x86-64
  Directory d;
  d.copy(row.plugin);
  Host host(d, with_trial_loads());
  host->probe_all();
  BOOST_TEST(verdict(*host.registry) == "ok");
  BOOST_REQUIRE_EQUAL(host->candidates()[0].warnings.size(), 1u);
  BOOST_TEST(host->candidates()[0].warnings[0] == row.warning);
}

BOOST_AUTO_TEST_CASE(a_child_left_in_its_group_is_killed_too) {
  Directory d;
  d.copy("forks");
  Host host(d, with_trial_loads());
  host->probe_all();
  BOOST_TEST(running_child_processes() == 0);
}

BOOST_AUTO_TEST_CASE(the_first_use_of_an_unknown_file_trial_loads_it) {
  Directory d;
  d.copy("aborts");
  Host host(d, with_trial_loads());
  BOOST_CHECK_EXCEPTION(host->estimator("sample"), tp::PluginError, [](const tp::PluginError& e) {
    return e.status() == "rejected" && std::string(e.what()).find("(load/crashed)") != std::string::npos;
  });
  Directory well;
  well.copy("good");
  Host other(well, with_trial_loads());
  BOOST_TEST(other->estimator("sample").match(small_model(), {}) == 7);
}

BOOST_AUTO_TEST_CASE(a_crashing_file_frees_its_id) {
  Directory d;
  d.copy("aborts");
  d.copy("good");
  Host host(d, with_trial_loads());
  BOOST_TEST(host->candidates()[1].code == "duplicate_id");
  BOOST_TEST(host->estimator("sample").match(small_model(), {}) == 7);
  BOOST_TEST(host.logged("good.so is used instead of "));
}

BOOST_AUTO_TEST_CASE(a_trial_load_of_a_trainer_uses_its_own_options) {
  Directory d;
  d.copy("toy");
  tp::HostOptions o = with_trial_loads();
  o.plugin_options["toy"]["do"] = "no device";
  Host host(d, o);
  host->probe_all();
  const tp::Candidate& c = host->candidates().at(0);
  BOOST_TEST((c.status == tp::Status::kUnavailable));
  BOOST_TEST((c.stage + "/" + c.code + ": " + c.reason) == "probe/unavailable: no device found");
}

BOOST_AUTO_TEST_CASE(a_manifest_is_read_without_running_code) {
  for (const char* name : {"aborts", "undefined_symbol", "loops"}) {
    const tp::Candidate c = tp::inspect_file(plugin_file(name));  // loading it would end or hang this test
    BOOST_TEST(c.manifest.id == "sample", name);
    BOOST_TEST((c.status == tp::Status::kOk), name);
    BOOST_TEST(read_file("/proc/self/maps").find(plugin_file(name).string()) == std::string::npos);
  }
}

BOOST_AUTO_TEST_SUITE_END()
