// Runs programs as several processes of mpirun. Tests that need it are skipped by name where it is missing.
#pragma once
#include <boost/test/unit_test.hpp>

#include <unistd.h>

#include "tests/support/process.hpp"

namespace trainhost::test {

/// A precondition of a test: the plugin of MPI was built, and its launcher is there.
inline boost::test_tools::assertion_result has_mpirun(boost::unit_test::test_unit_id) {
  static const bool found = std::filesystem::exists(TRAINHOST_BINARY_DIR "/lib/trainhost/plugins/mpi.so") &&
                            std::system("command -v mpirun >/dev/null 2>&1") == 0;
  boost::test_tools::assertion_result result(found);
  if (!found) result.message() << "skipped: no MPI";
  return result;
}

/// Options of run_program() that start it `ranks` times. More processes than processors are allowed. They are
/// not bound to processors: beside another test, a rank that cannot move waits for its processor in every
/// collective, and two ranks took 44 s instead of 2. After a rank has failed, Open MPI waits a second between
/// SIGTERM and SIGKILL for the others, which here have ended.
inline RunOptions under_mpirun(int ranks) {
  RunOptions o;
  o.launcher = {
      "mpirun", "--oversubscribe",    "--bind-to", "none", "--mca", "odls_base_sigkill_timeout", "0",
      "-n",     std::to_string(ranks)};
  if (::geteuid() == 0) o.launcher.insert(o.launcher.begin() + 1, "--allow-run-as-root");
  return o;
}

/// The same for MPICH, beside another MPI: the engine was built, and its launcher is there.
inline boost::test_tools::assertion_result has_mpich(boost::unit_test::test_unit_id) {
  static const bool found =
      std::filesystem::exists(TRAINHOST_BINARY_DIR "/lib/trainhost/engines/mpi-mpich.so") &&
      std::system("command -v mpiexec.mpich >/dev/null 2>&1") == 0;
  boost::test_tools::assertion_result result(found);
  if (!found) result.message() << "skipped: no MPICH";
  return result;
}
inline RunOptions under_mpich(int ranks) {
  RunOptions o;
  o.launcher = {"mpiexec.mpich", "-n", std::to_string(ranks)};
  return o;
}

/// How often `part` occurs in `text`.
inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
  return n;
}

}  // namespace trainhost::test
