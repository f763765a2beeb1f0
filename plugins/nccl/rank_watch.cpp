// See rank_watch.hpp.
#include "plugins/nccl/rank_watch.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"

namespace trainhost::nccl {
namespace {

constexpr std::chrono::seconds kConnect{30}, kHello{20}, kSend{1};
constexpr int kWhileConnectingMs = 1500;
// Rank 1 reports the end of rank 0 first, if it runs: usually one message appears.
constexpr int kTurnMs = 1500;
constexpr int kForParentMs =
    200;  // that a process which has ended is looked at, before its parent waits for it

std::string host_of(const char (&name)[64]) {
  return escaped(std::string(name, ::strnlen(name, sizeof name)));
}

}  // namespace

RankWatch::RankWatch(const LaunchVariables& launch,
                     const std::function<std::string(const std::function<std::string()>&)>& of_first)
    : launch_(launch) {
  const ProcessId self = own_process();
  own_.process = self.id, own_.start = self.start, own_.rank = launch.rank;
  ::gethostname(own_.host, sizeof own_.host - 1);
  wake_ = Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::string text = of_first([&] {
    try {
      raise_limit_of_files(launch_.ranks * (launch_.launcher_has_store ? 1u : 2u), launch_.ranks);
      listener_ = listen_at(0);
      own_.port = port_of(listener_);
    } catch (const ConnectionError& e) {
      throw abi::StatusError(TH_E_UNAVAILABLE,
                             std::string("rank 0 cannot listen for the other ranks: ") + e.what());
    }
    std::random_device random;
    for (std::uint64_t& t : own_.token) t = std::uint64_t{random()} << 32 | random();
    return std::string(reinterpret_cast<const char*>(&own_), sizeof own_);
  });
  Hello first;
  if (text.size() != sizeof first)
    throw abi::StatusError(TH_E_ARG, "the processes have different versions of trainhost",
                           "start the same program on all machines");
  std::memcpy(&first, text.data(), sizeof first);
  if (launch.rank > 0) connect(first);
  if (wake_.descriptor() >= 0) thread_ = std::thread([this] { watch(); });
}

void RankWatch::connect(const Hello& first) {
  std::copy(std::begin(first.token), std::end(first.token), own_.token);
  Peer p;
  p.process = first, p.known = true;
  try {
    p.socket = connect_to(launch_.address, static_cast<std::uint16_t>(first.port), Clock::now() + kConnect);
    notice_lost_machine(p.socket);
    p.socket.send(&own_, sizeof own_, Clock::now() + kHello);
    peers_.push_back(std::move(p));
  } catch (const ConnectionError& e) {
    std::fprintf(
        stderr,
        "trainhost: rank %u on %s: port %u of %s cannot be reached: %s. If another rank is killed, this "
        "one waits for parallel.timeout\n",
        launch_.rank, host_of(own_.host).c_str(), first.port, escaped(launch_.address, 300).c_str(),
        e.what());
    std::fflush(stderr);
  }
}

RankWatch::~RankWatch() {
  send_all(Message::kLeaves);
  wake();
  if (thread_.joinable()) thread_.join();
}

void RankWatch::report_failure() {
  wake();  // what the others answer does not end this process, which has an exit code of its own
  send_all(Message::kFailed);
}

void RankWatch::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t woken = ::write(wake_.descriptor(), &one, sizeof one);
}

void RankWatch::send_all(Message m) {
  std::lock_guard lock(mutex_);
  for (Peer& p : peers_) try {
      if (p.known) p.socket.send(&m, sizeof m, Clock::now() + kSend);
    } catch (const ConnectionError&) {  // it has ended
    }
}

bool RankWatch::ends_within(int limit_ms) const {
  pollfd p{wake_.descriptor(), POLLIN, 0};
  return ::poll(&p, 1, limit_ms) > 0;
}

void RankWatch::watch() {
  std::vector<pollfd> waited;
  for (;;) {
    waited.assign({{wake_.descriptor(), POLLIN, 0}, {listener_.descriptor(), POLLIN, 0}});
    bool unknown = false;
    for (const Peer& p : peers_) {
      waited.push_back({p.socket.descriptor(), POLLIN, 0});
      unknown = unknown || !p.known;
    }
    if (::poll(waited.data(), waited.size(), unknown ? 1000 : -1) < 0) continue;
    if (waited[0].revents) return;
    std::size_t i = 2;
    for (auto p = peers_.begin(); p != peers_.end(); ++i) {
      const bool open = (!waited[i].revents || read(*p)) && (p->known || Clock::now() < p->deadline);
      if (waited[i].revents && ends_within(0)) return;
      if (open) {
        ++p;
      } else {
        std::lock_guard lock(mutex_);
        p = peers_.erase(p);
      }
    }
    if (waited[1].revents) accept_all();
  }
}

void RankWatch::accept_all() {
  while (std::optional<Socket> s = accept_from(listener_, std::chrono::milliseconds{0})) {
    notice_lost_machine(*s);
    std::lock_guard lock(mutex_);
    Peer& p = peers_.emplace_back();
    p.socket = std::move(*s), p.deadline = Clock::now() + kHello;
  }
}

/// What has arrived. False if the connection has ended; if a process has, this one ends too, unless it is
/// about to leave.
bool RankWatch::read(Peer& p) {
  char part[4096];
  const ssize_t n = ::recv(p.socket.descriptor(), part, sizeof part, 0);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (n <= 0) {
    if (p.known && !p.leaves) handle_end(p, n < 0 ? errno : 0);
    return false;
  }
  p.arrived.append(part, static_cast<std::size_t>(n));
  if (!p.known) {
    if (p.arrived.size() < sizeof p.process) return true;
    std::memcpy(&p.process, p.arrived.data(), sizeof p.process);
    if (!std::ranges::equal(p.process.token, own_.token)) return false;
    p.arrived.erase(0, sizeof p.process);
    std::lock_guard lock(mutex_);
    p.known = true;
  }
  for (const char c : std::exchange(p.arrived, {})) {
    if (c == static_cast<char>(Message::kLeaves)) p.leaves = true;
    if (c != static_cast<char>(Message::kFailed) || ends_within(0)) continue;
    send_all(Message::kFailed);
    std::_Exit(1);
  }
  return true;
}

/// "rank 3 on HOST has ended (process 1234, signal 9: Killed)"
std::string RankWatch::text_of_end(const Peer& p, int error) const {
  const std::string host = host_of(p.process.host),
                    who = "rank " + std::to_string(p.process.rank) + " on " + host;
  if (error == ETIMEDOUT) return who + " cannot be reached: its machine has not answered for 30 s";
  std::string why;
  const ProcessId process{p.process.process, p.process.start};
  if (host == host_of(own_.host))
    for (int i = 0; i < kForParentMs && why.empty() && !ends_within(1); ++i) why = reason_of_end(process);
  return who + " has ended (process " + std::to_string(p.process.process) + (why.empty() ? "" : ", " + why) +
         ")";
}

/// Of a process that has not said that it leaves.
void RankWatch::handle_end(const Peer& p, int error) {
  const std::string end = text_of_end(p, error);
  const int wait_ms = (connected_ ? 0 : kWhileConnectingMs) + (launch_.rank > 1 ? kTurnMs : 0);
  if (ends_within(wait_ms)) return;
  // If rank 1 has ended too: one rank of each machine.
  if (launch_.rank <= 1 || launch_.local_rank.value_or(0) == 0) {
    std::fprintf(stderr, "trainhost: rank %u on %s: %s\n", launch_.rank, host_of(own_.host).c_str(),
                 end.c_str());
    std::fflush(stderr);
  }
  send_all(Message::kFailed);
  std::_Exit(1);
}

}  // namespace trainhost::nccl
