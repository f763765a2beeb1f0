// How far a long phase of a start is: reading, tokenizing, loading. Reported by what reads, shown by
// core/report.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

namespace trainhost {

/// `what` names the phase for people: "tokenizing big.txt". A phase begins with its first call and ends when
/// `done_bytes` is `total_bytes`, or with a call of another phase. Called often: for every piece that is
/// read.
using PhaseSink =
    std::function<void(std::string_view what, std::uint64_t done_bytes, std::uint64_t total_bytes)>;

/// Receives the number of bytes of a file that were read so far. May throw, which ends the reading.
using OnRead = std::function<void(std::uint64_t bytes)>;

}  // namespace trainhost
