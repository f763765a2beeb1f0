// Digest of a program and, if offsets are given, of its plan; estimator and trainer compare theirs. Covers
// everything that affects memory or results, but not model names, seeds and values read at run time.
#include <array>
#include <string_view>

#include "core/base/text.hpp"
#include "core/step/program.hpp"

namespace trainhost::step {
namespace {

/// FNV-1a over the little-endian bytes of integers, so the same on every machine. Most of these bytes are
/// zero: the zero bytes at the end of an integer become one multiplication by a power of the prime.
class Hash {
 public:
  template <class T>
  Hash& add(T value) {
    auto v = static_cast<std::uint64_t>(value);
    if constexpr (sizeof(T) < 8) v &= (std::uint64_t{1} << (8 * sizeof(T))) - 1;
    std::size_t left = sizeof(T);
    for (; v > 0xff; v >>= 8, --left) hash_ = (hash_ ^ (v & 0xff)) * kPrime;
    // The last byte that is not zero, and the zero bytes behind it, each of which would multiply once.
    hash_ = (hash_ ^ v) * kPowers[left];
    return *this;
  }
  Hash& add(std::string_view text) {
    // The length separates two adjacent texts.
    add(static_cast<std::uint32_t>(text.size()));
    hash_ = fnv1a(text, hash_);
    return *this;
  }
  std::uint64_t value() const { return hash_; }

 private:
  static constexpr std::uint64_t kPrime = 0x100000001b3ULL;
  static constexpr std::array<std::uint64_t, 9> kPowers = [] {
    std::array<std::uint64_t, 9> p{1};
    for (std::size_t i = 1; i < p.size(); ++i) p[i] = p[i - 1] * kPrime;
    return p;
  }();
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

// Addresses of role names differ per process; the text is hashed.
void add(Hash& h, const Buffer& b) {
  h.add(std::string_view(b.role)).add(b.layer).add(b.copy);
  h.add(static_cast<std::uint8_t>(b.component)).add(static_cast<std::uint8_t>(b.tier));
  h.add(static_cast<std::uint8_t>(b.dtype)).add(static_cast<std::uint8_t>(b.storage));
  h.add(static_cast<std::uint8_t>(b.persistent)).add(b.rows).add(b.cols);
  // Left out without a ring, so that digests of such programs do not depend on the two fields.
  if (b.ring > 1) h.add(b.ring).add(b.stride);
  if (b.whole) h.add(b.whole);  // likewise
}

void add(Hash& h, const Op& o) {
  h.add(static_cast<std::uint8_t>(o.kind)).add(static_cast<std::uint8_t>(o.phase)).add(o.layer);
  h.add(static_cast<std::uint8_t>(o.flags)).add(o.rows).add(o.ins).add(o.outs);
  if (o.flags >> 8)
    h.add(o.flags >> 8);  // left out without such flags, so that digests of such programs stay
  for (BufferId b : o.inputs()) h.add(b);
  for (BufferId b : o.outputs()) h.add(b);
}

}  // namespace

// The numbers of buffers and operations separate the lists.
std::uint64_t digest(const Program& p, std::span<const std::uint64_t> offsets) {
  Hash h;
  h.add(std::uint64_t{p.buffers.size()});
  for (const Buffer& b : p.buffers) add(h, b);
  h.add(std::uint64_t{p.ops.size()});
  for (const Op& o : p.ops) add(h, o);
  for (const Section& s : p.sections) h.add(static_cast<std::uint8_t>(s.kind)).add(s.begin).add(s.end);
  h.add(std::uint64_t{offsets.size()});
  for (std::uint64_t o : offsets) h.add(o);
  return h.value();
}

}  // namespace trainhost::step
