// The adapter of the profiler: records and step boundaries are checked, invalid ones become errors, and a
// trainer without a profiler says so.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "plugin_fixture.hpp"

using namespace plugin_fixture;

namespace {

/// A session of the toy that can be profiled, with its records.
struct ProfiledToy {
  explicit ProfiledToy(const std::string& lie = "")
      : host((d.copy("toy_profiled"), d), with_do_option("toy", lie.c_str())) {
    auto& t = host->trainer("toy");
    bytes = t.profile_bytes(small_model(), {}).value();
    session = t.create(small_model(), {});
    memory.resize(bytes);
  }
  std::unique_ptr<tp::Profiler> start() {
    return session->start_profiler(memory,
                                   [this](tp::StepBoundary m, std::uint32_t micro, std::uint64_t live) {
                                     moments.emplace_back(m, micro, live);
                                   });
  }
  Directory d;
  Host host;
  std::uint64_t bytes = 0;
  std::vector<std::byte> memory;
  std::unique_ptr<tp::Session> session;
  std::vector<std::tuple<tp::StepBoundary, std::uint32_t, std::uint64_t>> moments;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(profiler)

BOOST_AUTO_TEST_CASE(records_arrive_complete_and_escaped) {
  ProfiledToy toy;
  BOOST_TEST(toy.bytes == 96u);
  auto profiler = toy.start();
  std::vector<std::string> names;
  profiler->read([&](const tp::OpTiming& t) {
    names.emplace_back(t.name);
    BOOST_TEST((t.kind == "add" && t.phase == trainhost::kUpdate && t.layer == -1 && t.micro == 2));
    BOOST_TEST((t.start_ns == 90 + 10 * names.size() && t.duration_ns == 10 && t.flops == 6 &&
                t.bytes == 49 && t.live_bytes == 24));
  });
  BOOST_TEST(names == (std::vector<std::string>{"add w", "add \\x1b[31m", "add w"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(only_known_step_boundaries_are_passed_on) {
  ProfiledToy toy;
  auto profiler = toy.start();
  BOOST_REQUIRE(toy.moments.size() == 2u);
  BOOST_TEST((toy.moments[0] == std::tuple(tp::StepBoundary::kBeforeForward, 7u, std::uint64_t{70})));
  BOOST_TEST((std::get<0>(toy.moments[1]) == tp::StepBoundary::kAfterUpdate));
}

BOOST_DATA_TEST_CASE(an_invalid_record_is_reported_as_a_bug_of_the_plugin,
                     boost::unit_test::data::make({"overlap", "no name", "phase", "layer", "time", "cost",
                                                   "short"}),
                     lie) {
  ProfiledToy toy(lie);
  auto profiler = toy.start();
  BOOST_CHECK_EXCEPTION(
      profiler->read([](const tp::OpTiming&) {}), tp::PluginError, [](const tp::PluginError& e) {
        return e.status() == "internal" && std::string(e.what()).find("plugin toy sent") == 0;
      });
}

BOOST_AUTO_TEST_CASE(an_exception_of_the_receiver_comes_back) {
  ProfiledToy toy;
  auto profiler = toy.start();
  BOOST_CHECK_THROW(profiler->read([](const tp::OpTiming&) { throw std::out_of_range("full"); }),
                    std::out_of_range);
}

BOOST_AUTO_TEST_CASE(a_failing_start_of_the_profiler_gives_a_reason) {
  ProfiledToy toy("no start");
  BOOST_CHECK_EXCEPTION(toy.start(), tp::PluginError, [](const tp::PluginError& e) {
    return std::string(e.what()) == "the profiler cannot start";
  });
}

BOOST_AUTO_TEST_CASE(a_trainer_without_a_profiler_has_none) {
  Directory d;
  d.copy("toy");
  Host host(d);
  auto& t = host->trainer("toy");
  BOOST_TEST(!t.profile_bytes(small_model(), {}).has_value());
  auto session = t.create(small_model(), {});
  BOOST_CHECK_EXCEPTION(session->start_profiler({}, {}), tp::PluginError,
                        [](const tp::PluginError& e) { return e.status() == "unsupported"; });
}

BOOST_AUTO_TEST_SUITE_END()
