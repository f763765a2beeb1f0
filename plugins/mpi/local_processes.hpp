// Whether the other ranks on this machine still run. MPI does not report a process that was killed: its
// launcher ends the others, if it does not hang itself.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace trainhost::mpi {

/// A process of this machine. The time of its start tells it from another process with its number.
struct Process {
  std::uint32_t rank = 0;
  std::int32_t id = 0;
  std::uint64_t start = 0;  // in ticks since the machine started; 0: unknown
};

/// This process.
Process own_process(std::uint32_t rank);
/// True if the process has ended; a zombie, which its parent has not waited for, has ended too.
bool has_ended(const Process& p);

/// Ranks of this machine that have said which process they are.
class LocalRanks {
 public:
  /// Leaves out processes that are not seen from here: those of other containers.
  void set(std::uint32_t own, const std::vector<Process>& all);
  /// One that has ended.
  std::optional<Process> ended() const;

 private:
  std::vector<Process> others_;
};

/// Before the ranks have said who they are: the processes that the launcher has started on this machine,
/// which are children of its process.
class StartedProcesses {
 public:
  /// expected: ranks on this machine; 0: unknown.
  explicit StartedProcesses(std::uint32_t expected);
  /// True if all of them were running when this function was called before, and one has ended. False if they
  /// are not children of one process, as behind a script.
  bool has_lost_one();

 private:
  std::int32_t parent_;
  std::uint32_t expected_;
  bool complete_ = false;  // all were running once
};

}  // namespace trainhost::mpi
