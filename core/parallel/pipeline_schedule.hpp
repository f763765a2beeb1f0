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
  // Layers of the first and of the last stage, where they are given; 0: as many as the other stages have.
  std::uint64_t first_stage = 0, last_stage = 0;

  /// Whether every chunk has a layer, and the given layers of a stage can be divided over its chunks.
  bool layers_suffice() const {
    const std::uint64_t even = (stages - (first_stage != 0) - (last_stage != 0)) * chunks;
    const std::uint64_t given = first_stage + last_stage;
    if (stages == 1 && given != 0) return false;
    return first_stage % chunks == 0 && last_stage % chunks == 0 && given <= layers &&
           (even == 0 ? given == layers : layers - given >= even);
  }

  /// Layers of a chunk are begin .. end - 1. The first and the last stage divide their given layers evenly
  /// over their chunks. The chunks of all other stages differ by at most one layer; later ones are larger.
  std::uint64_t begin(std::uint64_t stage, std::uint64_t chunk) const {
    const std::uint64_t even_stages = stages - (first_stage != 0) - (last_stage != 0);
    const std::uint64_t before = first_stage != 0 && stage > 0;  // whether this chunk of stage 0 is before it
    const std::uint64_t even_chunks = chunk * even_stages + std::min(stage - before, even_stages);
    return chunk * (first_stage / chunks + last_stage / chunks) + before * (first_stage / chunks) +
           first_even_layer(even_chunks, even_stages * chunks);
  }
  std::uint64_t end(std::uint64_t stage, std::uint64_t chunk) const {
    return stage + 1 < stages ? begin(stage + 1, chunk) : begin(0, chunk + 1);
  }

  /// Maximum number of micro-batches whose activations of this chunk are kept for the backward pass.
  std::uint64_t in_flight(std::uint64_t stage, std::uint64_t chunk) const {
    if (chunks == 1) return std::min(stages - stage, micro_batches);
    const std::uint64_t group = std::min(stages, micro_batches);
    const std::uint64_t passes = 2 * (stages - stage - 1) + (chunks - 1) * group + 1;
    return passed(std::min(passes, micro_batches * chunks), chunk, group);
  }

 private:
  /// First layer of the n-th of `all` chunks, counted without the layers of stages whose number is given.
  std::uint64_t first_even_layer(std::uint64_t n, std::uint64_t all) const {
    if (all == 0) return 0;
    const std::uint64_t even = layers - first_stage - last_stage;
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(even) * n / all);
  }

  /// Micro-batches of this chunk among the first n chunk passes. A round runs `group` micro-batches through
  /// every chunk, one chunk after the other; the last round runs the remaining ones.
  std::uint64_t passed(std::uint64_t n, std::uint64_t chunk, std::uint64_t group) const {
    const std::uint64_t before = std::min(n / (group * chunks), micro_batches / group) * group;
    const std::uint64_t width = std::min(group, micro_batches - before), rest = n - before * chunks;
    return before + (rest > chunk * width ? std::min(rest - chunk * width, width) : 0);
  }
};

}  // namespace trainhost::parallel
