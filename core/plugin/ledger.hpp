// Counts every buffer that training really takes, at the one boundary through which it is taken (host.alloc,
// host.took, and the host's own buffers). Knows nothing of any plan: its peak is the measurement that
// predictions are held against.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "core/base/types.hpp"

namespace trainhost::plugin {

class Ledger {
 public:
  /// Zero-filled memory of `bytes`, aligned (power of two; large blocks come by mmap with huge pages
  /// advised). Counted: `bytes`, whatever pages and alignment add.
  /// nullptr when the system has none, `limit` would be passed, or align is no power of two up to 4 MiB.
  /// Thread-safe.
  void* alloc(std::uint64_t bytes, std::uint64_t align, Tier tier, const std::string& tag);
  void release(void* p) noexcept;
  /// Bytes taken (> 0) or given back (< 0) by somebody's own allocator.
  void took(std::int64_t bytes, Tier tier, const std::string& tag);

  std::uint64_t now(Tier t) const;
  std::uint64_t now_total() const;
  std::uint64_t peak(Tier t) const;
  std::uint64_t peak_total() const;  // most bytes over all tiers at one moment
  /// Peaks count from now on, beginning with what is held: for measuring one session after another.
  void restart_peaks();
  void set_limit(std::uint64_t bytes);

  struct Entry {
    std::string tag;
    Tier tier;
    std::uint64_t now = 0, peak = 0;
  };
  std::map<std::string, Entry> by_tag() const;
  ~Ledger();

 private:
  struct Block {
    std::uint64_t bytes, mapped;
    Tier tier;
    std::string tag;
  };  // mapped: 0 = from the heap
  void add(std::uint64_t bytes, Tier tier, const std::string& tag);
  void subtract(std::uint64_t bytes, Tier tier, const std::string& tag);
  Entry& entry(Tier tier, const std::string& tag);
  mutable std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::map<std::string, Entry> tags_;
  std::array<std::uint64_t, 5> now_{}, peak_{};
  std::uint64_t total_now_ = 0, total_peak_ = 0, limit_ = UINT64_MAX;
};

}  // namespace trainhost::plugin
