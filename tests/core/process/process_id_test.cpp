// Facts about processes that may end at any moment.
#include "core/process/process_id.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>

using namespace trainhost;

BOOST_AUTO_TEST_SUITE(process_id)

BOOST_AUTO_TEST_CASE(a_process_that_runs_is_known_by_its_start) {
  const std::optional<ProcessId> self = process_with(::getpid());
  BOOST_REQUIRE(self);
  BOOST_TEST(self->start == own_process().start);
  BOOST_TEST(!has_ended(*self));
  BOOST_TEST(reason_of_end(*self) == "");
  BOOST_TEST(file_of_process(::getpid(), "stat").find(std::to_string(::getpid())) == 0u);
}

BOOST_AUTO_TEST_CASE(a_process_that_its_parent_has_not_waited_for_has_a_reason) {
  for (const bool killed : {false, true}) {
    const pid_t child = ::fork();
    if (child == 0) {
      while (killed) ::pause();
      ::_exit(3);
    }
    const std::optional<ProcessId> p = process_with(child);
    BOOST_REQUIRE(p);
    if (killed) ::kill(child, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
    BOOST_TEST(has_ended(*p));
    BOOST_TEST(reason_of_end(*p) == (killed ? "signal 9: Killed" : "exit code 3"));
    ::waitpid(child, nullptr, 0);
    BOOST_TEST(has_ended(*p));
    BOOST_TEST(reason_of_end(*p) == "");
    BOOST_TEST(file_of_process(child, "stat") == "");
  }
}

// Reading the file of a process fails with ESRCH if it is waited for after the file was opened.
BOOST_AUTO_TEST_CASE(a_process_may_end_while_it_is_looked_at) {
  for (int i = 0; i < 300; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {  // ends its own child, and waits for it
      const pid_t inner = ::fork();
      if (inner == 0) ::_exit(0);
      ::waitpid(inner, nullptr, 0);
      ::_exit(0);
    }
    for (int look = 0; look < 60; ++look) file_of_process(child + 1, "stat"), process_with(child + 1);
    ::waitpid(child, nullptr, 0);
    BOOST_TEST(!process_with(child));
  }
}

BOOST_AUTO_TEST_SUITE_END()
