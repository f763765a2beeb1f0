// The device of a trainer: memory and name are checked, "unavailable" is not an error, other failures are.
#include <boost/test/unit_test.hpp>

#include "plugin_fixture.hpp"

using namespace plugin_fixture;

namespace {

std::optional<tp::DeviceMemory> memory_of(const std::string& toy, const std::string& what = "") {
  Directory d;
  d.copy(toy, "toy");
  Host host(d, with_do_option("toy", what));
  return host->trainer("toy").device_memory();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(device)

BOOST_AUTO_TEST_CASE(memory_and_name_arrive) {
  const auto m = memory_of("toy_device");
  BOOST_REQUIRE(m.has_value());
  BOOST_TEST(m->free_bytes == 1000u);
  BOOST_TEST(m->total_bytes == 2000u);
  BOOST_TEST(m->name == "Toy \\x1b[31m 9000");
}

BOOST_AUTO_TEST_CASE(without_a_device_there_is_no_device_memory) {
  BOOST_TEST(!memory_of("toy").has_value());
  BOOST_TEST(!memory_of("toy_device", "no device").has_value());
}

BOOST_AUTO_TEST_CASE(any_other_failure_reaches_the_caller) {
  BOOST_CHECK_EXCEPTION(memory_of("toy_device", "wrong device"), tp::PluginError,
                        [](const tp::PluginError& e) {
                          return e.status() == "argument" && std::string(e.what()) == "there is no device 3";
                        });
  BOOST_CHECK_EXCEPTION(memory_of("toy_device", "more free than total"), tp::PluginError,
                        [](const tp::PluginError& e) { return e.status() == "internal"; });
}

BOOST_AUTO_TEST_CASE(a_table_with_a_null_function_is_rejected) {
  BOOST_CHECK_EXCEPTION(memory_of("toy_device_nameless"), tp::PluginError, [](const tp::PluginError& e) {
    return e.status() == "rejected" && std::string(e.what()).find("no name()") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()
