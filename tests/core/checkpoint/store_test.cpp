// The checkpoint store without system faults: publishing, finding, skipping, replacing, rotation, and every
// kind of damage to the files. Kills and failing calls: faults_test.cpp; power loss: power_loss_test.cpp.
#include "core/checkpoint/store.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <random>
#include <set>
#include <thread>

#include "core/checkpoint/checkpoint_manifest.hpp"
#include "core/checkpoint/output_file.hpp"
#include "core/checkpoint/xxh3.hpp"
#include "tests/core/checkpoint/store_fixture.hpp"

using namespace trainhost;
using namespace trainhost::checkpoint;
using namespace trainhost::test;

namespace {

std::string only_skipped(const fs::path& dir) {
  auto found = Store(dir, 2).newest();
  BOOST_REQUIRE(found);
  BOOST_TEST_REQUIRE(found->skipped.size() == 1u);
  return found->skipped[0];
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(checkpoint_store, CheckpointDir)

BOOST_AUTO_TEST_CASE(a_saved_checkpoint_is_found_with_all_its_metadata) {
  Store store(dir, 2);
  BOOST_TEST(!store.newest());
  fs::path at = save_step(store, 300);
  BOOST_TEST(at == dir / "step-300");
  auto found = store.newest();
  BOOST_REQUIRE(found);
  const Meta m = meta_of(300);
  BOOST_TEST(found->dir == at);
  BOOST_TEST(found->meta.step == 300u);
  BOOST_TEST(found->meta.kernel_set == m.kernel_set);
  BOOST_TEST(found->meta.config_digest == m.config_digest);
  BOOST_TEST(found->meta.program_version == m.program_version);
  BOOST_TEST(found->meta.backend == m.backend);
  BOOST_TEST((found->meta.extra == m.extra));
  BOOST_TEST(found->skipped.empty());
  BOOST_TEST(read_file(dir / "latest") == "step-300\n");
  BOOST_TEST(temp_entries(dir) == 0u);
}

BOOST_AUTO_TEST_CASE(an_empty_or_absent_directory_has_no_checkpoint) {
  BOOST_TEST(!Store(dir, 2).newest());
  fs::create_directories(dir / "step-5.tmp.0123456789abcdef");
  fs::create_directories(dir / "step-007");
  fs::create_directories(dir / "step-");
  fs::create_directories(dir / "step-x");
  fs::create_directories(dir / "stop-5");
  fs::create_directories(dir / "step-99999999999999999999999");
  put(dir / "step-3", "a file");
  BOOST_TEST(!Store(dir, 2).newest());
}

BOOST_AUTO_TEST_CASE(old_checkpoints_are_removed_after_new_ones_exist_and_two_remain) {
  for (std::uint64_t keep : {0, 1, 2, 3, 5}) {
    fs::remove_all(dir);
    Store store(dir, keep);
    for (std::uint64_t step = 10; step <= 80; step += 10) {
      save_step(store, step);
      BOOST_TEST(published().size() == std::min<std::uint64_t>(step / 10, std::max<std::uint64_t>(keep, 2)));
      BOOST_TEST(newest_step(dir) == step);
    }
  }
}

BOOST_AUTO_TEST_CASE(rotation_counts_only_verified_checkpoints) {
  for (std::uint64_t step : {1, 2, 3, 4}) {
    Store other(dir, 10);
    save_step(other, step);
  }
  put(dir / "step-4/weights.safetensors", "damaged");
  put(dir / "step-3/manifest.json", "damaged");
  Store store(dir, 2);
  save_step(store, 5);  // verified: 5 and 2; 1 and 3 (unknown age) are removed, 4 is newer than 2
  BOOST_TEST((published() == std::set<std::string>{"step-2", "step-4", "step-5"}));
}

BOOST_AUTO_TEST_CASE(the_most_recently_published_checkpoint_is_newest) {
  Store store(dir, 2);
  save_step(store, 1000);
  save_step(store, 2000);
  Store again(dir, 2);  // a new run in the same directory
  save_step(again, 10);
  BOOST_TEST(newest_step(dir) == 10u);
  save_step(again, 20);
  BOOST_TEST((published() == std::set<std::string>{"step-10", "step-20"}));
}

BOOST_AUTO_TEST_CASE(saving_a_step_again_replaces_its_checkpoint) {
  Store store(dir, 2);
  save_step(store, 7);
  for (int i = 0; i < 3; ++i) save_step(store, 7);
  BOOST_TEST(newest_step(dir) == 7u);
  put(dir / "step-7/weights.safetensors", "damaged");
  save_step(store, 7);
  BOOST_TEST(newest_step(dir) == 7u);
  BOOST_TEST(published().size() == 1u);
  BOOST_TEST(temp_entries(dir) == 0u);
}

BOOST_AUTO_TEST_CASE(only_leftovers_are_ignored_and_removed_by_the_next_save) {
  fs::create_directories(dir / "step-9.tmp.0123456789abcdef/deep");
  put(dir / "step-9.tmp.0123456789abcdef/weights.safetensors", "half");
  put(dir / "latest.tmp.0123456789abcdef", "half");
  put(dir / "notes.tmp.txt", "mine");
  put(dir / "step-9.tmp.draft", "mine");
  fs::create_directory_symlink(top.path(), dir / "step-8.tmp.0123456789abcdef");
  BOOST_TEST(!Store(dir, 2).newest());
  Store store(dir, 2);
  save_step(store, 10);
  BOOST_TEST(!fs::exists(dir / "step-9.tmp.0123456789abcdef"));
  BOOST_TEST(!fs::exists(dir / "latest.tmp.0123456789abcdef"));
  BOOST_TEST(!fs::is_symlink(dir / "step-8.tmp.0123456789abcdef"));
  BOOST_TEST(read_file(dir / "notes.tmp.txt") == "mine");
  BOOST_TEST(read_file(dir / "step-9.tmp.draft") == "mine");
  BOOST_TEST(newest_step(dir) == 10u);
}

BOOST_AUTO_TEST_CASE(leftovers_are_removed_without_a_save) {
  Store store(dir, 2);
  save_step(store, 1);
  fs::create_directory(dir / "step-2.tmp.0123456789abcdef");
  put(dir / "step-2.tmp.0123456789abcdef/weights.safetensors", "half");
  put(dir / "latest.tmp.0123456789abcdef", "step-");
  const char* of_the_user[] = {"mine.tmp.0123456789abcdef", "step-2.tmp.0123456789abcde",
                               "step-2.tmp.0123456789abcdef0", "latest.tmp.0123456789abcdeg", "step-2.tmp"};
  for (const char* name : of_the_user) put(dir / name, "mine");
  store.remove_leftovers();
  BOOST_TEST(newest_step(dir) == 1u);
  BOOST_TEST(temp_entries(dir) == 4u);
  for (const char* name : of_the_user) BOOST_TEST(fs::exists(dir / name), name);
  Store(dir / "absent", 2).remove_leftovers();
  BOOST_TEST(!fs::exists(dir / "absent"));
}

BOOST_AUTO_TEST_CASE(output_files_replace_regular_files_only_and_completely) {
  fs::create_directories(dir / "sub");
  put(dir / "old", "before");
  BOOST_REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  const std::pair<fs::path, const char*> cases[] = {{"", "not a file name"},
                                                    {dir / "", "not a file name"},
                                                    {dir / "..", "not a file name"},
                                                    {dir / "sub", "it is a directory"},
                                                    {dir / "pipe", "it is not a regular file"},
                                                    {dir / "absent/x", "does not exist"},
                                                    {dir / "old/x", "is not a directory"}};
  for (const auto& [file, why] : cases)
    BOOST_TEST(says(message_of([&] { write_output("--html", file, "text", "--html plan.html"); }), why),
               file);
  write_output("--html", dir / "old", "after", "--html plan.html");
  BOOST_TEST(read_file(dir / "old") == "after");
  {
    OutputFile abandoned("--html", dir / "old", "--html plan.html");
    abandoned.write("half");
  }
  BOOST_TEST(read_file(dir / "old") == "after");
  BOOST_TEST(temp_entries(dir) == 0u);
  OutputFile whole("--html", dir / "old", "--html plan.html");
  whole.write("a"), whole.write("b");
  whole.publish();
  BOOST_TEST(read_file(dir / "old") == "ab");
}

BOOST_AUTO_TEST_CASE(output_files_that_this_user_may_not_write_are_rejected_before_any_work) {
  for (const fs::path& p : {top.path(), dir}) {
    fs::create_directories(p);
    fs::permissions(p, fs::perms(0555));
  }
  fs::permissions(dir, fs::perms(0755));
  put(dir / "old", "x");
  fs::permissions(dir / "old", fs::perms(0444));
  fs::permissions(dir, fs::perms(0555));
  const int status = in_child([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(9);  // root may write everywhere
    const auto says_why = [&](const char* name, const char* why) {
      return says(message_of([&] { require_writable("--html", dir / name, "--html plan.html"); }), why);
    };
    ::_exit(says_why("old", "it is write-protected") && says_why("new", "the directory") ? 0 : 1);
  });
  fs::permissions(top.path(), fs::perms(0755)), fs::permissions(dir, fs::perms(0755));
  BOOST_TEST(status == 0);
}

BOOST_AUTO_TEST_CASE(without_free_space_nothing_is_written) {
  Store store(dir, 2);
  save_step(store, 1);
  bool begun = false;
  std::string m = message_of(
      [&] { store.save(meta_of(2), 1ull << 60, [&](const fs::path&) { begun = true; }); }, Exit::kFailed);
  BOOST_TEST(says(m, "a checkpoint needs 1.10 EiB"), m);
  BOOST_TEST(!begun);
  BOOST_TEST(newest_step(dir) == 1u);
}

BOOST_AUTO_TEST_CASE(a_failing_writer_keeps_the_earlier_checkpoints) {
  Store store(dir, 2);
  save_step(store, 1);
  auto save = [&](const std::function<void(const fs::path&)>& f) {
    return message_of([&] { store.save(meta_of(2), 0, f); }, Exit::kFailed);
  };
  BOOST_TEST(
      says(save([](const fs::path&) { throw run_error("the device is lost"); }), "the device is lost"));
  BOOST_TEST(says(save([](const fs::path& tmp) { fs::create_directory(tmp / "sub"); }), "only files"));
  BOOST_TEST(
      says(save([](const fs::path& tmp) { fs::create_symlink("/etc/passwd", tmp / "x"); }), "only files"));
  BOOST_CHECK_THROW(store.save(meta_of(2), 0, [](const fs::path&) { throw std::bad_alloc(); }),
                    std::bad_alloc);
  BOOST_TEST((published() == std::set<std::string>{"step-1"}));
  BOOST_TEST(newest_step(dir) == 1u);
}

BOOST_AUTO_TEST_CASE(every_single_flipped_bit_is_detected) {
  Store store(dir, 2);
  save_step(store, 1);
  save_step(store, 2);
  int flips = 0;
  for (const auto& e : fs::directory_iterator(dir / "step-2")) {
    const std::string whole = read_file(e.path());
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit, ++flips) {
      std::string bad = whole;
      bad[bit / 8] ^= static_cast<char>(1 << bit % 8);
      put(e.path(), bad);
      auto found = store.newest();
      bool right = found && found->meta.step == 1 && found->skipped.size() == 1 &&
                   found->skipped[0].starts_with("step-2: ");
      if (!right) BOOST_ERROR("bit " << bit << " of " << e.path());
    }
    put(e.path(), whole);
  }
  BOOST_TEST(newest_step(dir) == 2u);
  BOOST_TEST(flips >= 2000);
  BOOST_TEST_MESSAGE("bits flipped: " << flips);
}

BOOST_AUTO_TEST_CASE(every_truncation_and_every_extension_is_detected) {
  Store store(dir, 2);
  save_step(store, 1);
  save_step(store, 2);
  for (const auto& e : fs::directory_iterator(dir / "step-2")) {
    const std::string whole = read_file(e.path());
    for (std::size_t n = 0; n <= whole.size() + 3; ++n) {
      if (n == whole.size()) continue;
      std::string bad = whole;
      bad.resize(n, '\0');
      put(e.path(), bad);
      auto found = store.newest();
      BOOST_TEST((found && found->meta.step == 1), e.path() << " of " << n << " bytes");
    }
    put(e.path(), whole);
  }
}

BOOST_AUTO_TEST_CASE(skipped_checkpoints_are_reported_with_the_reason) {
  Store store(dir, 2);
  save_step(store, 1);
  save_step(store, 2);
  const fs::path weights = dir / "step-2/weights.safetensors", manifest = dir / "step-2/manifest.json";
  const std::string w = read_file(weights), m = read_file(manifest);
  put(weights, w.substr(0, w.size() - 12));
  BOOST_TEST(only_skipped(dir) == "step-2: weights.safetensors is 12 bytes short");
  std::string bad = w;
  bad.back() ^= 1;
  put(weights, bad);
  BOOST_TEST(only_skipped(dir) ==
             "step-2: weights.safetensors does not match its hash: tensor 'model.b' is damaged");
  bad = w;
  bad[8 + 2] ^= 1;
  put(weights, bad);
  BOOST_TEST(says(only_skipped(dir), "weights.safetensors does not match its hash: "));
  put(weights, w + "1234567");
  BOOST_TEST(only_skipped(dir) == "step-2: weights.safetensors has 7 bytes too many");
  put(weights, w);
  put(dir / "step-2/notes", "some tent");
  BOOST_TEST(only_skipped(dir) == "step-2: notes does not match its hash");
  put(dir / "step-2/notes", "some text");
  fs::remove(weights);
  BOOST_TEST(says(only_skipped(dir), "no such file"));
  fs::create_directory(weights);
  BOOST_TEST(says(only_skipped(dir), "not a regular file"));
  fs::remove(weights);
  put(weights, w);
  fs::remove(manifest);
  BOOST_TEST(says(only_skipped(dir), "manifest.json"));
  put(manifest, m.substr(0, 40));
  BOOST_TEST(says(only_skipped(dir), "incomplete"));
  fs::rename(dir / "step-2", dir / "step-5");
  put(dir / "step-5/manifest.json", m);
  BOOST_TEST(says(only_skipped(dir), "its manifest belongs to step 2"));

  put(dir / "step-1/weights.safetensors", "");
  std::string all = message_of([&] { store.newest(); }, Exit::kFailed);
  BOOST_TEST(says(all, "all are damaged"));
  BOOST_TEST(says(all, "step-1: "));
  BOOST_TEST(says(all, "step-5: "));
}

BOOST_AUTO_TEST_CASE(a_manifest_of_another_format_or_with_path_names_is_rejected) {
  Store store(dir, 2);
  save_step(store, 1);
  save_step(store, 2);
  const std::string text = read_file(dir / "step-2/manifest.json");
  auto resealed = [&](const std::string& from, const std::string& to) {
    std::string body = text.substr(0, text.rfind(",\n \"seal\""));
    body.replace(body.find(from), from.size(), to);
    put(dir / "step-2/manifest.json", body + ",\n \"seal\": \"" + xxh3_hex(body) + "\"\n}\n");
    return only_skipped(dir);
  };
  BOOST_TEST(says(resealed("\"format\": 1", "\"format\": 2"), "another version"));
  for (const char* name : {"../step-1/weights.safetensors", "/etc/passwd", "..", "", "a/b"})
    BOOST_TEST(says(resealed("\"weights.safetensors\"", "\"" + std::string(name) + "\""),
                    "is not a plain file name"));
  BOOST_TEST(says(resealed("\"bytes\": ", "\"bytes\": -"), "whole number"));
  BOOST_TEST(says(resealed("\"bytes\": ", "\"bytes\": 1e"), "whole number"));
  BOOST_TEST(says(resealed("\"step\": 2", "\"step\": 99999999999999999999"), "whole number"));
  BOOST_TEST(says(resealed("\"position\": ", "\"position\": \"1\", \"position\": "), "duplicate key"));
}

BOOST_AUTO_TEST_CASE(only_one_run_can_lock_a_directory) {
  {
    DirectoryLock lock(dir);
    std::string m = message_of([&] { DirectoryLock second(dir); }, Exit::kFailed);
    BOOST_TEST(says(m, "is in use by process " + std::to_string(::getpid()) + " on "), m);
  }
  DirectoryLock free_again(dir);
}

BOOST_AUTO_TEST_CASE(a_lock_is_released_when_its_process_is_killed) {
  int status = in_child([&] {
    DirectoryLock lock(dir);
    ::kill(::getpid(), SIGKILL);
  });
  BOOST_TEST(WIFSIGNALED(status));
  DirectoryLock lock(dir);
}

BOOST_AUTO_TEST_CASE(in_a_thousand_races_exactly_one_process_gets_the_lock) {
  auto* inside = static_cast<std::atomic<int>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  BOOST_REQUIRE(inside != MAP_FAILED);
  std::atomic<int>*holds = inside + 1, *shared = inside + 2, *rejected = inside + 3;
  std::vector<pid_t> children;
  for (int c = 0; c < 4; ++c) {
    pid_t pid = ::fork();
    if (pid == 0) {
      for (int i = 0; i < 250; ++i) {
        try {
          DirectoryLock lock(dir);
          if (inside->fetch_add(1) != 0) shared->fetch_add(1);
          holds->fetch_add(1);
          std::this_thread::yield();
          inside->fetch_sub(1);
        } catch (const Error&) {
          rejected->fetch_add(1);
        }
      }
      ::_exit(0);
    }
    children.push_back(pid);
  }
  for (pid_t pid : children) ::waitpid(pid, nullptr, 0);
  BOOST_TEST(shared->load() == 0);
  BOOST_TEST(holds->load() > 0);
  BOOST_TEST(holds->load() + rejected->load() == 1000);
  ::munmap(inside, 4096);
}

BOOST_AUTO_TEST_SUITE_END()
