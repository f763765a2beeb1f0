// Who could have put a file there: every folder of its path counts, owners and groups, and a list of
// contents.
#include <grp.h>
#include <pwd.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "core/plugin/file_validation.hpp"
#include "core/plugin/rejection.hpp"
#include "core/plugin/trust.hpp"
#include "plugin_fixture.hpp"

using namespace plugin_fixture;

namespace {

std::string trust(const fs::path& file) {
  tp::Trust t;
  try {
    t.check(file);
    return "ok";
  } catch (const tp::Refused& why) {
    return why.stage() + "/" + why.code() + ": " + why.what();
  }
}

/// a/b/good.so in the directory.
fs::path nested(const Directory& d) {
  fs::create_directories(d / "a/b");
  fs::copy_file(plugin_file("good"), d / "a/b/good.so");
  return d / "a/b/good.so";
}

std::string pass(const fs::path& file) {
  tp::Trust t;
  tp::Passed p;
  try {
    tp::pass_gate(file, t, p);
    return "ok " + p.manifest.version;
  } catch (const tp::Refused& why) {
    return why.stage() + "/" + why.code() + ": " + why.what();
  }
}

const char* const kManifest =
    "id = 'sample'\nversion = '1'\nkind = 'estimator'\nsummary = 'a test plugin'\n"
    "families = ['llama']\noptions = ['do']\n";

}  // namespace

BOOST_AUTO_TEST_SUITE(trust_)

BOOST_AUTO_TEST_CASE(any_folder_above_that_all_may_write_is_refused_by_name) {
  Directory d;
  const fs::path file = nested(d);
  BOOST_TEST(trust(file) == "ok");
  for (const char* folder : {"a/b", "a", ""}) {
    const fs::path p = *folder ? d / folder : d.path();
    ::chmod(p.c_str(), 0777);
    BOOST_TEST(trust(file) ==
               "gate/world_writable_directory: anybody may write to its directory " + p.string());
    ::chmod(p.c_str(), 01777);  // sticky: others may add, but not replace
    BOOST_TEST(trust(file) == "ok");
    ::chmod(p.c_str(), 0755);
  }
}

BOOST_AUTO_TEST_CASE(other_owners_are_refused) {
  if (::geteuid() != 0) {
    BOOST_TEST_MESSAGE("skipped: only root can give files away");
    return;
  }
  Directory d;
  const fs::path file = nested(d);
  BOOST_REQUIRE_EQUAL(::chown(file.c_str(), 12345, 0), 0);
  BOOST_TEST(trust(file) ==
             "gate/foreign_owner: the file belongs to user 12345, who is neither root nor you");
  BOOST_REQUIRE_EQUAL(::chown(file.c_str(), 0, 0), 0);
  BOOST_REQUIRE_EQUAL(::chown((d / "a").c_str(), 12345, 0), 0);
  BOOST_TEST(trust(file) == "gate/foreign_owner_directory: its directory " + (d / "a").string() +
                                " belongs to user 12345, who is neither root nor you");
}

BOOST_AUTO_TEST_CASE(a_group_may_write_only_when_it_is_ones_own) {
  Directory d;
  const fs::path file = nested(d);
  ::chmod(file.c_str(), 0664);
  const passwd* me = ::getpwuid(::geteuid());
  const group* mine = me ? ::getgrgid(me->pw_gid) : nullptr;
  if (me && mine && std::string(me->pw_name) == mine->gr_name && ::getegid() == me->pw_gid)
    BOOST_TEST(trust(file) == "ok");  // umask 002 is no fault
  if (::geteuid() != 0) {
    BOOST_TEST_MESSAGE("skipped: only root can give files to any group");
    return;
  }
  BOOST_REQUIRE_EQUAL(::chown(file.c_str(), 0, 23456), 0);
  BOOST_TEST(trust(file) == "gate/group_writable: everybody in the group group 23456 may write to it");
  ::chmod(file.c_str(), 0644);
  BOOST_TEST(trust(file) == "ok");
  BOOST_REQUIRE_EQUAL(::chown((d / "a").c_str(), 0, 23456), 0);
  ::chmod((d / "a").c_str(), 0775);
  BOOST_TEST(trust(file).starts_with("gate/group_writable_directory: "));
}

BOOST_AUTO_TEST_CASE(a_link_leads_to_the_folders_of_the_real_file) {
  Directory d, elsewhere;
  const fs::path file = nested(elsewhere);
  ::chmod((elsewhere / "a").c_str(), 0777);
  fs::create_symlink(file, d / "good.so");
  Host host(d);
  BOOST_TEST(verdict(*host.registry).starts_with("gate/world_writable_directory"));
}

BOOST_AUTO_TEST_CASE(a_list_of_contents_lets_nothing_else_in) {
  Directory d;
  const fs::path good = d.copy("good");
  const std::string hash = tp::content_hash(good, tp::identify(good));
  std::unique_ptr<FILE, int (*)(FILE*)> tool(::popen(("sha256sum " + good.string()).c_str(), "r"), &::pclose);
  char printed[65] = "";
  if (tool && std::fread(printed, 1, 64, tool.get()) == 64) BOOST_TEST(hash == printed);
  tp::HostOptions o;
  o.allow_in = {d.path()};
  o.allow = {hash};
  BOOST_TEST(verdict(*Host(d, o).registry) == "ok");
  o.allow = {std::string(64, '0')};
  Host host(d, o);
  BOOST_TEST(verdict(*host.registry) == "gate/not_allowed: is not on the list plugins.allow of the run file");
  BOOST_TEST(host->candidates()[0].hint == "if you trust it, add \"" + hash + "\" there");
  o.allow_in = {"/elsewhere"};  // the list is for the run file's own folders
  BOOST_TEST(verdict(*Host(d, o).registry) == "ok");
}

BOOST_AUTO_TEST_CASE(a_manifest_may_stand_beside_the_file) {
  Directory d;
  const fs::path bare = d.copy("manifest_absent", "x");
  BOOST_TEST(pass(bare).starts_with("manifest/absent"));
  d.write("x.toml", kManifest);
  BOOST_TEST(pass(bare) == "ok 1");
  const fs::path both = d.copy("good", "y");
  d.write("y.toml", kManifest);
  BOOST_TEST(pass(both) == "ok 1");  // they agree
  d.write("y.toml", std::string(kManifest) + "priority = 3\n");
  BOOST_TEST(pass(both) == "manifest/differs: the manifest in it and y.toml beside it do not say the same");
  d.write("y.toml", "id = ");
  BOOST_TEST(pass(both).starts_with("manifest/not_toml"));
  d.write("y.toml", kManifest);
  ::chmod((d / "y.toml").c_str(), 0666);
  BOOST_TEST(pass(both) == "gate/world_writable: its manifest y.toml: anybody may write to it");
  fs::remove(d / "x.toml");
  ::mkfifo((d / "x.toml").c_str(), 0644);
  BOOST_TEST(pass(bare) == "gate/not_regular: its manifest x.toml: a FIFO, not a file");
}

BOOST_AUTO_TEST_SUITE_END()
