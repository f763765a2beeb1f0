// See store.hpp. A thread per connection: there are as many as ranks, for the seconds until NCCL connects
// them.
#include <system_error>

#include "plugins/nccl/store.hpp"

namespace trainhost::nccl {
namespace {

constexpr std::uint64_t kLargestText = 1u << 26, kMostKeys = 1u << 20;
constexpr std::chrono::milliseconds kLook{50};  // at ends_
constexpr std::chrono::seconds kAnswer{20};

/// Reads the rest of a message that has begun.
template <class T>
T read_number(Socket& s) {
  T out;
  s.receive(&out, sizeof out, Clock::now() + kAnswer);
  return out;
}
std::string read_text(Socket& s) {
  const auto size = read_number<std::uint64_t>(s);
  if (size > kLargestText) throw ConnectionError("the text is too long");
  std::string out(size, '\0');
  s.receive(out.data(), out.size(), Clock::now() + kAnswer);
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
  for (std::thread& t : connections_) t.join();
}

void StoreServer::wait_for_the_others(std::size_t expected, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while ((accepted_ < expected || open_ > 0) && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
}

void StoreServer::accept_connections() {
  while (!ends_)
    if (std::optional<Socket> s = accept_from(listener_, kLook)) {
      ++accepted_, ++open_;
      try {
        connections_.emplace_back([this, socket = std::move(*s)]() mutable { serve(std::move(socket)); });
      } catch (const std::system_error&) {  // no thread: the process at the other end reports it
        --open_;
      }
    }
}

void StoreServer::serve(Socket socket) {
  try {
    if (read_number<std::uint8_t>(socket) != 0 || read_number<std::uint32_t>(socket) != kStoreMagic)
      throw ConnectionError("it is not a process of this run");
    while (!ends_)
      if (is_readable(socket, kLook)) answer(socket);
  } catch (const std::exception&) {  // the other end is gone, or is something else: the connection is closed
  }
  socket = Socket();
  --open_;
}

void StoreServer::answer(Socket& socket) {
  switch (static_cast<StoreQuery>(read_number<std::uint8_t>(socket))) {
    case StoreQuery::kSet: {
      const std::string key = read_text(socket);
      std::string value = read_text(socket);
      std::lock_guard lock(mutex_);
      values_[key] = std::move(value);
      return;
    }
    case StoreQuery::kGet: {
      const std::string key = read_text(socket);
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
      const std::string key = read_text(socket);
      const auto value = read_number<std::int64_t>(socket);
      std::unique_lock lock(mutex_);
      std::string& text = values_[key];
      const std::int64_t sum = (text.empty() ? 0 : std::stoll(text)) + value;
      text = std::to_string(sum);
      lock.unlock();
      write(socket, &sum, sizeof sum);
      return;
    }
    case StoreQuery::kCheck: {
      const auto keys = read_number<std::uint64_t>(socket);
      if (keys > kMostKeys) throw ConnectionError("too many keys");
      std::uint8_t missing = 0;
      for (std::uint64_t i = 0; i < keys; ++i) {
        const std::string key = read_text(socket);
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
