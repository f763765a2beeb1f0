// See ledger.hpp. Counts the requested bytes; pages and alignment added by the system are not counted, so
// that the numbers can be compared with a plan to the byte. Invariant, under mutex_: total_now_ is the sum of
// now_ over the tiers, and each peak is at least its current value.
#include "core/plugin/ledger.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>

namespace trainhost::plugin {
namespace {

// Blocks of 4 MiB and more are mapped, so that they can use huge pages and return to the system when freed.
constexpr std::uint64_t kLarge = 4u << 20, kHugePage = 2u << 20;

std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

/// `mapped` bytes of new zero pages at a multiple of `align`; nullptr if there is no memory. mmap aligns to
/// pages only, so `align` more bytes are reserved and the surplus on both ends is unmapped.
void* map_pages(std::uint64_t mapped, std::uint64_t align) {
  std::uint64_t reserved = mapped + align;
  void* raw = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const std::uint64_t begin = reinterpret_cast<std::uintptr_t>(raw), at = round_up(begin, align);
  if (at > begin) ::munmap(raw, at - begin);
  if (std::uint64_t tail = begin + reserved - (at + mapped))
    ::munmap(reinterpret_cast<void*>(at + mapped), tail);
  ::madvise(reinterpret_cast<void*>(at), mapped, MADV_HUGEPAGE);  // only advice; failure has no effect
  return reinterpret_cast<void*>(at);
}

/// Zeroed like mapped pages: trainers rely on zeros, and a run must not depend on the size of a buffer. At
/// least one byte, so that every block has an address of its own.
void* heap_block(std::uint64_t bytes, std::uint64_t align) {
  void* p = nullptr;
  if (::posix_memalign(&p, std::max<std::uint64_t>(align, sizeof(void*)),
                       std::max<std::uint64_t>(bytes, 1)) != 0)
    return nullptr;
  std::memset(p, 0, bytes);
  return p;
}

void free_block(void* p, std::uint64_t mapped) {
  if (mapped)
    ::munmap(p, mapped);
  else
    std::free(p);
}

std::size_t index(Tier t) { return static_cast<std::size_t>(t); }

}  // namespace

/// mutex_ is held by the caller.
void Ledger::add(std::uint64_t bytes, Tier tier, const std::string& tag) {
  now_[index(tier)] += bytes;
  peak_[index(tier)] = std::max(peak_[index(tier)], now_[index(tier)]);
  total_now_ += bytes;
  total_peak_ = std::max(total_peak_, total_now_);
  in_use_by_tag_[{tag, tier}] += bytes;
  assert(total_peak_ >= total_now_);
}

/// mutex_ is held by the caller. Limited per tag and tier: a plugin that reports more freed than allocated
/// (took() with a wrong size) must not make a count negative.
void Ledger::subtract(std::uint64_t bytes, Tier tier, const std::string& tag) {
  std::uint64_t& in_use = in_use_by_tag_[{tag, tier}];
  assert(in_use <= now_[index(tier)]);
  bytes = std::min(bytes, in_use);  // freeing more than was allocated counts as freeing all
  in_use -= bytes;
  now_[index(tier)] -= bytes;
  assert(total_now_ >= bytes);
  total_now_ -= bytes;
}

/// Called by plugins through the C interface, from any thread. nullptr means that the memory is not
/// available: no exception may cross the interface.
void* Ledger::alloc(std::uint64_t bytes, std::uint64_t align, Tier tier, const std::string& tag) {
  align = std::max<std::uint64_t>(align, 1);
  // Overflow of the rounded size is impossible below this limit.
  if ((align & (align - 1)) != 0 || align > kLarge || bytes > INT64_MAX - 2 * kLarge) return nullptr;
  std::lock_guard lock(mutex_);
  if (bytes > limit_ || total_now_ > limit_ - bytes) return nullptr;
  std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t mapped = bytes >= kLarge ? round_up(bytes, page) : 0;
  void* p = mapped ? map_pages(mapped, std::max(align, kHugePage)) : heap_block(bytes, align);
  if (!p) return nullptr;
  blocks_.emplace(p, Block{bytes, mapped, tier, tag});
  add(bytes, tier, tag);
  return p;
}

/// Pointers of another allocator are ignored: freeing them here would corrupt its heap.
void Ledger::release(void* p) noexcept {
  if (!p) return;
  std::lock_guard lock(mutex_);
  auto it = blocks_.find(p);
  if (it == blocks_.end()) return;  // not allocated here: ignore it
  subtract(it->second.bytes, it->second.tier, it->second.tag);
  free_block(p, it->second.mapped);
  blocks_.erase(it);
}

/// For memory that the plugin allocates itself, such as device memory: positive when allocated, negative when
/// freed.
void Ledger::took(std::int64_t bytes, Tier tier, const std::string& tag) {
  std::lock_guard lock(mutex_);
  if (bytes > 0 && static_cast<std::uint64_t>(bytes) > INT64_MAX - total_now_) return;  // would overflow
  if (bytes >= 0)
    add(static_cast<std::uint64_t>(bytes), tier, tag);
  else
    // 0 - x in unsigned arithmetic, because -INT64_MIN does not exist.
    subtract(0 - static_cast<std::uint64_t>(bytes), tier, tag);
}

std::uint64_t Ledger::in_use(Tier t) const {
  std::lock_guard lock(mutex_);
  return now_[index(t)];
}
std::uint64_t Ledger::peak(Tier t) const {
  std::lock_guard lock(mutex_);
  return peak_[index(t)];
}
std::uint64_t Ledger::in_use_total() const {
  std::lock_guard lock(mutex_);
  return total_now_;
}

std::uint64_t Ledger::peak_total() const {
  std::lock_guard lock(mutex_);
  return total_peak_;
}
/// A measurement that starts later, for example after loading, must not include earlier peaks.
void Ledger::reset_peaks() {
  std::lock_guard lock(mutex_);
  peak_ = now_;
  total_peak_ = total_now_;
}
void Ledger::set_limit(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

/// Buffers that a plugin forgot to free are freed here, when no code of the plugin runs any more.
Ledger::~Ledger() {
  for (auto& [p, block] : blocks_) free_block(p, block.mapped);
}

}  // namespace trainhost::plugin
