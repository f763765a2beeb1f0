// Counts every buffer that training allocates, at the one boundary through which it is allocated
// (host.alloc, host.took, and the host's own buffers). Does not know the plan: its peak is the measurement
// with which predictions are compared.
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
  /// Zero-filled memory of `bytes` at a multiple of `align` (a power of two). Blocks of 4 MiB or more use
  /// mmap with huge pages. Counts `bytes`, without padding.
  /// Returns nullptr if the system has no memory, the limit would be exceeded, or align is not a power of
  /// two up to 4 MiB.
  /// Thread-safe.
  void* alloc(std::uint64_t bytes, std::uint64_t align, Tier tier, const std::string& tag);
  void release(void* p) noexcept;
  /// Reports bytes allocated (> 0) or freed (< 0) by another allocator.
  void took(std::int64_t bytes, Tier tier, const std::string& tag);

  std::uint64_t in_use(Tier t) const;
  std::uint64_t in_use_total() const;
  std::uint64_t peak(Tier t) const;
  std::uint64_t peak_total() const;  // largest sum over all tiers at one time
  /// Sets the peaks to the bytes now in use, to measure one session after another.
  void reset_peaks();
  void set_limit(std::uint64_t bytes);

  ~Ledger();

 private:
  struct Block {
    std::uint64_t bytes, mapped;
    Tier tier;
    std::string tag;
  };  // mapped: 0 = from the heap
  void add(std::uint64_t bytes, Tier tier, const std::string& tag);
  void subtract(std::uint64_t bytes, Tier tier, const std::string& tag);
  mutable std::mutex mutex_;
  std::map<void*, Block> blocks_;
  // Invariant: the bytes of all tags of a tier sum to now_ of the tier.
  std::map<std::pair<std::string, Tier>, std::uint64_t> in_use_by_tag_;
  std::array<std::uint64_t, 5> now_{}, peak_{};
  std::uint64_t total_now_ = 0, total_peak_ = 0, limit_ = UINT64_MAX;
};

}  // namespace trainhost::plugin
