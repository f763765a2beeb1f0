// Watches the processes that a launcher has started on this machine, as long as they are not connected. The
// launcher ends the others when one ends, but does not always say which one it was; or it hangs.
#pragma once
#include <cstdint>
#include <string>

namespace trainhost {

/// When another process of the launch has ended, and the launcher ends this one (SIGTERM) or does not for
/// some seconds: prints its rank, if this is the lowest rank that still runs, and ends this process. One
/// object at a time.
class LaunchWatch {
 public:
  /// variable: of the environment, with the rank of each process: "OMPI_COMM_WORLD_RANK".
  /// all_here: whether all ranks are on this machine.
  LaunchWatch(std::string variable, std::uint32_t rank, bool all_here);
  /// The previous handler of SIGTERM is restored.
  ~LaunchWatch();
  LaunchWatch(const LaunchWatch&) = delete;

 private:
  struct State;
  State* state_;
};

}  // namespace trainhost
