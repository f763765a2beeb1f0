// The registry: search path, listing, duplicate ids, and wrong names. Files and loading:
// file_validation_test, load_test; calls: adapt_test.
#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "plugin_fixture.hpp"

using namespace plugin_fixture;

namespace {

struct Variable {
  explicit Variable(const char* value) { ::setenv("TRAINHOST_PLUGIN_PATH", value, 1); }
  ~Variable() { ::unsetenv("TRAINHOST_PLUGIN_PATH"); }
};

std::string message_of(auto f) {
  try {
    f();
  } catch (const trainhost::Error& e) {
    BOOST_TEST((e.code() == trainhost::Exit::kUsage));
    return std::string(e.what()) + " | " + e.hint();
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(registry)

BOOST_AUTO_TEST_CASE(the_search_path_is_command_line_variable_run_file_program) {
  Variable v("/c:/a:/d");
  std::vector<fs::path> p = tp::search_path({"/a", "/b/../b2/"}, {"/e"});
  std::vector<fs::path> front(p.begin(), p.end() - 1);
  BOOST_TEST(front == (std::vector<fs::path>{"/a", "/b2/", "/c", "/d", "/e"}),
             boost::test_tools::per_element());
  BOOST_TEST(p.back() == fs::path(TRAINHOST_BINARY_DIR).lexically_normal() / "lib/trainhost/plugins");
}

BOOST_AUTO_TEST_CASE(a_relative_or_empty_element_is_rejected) {
  std::string here = fs::current_path().string();
  BOOST_TEST(message_of([] { tp::search_path({"plugins"}, {}); }) ==
             "--plugin-path: 'plugins' is not an absolute path | use " + here + "/plugins");
  BOOST_TEST(message_of([] { tp::search_path({""}, {}); }).starts_with("--plugin-path has an empty element"));
  Variable v("/a::/b");
  BOOST_TEST(
      message_of([] { tp::search_path({}, {}); }).starts_with("TRAINHOST_PLUGIN_PATH has an empty element"));
  ::setenv("TRAINHOST_PLUGIN_PATH", "", 1);
  BOOST_TEST(message_of([] { tp::search_path({}, {}); }) == "no error");
}

BOOST_AUTO_TEST_CASE(missing_directories_are_only_logged) {
  Host host(std::vector<fs::path>{"/nonexistent/plugins"});
  BOOST_TEST(host->candidates().empty());
  BOOST_TEST(host.logged("/nonexistent/plugins does not exist"));
}

BOOST_AUTO_TEST_CASE(ids_are_sorted_by_priority_then_name) {
  Directory d;
  d.copy("good");
  d.copy("misbehave");
  d.copy("toy");
  d.write("notes.txt", "no plugin");
  Host host(d);
  BOOST_TEST(host->candidates().size() == 3u);
  BOOST_TEST(host->ids("estimator") == (std::vector<std::string>{"misbehave", "sample"}),
             boost::test_tools::per_element());
  BOOST_TEST(host->ids("trainer") == std::vector<std::string>{"toy"}, boost::test_tools::per_element());
  BOOST_TEST(host->find("toy")->manifest.summary == "adds the learning rate");
  BOOST_TEST(host->find("nobody") == nullptr);
}

BOOST_AUTO_TEST_CASE(an_estimator_of_the_process_is_found_before_a_plugin_of_its_id) {
  struct Own : tp::Estimator {
    explicit Own(std::string id) : name(std::move(id)) {}
    const std::string& id() const override { return name; }
    int match(const trainhost::ModelSpec&, const trainhost::RunSpec&) const override { return 1; }
    trainhost::MemoryReport estimate(const trainhost::ModelSpec&, const trainhost::RunSpec&,
                                     const trainhost::TrainerTraits*) const override {
      return {};
    }
    std::string name;
  };
  Directory d;
  d.copy("good");
  const std::string plugin = Host(d)->ids("estimator").at(0);
  tp::HostOptions o;
  o.estimators = {std::make_shared<Own>(plugin), std::make_shared<Own>("mine")};
  Host host(d, o);
  BOOST_TEST(host->ids("estimator") == (std::vector<std::string>{plugin, "mine"}),
             boost::test_tools::per_element());
  BOOST_TEST(host->ids("trainer").empty());
  BOOST_TEST(&host->estimator(plugin) == o.estimators[0].get());
  BOOST_TEST(&host->estimator("mine") == o.estimators[1].get());
  BOOST_TEST((host->find(plugin) == nullptr && host->find("mine") == nullptr));
  BOOST_TEST(&host->with_plugin_options({})->estimator("mine") == o.estimators[1].get());
  BOOST_CHECK_EXCEPTION(host->estimator("mini"), trainhost::Error, [](const trainhost::Error& e) {
    return std::string(e.what()).find("did you mean 'mine'") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(a_program_that_is_not_there_cannot_be_named) {
  const fs::path before = tp::program_file();
  BOOST_CHECK_EXCEPTION(tp::set_program_file("/nowhere/trainhost"), trainhost::Error,
                        [](const trainhost::Error& e) {
                          return std::string(e.what()) ==
                                 "the program /nowhere/trainhost cannot be found: No such file or directory";
                        });
  BOOST_TEST(tp::program_file() == before);
  Directory d;
  std::ofstream(d.path() / "program") << "x";
  tp::set_program_file(d.path() / "program");
  const fs::path folder = tp::program_folder();
  tp::set_program_file("/proc/self/exe");
  BOOST_TEST(folder == (d.path().parent_path() / "lib/trainhost/plugins"));
}

BOOST_AUTO_TEST_CASE(the_first_of_two_files_with_one_id_wins_with_a_warning) {
  Directory first, second;
  first.copy("good");
  second.copy("good_too");
  Host host(std::vector<fs::path>{first.path(), second.path()});
  BOOST_REQUIRE_EQUAL(host->candidates().size(), 2u);
  BOOST_TEST(host->find("sample")->manifest.version == "1");
  const tp::Candidate& loser = host->candidates()[1];
  BOOST_TEST((loser.stage + "/" + loser.code) == "registry/duplicate_id");
  BOOST_TEST(loser.reason == "it has the id 'sample' of " + (first / "good.so").string() +
                                 ", which comes first in the search order");
  BOOST_TEST(host.logged("it has the id 'sample' of "));
  Host reversed(std::vector<fs::path>{second.path(), first.path()});
  BOOST_TEST(reversed->find("sample")->manifest.version == "2");
}

BOOST_AUTO_TEST_CASE(a_rejected_file_frees_its_id) {
  Directory first, second;
  fs::path p = first.copy("good");
  ::chmod(p.c_str(), 0666);
  second.copy("good_too");
  Host host(std::vector<fs::path>{first.path(), second.path()});
  BOOST_TEST(host->find("sample")->manifest.version == "2");
  BOOST_CHECK_NO_THROW(host->estimator("sample"));
}

BOOST_AUTO_TEST_CASE(the_same_file_under_another_name_is_listed_once) {
  Directory d, other;
  fs::path p = d.copy("good");
  fs::create_symlink(p, d / "link.so");
  fs::create_hard_link(p, d / "hard.so");
  fs::create_symlink(p, other / "elsewhere.so");
  fs::create_directory_symlink(d.path(), other / "again");
  Host host(std::vector<fs::path>{d.path(), other.path(), other / "again"});
  BOOST_TEST(verdict(*host.registry) == "ok");
}

BOOST_AUTO_TEST_CASE(a_wrong_name_is_answered_with_the_nearest) {
  Directory d;
  d.copy("good");
  d.copy("toy");
  Host host(d);
  BOOST_TEST(message_of([&] { host->estimator("smaple"); }) ==
             "no estimator 'smaple'; did you mean 'sample'? | available estimators: sample");
  BOOST_TEST(message_of([&] { host->trainer("sample"); }) ==
             "'sample' is of kind estimator, not trainer | available trainers: toy");
  Host empty(std::vector<fs::path>{});
  BOOST_TEST(message_of([&] { empty->trainer("cpu"); }) ==
             "no trainer 'cpu' | no trainer was found; run trainhost plugins list");
}

BOOST_AUTO_TEST_CASE(a_file_with_an_unreadable_manifest_is_found_by_its_name) {
  Directory d;
  d.write("acme.so", "no library");
  Host host(d);
  BOOST_CHECK_EXCEPTION(host->trainer("acme"), tp::PluginError, [](const tp::PluginError& e) {
    return e.status() == "rejected" && std::string(e.what()).find("validation/not_elf") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(an_unusable_trainer_is_unavailable_with_a_reason) {
  Directory d;
  d.copy("toy");
  Host host(d, with_do_option("toy", "no device"));
  host->probe_all();
  const tp::Candidate& c = host->candidates().at(0);
  BOOST_TEST((c.status == tp::Status::kUnavailable));
  BOOST_TEST((c.stage + "/" + c.code + ": " + c.reason + " | " + c.hint) ==
             "probe/unavailable: no device found | connect a device");
  BOOST_TEST(host->ids("trainer").size() == 1u);  // it is still there to be asked for
}

BOOST_AUTO_TEST_SUITE_END()
