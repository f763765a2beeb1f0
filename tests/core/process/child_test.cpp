// Children that misbehave, each in one way: how it is distinguished, that the deadline holds, and that
// nothing is left.
#include "core/process/child.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <boost/test/unit_test.hpp>
#include <chrono>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "core/base/error.hpp"

using namespace trainhost;

namespace {

ChildRequest doing(const std::string& what, double seconds = 20) {
  ChildRequest r;
  r.program = MISBEHAVES;
  r.arguments = {what};
  r.limits.seconds = seconds;
  return r;
}

/// Processes of the whole machine that run the misbehaving program: by /proc, not by what run_child says.
int running_processes() {
  int n = 0;
  std::error_code failed;
  for (const auto& e : std::filesystem::directory_iterator("/proc", failed)) {
    const auto exe = std::filesystem::read_symlink(e.path() / "exe", failed);
    if (!failed && exe == MISBEHAVES) ++n;
  }
  return n;
}

/// Child processes of this process, including unreaped ones.
std::string children() {
  std::ifstream in("/proc/thread-self/children");
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string verdict(const std::string& what, double seconds = 20) {
  const ChildRequest r = doing(what, seconds);
  return describe(run_child(r), r.limits);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(child)

BOOST_AUTO_TEST_CASE(a_child_that_finishes_hands_its_record_back) {
  ChildRequest r = doing("echo");
  r.input = std::string(40'000, 'i');
  const ChildResult c = run_child(r);
  BOOST_TEST((c.end == ChildEnd::kDone));
  BOOST_TEST(c.record == "began;" + r.input + "ended;");
  BOOST_TEST(c.output == "");
  BOOST_TEST(c.left_behind == 0u);
  BOOST_TEST(run_child(doing("exit7")).code == 7);
}

BOOST_AUTO_TEST_CASE(its_limits_and_its_group_are_its_own) {
  const int leaked = ::open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  BOOST_TEST(run_child(doing("facts")).record == "began;core 0 files 1024 open 0 group ownended;");
  ::close(leaked);
}

BOOST_AUTO_TEST_CASE(each_way_to_end_is_reported_as_such) {
  BOOST_TEST(verdict("segv") == "was ended by signal 11 (SIGSEGV)");
  BOOST_TEST(verdict("bus") == "was ended by signal 7 (SIGBUS)");
  BOOST_TEST(verdict("abort") == "was ended by signal 6 (SIGABRT)");
  BOOST_TEST(verdict("exit0") == "exited with code 0 before it had finished");
  BOOST_TEST(verdict("stops") == "was stopped by signal 19 (SIGSTOP) and did not go on");
  BOOST_TEST(verdict("loop", 0.5) == "was not done after 0.5 s");
  BOOST_TEST(run_child(doing("segv")).record == "began;");  // what it said before is kept
}

BOOST_AUTO_TEST_CASE(the_deadline_ends_a_child_that_never_ends) {
  for (const char* what : {"loop", "ignores", "chatter"}) {
    const ChildResult c = run_child(doing(what, 1));
    BOOST_TEST((c.end == ChildEnd::kLate), what);
    BOOST_TEST(c.seconds >= 1.0, what);
    BOOST_TEST(c.seconds < 10, what << " took " << c.seconds << " s");  // 1.00 s on an idle machine
  }
}

BOOST_AUTO_TEST_CASE(nothing_that_it_forked_is_left) {
  for (const char* what : {"orphan", "daemon"}) {
    const ChildResult c = run_child(doing(what));
    BOOST_TEST((c.end == ChildEnd::kDone), what);
    BOOST_TEST(c.left_behind == 1u, what << " left " << c.left_behind);
    BOOST_TEST(running_processes() == 0, what);
    BOOST_TEST(children() == "", what);
  }
}

BOOST_AUTO_TEST_CASE(a_gibibyte_of_noise_is_counted_and_not_kept) {
  const ChildResult c = run_child(doing("noise", 60));
  BOOST_TEST((c.end == ChildEnd::kDone));
  BOOST_TEST(c.output_bytes == std::uint64_t{1} << 30);
  BOOST_TEST(c.output == std::string(16 * 1024, 'x'));
}

BOOST_AUTO_TEST_CASE(closed_descriptors_and_forged_frames) {
  BOOST_TEST(run_child(doing("closes")).record == "began;ended;");
  BOOST_TEST((run_child(doing("forges")).end == ChildEnd::kExited));
}

BOOST_AUTO_TEST_CASE(several_run_at_once_and_leave_each_other_alone) {
  std::vector<std::thread> threads;
  std::array<ChildResult, 8> results;
  for (std::size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&results, i] { results[i] = run_child(doing(i % 2 ? "daemon" : "echo")); });
  for (std::thread& t : threads) t.join();
  for (const ChildResult& c : results) BOOST_TEST((c.end == ChildEnd::kDone));
  BOOST_TEST(running_processes() == 0);
}

BOOST_AUTO_TEST_CASE(a_program_that_cannot_be_started_is_an_error) {
  ChildRequest r = doing("echo");
  r.program = "/nonexistent/program";
  BOOST_CHECK_EXCEPTION(run_child(r), Error, [](const Error& e) {
    return std::string(e.what()) == "cannot start /nonexistent/program: No such file or directory";
  });
  r = doing("echo");
  r.input = std::string(50'000, 'x');
  BOOST_CHECK_THROW(run_child(r), Error);
}

BOOST_AUTO_TEST_SUITE_END()
