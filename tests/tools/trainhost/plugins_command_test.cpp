// The command `plugins`: its list, and what it prints of a plugin that is rejected.
#include <boost/test/unit_test.hpp>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;

BOOST_AUTO_TEST_SUITE(cli)

BOOST_AUTO_TEST_CASE(plugins_are_listed_with_their_status) {
  Outcome r = run_program({"plugins", "list", "--json"});
  BOOST_TEST(r.code == 0, r.err);
  for (const char* name : {"\"cpu\"", "\"llama\"", "\"contract\""}) BOOST_TEST(has(r.out, name), r.out);
  r = run_program({"plugins", "info", "cpu"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "trainer"));
}

BOOST_AUTO_TEST_CASE(the_native_error_code_of_a_rejection_is_in_the_json) {
  TemporaryDirectory tmp;
  std::filesystem::permissions(tmp.path(), std::filesystem::perms(0755));
  const char* const name = "start_fails_with_number";
  std::filesystem::copy_file(std::string(TRAINHOST_BINARY_DIR) + "/tests/test_plugins/" + name + ".so",
                             tmp.path() / (std::string(name) + ".so"));
  const Outcome r = run_program({"plugins", "list", "--json", "--plugin-path", tmp.path().string()});
  BOOST_REQUIRE(r.code == 0);
  const nlohmann::json listed = nlohmann::json::parse(r.out);
  for (const auto& p : listed.at("plugins")) {
    const bool own = p["name"] == "sample";
    BOOST_TEST(p["native_code"] == (own ? 28 : 0));
    BOOST_TEST(p["native_domain"] == (own ? "errno" : ""));
    if (own) BOOST_TEST(p["reason"] == "errno 28: the tables cannot be written");
  }
}

BOOST_AUTO_TEST_CASE(error_messages_of_a_plugin_are_printed_with_its_name) {
  TemporaryDirectory tmp;
  std::filesystem::permissions(tmp.path(), std::filesystem::perms(0755));
  std::filesystem::copy_file(std::string(TRAINHOST_BINARY_DIR) + "/tests/test_plugins/misbehave.so",
                             tmp.path() / "misbehave.so");
  for (const auto& [what, message] :
       {std::pair{"throw Error", "trainhost: plugin misbehave: no licence (buy one)\n"},
        {"with number", "trainhost: plugin misbehave: errno 28: the disk is full\n"},
        {"no message", "trainhost: estimate() of plugin misbehave failed without a message: io\n"}}) {
    const Outcome r = run_program({"plan", "--estimator=misbehave", "--plugin-path", tmp.path().string(),
                                   "--set", std::string("plugin.misbehave.do=") + what});
    BOOST_TEST(r.code != 0);
    BOOST_TEST(has(r.err, message), r.err);
  }
}

BOOST_AUTO_TEST_CASE(every_rejection_is_explained_in_one_line) {
  TemporaryDirectory tmp;
  std::filesystem::permissions(tmp.path(), std::filesystem::perms(0755));
  const std::string plugins = std::string(TRAINHOST_BINARY_DIR) + "/tests/test_plugins/";
  for (const char* name : {"aborts", "no_entry", "needs_cpu"})
    std::filesystem::copy_file(plugins + name + ".so", tmp.path() / (std::string(name) + ".so"));
  tmp.write("text.so", "hello");
  RunOptions o;
  o.environment["TRAINHOST_CACHE"] = (tmp.path() / "cache").string();
  for (const char* remembered : {"", " [cached]"}) {
    const Outcome r = run_program({"plugins", "list", "-v", "--plugin-path", tmp.path().string()}, o);
    BOOST_TEST(r.code == 0, r.err);
    const std::string at = "  " + tmp.path().string() + "/";
    BOOST_TEST(has(r.out, at +
                              "aborts.so  rejected load/crashed: its trial load was ended by signal 6 "
                              "(SIGABRT) while loading "
                              "(it ran only in a child process; it is tried again when the file changes)" +
                              remembered + "\n"),
               r.out);
    BOOST_TEST(has(r.out, at +
                              "no_entry.so  rejected load/no_entry: it has no function trainhost_plugin_v1 "
                              "(export it with TH_PLUGIN, or as const th_plugin *trainhost_plugin_v1(void))" +
                              remembered + "\n"),
               r.out);
    BOOST_TEST(
        has(r.out,
            at +
                "needs_cpu.so  rejected validation/cpu_feature: it requires the processor feature "
                "no_such_feature, which this machine does not have (install a build for older processors)\n"),
        r.out);
    BOOST_TEST(
        has(r.out,
            at + "text.so  rejected validation/not_elf: it is not a shared library: it does not begin with "
                 "the ELF magic number"),
        r.out);
  }
}

BOOST_AUTO_TEST_CASE(the_manifest_of_a_file_is_printed_without_running_it) {
  const std::string file = std::string(TRAINHOST_BINARY_DIR) + "/tests/test_plugins/aborts.so";
  const Outcome r = run_program({"plugins", "info", file});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "a test plugin"), r.out);
  BOOST_TEST(has(r.out, "it was not loaded"), r.out);
  BOOST_TEST(has(r.out, "status    ok"), r.out);
}

// In a build folder the SDK is not installed, and the program is not on the PATH.
BOOST_AUTO_TEST_CASE(the_command_after_plugins_new_finds_program_and_sdk_of_a_build_folder) {
  const TemporaryDirectory tmp;
  const std::string build = TRAINHOST_BINARY_DIR;
  const auto next = [&](const char* name, const char* language) {
    return run_program({"plugins", "new", name, "--kind=estimator", std::string("--lang=") + language,
                        "--dir", (tmp / name).string()})
        .out;
  };
  const std::string rust = next("one", "rust"), cpp = next("two", "c++");
  BOOST_TEST(rust.find("one && TRAINHOST_PREFIX=" + build + " ./ci.sh\n") != std::string::npos, rust);
  BOOST_TEST(cpp.find("Next: cmake --install " + build + " --prefix " + build + "/prefix && cd ") !=
                 std::string::npos,
             cpp);
}

BOOST_AUTO_TEST_SUITE_END()
