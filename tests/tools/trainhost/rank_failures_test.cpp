// Failures of a run of several processes under mpirun: one is killed, hangs, cannot write or gets a signal.
// All end, one message names the rank, and the last checkpoint is intact. What such runs compute:
// ranks_test.cpp.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/support/mpirun.hpp"
#include "tests/support/small_run.hpp"

using namespace trainhost::test;
namespace fs = std::filesystem;
using json = nlohmann::json;

namespace {

std::vector<fs::path> processes_with(const std::string& text) {
  std::vector<fs::path> found;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator("/proc", ec))
    if (has(read_file(e.path() / "cmdline"), text)) found.push_back(e.path());
  return found;
}

BOOST_AUTO_TEST_SUITE(rank_failures, *boost::unit_test::precondition(has_mpirun))

/// Starts a long run of 3 ranks and sends `signal` to one of them after some steps. Returns the outcome and
/// the seconds from the signal to the end.
std::pair<Outcome, double> disturb(const fs::path& dir, int signal, const std::vector<std::string>& more) {
  RunOptions o = under_mpirun(3);
  std::vector<std::string> sets = {"output.checkpoint_every=20", "parallel.zero=1"};
  sets.insert(sets.end(), more.begin(), more.end());
  std::vector<std::string> words = small_run(dir, 1000000, sets);
  words[1] = "--json";
  std::chrono::steady_clock::time_point sent;
  pid_t victim = 0;
  o.watch = [&](pid_t, const std::string& out) {
    if (victim || !has(out, "\"step\":40,")) return;
    for (const fs::path& p : processes_with(dir.string()))
      if (has(read_file(p / "environ"), std::string("OMPI_COMM_WORLD_RANK=1") + '\0'))
        victim = std::stoi(p.filename());
    if (victim) ::kill(victim, signal), sent = std::chrono::steady_clock::now();
  };
  Outcome r = run_program(words, o);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - sent).count();
  if (victim) ::kill(victim, SIGKILL);
  BOOST_REQUIRE(victim);
  return {std::move(r), seconds};
}

void intact_and_gone(const fs::path& dir) {
  for (int i = 0; i < 50 && !processes_with(dir.string()).empty(); ++i) ::usleep(100000);
  BOOST_TEST(processes_with(dir.string()).empty());
  const Outcome r =
      run_program(small_run(dir, 1000000, {"output.checkpoint_every=20", "--resume=auto", "--steps=61"}));
  BOOST_TEST(r.code == 0, r.err);
}

BOOST_AUTO_TEST_CASE(a_killed_process_ends_the_others_and_the_checkpoint_is_intact) {
  const TemporaryDirectory tmp;
  const auto [r, seconds] = disturb(tmp / "run", SIGKILL, {});
  BOOST_TEST(r.code != 0);
  BOOST_TEST(seconds < 10);
  BOOST_TEST(has(r.err, "rank 1"), r.err);
  intact_and_gone(tmp / "run");
}

/// Rank 0 is a script, which ends while rank 1 waits for it in MPI_Init_thread().
Outcome rank_beside(const char* script, const fs::path& dir) {
  RunOptions o = under_mpirun(1);
  *std::ranges::find(o.launcher, "0") = "2";  // seconds between SIGTERM and SIGKILL
  o.launcher.insert(o.launcher.end(), {"sh", "-c", script, ":", "-n", "1"});
  return run_program(small_run(dir, 2), o);
}

// Open MPI 4.1 then says only that "1 process returned a non-zero exit code", if it says anything.
BOOST_AUTO_TEST_CASE(a_process_that_ends_before_the_ranks_are_connected_is_named) {
  const TemporaryDirectory tmp;
  for (const char* script : {"sleep 1; kill -9 $$", "sleep 1"}) {
    const Outcome r = rank_beside(script, tmp / "run");
    BOOST_TEST(r.code != 0, script);
    BOOST_TEST(r.seconds < 20);
    BOOST_TEST(has(r.err, "trainhost: rank 1 on "), r.err);
    BOOST_TEST(has(r.err, "rank 0 on this machine has ended"), r.err);
    BOOST_TEST(!fs::exists(tmp / "run"));
  }
}

// Every rank keeps the whole state; still none saves it after the failure, which may have come in the middle
// of a step.
BOOST_AUTO_TEST_CASE(a_process_that_hangs_is_named_after_the_timeout) {
  const TemporaryDirectory tmp;
  const auto [r, seconds] = disturb(tmp / "run", SIGSTOP, {"parallel.timeout=5", "parallel.zero=0"});
  for (const auto& e : fs::directory_iterator(tmp / "run/checkpoints"))
    if (const std::string name = e.path().filename(); name.starts_with("step-"))
      BOOST_TEST((name.find('.') != name.npos || std::stoi(name.substr(5)) % 20 == 0), name);
  BOOST_TEST(r.code != 0);
  BOOST_TEST(seconds < 15);
  BOOST_TEST(has(r.err, "waited 5 s in"), r.err);
  BOOST_TEST(has(r.err, "for rank 1"), r.err);
  intact_and_gone(tmp / "run");
}

/// The write calls of a rank to its files of a checkpoint end with `action` (tools/fault_tests/inject.c).
RunOptions with_failing_writes(int ranks, int rank, const std::string& action) {
  RunOptions o = under_mpirun(ranks);
  const std::string script =
      "if [ $OMPI_COMM_WORLD_RANK = " + std::to_string(rank) +
      " ]; then export ASAN_OPTIONS=verify_asan_link_order=0 FAULT_NAMES=pwrite FAULT_PATH=-rank-" +
      std::to_string(rank) + "-of- FAULT_CALL=2 FAULT_FROM=1 FAULT_ACTION=" + action +
      " LD_PRELOAD=" TRAINHOST_BINARY_DIR "/lib/fault_injection.so; fi; exec \"$@\"";
  o.launcher.insert(o.launcher.end(), {"sh", "-c", script, "sh"});
  return o;
}

struct Failure {
  int rank;
  const char *action, *background, *says;
};
std::ostream& operator<<(std::ostream& o, const Failure& f) {
  return o << f.rank << ' ' << f.action << ' ' << f.background;
}

// ENOSPC, and a process that ends in the middle of a write.
BOOST_DATA_TEST_CASE(a_process_that_cannot_write_its_part_leaves_the_checkpoint_before,
                     boost::unit_test::data::make(std::vector<Failure>{
                         {0, "28", "false", "weights-rank-0-of-3.safetensors: No space left on device"},
                         {1, "28", "false", "weights-rank-1-of-3.safetensors: No space left on device"},
                         {1, "28", "true", "weights-rank-1-of-3.safetensors: No space left on device"},
                         {1, "half", "false", "rank 1"}}),
                     f) {
  const TemporaryDirectory tmp;
  const std::vector<std::string> sets = {"parallel.zero=1", "output.checkpoint_every=4",
                                         std::string("output.async_checkpoints=") + f.background,
                                         "optimizer.schedule=\"constant\""};
  const auto run = [&](int steps, const RunOptions& o, bool resumes) {
    std::vector<std::string> more = sets;
    if (resumes) more.push_back("--resume");
    return run_program(small_run(tmp / "run", steps, more), o);
  };
  BOOST_REQUIRE(run(4, under_mpirun(3), false).code == 0);
  const json memory = summary_of(tmp / "run")["memory"];
  BOOST_TEST(memory["predicted_bytes"] == memory["measured_bytes"]);  // with the copy of the own part
  const Outcome r = run(40, with_failing_writes(3, f.rank, f.action), true);
  BOOST_TEST(r.code != 0, r.err);
  BOOST_TEST(r.seconds < 60);
  BOOST_TEST(has(r.err, f.says), r.err);
  if (*f.action == '2') {
    BOOST_TEST(count(r.err, "trainhost: ") == 1u, r.err);
    BOOST_TEST(has(r.err, "trainhost: rank " + std::to_string(f.rank) + " on "), r.err);
    BOOST_TEST(std::distance(fs::directory_iterator(tmp / "run/checkpoints"), {}) == 2);  // step-4, latest
  }
  const Outcome again = run(8, under_mpirun(2), true);
  BOOST_TEST(again.code == 0, again.err);
  BOOST_TEST(steps_of(tmp / "run").size() == 8u);
}

// Weight decay multiplies the weights by -99 in each step, until they overflow.
BOOST_AUTO_TEST_CASE(a_failure_of_all_processes_is_one_message) {
  const TemporaryDirectory tmp;
  const Outcome r = run_program(
      small_run(tmp / "run", 200, {"optimizer.lr=100", "optimizer.weight_decay=1", "parallel.zero=1"}),
      under_mpirun(3));
  BOOST_TEST(r.code == 1, r.err);
  BOOST_TEST(r.err.find("trainhost: ") == r.err.rfind("trainhost: "), r.err);
  BOOST_TEST(has(r.err, "trainhost: step "), r.err);
}

BOOST_AUTO_TEST_CASE(a_signal_stops_all_processes_after_the_same_step) {
  const TemporaryDirectory tmp;
  const auto [r, seconds] = disturb(tmp / "run", SIGTERM, {});
  BOOST_TEST(seconds < 10);
  BOOST_TEST(has(r.err, "stopped by SIGTERM"), r.err);
  intact_and_gone(tmp / "run");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
