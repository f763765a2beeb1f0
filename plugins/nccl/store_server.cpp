// See store.hpp. A thread per connection: there are as many as ranks, for the seconds until NCCL connects
// them.
#include <exception>

#include "plugins/nccl/store.hpp"

namespace trainhost::nccl {
namespace {

constexpr std::uint64_t kLargestText = 1u << 26, kMostKeys = 1u << 20;
constexpr std::chrono::milliseconds kLook{50};  // at ends_
constexpr std::chrono::seconds kAnswer{20};     // for the rest of a message that has begun

template <class T>
T read_number(Socket& s, Clock::time_point deadline) {
  T out;
  s.receive(&out, sizeof out, deadline);
  return out;
}
void write(Socket& s, const void* data, std::size_t bytes) { s.send(data, bytes, Clock::now() + kAnswer); }

}  // namespace

StoreServer::StoreServer(std::uint16_t port) : listener_(listen_at(port)) {
  acceptor_ = std::thread([this] { accept_connections(); });
}

StoreServer::~StoreServer() {
  ends_ = true;
  acceptor_.join();
  {
    // Their threads may wait for the rest of a message.
    std::lock_guard lock(mutex_);
    for (Connection& c : connections_) c.socket.shut_down();
  }
  for (Connection& c : connections_) c.thread.join();
}

void StoreServer::wait_for_the_others(std::size_t expected, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while ((known_ < expected || open_ > 0) && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
}

void StoreServer::accept_connections() {
  while (!ends_)
    if (std::optional<Socket> s = accept_from(listener_, kLook)) {
      connections_.push_back({std::move(*s), {}});
      Connection& c = connections_.back();
      try {
        c.thread = std::thread([this, &c] { serve(c.socket); });
      } catch (const std::exception&) {  // no thread: the process at the other end reports it
        connections_.pop_back();
      }
    }
}

void StoreServer::serve(Socket& socket) {
  bool known = false;
  try {
    const auto deadline = Clock::now() + kAnswer;
    if (read_number<std::uint8_t>(socket, deadline) != 0 ||
        read_number<std::uint32_t>(socket, deadline) != kStoreMagic)
      throw ConnectionError("it is not a process of this run");
    known = true, ++open_, ++known_;
    while (!ends_)
      if (is_readable(socket, kLook)) answer(socket, Clock::now() + kAnswer);
  } catch (const std::exception&) {  // the other end is gone, or is something else: the connection is closed
  }
  std::lock_guard lock(mutex_);
  socket = Socket();
  if (known) --open_;
}

void StoreServer::answer(Socket& socket, Clock::time_point deadline) {
  switch (static_cast<StoreQuery>(read_number<std::uint8_t>(socket, deadline))) {
    case StoreQuery::kSet: {
      const std::string key = socket.receive_text(kLargestText, deadline);
      std::string value = socket.receive_text(kLargestText, deadline);
      std::lock_guard lock(mutex_);
      values_[key] = std::move(value);
      return;
    }
    case StoreQuery::kGet: {
      const std::string key = socket.receive_text(kLargestText, deadline);
      std::unique_lock lock(mutex_);
      const auto at = values_.find(key);
      if (at == values_.end()) throw ConnectionError("there is no such key");
      const std::string value = at->second;
      lock.unlock();
      const std::uint64_t size = value.size();
      write(socket, &size, sizeof size), write(socket, value.data(), value.size());
      return;
    }
    case StoreQuery::kAdd: {
      const std::string key = socket.receive_text(kLargestText, deadline);
      const auto value = read_number<std::int64_t>(socket, deadline);
      std::unique_lock lock(mutex_);
      std::string& text = values_[key];
      const std::uint64_t old = text.empty() ? 0 : static_cast<std::uint64_t>(std::stoll(text));
      const auto sum = static_cast<std::int64_t>(old + static_cast<std::uint64_t>(value));
      text = std::to_string(sum);
      lock.unlock();
      write(socket, &sum, sizeof sum);
      return;
    }
    case StoreQuery::kCheck: {
      const auto keys = read_number<std::uint64_t>(socket, deadline);
      if (keys > kMostKeys) throw ConnectionError("too many keys");
      std::uint8_t missing = 0;
      for (std::uint64_t i = 0; i < keys; ++i) {
        const std::string key = socket.receive_text(kLargestText, deadline);
        std::lock_guard lock(mutex_);
        missing |= !values_.contains(key);
      }
      write(socket, &missing, sizeof missing);
      return;
    }
    default:
      throw ConnectionError("unknown query");
  }
}

}  // namespace trainhost::nccl
