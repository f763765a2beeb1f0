// One number for a program, and for a plan when offsets are given: estimator and trainer compare theirs.
// Covers everything that changes memory or meaning; not names of models, seeds or numbers read at run time.
#include <string_view>

#include "core/base/text.hpp"
#include "core/plan/program.hpp"

namespace trainhost::plan {
namespace {

/// Little-endian bytes of integers, hashed a chunk at a time: the same on every machine.
class Hash {
 public:
  template <class T>
  Hash& add(T value) {
    if (used_ + 8 > sizeof bytes_) flush();
    auto v = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i, v >>= 8) bytes_[used_++] = static_cast<char>(v & 0xff);
    return *this;
  }
  Hash& add(std::string_view text) {
    add(static_cast<std::uint32_t>(text.size()));
    flush();
    hash_ = fnv1a(text, hash_);
    return *this;
  }
  std::uint64_t value() {
    flush();
    return hash_;
  }

 private:
  void flush() {
    hash_ = fnv1a({bytes_, used_}, hash_);
    used_ = 0;
  }
  char bytes_[256];
  std::size_t used_ = 0;
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

void add(Hash& h, const Buffer& b) {
  h.add(std::string_view(b.role)).add(b.layer).add(b.copy);
  h.add(static_cast<std::uint8_t>(b.component)).add(static_cast<std::uint8_t>(b.tier));
  h.add(static_cast<std::uint8_t>(b.dtype)).add(static_cast<std::uint8_t>(b.storage));
  h.add(static_cast<std::uint8_t>(b.persistent)).add(b.rows).add(b.cols);
  if (b.ring > 1) h.add(b.ring).add(b.stride);
}

void add(Hash& h, const Op& o) {
  h.add(static_cast<std::uint8_t>(o.kind)).add(static_cast<std::uint8_t>(o.phase)).add(o.layer);
  h.add(static_cast<std::uint8_t>(o.flags)).add(o.rows).add(o.ins).add(o.outs);
  for (BufferId b : o.inputs()) h.add(b);
  for (BufferId b : o.outputs()) h.add(b);
}

}  // namespace

std::uint64_t digest(const Program& p, std::span<const std::uint64_t> offsets) {
  Hash h;
  h.add(p.buffers.size());
  for (const Buffer& b : p.buffers) add(h, b);
  h.add(p.ops.size());
  for (const Op& o : p.ops) add(h, o);
  for (const Section& s : p.sections) h.add(static_cast<std::uint8_t>(s.kind)).add(s.begin).add(s.end);
  h.add(offsets.size());
  for (std::uint64_t o : offsets) h.add(o);
  return h.value();
}

}  // namespace trainhost::plan
