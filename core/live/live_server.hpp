// Serves the page of runs on 127.0.0.1 while they go on: `train --live` and `watch`. See README.md.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/training/run_observer.hpp"

namespace trainhost::live {

inline constexpr std::uint16_t kDefaultPort = 7070;

class LiveServer {
 public:
  /// Serves from now on, in a thread of its own. `port`: 0 picks a free one; one that is in use is replaced
  /// by the next free one. Throws run_error if no port can be opened. `command`: shown on the page.
  LiveServer(std::uint16_t port, std::string command);
  /// Sends the last state to the readers, within half a second, and ends the thread.
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;

  /// Adds the run in this folder to the page. From any thread.
  void show(const std::filesystem::path& folder);
  std::uint16_t port() const;
  /// "http://127.0.0.1:7070/"
  std::string url() const;

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

/// Serves one run from its start to its end.
class LiveObserver final : public training::ForwardingObserver {
 public:
  /// Reports the address, or why there is no page; training goes on without it.
  LiveObserver(std::uint16_t port, const std::string& command, training::RunObserver& next);
  void begun(const std::filesystem::path& folder, bool resumed) override;
  void ended() override;

 private:
  std::unique_ptr<LiveServer> server_;
};

}  // namespace trainhost::live
