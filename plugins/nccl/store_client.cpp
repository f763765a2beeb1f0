// See store.hpp.
#include <bit>

#include "plugins/nccl/store.hpp"

namespace trainhost::nccl {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr std::chrono::seconds kAnswer{20};
constexpr std::uint64_t kLargestValue = 1u << 26;

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string sized(const std::string& text) { return bytes_of<std::uint64_t>(text.size()) + text; }

}  // namespace

StoreClient::StoreClient(const std::string& host, std::uint16_t port, Clock::time_point deadline)
    : socket_(connect_to(host, port, deadline)) {
  send(bytes_of(StoreQuery::kValidate) + bytes_of(kStoreMagic));
}

void StoreClient::send(const std::string& message) {
  socket_.send(message.data(), message.size(), Clock::now() + kAnswer);
}

template <class T>
T StoreClient::number() {
  T out;
  socket_.receive(&out, sizeof out, Clock::now() + kAnswer);
  return out;
}

void StoreClient::set(const std::string& key, const std::string& value) {
  send(bytes_of(StoreQuery::kSet) + sized(key) + sized(value));
}

std::string StoreClient::get(const std::string& key) {
  send(bytes_of(StoreQuery::kGet) + sized(key));
  return socket_.receive_text(kLargestValue, Clock::now() + kAnswer);
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t value) {
  send(bytes_of(StoreQuery::kAdd) + sized(key) + bytes_of(value));
  return number<std::int64_t>();
}

bool StoreClient::has(const std::vector<std::string>& keys) {
  std::string message = bytes_of(StoreQuery::kCheck) + bytes_of<std::uint64_t>(keys.size());
  for (const std::string& key : keys) message += sized(key);
  send(message);
  return number<std::uint8_t>() == 0;
}

}  // namespace trainhost::nccl
