// Calls outside the table of system_calls.hpp that fail while checkpoints are opened, locked and written.
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "core/checkpoint/checkpoint_manifest.hpp"
#include "core/checkpoint/output_file.hpp"
#include "core/checkpoint/shard_index.hpp"
#include "core/checkpoint/xxh3.hpp"
#include "tests/core/checkpoint/faulty_sys.hpp"
#include "tests/core/checkpoint/store_fixture.hpp"
#include "tests/support/failing_calls.hpp"

using namespace trainhost;
using namespace trainhost::checkpoint;
using namespace trainhost::test;

BOOST_FIXTURE_TEST_SUITE(checkpoint_failing_calls, CheckpointDir)

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_examined_is_an_error_when_opened_and_after_reading) {
  put(top / "m.safetensors", safetensors("{}"));
  SafetensorsFile file(top / "m.safetensors");
  FailingCall fstat("fstat", EIO);
  for (const std::string& m : {message_of([&] { SafetensorsFile{top / "m.safetensors"}; }, Exit::kFailed),
                               message_of([&] { file.verify_unchanged(); }, Exit::kFailed)}) {
    BOOST_TEST(says(m, "cannot examine " + (top / "m.safetensors").string()), m);
    BOOST_TEST(says(m, "Input/output error"), m);
  }
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_opened_or_examined_are_named_with_the_first_reason) {
  BOOST_TEST(says(message_of([&] { sync_file(top / "absent"); }, Exit::kFailed),
                  "cannot open " + (top / "absent").string() + ": No such file"));
  BOOST_TEST(says(message_of([&] { sync_directory(dir); }, Exit::kFailed), "cannot open " + dir.string()));
  BOOST_TEST(says(message_of([&] { remove_tree(top / std::string(300, 'x')); }, Exit::kFailed),
                  "cannot read the type of "));
  FaultySys read_only([](const std::string& call, int) { return call == "mkdir" ? EROFS : 0; });
  const std::string m = message_of([&] { make_directories(dir / "below"); }, Exit::kFailed);
  BOOST_TEST(says(m, "cannot create the directory " + dir.string() + ": Read-only file system"), m);
}

BOOST_AUTO_TEST_CASE(a_message_names_the_file_and_not_the_temporary_one_beside_it) {
  FaultySys denied([](const std::string& call, int) { return call == "open" ? EACCES : 0; });
  const std::string m = message_of([&] { (void)create_new(temp_beside(top / "run.toml")); }, Exit::kFailed);
  BOOST_TEST(says(m, "cannot create " + (top / "run.toml").string() + ": Permission denied"), m);
}

BOOST_AUTO_TEST_CASE(a_directory_that_cannot_be_listed_is_an_error_and_not_an_empty_one) {
  Store store(dir, 2);
  save_step(store, 1);
  const int status = in_child([&] {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const std::string m = message_of([&] { (void)store.newest(); }, Exit::kFailed);
    ::_exit(says(m, "cannot list ") && says(m, "Too many open files") ? 0 : 1);
  });
  BOOST_TEST(status == 0);
}

// Data that were not synced, or whose last write was reported by close(), may be lost: each of these calls of
// a save has to succeed.
BOOST_AUTO_TEST_CASE(every_sync_and_every_close_behind_one_must_succeed) {
  std::vector<int> calls;  // their numbers in a save that succeeds
  std::string before;
  const auto save = [&](const FaultySys::Decide& decide) {
    fs::remove_all(dir);
    FaultySys faulty(decide);
    Store store(dir, 2);
    return message_of([&] { save_step(store, 1); }, Exit::kFailed);
  };
  BOOST_TEST(save([&](const std::string& call, int number) {
               if (call == "fsync" || (call == "close" && before == "fsync")) calls.push_back(number);
               before = call;
               return 0;
             }) == "");
  BOOST_TEST(calls.size() > 20u);
  for (int n : calls) {
    const std::string m = save([&](const std::string&, int number) { return number == n ? EIO : 0; });
    BOOST_TEST(says(m, "Input/output error"), "call " << n << ": " << m);
  }
  for (int error : {EINVAL, ENOTSUP}) {
    FaultySys no_directories([&](const std::string& call, int) { return call == "fsync" ? error : 0; });
    sync_directory(top.path());
    BOOST_TEST(message_of([&] { sync_file(top / "run/step-1/notes"); }, Exit::kFailed) != "");
  }
}

BOOST_AUTO_TEST_CASE(a_directory_that_cannot_be_locked_is_an_error_with_the_reason) {
  DirectoryLock{dir};
  {
    FailingCall interrupted("flock", EINTR, 1, 2);
    DirectoryLock{dir};
    BOOST_TEST(interrupted.calls() == 3);
  }
  for (const auto& [call, doing] : {std::pair{"flock", "cannot lock "}, {"ftruncate", "cannot write "}}) {
    FailingCall failing(call, ENOLCK);
    const std::string m = message_of([&] { DirectoryLock{dir}; }, Exit::kFailed);
    BOOST_TEST(says(m, doing + (dir / "lock").string()), m);
    BOOST_TEST(says(m, std::strerror(ENOLCK)), m);
  }
  FailingCall no_name("gethostname", EFAULT);
  DirectoryLock lock(dir);
  BOOST_TEST(says(read_file(dir / "lock"), " on unknown\n"));
}

BOOST_AUTO_TEST_CASE(a_lock_without_text_is_held_by_another_run) {
  DirectoryLock lock(dir);
  fs::resize_file(dir / "lock", 0);
  BOOST_TEST(says(message_of([&] { DirectoryLock{dir}; }, Exit::kFailed), "is in use by another run"));
}

BOOST_AUTO_TEST_CASE(a_link_named_lock_is_not_followed) {
  fs::create_directories(dir);
  put(top / "mine", "text");
  fs::create_symlink(top / "mine", dir / "lock");
  BOOST_TEST(says(message_of([&] { DirectoryLock{dir}; }, Exit::kFailed), "it is a symbolic link"));
  BOOST_TEST(read_file(top / "mine") == "text");
}

BOOST_AUTO_TEST_CASE(free_space_that_cannot_be_read_is_an_error_and_not_taken_for_none) {
  Store store(dir, 2);
  save_step(store, 1);
  {
    FailingCall interrupted("statvfs", EINTR, 1, 1);
    require_free_space(dir, 1, "a checkpoint");
    BOOST_TEST(interrupted.calls() == 2);
  }
  FailingCall failing("statvfs", EIO);
  const std::string m = message_of([&] { save_step(store, 2); }, Exit::kFailed);
  BOOST_TEST(says(m, "cannot query the free space of"), m);
  BOOST_TEST(says(m, "Input/output error"), m);
}

BOOST_AUTO_TEST_CASE(without_random_bytes_there_is_no_temporary_name) {
  FailingCall failing("getrandom", ENOSYS);
  const std::string m = message_of([&] { write_file_atomically(top / "x", "text"); }, Exit::kFailed);
  BOOST_TEST(says(m, "cannot create a temporary name for " + (top / "x").string()), m);
  BOOST_TEST(!fs::exists(top / "x"));
}

BOOST_AUTO_TEST_CASE(a_file_that_gets_shorter_while_it_is_read_is_an_error) {
  Store store(dir, 2);
  save_step(store, 1);
  const fs::path weights = dir / "step-1/weights.safetensors", notes = dir / "step-1/notes";
  static Sys real;
  real = sys();
  sys().pread = [](int, void*, std::size_t, off_t) -> ssize_t { return 0; };
  const std::string whole = message_of([&] { read_whole(notes, 100); }, Exit::kFailed),
                    hash = message_of([&] { record_of(notes); }, Exit::kFailed),
                    opened = message_of([&] { SafetensorsFile{weights}; });
  sys().pread = [](int fd, void* out, std::size_t n, off_t at) {
    return at ? 0 : real.pread(fd, out, n, at);
  };
  const std::string header = message_of([&] { SafetensorsFile{weights}; });
  sys() = real;
  BOOST_TEST(says(header, "it was truncated while it was open"), header);
  BOOST_TEST(says(whole, "was truncated while it was read"), whole);
  BOOST_TEST(says(hash, "was truncated"), hash);
  BOOST_TEST(says(opened, "it was truncated while it was open"), opened);
}

BOOST_AUTO_TEST_CASE(a_manifest_with_too_many_files_is_rejected) {
  std::string body = "{\n \"format\": 1,\n \"files\": [";
  for (int i = 0; i <= 100'000; ++i) body += i ? ",{\"name\":\"a\"}" : "{\"name\":\"a\"}";
  body += "]";
  const auto sealed = [](const std::string& text) {
    return text + ",\n \"seal\": \"" + xxh3_hex(text) + "\"\n}\n";
  };
  BOOST_TEST(says(message_of([&] { parse_manifest(sealed(body)); }, Exit::kFailed), "too many files"));
  const std::size_t last = body.rfind(",{");
  BOOST_TEST(parse_manifest(sealed(body.substr(0, last) + "]")).files.size() == 100'000u);
}

BOOST_AUTO_TEST_CASE(a_manifest_whose_tail_is_not_a_seal_is_damaged) {
  Manifest m;
  m.files.push_back({"a", 1, std::string(32, '0'), {}});
  const std::string text = manifest_text(m);
  BOOST_TEST(parse_manifest(text).files.size() == 1u);
  std::string bad = text;
  bad.back() = ' ';
  BOOST_TEST(says(message_of([&] { parse_manifest(bad); }, Exit::kFailed), "is damaged or incomplete"));
  bad = text;
  bad.replace(bad.rfind("seal"), 4, "zeal");
  BOOST_TEST(says(message_of([&] { parse_manifest(bad); }, Exit::kFailed), "is damaged or incomplete"));
  BOOST_TEST(says(message_of([&] { parse_manifest("{}"); }, Exit::kFailed), "is incomplete"));
}

BOOST_AUTO_TEST_CASE(only_a_checkpoint_that_verifies_is_the_best) {
  Store store(dir, 2);
  BOOST_TEST(!store.best());
  save_step(store, 1);
  BOOST_TEST(!store.best());
  store.mark_best(1);
  BOOST_REQUIRE(store.best());
  BOOST_TEST(store.best()->meta.step == 1u);
  for (const char* name : {"step-2\n", "../run/step-1\n", "step-01\n", "\n", ""}) {
    put(dir / "best", name);
    BOOST_TEST(!store.best(), name);
  }
  put(dir / "best", std::string(65, 'x'));
  BOOST_TEST(!store.best());
  store.mark_best(1);
  put(dir / "step-1/weights.safetensors", "damaged");
  BOOST_TEST(!store.best());
}

BOOST_AUTO_TEST_SUITE_END()
