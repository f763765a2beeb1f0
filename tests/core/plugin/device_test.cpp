// A trainer's device as the host sees it: memory and name arrive checked, "none here" is no error, a wrong
// word of the user's is.
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

BOOST_AUTO_TEST_CASE(a_trainer_without_devices_or_a_machine_without_one_has_no_answer) {
  BOOST_TEST(!memory_of("toy").has_value());
  BOOST_TEST(!memory_of("toy_device", "no device").has_value());
}

BOOST_AUTO_TEST_CASE(any_other_failure_is_the_callers_to_see) {
  BOOST_CHECK_EXCEPTION(memory_of("toy_device", "wrong device"), tp::PluginError,
                        [](const tp::PluginError& e) {
                          return e.status() == "argument" && std::string(e.what()) == "there is no toy 3";
                        });
  BOOST_CHECK_EXCEPTION(memory_of("toy_device", "more free than there is"), tp::PluginError,
                        [](const tp::PluginError& e) { return e.status() == "internal"; });
}

BOOST_AUTO_TEST_CASE(a_table_with_an_empty_slot_is_refused) {
  BOOST_CHECK_EXCEPTION(memory_of("toy_device_nameless"), tp::PluginError, [](const tp::PluginError& e) {
    return e.status() == "rejected" && std::string(e.what()).find("no name()") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()
