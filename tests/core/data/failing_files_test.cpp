// Data files whose system calls fail, that change while they are read, or that cannot be written; and the
// kept hashes of data files.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cerrno>

#include "core/base/json_value.hpp"
#include "core/data/content_hashes.hpp"
#include "core/data/data_files.hpp"
#include "core/data/token_files.hpp"
#include "tests/core/data/data_files.hpp"
#include "tests/support/failing_calls.hpp"

using namespace trainhost;
using namespace trainhost::data;
using trainhost::test::FailingCall;
namespace fs = std::filesystem;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string whole(const InputFile& file) {
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

/// The entries of the file of hashes in `folder`.
JsonValue kept_in(const fs::path& folder) { return parse_json(read_file(folder / "content-hashes.json")); }

}  // namespace

BOOST_AUTO_TEST_SUITE(data_failing_files)

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_examined_or_opened_is_named_with_the_reason) {
  const Folder f;
  const fs::path file = f.text("a.txt", "abc");
  {
    FailingCall stat("stat", EIO);
    check_says(failure([&] { InputFile{file}; }), {"a.txt", "cannot be read: Input/output error"});
  }
  {
    FailingCall fstat("fstat", EIO);
    check_says(failure([&] { InputFile{file}; }), {"a.txt", "cannot be opened: Input/output error"});
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NOFILE, &none);
    try {
      InputFile{file};
      ::_exit(1);
    } catch (const Error& e) {
      ::_exit(std::string(e.what()).find("cannot be opened: Too many open files") != std::string::npos ? 0
                                                                                                       : 2);
    }
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  BOOST_TEST(status == 0);
}

BOOST_AUTO_TEST_CASE(a_read_that_fails_names_the_byte_and_an_interrupted_one_is_repeated) {
  const Folder f;
  const InputFile file(f.text("a.txt", "abcdef"));
  {
    FailingCall once("pread", EINTR, 1, 1);
    BOOST_TEST(whole(file) == "abcdef");
    BOOST_TEST(once.calls() == 2);
  }
  FailingCall pread("pread", EIO);
  std::byte out[2];
  check_says(failure([&] { file.read(3, out); }, Exit::kFailed), {"a.txt', byte 3: Input/output error"});
}

BOOST_AUTO_TEST_CASE(a_file_that_was_written_to_is_an_error_when_ids_are_read) {
  const Folder f;
  OpenOptions o;
  o.train = {f.text("a.txt", std::string(100, 'x'))};
  o.seq_len = 4;
  const auto later = fs::file_time_type::clock::now() + std::chrono::hours(1);
  const std::function<void()> changes[] = {
      [&] { fs::resize_file(f / "a.txt", 101), fs::last_write_time(f / "a.txt", later); },
      [&] {  // longer, with the time of before
        const auto time = fs::last_write_time(f / "a.txt");
        fs::resize_file(f / "a.txt", 102), fs::last_write_time(f / "a.txt", time);
      },
      [&] { fs::last_write_time(f / "a.txt", later + std::chrono::hours(1)); }};
  for (const auto& change : changes) {
    const Source s = open_source(o);
    std::vector<std::int32_t> ids(10);
    s.train->read(0, ids);
    change();
    check_says(failure([&] { s.train->read(0, ids); }, Exit::kFailed),
               {"a.txt", "was changed during the run"});
  }
  const InputFile file(f / "a.txt");
  FailingCall fstat("fstat", EIO);
  check_says(failure([&] { file.require_unchanged(); }, Exit::kFailed), {"a.txt", "Input/output error"});
}

BOOST_AUTO_TEST_CASE(a_moved_file_closes_its_descriptor_once) {
  const Folder f;
  InputFile a(f.text("a.txt", "abc"));
  const InputFile b(std::move(a));
  { const InputFile gone(std::move(a)); }
  BOOST_TEST(whole(b) == "abc");
}

BOOST_AUTO_TEST_CASE(a_file_above_the_limit_is_not_read) {
  const Folder f;
  f.text("a", "12345");
  BOOST_TEST(read_whole(f / "a", 5) == "12345");
  check_says(failure([&] { read_whole(f / "a", 4); }), {"/a' has 5 B; the limit is 4 B"});
}

BOOST_AUTO_TEST_CASE(an_output_that_cannot_be_written_keeps_the_old_file_and_names_the_reason) {
  const Folder f;
  f.text("x", "old");
  const std::tuple<const char*, int, const char*> calls[] = {
      {"pwrite", ENOSPC, "cannot be written: No space left on device"},
      {"fsync", EIO, "cannot be written to the disk: Input/output error"},
      {"rename", EACCES, "cannot be renamed: Permission denied"}};
  for (const auto& [call, error, message] : calls) {
    check_says(failure(
                   [&] {
                     OutputFile out(f / "x");
                     FailingCall failing(call, error);
                     out.append(bytes_of("new"));
                     out.commit();
                   },
                   Exit::kFailed),
               {"/x'", message});
    BOOST_TEST(read_file(f / "x") == "old");
    BOOST_TEST(std::distance(fs::directory_iterator(f / ""), {}) == 1);
  }
  OutputFile out(f / "x");
  FailingCall interrupted("pwrite", EINTR, 1, 1);
  out.append(bytes_of("new"));
  out.commit();
  BOOST_TEST(read_file(f / "x") == "new");
}

BOOST_AUTO_TEST_CASE(ids_that_do_not_fit_16_bits_are_not_written) {
  const Folder f;
  TokenWriter narrow(f / "n.bin", false, false), wide(f / "w.bin", true, false);
  for (std::int32_t id : {-1, 65'536, 2'000'000'000}) {
    const std::int32_t ids[] = {1, id};
    check_says(failure([&] { narrow.append(ids); }),
               {"token id " + std::to_string(id) + " does not fit uint16", "use dtype uint32"});
  }
  const std::int32_t largest[] = {0, 65'535};
  narrow.append(largest), narrow.commit();
  BOOST_TEST(fs::file_size(f / "n.bin") == 4u);
  wide.append(largest), wide.commit();
  BOOST_TEST(fs::file_size(f / "w.bin") == 8u);
}

BOOST_AUTO_TEST_CASE(a_header_counts_at_most_two_to_the_31_tokens) {
  const Folder f;
  TokenWriter writer(f / "x.bin", true, true);
  const std::vector<std::int32_t> ids(1 << 20);
  FailingCall discarded("pwrite", 0);
  for (int i = 0; i < 2048; ++i) writer.append(std::span(ids));
  check_says(failure([&] { writer.commit(); }), {"at most 2,147,483,647 tokens", "2,147,483,648"});
}

BOOST_AUTO_TEST_CASE(a_kept_hash_is_used_while_the_file_is_the_same) {
  const Folder f;
  const fs::path a = f.text("a.txt", "abc"), folder = f / "new/cache", kept = folder / "content-hashes.json";
  const std::string hash = kept_content_hash(InputFile(a), folder);
  BOOST_TEST(hash == content_hash("abc"));
  BOOST_TEST(kept_in(folder).elements.size() == 1u);
  std::string text = read_file(kept);
  const std::string other(32, '7');
  text.replace(text.find(hash), 32, other);  // shows that the kept hash is returned
  f.text("new/cache/content-hashes.json", text);
  BOOST_TEST(kept_content_hash(InputFile(a), folder) == other);
  text.replace(text.find(other), 32, "7");  // not a hash
  f.text("new/cache/content-hashes.json", text);
  BOOST_TEST(kept_content_hash(InputFile(a), folder) == hash);
  f.text("a.txt", "abd");  // the same size
  BOOST_TEST(kept_content_hash(InputFile(a), folder) == content_hash("abd"));
  BOOST_TEST(kept_in(folder).elements.size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_damaged_file_of_hashes_is_written_again) {
  const Folder f;
  const fs::path a = f.text("a.txt", "abc");
  for (const std::string& damaged : {std::string("{"), std::string("{}"), std::string("[1, {}]"),
                                     std::string("\xff"), std::string((4 << 20) + 1, ' ')}) {
    f.text("content-hashes.json", damaged);
    BOOST_TEST(kept_content_hash(InputFile(a), f / "") == content_hash("abc"));
    const JsonValue entries = kept_in(f / "");
    BOOST_REQUIRE(!entries.elements.empty());
    BOOST_TEST(entries.elements.back().text_of("hash") == content_hash("abc"));
    for (const JsonValue& e : entries.elements) BOOST_TEST(e.is_object());
  }
}

BOOST_AUTO_TEST_CASE(at_most_a_thousand_hashes_are_kept_and_a_folder_that_cannot_be_made_is_no_error) {
  const Folder f;
  std::string text = "[";
  for (int i = 0; i < 1000; ++i) text += (i ? ",{\"path\":\"" : "{\"path\":\"") + std::to_string(i) + "\"}";
  f.text("content-hashes.json", text + "]");
  const InputFile a(f.text("a.txt", "abc"));
  BOOST_TEST(kept_content_hash(a, f / "") == content_hash("abc"));
  const JsonValue entries = kept_in(f / "");
  BOOST_TEST(entries.elements.size() == 1000u);
  BOOST_TEST(entries.elements.front().text_of("path") == "1");
  BOOST_TEST(kept_content_hash(a, f / "a.txt/below") == content_hash("abc"));
}

BOOST_AUTO_TEST_CASE(a_file_that_changes_while_it_is_hashed_is_an_error) {
  const Folder f;
  const InputFile a(f.text("a.txt", "abc"));
  f.text("a.txt", "abcd");
  check_says(failure([&] { kept_content_hash(a, f / "cache"); }, Exit::kFailed),
             {"was changed during the run"});
  BOOST_TEST(!fs::exists(f / "cache"));
}

BOOST_AUTO_TEST_SUITE_END()
