// Streaming XXH3-128, printed like xxh128sum. Detects damage, not deliberate forgery.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trainhost::checkpoint {

class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;
  void update(std::span<const std::byte> data);
  /// The hash of all data since reset(), as 32 hex digits.
  std::string hex() const;
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string xxh3_hex(std::string_view data);

}  // namespace trainhost::checkpoint
