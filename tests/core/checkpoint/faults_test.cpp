// Kills and failing system calls while a checkpoint is saved. After each of them, newest() must find a
// verified checkpoint at least as new as the last one whose save() returned, and the next save works and
// removes leftovers.
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "tests/core/checkpoint/faulty_sys.hpp"
#include "tests/core/checkpoint/store_fixture.hpp"

using namespace trainhost;
using namespace trainhost::checkpoint;
using namespace trainhost::test;

namespace {

int never(const std::string&, int) { return 0; }

struct FaultyDir : CheckpointDir {
  /// Two verified checkpoints, 1 and 2; a third one makes the store remove the first.
  void prepare() {
    fs::remove_all(dir);
    FaultySys quick(never);
    Store store(dir, 2);
    save_step(store, 1);
    save_step(store, 2);
  }

  /// System calls of one save of step 3 (or of step 2 again) in a prepared directory.
  int calls_of_a_save(std::uint64_t step) {
    prepare();
    FaultySys counting(never);
    Store store(dir, 2);
    save_step(store, step);
    return counting.calls();
  }

  void goes_on_from(std::uint64_t at_least, const std::string& after) {
    BOOST_TEST(newest_step(dir) >= at_least, after);
    FaultySys quick(never);
    Store store(dir, 2);
    save_step(store, 9);
    BOOST_TEST(newest_step(dir) == 9u, after);
    BOOST_TEST(temp_entries(dir) == 0u, after);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(checkpoint_faults, FaultyDir)

BOOST_AUTO_TEST_CASE(after_a_kill_at_any_time_a_verified_checkpoint_exists) {
  auto* done = static_cast<std::atomic<std::uint64_t>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  BOOST_REQUIRE(done != MAP_FAILED);
  std::mt19937 random(1);
  const int kKills = 200;
  const auto start = std::chrono::steady_clock::now();
  Store first(dir, 2);
  save_step(first, 1);
  save_step(first, 2);
  done->store(2);
  // The child is killed within its first few saves, for any disk speed.
  const auto span =
      2 *
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
  // A busy machine completes few saves between the kills: it gets more of them, not a lower limit.
  const std::uint64_t kSaves = 10;
  int in_mid_save = 0, kills = 0;
  for (; kills < kKills || (done->load() <= kSaves && kills < 20 * kKills); ++kills) {
    pid_t pid = ::fork();
    if (pid == 0) {
      Store store(dir, 2);
      for (std::uint64_t step = done->load() + 1;; ++step) {
        save_step(store, step);
        done->store(step);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % (span + 1000)));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    in_mid_save += fs::exists(dir) && temp_entries(dir) > 0;
    std::uint64_t found = newest_step(dir), sure = done->load();
    BOOST_TEST_REQUIRE((found == sure || found == sure + 1), found << " was found, " << sure << " was sure");
    done->store(found);
  }
  BOOST_TEST(done->load() > kSaves);
  BOOST_TEST(in_mid_save > kills / 4);
  BOOST_TEST_MESSAGE("kills: " << kills << ", of them amid a save: " << in_mid_save
                               << ", checkpoints: " << done->load());
  ::munmap(done, 4096);
}

BOOST_AUTO_TEST_CASE(after_a_kill_at_every_system_call_a_verified_checkpoint_exists) {
  for (std::uint64_t step : {3, 2}) {  // a new step, and one that replaces an existing checkpoint
    const int calls = calls_of_a_save(step);
    BOOST_TEST(calls > 60);
    for (int n = 1; n <= calls; ++n)
      for (int how : {FaultySys::kKill, FaultySys::kHalf}) {
        prepare();
        std::string call;
        int status = in_child([&] {
          FaultySys faulty([&](const std::string&, int number) { return number == n ? how : 0; });
          Store store(dir, 2);
          save_step(store, step);
        });
        BOOST_TEST_REQUIRE(WIFSIGNALED(status));
        goes_on_from(2, "killed at call " + std::to_string(n));
      }
  }
}

BOOST_AUTO_TEST_CASE(when_a_system_call_fails_the_earlier_checkpoint_remains) {
  int faults = 0, failed = 0;
  for (std::uint64_t step : {3, 2}) {
    const int calls = calls_of_a_save(step);
    for (int n = 1; n <= calls; ++n)
      for (int error : {ENOSPC, EIO, EDQUOT, EROFS, EMFILE, EACCES, EINTR}) {
        prepare();
        std::string name, message;
        {
          FaultySys faulty([&](const std::string& call, int number) {
            if (number == n) name = call;
            return number == n ? error : 0;
          });
          Store store(dir, 2);
          message = message_of([&] { save_step(store, step); }, Exit::kFailed);
        }
        ++faults;
        failed += !message.empty();
        const std::string what = name + " #" + std::to_string(n) + " " + std::strerror(error);
        if (error == EINTR && (name == "write" || name == "pread" || name == "fsync" || name == "close"))
          BOOST_TEST(message == "", what);
        if (!message.empty() && name != "exchange")
          BOOST_TEST(says(message, std::strerror(error)), what << " gave " << message);
        goes_on_from(2, what);
      }
  }
  BOOST_TEST(faults >= 500);
  BOOST_TEST(failed > faults / 2);
  BOOST_TEST_MESSAGE("calls that failed: " << faults << ", saves that said so: " << failed);
}

BOOST_AUTO_TEST_CASE(a_full_disk_loses_no_checkpoint_and_saving_recovers) {
  const int calls = calls_of_a_save(3);
  for (int n = 1; n <= calls; ++n) {
    prepare();
    {
      FaultySys full([&](const std::string& call, int number) {
        bool takes_space = call == "write" || call == "mkdir" || call == "open";
        return number >= n && takes_space ? ENOSPC : 0;
      });
      Store store(dir, 2);
      for (int again = 0; again < 3; ++again) message_of([&] { save_step(store, 3); }, Exit::kFailed);
    }
    goes_on_from(2, "full from call " + std::to_string(n));
  }
}

BOOST_AUTO_TEST_CASE(a_failed_device_keeps_the_published_checkpoints) {
  const int calls = calls_of_a_save(3);
  for (int n = 1; n <= calls; ++n) {
    prepare();
    {
      FaultySys failing([&](const std::string&, int number) { return number >= n ? EIO : 0; });
      Store store(dir, 2);
      BOOST_TEST(says(message_of([&] { save_step(store, 3); }, Exit::kFailed), ""));
    }
    goes_on_from(2, "all calls fail from call " + std::to_string(n));
  }
}

BOOST_AUTO_TEST_CASE(short_writes_are_continued) {
  for (std::size_t most : {1, 7, 64, 1000}) {
    FaultySys slow(never);
    slow.set_max_write(most);
    Store store(dir, 2);
    save_step(store, most);
    BOOST_TEST(newest_step(dir) == most);
  }
}

BOOST_AUTO_TEST_CASE(a_write_without_progress_is_an_error_and_not_a_loop) {
  prepare();
  FaultySys stuck(never);
  stuck.set_max_write(0);
  Store store(dir, 2);
  BOOST_TEST(says(message_of([&] { save_step(store, 3); }, Exit::kFailed), "No space left"));
  BOOST_TEST(newest_step(dir) == 2u);
}

BOOST_AUTO_TEST_CASE(a_file_size_limit_fails_the_save_and_keeps_the_checkpoints) {
  prepare();
  std::uintmax_t largest = 0;
  for (const auto& e : fs::directory_iterator(dir / "step-2"))
    largest = std::max(largest, fs::file_size(e.path()));
  for (rlim_t limit : {0, 1, 8, 100, 300, 500, 700, 900, 1100, 1300, 1500}) {
    prepare();
    int status = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      rlimit r{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &r);
      Store store(dir, 2);
      try {
        save_step(store, 3);
        ::_exit(0);
      } catch (const Error& e) {
        ::_exit(says(e.what(), "File too large") ? 7 : 8);
      }
    });
    BOOST_TEST(WIFEXITED(status));
    int code = WEXITSTATUS(status);
    BOOST_TEST(code == (limit < largest ? 7 : 0), "limit " << limit << " left with " << code);
    goes_on_from(code == 0 ? 3 : 2, "limit " + std::to_string(limit));
  }
}

BOOST_AUTO_TEST_CASE(a_file_system_without_exchange_still_replaces_a_checkpoint) {
  for (int error : {EINVAL, ENOSYS, ENOTSUP}) {
    prepare();
    {
      FaultySys old([&](const std::string& call, int) { return call == "exchange" ? error : 0; });
      Store store(dir, 2);
      save_step(store, 2);
    }
    goes_on_from(2, "no exchange");
  }
}

BOOST_AUTO_TEST_CASE(an_exchange_that_fails_is_an_error_where_the_file_system_could_exchange) {
  for (int error : {EIO, EROFS, EACCES}) {
    prepare();
    std::string m;
    {
      FaultySys failing([&](const std::string& call, int) { return call == "exchange" ? error : 0; });
      Store store(dir, 2);
      m = message_of([&] { save_step(store, 2); }, Exit::kFailed);
    }
    BOOST_TEST(says(m, std::strerror(error)), m);
    goes_on_from(2, "failed exchange");
  }
}

BOOST_AUTO_TEST_CASE(a_failing_second_rename_restores_the_previous_checkpoint) {
  for (int n = 1; n <= 8; ++n) {  // shards, manifest, the three renames of the exchange, latest
    prepare();
    int renames = 0;
    {
      FaultySys old([&](const std::string& call, int) {
        if (call == "exchange") return EINVAL;
        return call == "rename" && ++renames == n ? EIO : 0;
      });
      Store store(dir, 2);
      message_of([&] { save_step(store, 2); }, Exit::kFailed);
    }
    goes_on_from(2, "rename " + std::to_string(n));
  }
}

BOOST_AUTO_TEST_CASE(data_changed_by_the_disk_are_detected_before_publishing) {
  static Sys real;
  static int countdown;
  real = sys();
  for (int n = 1; n <= 4; ++n) {  // two writes per shard: header, data
    prepare();
    countdown = n;
    sys().write = [](int fd, const void* data, std::size_t size) {
      if (size == 0 || --countdown != 0) return real.write(fd, data, size);
      std::string bad(static_cast<const char*>(data), size);
      bad.back() ^= 1;
      return real.write(fd, bad.data(), size);
    };
    Store store(dir, 2);
    std::string m = message_of([&] { save_step(store, 3); }, Exit::kFailed);
    sys() = real;
    BOOST_TEST(says(m, "is damaged after writing"), m);
    goes_on_from(2, "changed data");
  }
}

BOOST_AUTO_TEST_CASE(a_published_checkpoint_that_does_not_verify_is_withdrawn) {
  static Sys real;
  static auto spoil = [](const char* to) {
    if (says(to, "step-") && fs::is_directory(to) && !says(to, ".tmp."))
      fs::resize_file(fs::path(to) / "weights.safetensors", 8);
  };
  real = sys();
  for (std::uint64_t step : {3, 2}) {
    prepare();
    sys().rename = [](const char* from, const char* to) {
      int r = real.rename(from, to);
      spoil(to);
      return r;
    };
    sys().exchange = [](const char* a, const char* b) {
      static bool once = false;
      int r = real.exchange(a, b);
      if ((once = !once)) spoil(b);  // the second exchange undoes the first
      return r;
    };
    Store store(dir, 2);
    std::string m = message_of([&] { save_step(store, step); }, Exit::kFailed);
    sys() = real;
    BOOST_TEST(says(m, "bytes short"), m);
    BOOST_TEST(newest_step(dir) == 2u);
    BOOST_TEST(!fs::exists(dir / "step-3"));
    goes_on_from(2, "taken back");
  }
}

BOOST_AUTO_TEST_CASE(directories_that_cannot_be_created_listed_or_removed_are_errors) {
  put(top / "file", "x");
  BOOST_TEST(says(message_of([&] { make_directories(top / "file"); }, Exit::kFailed), "Not a directory"));
  fs::create_directories(top / "tree/sub");
  for (const char* failing : {"rmdir", "unlink"}) {
    put(top / "tree/file", "x");
    FaultySys faulty([&](const std::string& call, int) { return call == failing ? EIO : 0; });
    BOOST_TEST(says(message_of([&] { remove_tree(top / "tree"); }, Exit::kFailed), "Input/output error"),
               failing);
  }
  const int status = in_child([&] {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NOFILE, &none);
    try {
      remove_tree(top / "tree");
      ::_exit(0);
    } catch (const Error& e) {
      ::_exit(says(e.what(), "cannot list") && says(e.what(), "Too many open files") ? 7 : 8);
    }
  });
  BOOST_TEST((WIFEXITED(status) && WEXITSTATUS(status) == 7));
  remove_tree(top / "tree");
  BOOST_TEST(!fs::exists(top / "tree"));
}

BOOST_AUTO_TEST_CASE(reads_continue_after_signals_and_short_counts) {
  prepare();
  static Sys real;
  static int turn;
  real = sys();
  sys().pread = [](int fd, void* out, std::size_t n, off_t at) -> ssize_t {
    if (++turn % 3 == 0) {
      errno = EINTR;
      return -1;
    }
    return real.pread(fd, out, std::min<std::size_t>(n, 5), at);
  };
  BOOST_TEST(newest_step(dir) == 2u);
  sys() = real;
}

BOOST_AUTO_TEST_CASE(a_checkpoint_that_cannot_be_read_is_skipped_with_the_reason) {
  prepare();
  static Sys real;
  real = sys();
  sys().open = [](const char* p, int flags, mode_t mode) {
    if (says(p, "step-2/weights")) {
      errno = EIO;
      return -1;
    }
    return real.open(p, flags, mode);
  };
  auto found = Store(dir, 2).newest();
  sys() = real;
  BOOST_REQUIRE(found);
  BOOST_TEST(found->meta.step == 1u);
  BOOST_TEST(says(found->skipped.at(0), "Input/output error"));
}

BOOST_AUTO_TEST_SUITE_END()
