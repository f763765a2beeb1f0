// What communicators share: sums and maxima of what the ranks of a run send, in the order of the ranks, so
// that the same ranks give the same bits; and the names of the operations.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/bf16.hpp"
#include "trainhost/communicator.h"
#include "trainhost/model.h"

namespace trainhost {

/// Of a th_collective_kind; null if there is no such operation.
inline const char* operation_name(std::uint32_t kind) {
  switch (kind) {
    case TH_ALL_REDUCE:
      return "all_reduce";
    case TH_REDUCE_SCATTER:
      return "reduce_scatter";
    case TH_ALL_GATHER:
      return "all_gather";
    case TH_BROADCAST:
      return "broadcast";
    default:
      return nullptr;
  }
}

inline bool is_reduced(std::uint32_t dtype) {
  return dtype == TH_DT_F32 || dtype == TH_DT_F64 || dtype == TH_DT_I32 || dtype == TH_DT_BF16;
}

/// out[i] = the sum, or maximum, of from[0][i], from[1][i], ... in this order; out may be one of them. Blocks
/// are added up in T, in a buffer that stays in the cache.
template <class T, class E, class Read, class Write>
void combine(std::span<const void* const> sources, void* to, std::uint64_t count, bool maximum, Read read,
             Write write) {
  std::vector<const E*> from;
  for (const void* p : sources) from.push_back(static_cast<const E*>(p));
  auto* out = static_cast<E*>(to);
  constexpr std::uint64_t kBlock = 1024;
  T sum[kBlock];
  for (std::uint64_t first = 0; first < count; first += kBlock) {
    const std::uint64_t n = std::min(kBlock, count - first);
    for (std::uint64_t i = 0; i < n; ++i) sum[i] = read(from[0][first + i]);
    for (std::size_t r = 1; r < from.size(); ++r) {
      const E* other = from[r] + first;
      if (maximum)
        for (std::uint64_t i = 0; i < n; ++i) sum[i] = std::max(sum[i], static_cast<T>(read(other[i])));
      else
        for (std::uint64_t i = 0; i < n; ++i) sum[i] += read(other[i]);
    }
    for (std::uint64_t i = 0; i < n; ++i) out[first + i] = write(sum[i]);
  }
}

/// dtype: TH_DT_F32, _F64, _I32, or _BF16, which is added in f32.
inline void combine_elements(std::uint32_t dtype, std::span<const void* const> from, void* out,
                             std::uint64_t count, bool maximum) {
  const auto same = [](auto x) { return x; };
  switch (dtype) {
    case TH_DT_F32:
      return combine<float, float>(from, out, count, maximum, same, same);
    case TH_DT_F64:
      return combine<double, double>(from, out, count, maximum, same, same);
    case TH_DT_I32:
      return combine<std::int32_t, std::int32_t>(from, out, count, maximum, same, same);
    default:
      return combine<float, std::uint16_t>(from, out, count, maximum, f32_from_bf16, bf16_from_f32);
  }
}

}  // namespace trainhost
