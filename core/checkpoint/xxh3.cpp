// Streaming XXH3-128; see xxh3.hpp.
#include "core/checkpoint/xxh3.hpp"

#include <array>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace trainhost::checkpoint {
namespace {

std::string to_hex(XXH128_hash_t h) {
  XXH128_canonical_t c;
  XXH128_canonicalFromHash(&c, h);
  std::string s;
  for (unsigned char b : c.digest) {
    s += "0123456789abcdef"[b >> 4];
    s += "0123456789abcdef"[b & 15];
  }
  return s;
}

}  // namespace

struct Xxh3::State {
  XXH3_state_t xxh;  // needs 64-byte alignment, which its type declares and new honours
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) { reset(); }
Xxh3::~Xxh3() = default;
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;

void Xxh3::reset() { XXH3_128bits_reset(&state_->xxh); }
void Xxh3::update(std::span<const std::byte> data) {
  XXH3_128bits_update(&state_->xxh, data.data(), data.size());
}
std::string Xxh3::hex() const { return to_hex(XXH3_128bits_digest(&state_->xxh)); }

std::string xxh3_hex(std::string_view data) { return to_hex(XXH3_128bits(data.data(), data.size())); }

}  // namespace trainhost::checkpoint
