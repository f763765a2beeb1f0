// Owners and modes of a file and of every parent directory, groups, and the allow list.
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
  } catch (const tp::Rejection& why) {
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
  tp::ValidatedFile p;
  try {
    tp::validate_file(file, t, p);
    return "ok " + p.manifest.version;
  } catch (const tp::Rejection& why) {
    return why.stage() + "/" + why.code() + ": " + why.what();
  }
}

const char* const kManifest =
    "id = 'sample'\nversion = '1'\nkind = 'estimator'\nsummary = 'a test plugin'\n"
    "families = ['llama']\noptions = ['do']\n";

}  // namespace

BOOST_AUTO_TEST_SUITE(trust_)

BOOST_AUTO_TEST_CASE(a_world_writable_parent_directory_is_rejected_by_name) {
  Directory d;
  const fs::path file = nested(d);
  BOOST_TEST(trust(file) == "ok");
  for (const char* folder : {"a/b", "a", ""}) {
    const fs::path p = *folder ? d / folder : d.path();
    ::chmod(p.c_str(), 0777);
    BOOST_TEST(trust(file) ==
               "validation/world_writable_directory: any user can write to its directory " + p.string());
    ::chmod(p.c_str(), 01777);  // sticky: others may add, but not replace
    BOOST_TEST(trust(file) == "ok");
    ::chmod(p.c_str(), 0755);
  }
}

BOOST_AUTO_TEST_CASE(files_of_other_owners_are_rejected) {
  if (::geteuid() != 0) {
    BOOST_TEST_MESSAGE("skipped: only root can give files away");
    return;
  }
  Directory d;
  const fs::path file = nested(d);
  BOOST_REQUIRE_EQUAL(::chown(file.c_str(), 12345, 0), 0);
  BOOST_TEST(
      trust(file) ==
      "validation/foreign_owner: the file is owned by user 12345, who is neither root nor the current user");
  BOOST_REQUIRE_EQUAL(::chown(file.c_str(), 0, 0), 0);
  BOOST_REQUIRE_EQUAL(::chown((d / "a").c_str(), 12345, 0), 0);
  BOOST_TEST(trust(file) == "validation/foreign_owner_directory: its directory " + (d / "a").string() +
                                " is owned by user 12345, who is neither root nor the current user");
}

BOOST_AUTO_TEST_CASE(only_the_users_private_group_may_write) {
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
  BOOST_TEST(trust(file) ==
             "validation/group_writable: all members of the group group 23456 can write to it");
  ::chmod(file.c_str(), 0644);
  BOOST_TEST(trust(file) == "ok");
  BOOST_REQUIRE_EQUAL(::chown((d / "a").c_str(), 0, 23456), 0);
  ::chmod((d / "a").c_str(), 0775);
  BOOST_TEST(trust(file).starts_with("validation/group_writable_directory: "));
}

BOOST_AUTO_TEST_CASE(a_link_is_checked_in_the_directories_of_its_target) {
  Directory d, elsewhere;
  const fs::path file = nested(elsewhere);
  ::chmod((elsewhere / "a").c_str(), 0777);
  fs::create_symlink(file, d / "good.so");
  Host host(d);
  BOOST_TEST(verdict(*host.registry).starts_with("validation/world_writable_directory"));
}

BOOST_AUTO_TEST_CASE(only_files_in_the_allow_list_are_used) {
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
  BOOST_TEST(verdict(*host.registry) ==
             "validation/not_allowed: it is not in the list plugins.allow of the run file");
  BOOST_TEST(host->candidates()[0].hint == "if you trust the file, add \"" + hash + "\" there");
  o.allow_in = {"/elsewhere"};  // the list is for the run file's own folders
  BOOST_TEST(verdict(*Host(d, o).registry) == "ok");
}

BOOST_AUTO_TEST_CASE(a_manifest_may_be_a_file_next_to_the_library) {
  Directory d;
  const fs::path bare = d.copy("manifest_absent", "x");
  BOOST_TEST(pass(bare).starts_with("manifest/absent"));
  d.write("x.toml", kManifest);
  BOOST_TEST(pass(bare) == "ok 1");
  const fs::path both = d.copy("good", "y");
  d.write("y.toml", kManifest);
  BOOST_TEST(pass(both) == "ok 1");  // they agree
  d.write("y.toml", std::string(kManifest) + "priority = 3\n");
  BOOST_TEST(pass(both) == "manifest/differs: its embedded manifest and y.toml differ");
  d.write("y.toml", "id = ");
  BOOST_TEST(pass(both).starts_with("manifest/not_toml"));
  d.write("y.toml", kManifest);
  ::chmod((d / "y.toml").c_str(), 0666);
  BOOST_TEST(pass(both) == "validation/world_writable: manifest file y.toml: any user can write to it");
  fs::remove(d / "x.toml");
  ::mkfifo((d / "x.toml").c_str(), 0644);
  BOOST_TEST(pass(bare) == "validation/not_regular: manifest file x.toml: it is a FIFO, not a regular file");
}

BOOST_AUTO_TEST_SUITE_END()
