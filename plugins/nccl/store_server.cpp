// See store.hpp. One thread waits for all connections by poll(): there are as many as ranks. A message is
// processed when all of it has arrived, so that no connection waits for another one.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "plugins/nccl/store.hpp"

namespace trainhost::nccl {
namespace {

constexpr std::uint64_t kLargestText = 1u << 26, kMostKeys = 1u << 20, kLargestMessage = 1u << 28;
constexpr std::chrono::seconds kAnswer{
    20};  // for the rest of a message that has begun, and to read an answer
constexpr std::size_t kPart = 64 << 10;

/// Reads a message from the start of `bytes`. If more are needed it throws NeedsMore.
struct NeedsMore {
  std::size_t bytes;  // of the message, at least
};
class MessageReader {
 public:
  explicit MessageReader(const std::string& bytes) : bytes_(bytes) {}
  std::size_t position() const { return at_; }
  template <class T>
  T number() {
    T out;
    require(sizeof out);
    std::memcpy(&out, bytes_.data() + at_, sizeof out), at_ += sizeof out;
    return out;
  }
  std::string text() {
    const auto size = number<std::uint64_t>();
    if (size > kLargestText) throw ConnectionError("it sends a text that is too long");
    require(size);
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

 private:
  void require(std::uint64_t more) const {
    if (at_ + more > kLargestMessage) throw ConnectionError("it sends a message that is too long");
    if (bytes_.size() - at_ < more) throw NeedsMore{at_ + static_cast<std::size_t>(more)};
  }
  const std::string& bytes_;
  std::size_t at_ = 0;
};

template <class T>
void append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

StoreServer::StoreServer(std::uint16_t port, std::size_t connections) {
  raise_limit_of_files(connections, connections);
  listener_ = listen_at(port);
  wake_ = Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake_.descriptor() < 0) throw ConnectionError(std::strerror(errno));
  thread_ = std::thread([this] { serve(); });
}

StoreServer::~StoreServer() {
  ends_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t woken = ::write(wake_.descriptor(), &one, sizeof one);
  thread_.join();
}

void StoreServer::wait_for_the_others(std::size_t expected, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while ((known_ < expected || open_ > 0) && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
}

void StoreServer::serve() {
  std::vector<pollfd> waited;
  while (!ends_) {
    waited.assign({{listener_.descriptor(), POLLIN, 0}, {wake_.descriptor(), POLLIN, 0}});
    auto next = Clock::time_point::max();  // deadline
    for (const Connection& c : connections_) {
      const bool writes = !c.answers.empty();
      // Answers that are not read end the connection; until then it can ask nothing more.
      waited.push_back({c.socket.descriptor(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
      next = std::min(next, c.deadline);
    }
    int limit_ms = -1;
    if (next != Clock::time_point::max())
      limit_ms = static_cast<int>(std::clamp<long long>(
          std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count() + 1, 0, 60'000));
    if (::poll(waited.data(), waited.size(), limit_ms) < 0) {
      if (errno != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds{5});
      continue;
    }
    std::size_t i = 2;
    const auto now = Clock::now();
    for (auto c = connections_.begin(); c != connections_.end(); ++i) {
      try {
        if (waited[i].revents) exchange(*c, waited[i].revents);
        if (now >= c->deadline) throw ConnectionError("it does not go on");
        ++c;
      } catch (const std::exception&) {  // the other end is gone, or is something else
        close(*c);
        c = connections_.erase(c);
      }
    }
    if (waited[0].revents) accept_all();
  }
}

void StoreServer::accept_all() {
  std::optional<Socket> s = accept_from(listener_, std::chrono::milliseconds{0});
  // Without a free descriptor the listener stays readable.
  if (!s) std::this_thread::sleep_for(std::chrono::milliseconds{10});
  for (; s; s = accept_from(listener_, std::chrono::milliseconds{0})) {
    Connection& c = connections_.emplace_back();
    c.socket = std::move(*s), c.deadline = Clock::now() + kAnswer;
  }
}

void StoreServer::close(Connection& c) {
  c.socket = Socket();
  if (c.known) --open_;
}

void StoreServer::exchange(Connection& c, short events) {
  if (c.answers.empty()) {
    read(c);
    answer(c);
  } else if (events & (POLLERR | POLLHUP)) {
    throw ConnectionError("it closed the connection");
  }
  while (!c.answers.empty()) {
    const ssize_t n = ::send(c.socket.descriptor(), c.answers.data(), c.answers.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n < 0) throw ConnectionError(std::strerror(errno));
    c.answers.erase(0, static_cast<std::size_t>(n));
    c.deadline = Clock::now() + kAnswer;
    if (c.answers.empty()) answer(c);  // messages that arrived before
  }
  // Between messages a process of the run may take its time.
  if (c.answers.empty() && c.arrived.empty() && c.known) c.deadline = Clock::time_point::max();
}

/// What has arrived, a part at a time: a size that is stated takes no memory.
void StoreServer::read(Connection& c) {
  const std::size_t before = c.arrived.size();
  c.arrived.resize(before + kPart);
  const ssize_t n = ::recv(c.socket.descriptor(), c.arrived.data() + before, kPart, 0);
  c.arrived.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  if (n == 0) throw ConnectionError("it closed the connection");
  if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
    throw ConnectionError(std::strerror(errno));
  if (before == 0 && n > 0 && c.known) c.deadline = Clock::now() + kAnswer;
}

/// Processes the messages that have arrived, up to the first one with an answer.
void StoreServer::answer(Connection& c) {
  while (c.arrived.size() >= c.needed && c.answers.empty()) try {
      c.arrived.erase(0, answer_first(c));
      c.needed = 1, c.deadline = Clock::now() + kAnswer;
    } catch (const NeedsMore& more) {
      c.needed = more.bytes;
    }
}

/// Processes the first message of what has arrived. Returns its size.
std::size_t StoreServer::answer_first(Connection& c) {
  MessageReader message(c.arrived);
  const auto query = static_cast<StoreQuery>(message.number<std::uint8_t>());
  if (!c.known) {
    if (query != StoreQuery::kValidate || message.number<std::uint32_t>() != kStoreMagic)
      throw ConnectionError("it is not a process of this run");
    c.known = true, ++open_, ++known_;
    return message.position();
  }
  switch (query) {
    case StoreQuery::kSet: {
      const std::string key = message.text();
      values_[key] = message.text();
      break;
    }
    case StoreQuery::kGet: {
      const auto at = values_.find(message.text());
      if (at == values_.end()) throw ConnectionError("there is no such key");
      append<std::uint64_t>(c.answers, at->second.size());
      c.answers += at->second;
      break;
    }
    case StoreQuery::kAdd: {
      const std::string key = message.text();
      const auto value = message.number<std::int64_t>();
      std::string& text = values_[key];
      const std::uint64_t old = text.empty() ? 0 : static_cast<std::uint64_t>(std::stoll(text));
      const auto sum = static_cast<std::int64_t>(old + static_cast<std::uint64_t>(value));
      text = std::to_string(sum);
      append(c.answers, sum);
      break;
    }
    case StoreQuery::kCheck: {
      const auto keys = message.number<std::uint64_t>();
      if (keys > kMostKeys) throw ConnectionError("too many keys");
      bool missing = false;
      for (std::uint64_t i = 0; i < keys; ++i) missing |= !values_.contains(message.text());
      append<std::uint8_t>(c.answers, missing);
      break;
    }
    default:
      throw ConnectionError("unknown query");
  }
  return message.position();
}

}  // namespace trainhost::nccl
