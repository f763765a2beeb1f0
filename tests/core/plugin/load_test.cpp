// Loading: every test plugin that reaches the dynamic linker, with the stage, code and reason that a user
// sees.
#include <dlfcn.h>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <fstream>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "core/base/error.hpp"
#include "core/plugin/mapped_file.hpp"
#include "core/plugin/rejection.hpp"
#include "plugin_fixture.hpp"
#include "trainhost/plugin.h"

using namespace plugin_fixture;

namespace {

struct RejectedPlugin {
  const char *plugin, *verdict;
};
std::ostream& operator<<(std::ostream& os, const RejectedPlugin& r) { return os << r.plugin; }

const RejectedPlugin kRejectedPlugins[] = {
    {"no_entry", "load/no_entry: it has no function trainhost_plugin_v1"},
    {"data_entry", "load/no_entry: trainhost_plugin_v1 is not a function"},
    {"null_table", "abi/null: its plugin table is null"},
    {"major_0", "abi/major: it uses plugin interface 0.1; this program supports 1.1"},
    {"major_2", "abi/major: it uses plugin interface 2.1; this program supports 1.1"},
    {"size_0", "abi/truncated: its plugin table has struct_size 0; at least 8 is required"},
    {"size_3", "abi/truncated: its plugin table has struct_size 3; at least 8 is required"},
    {"size_small", "abi/truncated: its plugin table has struct_size 16; at least 48 is required"},
    {"no_get", "abi/slot: its plugin table has no get(), which is mandatory"},
    {"id_null", "abi/id: its table has the id '', its manifest 'sample'"},
    {"id_other", "abi/id: its table has the id 'other', its manifest 'sample'"},
    {"version_other", "abi/version: its table has the version '9', its manifest '1'"},
    {"no_interface", "abi/no_interface: it is of kind estimator but does not provide trainhost.estimator/1"},
    {"kind_trainer", "abi/no_interface: it is of kind trainer but does not provide trainhost.trainer/1"},
    {"no_estimate", "abi/slot: its trainhost.estimator/1 table has no estimate(), which is mandatory"},
    {"estimator_size_8",
     "abi/truncated: its trainhost.estimator/1 table has struct_size 8; at least 24 is required"},
    {"start_fails", "start/unavailable: the license has expired"},
    {"start_fails_silently", "start/io: its start() failed without a message: io (-10)"},
    {"start_fails_with_number", "start/io: errno 28: the tables cannot be written"},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(load)

BOOST_DATA_TEST_CASE(a_broken_plugin_is_rejected_with_stage_code_and_reason,
                     boost::unit_test::data::make(kRejectedPlugins), rejection) {
  Directory d;
  d.copy(rejection.plugin);
  Host host(d);
  BOOST_TEST(verdict(*host.registry) == "ok");  // nothing has been loaded yet
  host->probe_all();
  BOOST_TEST(verdict(*host.registry) == rejection.verdict);
  BOOST_TEST(host->candidates()[0].hint != "");  // what to do about it
  BOOST_TEST(host->ids("estimator").empty());
  host->probe_all();  // a second probe changes nothing
  BOOST_TEST(verdict(*host.registry) == rejection.verdict);
}

BOOST_AUTO_TEST_CASE(the_message_of_the_dynamic_linker_reaches_the_user) {
  Directory d;
  d.copy("undefined_symbol");
  Host host(d);
  host->probe_all();
  const std::string v = verdict(*host.registry);
  BOOST_TEST(v.starts_with("load/dlopen: it cannot be loaded: "));
  BOOST_TEST(v.find("undefined symbol: undefined_function") != std::string::npos, v);
  BOOST_TEST(host->candidates()[0].hint != "");
}

BOOST_AUTO_TEST_CASE(a_library_replaced_while_loading_is_detected) {
  Directory d;
  const fs::path one = d.copy("good"), two = d.copy("good_too", "two");
  const tp::MappedFileCheck seen(one, tp::identify(one));
  void* const mapped[2] = {::dlopen(one.c_str(), RTLD_NOW), ::dlopen(two.c_str(), RTLD_NOW)};
  BOOST_CHECK_NO_THROW(seen.require_mapped_at(::dlsym(mapped[0], TH_ENTRY_NAME)));
  BOOST_CHECK_THROW(seen.require_mapped_at(::dlsym(mapped[1], TH_ENTRY_NAME)),
                    tp::Rejection);  // another file is mapped
  BOOST_CHECK_THROW(tp::MappedFileCheck(one, tp::identify(two)), tp::Rejection);
}

BOOST_AUTO_TEST_CASE(an_entry_that_belongs_to_a_dependency_does_not_count) {
  Directory d;
  d.copy("entry_in_dependency");
  Host host(d);
  host->probe_all();
  BOOST_TEST(
      verdict(*host.registry)
          .starts_with("load/no_entry: trainhost_plugin_v1 is defined by a library that it depends on"));
}

BOOST_AUTO_TEST_CASE(other_minors_and_larger_structs_load) {
  for (const char* name : {"good", "minor_99", "minor_0", "size_huge"}) {
    Directory d;
    d.copy(name);
    Host host(d);
    host->probe_all();
    BOOST_TEST(verdict(*host.registry) == "ok");
    auto& e = host->estimator("sample");
    BOOST_TEST(e.match(small_model(), {}) == 7);
    BOOST_TEST(e.estimate(small_model(), {}, nullptr).total_bytes() == 11u * 8 * 4);
  }
}

BOOST_AUTO_TEST_CASE(requesting_a_rejected_plugin_fails_with_the_reason) {
  Directory d;
  d.copy("major_2");
  Host host(d);
  for (int i = 0; i < 2; ++i) {
    BOOST_CHECK_EXCEPTION(host->estimator("sample"), tp::PluginError, [&](const tp::PluginError& e) {
      BOOST_TEST(e.status() == "rejected");
      BOOST_TEST((e.code() == trainhost::Exit::kFailed));
      BOOST_TEST(std::string(e.what()) ==
                 "the plugin " + (d / "major_2.so").string() +
                     " was rejected: it uses plugin interface 2.1; this program supports 1.1 (abi/major)");
      BOOST_TEST(e.hint() == "install a newer trainhost, or build the plugin with the SDK of this program");
      return true;
    });
  }
}

BOOST_AUTO_TEST_CASE(a_file_replaced_after_the_scan_is_not_loaded) {
  Directory d;
  fs::path p = d.copy("good");
  Host host(d);
  fs::remove(p);
  d.copy("good");
  BOOST_CHECK_THROW(host->estimator("sample"), tp::PluginError);
  BOOST_TEST(verdict(*host.registry) == "load/changed: it was replaced after its manifest had been read");
}

BOOST_AUTO_TEST_CASE(start_and_stop_are_paired) {
  Directory d;
  d.copy("starts_and_stops");
  Host host(d);
  BOOST_TEST(!host.logged("started"));
  host->estimator("sample");
  host->estimator("sample");
  BOOST_TEST(host.log->size() == 1u);
  BOOST_TEST(host.log->at(0).where == "sample/start");
  host.registry.reset();
  BOOST_TEST(host.log->size() == 2u);
  BOOST_TEST(host.logged("stopped"));
}

#if defined(__SSE2__)
BOOST_AUTO_TEST_CASE(a_changed_floating_point_mode_is_restored_with_a_warning) {
  Directory d;
  d.copy("fast_math");
  Host host(d);
  unsigned before = _mm_getcsr();
  host->estimator("sample");
  BOOST_TEST((_mm_getcsr() & ~0x3fu) == (before & ~0x3fu));
  BOOST_TEST(host.logged("floating-point mode"));
}
#endif

BOOST_AUTO_TEST_CASE(every_test_plugin_exports_only_the_entry) {
  // The build helper hides all other symbols, so that no plugin resolves to a symbol of another plugin.
  for (const char* name : {"good", "misbehave", "toy"}) {
    std::string command = "nm -D --defined-only " + plugin_file(name).string() + " 2>/dev/null";
    std::unique_ptr<FILE, int (*)(FILE*)> p(::popen(command.c_str(), "r"), &::pclose);
    std::string out;
    for (char buffer[256]; p && std::fgets(buffer, sizeof buffer, p.get());) out += buffer;
    if (out.empty()) {
      BOOST_TEST_MESSAGE("skipped: nm is not installed");
      return;
    }
    BOOST_TEST(std::count(out.begin(), out.end(), '\n') == 1, out);
    BOOST_TEST(out.find(" T trainhost_plugin_v1") != std::string::npos, out);
  }
}

BOOST_AUTO_TEST_SUITE_END()
