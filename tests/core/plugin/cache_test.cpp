// The plugin cache: a cached scan opens no plugin and runs none, a hanging plugin is waited for only once,
// and a damaged or foreign cache counts as empty.
#include <sys/inotify.h>
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <thread>

#include "core/plugin/plugin_cache.hpp"
#include "plugin_fixture.hpp"

using namespace plugin_fixture;

namespace {

/// Makes the file as old as one that was installed yesterday, so that its clock can tell a change.
void age(const fs::path& p) {
  fs::last_write_time(p, fs::file_time_type::clock::now() - std::chrono::hours(24));
}

/// Counts files of one directory that anybody opens, by the kernel.
class Opens {
 public:
  explicit Opens(const fs::path& directory) : fd_(::inotify_init1(IN_NONBLOCK)) {
    ::inotify_add_watch(fd_, directory.c_str(), IN_OPEN);
  }
  ~Opens() { ::close(fd_); }
  std::size_t files() {
    std::size_t n = 0;
    alignas(inotify_event) char buffer[65536];
    for (ssize_t bytes; (bytes = ::read(fd_, buffer, sizeof buffer)) > 0;)
      for (char* p = buffer; p < buffer + bytes;) {
        const auto* e = reinterpret_cast<const inotify_event*>(p);
        n += !(e->mask & IN_ISDIR);
        p += sizeof *e + e->len;
      }
    return n;
  }

 private:
  int fd_;
};

struct Case {
  Directory plugins, home;
  fs::path cache = home / "trainhost/plugins-1.cache";
  std::string list(double seconds = 20) {
    Host host(plugins, with_trial_loads(seconds, cache));
    host->probe_all();
    return verdict(*host.registry);
  }
  bool cached() {
    Host host(plugins, with_trial_loads(20, cache));
    host->probe_all();
    return host->candidates().at(0).from_cache;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(cache)

BOOST_AUTO_TEST_CASE(a_cached_scan_opens_no_plugin_and_reports_the_same) {
  Case c;
  for (const char* name : {"good", "no_entry", "aborts", "manifest_absent", "misbehave"})
    age(c.plugins.copy(name));
  const auto list_as_text = [&c] {
    Host host(c.plugins, with_trial_loads(20, c.cache));
    host->probe_all();
    std::string all;
    for (const tp::Candidate& k : host->candidates())
      all +=
          k.file.string() + k.stage + k.code + k.reason + k.hint + k.manifest.id + k.manifest.summary + "\n";
    return all;
  };
  const std::string cold = list_as_text();
  Opens opens(c.plugins.path());
  BOOST_TEST(list_as_text() == cold);
  BOOST_TEST(opens.files() == 0u);
  fs::remove(c.cache);
  BOOST_TEST(list_as_text() == cold);
  BOOST_TEST(opens.files() > 0u);  // the counter works
}

BOOST_AUTO_TEST_CASE(a_hanging_plugin_is_waited_for_once_until_the_file_changes) {
  Case c;
  const fs::path file = c.plugins.copy("loops");
  age(file);
  const auto seconds = [&c] {
    const auto begin = std::chrono::steady_clock::now();
    BOOST_TEST(c.list(1).starts_with("load/hung"));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  BOOST_TEST(seconds() >= 1);
  BOOST_TEST(seconds() < 1);  // its result is cached: no second trial load, which takes the whole second
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(12));
  BOOST_TEST(seconds() >= 1);
}

BOOST_AUTO_TEST_CASE(a_changed_file_is_validated_again) {
  Case c;
  age(c.plugins.copy("no_entry", "x"));
  BOOST_TEST(c.list().starts_with("load/no_entry"));
  fs::remove(c.plugins / "x.so");
  age(c.plugins.copy("good", "x"));
  BOOST_TEST(c.list() == "ok");
  c.plugins.write("x.toml", "id = 'other'\nversion = '1'\nkind = 'estimator'\n");
  BOOST_TEST(c.list().starts_with("manifest/differs"));
}

BOOST_AUTO_TEST_CASE(a_recently_modified_file_is_hashed_again) {
  Case c;
  const fs::path file = c.plugins.copy("good");
  BOOST_TEST(c.list() == "ok");
  Opens opens(c.plugins.path());
  BOOST_TEST(c.list() == "ok");
  BOOST_TEST(opens.files() > 0u);  // hashed, but not trial_loaded
  BOOST_TEST(c.cached());
}

BOOST_AUTO_TEST_CASE(permissions_are_checked_every_time) {
  Case c;
  const fs::path file = c.plugins.copy("good");
  age(file);
  BOOST_TEST(c.list() == "ok");
  ::chmod(file.c_str(), 0666);
  BOOST_TEST(c.list().starts_with("validation/world_writable"));
  ::chmod(file.c_str(), 0644);
  BOOST_TEST(c.list() == "ok");
}

BOOST_AUTO_TEST_CASE(the_state_of_a_device_is_not_cached) {
  Case c;
  age(c.plugins.copy("toy"));
  const auto status = [&c](const char* what) {
    tp::HostOptions o = with_trial_loads(20, c.cache);
    if (*what) o.plugin_options["toy"]["do"] = what;
    Host host(c.plugins, o);
    host->probe_all();
    return host->candidates().at(0).status;
  };
  BOOST_TEST((status("") == tp::Status::kOk));
  BOOST_TEST((status("no device") == tp::Status::kUnavailable));
  BOOST_TEST((status("") == tp::Status::kOk));
}

BOOST_AUTO_TEST_CASE(a_registry_with_other_options_has_the_same_candidates_without_a_scan) {
  Case c;
  c.plugins.copy("toy");
  Host host(c.plugins);
  c.plugins.copy("good");  // a scan would find it
  const auto other = host->with_plugin_options({{"toy", {{"do", "no device"}}}});
  BOOST_TEST(other->candidates().size() == 1u);
  other->probe_all();
  BOOST_TEST((other->candidates().at(0).status == tp::Status::kUnavailable));
  host->probe_all();  // with its own options
  BOOST_TEST((host->candidates().at(0).status == tp::Status::kOk));
}

BOOST_AUTO_TEST_CASE(a_damaged_or_foreign_cache_is_rebuilt) {
  Case c;
  age(c.plugins.copy("good"));
  BOOST_TEST(c.list() == "ok");
  BOOST_TEST(c.cached());
  const std::string whole = read_file(c.cache);
  const auto with = [&c](const std::string& bytes) {
    std::ofstream(c.cache, std::ios::binary) << bytes;
    const bool used = c.cached();
    return used ? "used" : "rebuilt";
  };
  BOOST_TEST(with(whole) == "used");
  for (std::size_t n : {std::size_t{0}, std::size_t{10}, std::size_t{40}, whole.size() / 2, whole.size() - 1})
    BOOST_TEST(with(whole.substr(0, n)) == "rebuilt", n);
  for (std::size_t at : {std::size_t{3}, std::size_t{30}, whole.size() - 5}) {
    std::string flipped = whole;
    flipped[at] ^= 1;
    BOOST_TEST(with(flipped) == "rebuilt", at);
  }
  BOOST_TEST(with(std::string(100'000, '\n')) == "rebuilt");
  ::chmod(c.cache.c_str(), 0666);  // other users can write to it
  BOOST_TEST(!c.cached());
  fs::remove(c.cache);
  fs::create_symlink("/etc/passwd", c.cache);
  BOOST_TEST(!c.cached());
  BOOST_TEST(c.cached());  // replaced by a new file
  BOOST_TEST(!fs::is_symlink(c.cache));
}

BOOST_AUTO_TEST_CASE(everything_works_without_a_writable_cache) {
  Case c;
  c.cache = "/proc/nowhere/plugins-1.cache";
  age(c.plugins.copy("good"));
  BOOST_TEST(c.list() == "ok");
  BOOST_TEST(!c.cached());
}

BOOST_AUTO_TEST_CASE(another_build_validates_again_and_both_entries_are_kept) {
  Case c;
  const fs::path file = c.plugins.copy("good");
  tp::CacheEntry r;
  r.id = tp::identify(file);
  r.manifest.id = "sample";
  tp::Cache first(c.cache, "1.0 build A"), second(c.cache, "1.0 build B");
  first.put(file, r);
  first.save();
  second.put(file, r);
  second.save();
  BOOST_TEST(tp::Cache(c.cache, "1.0 build A").find(file, r.id, {}));
  BOOST_TEST(tp::Cache(c.cache, "1.0 build B").find(file, r.id, {}));
  BOOST_TEST(!tp::Cache(c.cache, "1.0 build C").find(file, r.id, {}));
  tp::FileId later = r.id;
  ++later.mtime_ns;
  BOOST_TEST(!tp::Cache(c.cache, "1.0 build A").find(file, later, {}));
  BOOST_TEST(!tp::Cache(c.cache, "1.0 build A").find(file, r.id, r.id));  // a sidecar came
}

BOOST_AUTO_TEST_CASE(cache_entries_are_read_back_unchanged) {
  Case c;
  tp::CacheEntry r;
  r.id = {1, 2, 3, 4, 5};
  r.sidecar = {6, 7, 8, 9, 10};
  r.hash = "h\\a\tsh";
  r.trial_loaded = true;
  r.manifest = {"i",       "v",      "trainer", "s\nt", "1.0",      "cpu",    {"a/1", "b\t/2"},
                {"llama"}, {"full"}, {"bf16"},  {"o"},  {"f", "g"}, {"avx2"}, {"libx.so"},
                -7};
  r.rejected.emplace("load", "crashed", "why\tso", "hint\n");
  r.warnings = {"one", "two\twords"};
  tp::Cache out(c.cache, "h");
  out.put("/a\tb.so", r);
  out.save();
  const tp::Cache in(c.cache, "h");
  const tp::CacheEntry* back = in.find("/a\tb.so", r.id, r.sidecar);
  BOOST_REQUIRE(back);
  BOOST_TEST((back->manifest == r.manifest));
  BOOST_TEST(back->hash == r.hash);
  BOOST_TEST(back->trial_loaded);
  BOOST_TEST((back->rejected->stage() + back->rejected->code() + back->rejected->what() +
              back->rejected->hint()) == "loadcrashedwhy\tsohint\n");
  BOOST_TEST(back->warnings == r.warnings, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(concurrent_hosts_lose_no_entries) {
  Case c;
  constexpr int kHosts = 8, kEach = 25;
  for (int h = 0; h < kHosts; ++h) {
    if (::fork() != 0) continue;
    for (int i = 0; i < kEach; ++i) {
      tp::Cache cache(c.cache, "host");
      tp::CacheEntry r;
      r.id.inode = 1;
      cache.put("/p" + std::to_string(h) + "." + std::to_string(i), r);
      cache.save();
    }
    ::_exit(0);
  }
  while (::wait(nullptr) > 0) {
  }
  const tp::Cache all(c.cache, "host");
  tp::FileId id;
  id.inode = 1;
  int found = 0;
  for (int h = 0; h < kHosts; ++h)
    for (int i = 0; i < kEach; ++i)
      found += all.find("/p" + std::to_string(h) + "." + std::to_string(i), id, {}) != nullptr;
  BOOST_TEST(found == kHosts * kEach);
  BOOST_TEST(std::distance(fs::directory_iterator(c.cache.parent_path()), {}) == 1);  // no leftovers
}

BOOST_AUTO_TEST_CASE(a_start_that_failed_for_external_reasons_is_tried_again) {
  for (const auto& [name, again] :
       {std::pair{"start_fails_with_number", true}, {"start_fails_as_bug", false}}) {
    Case c;
    age(c.plugins.copy(name));
    const std::string first = c.list();
    BOOST_TEST(first.starts_with("start/"), first);
    BOOST_TEST(c.cached() == !again, name);
    BOOST_TEST(c.list() == first);
  }
}

BOOST_AUTO_TEST_CASE(a_lack_of_memory_says_nothing_about_the_file) {
  Case c;
  age(c.plugins.copy("no_memory"));
  BOOST_TEST(c.list() == "load/host_oom: trainhost_plugin_v1 ran out of host memory");
  BOOST_TEST(!c.cached());
}

BOOST_AUTO_TEST_CASE(a_cached_rejection_keeps_its_vendor_error) {
  tp::CacheEntry r;
  r.rejected.emplace("start", "internal", "x 5: y", "", tp::VendorError{"x", 5});
  const auto back = tp::parse_cache_line(tp::format_cache_line(r));
  BOOST_REQUIRE(back);
  BOOST_TEST(back->rejected->native().domain == "x");
  BOOST_TEST(back->rejected->native().code == 5);
}

BOOST_AUTO_TEST_CASE(two_hundred_cached_plugins_are_listed_quickly) {
  Case c;
  const std::string bytes = read_file(plugin_file("good"));
  for (int i = 0; i < 200; ++i) {
    const std::string name = "plugin_" + std::to_string(i);
    std::string mine = bytes;  // another id of the same length, in the manifest and in the table
    const std::string id = "p" + std::to_string(10000 + i);
    for (std::size_t at = 0; (at = mine.find("sample", at)) != mine.npos;) mine.replace(at, 6, id);
    age(c.plugins.write(name + ".so", mine));
  }
  Host cold(c.plugins, with_trial_loads(20, c.cache));
  cold->probe_all();
  BOOST_TEST(cold->ids("estimator").size() == 200u);
  Opens opens(c.plugins.path());
  double best = 1;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    Host warm(c.plugins, with_trial_loads(20, c.cache));
    warm->probe_all();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  BOOST_TEST(opens.files() == 0u);
  BOOST_TEST(best < 1);  // 1.6 ms on an idle machine, see tools/bench/registry_start.cpp
}

BOOST_AUTO_TEST_CASE(the_cache_path_follows_the_environment) {
  const char* const names[] = {"TRAINHOST_CACHE", "XDG_CACHE_HOME", "HOME"};
  std::map<std::string, std::string> before;
  for (const char* n : names)
    if (const char* v = ::getenv(n)) before[n] = v;
  for (const char* n : names) ::unsetenv(n);
  BOOST_TEST(tp::default_cache_file() == "");
  ::setenv("HOME", "/h", 1);
  BOOST_TEST(tp::default_cache_file() == "/h/.cache/trainhost/plugins-1.cache");
  ::setenv("XDG_CACHE_HOME", "/x", 1);
  BOOST_TEST(tp::default_cache_file() == "/x/trainhost/plugins-1.cache");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  BOOST_TEST(tp::default_cache_file() == "/h/.cache/trainhost/plugins-1.cache");
  ::setenv("TRAINHOST_CACHE", "/t", 1);
  BOOST_TEST(tp::default_cache_file() == "/t/plugins-1.cache");
  ::setenv("TRAINHOST_CACHE", "", 1);
  BOOST_TEST(tp::default_cache_file() == "");
  ::setenv("TRAINHOST_CACHE", "here", 1);
  BOOST_CHECK_THROW(tp::default_cache_file(), trainhost::Error);
  for (const char* n : names) ::unsetenv(n);
  for (const auto& [n, v] : before) ::setenv(n.c_str(), v.c_str(), 1);
}

BOOST_AUTO_TEST_SUITE_END()
