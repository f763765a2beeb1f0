// Communicator plugins, which connect the processes of a run: MPI, NCCL. The C tables:
// trainhost/communicator.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/collectives.hpp"
#include "core/base/error.hpp"

namespace trainhost::plugin {

/// How this process was started.
struct Launch {
  std::uint32_t rank = 0, ranks = 1;              // of this process, from 0; of all
  std::uint32_t local_rank = 0, local_ranks = 0;  // among those of this machine; local_ranks 0: unknown
  std::string launcher;                           // "mpirun (Open MPI)"
};

/// The connected processes of a run. One call at a time. Throws PluginError: another rank failed, or the
/// timeout passed.
class Communicator : public Collectives {
 public:
  virtual const Launch& launch() const = 0;
  /// Ends all processes of the run with this exit code, for a failure that the other ranks cannot know of.
  [[noreturn]] virtual void abort(Exit code) = 0;
};

class CommunicatorPlugin {
 public:
  virtual ~CommunicatorPlugin() = default;
  virtual const std::string& id() const = 0;
  /// Throws PluginError ("unavailable") if this process was started by no launcher that the plugin knows.
  virtual Launch probe() = 0;
  /// Connects the processes that were started together; all of them call it. timeout_ms: 0 = none.
  virtual std::unique_ptr<Communicator> connect(std::uint64_t timeout_ms) = 0;
};

}  // namespace trainhost::plugin
