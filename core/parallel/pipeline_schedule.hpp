// Layers of a pipeline stage, and the maximum number of micro-batches in flight per chunk. 1F1B and
// interleaved 1F1B (virtual stages) with the warm-up of Narayanan et al. 2021: 2 (P - s - 1) + (v - 1) P
// chunk passes before the first backward pass, in groups of P micro-batches.
#pragma once
#include <algorithm>
#include <cstdint>

namespace trainhost::parallel {

struct Pipeline {
  std::uint64_t stages = 1, chunks = 1, micro_batches = 1;  // chunks: per stage
  std::uint64_t layers = 1;

  /// First layer of the n-th chunk of the model; chunk sizes differ by at most one layer, later ones are
  /// larger.
  std::uint64_t first(std::uint64_t n) const {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(layers) * n / (stages * chunks));
  }
  std::uint64_t begin(std::uint64_t stage, std::uint64_t chunk) const {
    return first(chunk * stages + stage);
  }
  std::uint64_t end(std::uint64_t stage, std::uint64_t chunk) const {
    return first(chunk * stages + stage + 1);
  }

  /// Maximum number of micro-batches whose activations of this chunk are kept for the backward pass.
  std::uint64_t in_flight(std::uint64_t stage, std::uint64_t chunk) const {
    if (chunks == 1) return std::min(stages - stage, micro_batches);
    const std::uint64_t group = std::min(stages, micro_batches);
    const std::uint64_t passes = 2 * (stages - stage - 1) + (chunks - 1) * group + 1;
    return passed(std::min(passes, micro_batches * chunks), chunk, group);
  }

 private:
  /// Micro-batches of this chunk among the first n chunk passes. A round runs `group` micro-batches through
  /// every chunk, one chunk after the other; the last round runs the remaining ones.
  std::uint64_t passed(std::uint64_t n, std::uint64_t chunk, std::uint64_t group) const {
    const std::uint64_t before = std::min(n / (group * chunks), micro_batches / group) * group;
    const std::uint64_t width = std::min(group, micro_batches - before), rest = n - before * chunks;
    return before + (rest > chunk * width ? std::min(rest - chunk * width, width) : 0);
  }
};

}  // namespace trainhost::parallel
