// See initial_magnitudes.hpp.
#include "core/executor/initial_magnitudes.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/model/adapters.hpp"

namespace trainhost::executor {

std::vector<float> initial_magnitudes(const step::Program& program, std::span<const TensorInfo> whole,
                                      std::size_t tensor, const ReadTensor& read, const ForEach& for_each) {
  constexpr std::uint64_t kRows = 16, kColumns = 64;  // of a task
  const TensorInfo& info = whole[tensor];
  // The matrix of a tied head is the embedding; the factors of one adapter of both are those of the
  // embedding.
  const bool of_head = info.role == TensorRole::kHead, shares_factors = of_head && ties_adapter(program.run);
  const auto index_of = [&](AdapterPart part) {
    const bool of_embedding = part == AdapterPart::kNone ? of_head && program.model.tied : shares_factors;
    const TensorRole role = of_embedding ? TensorRole::kEmbed : info.role;
    std::size_t i = 0;
    while (whole[i].role != role || whole[i].layer != info.layer || whole[i].part != part) ++i;
    return i;
  };
  const std::size_t matrix = index_of(AdapterPart::kNone);
  // Copies: under ZeRO 3 and tensor parallelism a rank has a part of them.
  const auto values_of = [&](std::size_t i) {
    std::vector<float> values(whole[i].elements());
    read(i, [&](std::uint64_t first, std::span<const float> part) {
      std::copy(part.begin(), part.end(), values.begin() + static_cast<std::ptrdiff_t>(first));
    });
    return values;
  };
  std::vector<float> a = values_of(index_of(AdapterPart::kA)), b = values_of(index_of(AdapterPart::kB));
  const AdapterBlocks adapters =
      adapter_blocks(program.model, program.run, adapter_group(info.role), info.layer);
  const std::uint64_t inputs = whole[matrix].dim[1];
  // Of the embedding the change of the table is scale * A B^T, and the norms are those of its columns.
  if (adapters.transposed || shares_factors) {
    const std::uint64_t rank = adapters.rank;
    std::vector<float> transposed(b.size());
    for (std::uint64_t o = 0; o < inputs; ++o)
      for (std::uint64_t q = 0; q < rank; ++q) transposed[q * inputs + o] = b[o * rank + q];
    b = std::move(a), a = std::move(transposed);
  }
  const AdapterProduct change{a.data(), b.data(), adapters.rank, inputs, adapters.scale};
  std::vector<double> squares(info.dim[0]);
  read(matrix, [&](std::uint64_t first, std::span<const float> values) {
    // A row is in one task, so each sum has one writer; a row of two parts is added to in their order.
    const std::uint64_t first_row = first / inputs, end = first + values.size(),
                        rows = (end + inputs - 1) / inputs - first_row;
    if (adapters.transposed)
      return for_each(
          static_cast<std::uint32_t>((inputs + kColumns - 1) / kColumns), [&](std::uint32_t task) {
            const std::uint64_t left = task * kColumns, right = std::min(inputs, left + kColumns);
            for (std::uint64_t row = first_row; row < first_row + rows; ++row) {
              const std::uint64_t begin = std::max(first, row * inputs + left),
                                  last = std::min(end, row * inputs + right);
              if (begin >= last) continue;
              change.for_elements(begin, last - begin, [&](std::uint64_t i, std::uint64_t, double product) {
                const double w = values[begin - first + i] + product;
                squares[(begin + i) % inputs] += w * w;
              });
            }
          });
    for_each(static_cast<std::uint32_t>((rows + kRows - 1) / kRows), [&](std::uint32_t task) {
      const std::uint64_t begin = std::max(first, (first_row + task * kRows) * inputs),
                          last = std::min(end, (first_row + (task + 1) * kRows) * inputs);
      change.for_elements(begin, last - begin, [&](std::uint64_t i, std::uint64_t row, double product) {
        const double w = values[begin - first + i] + product;
        squares[row] += w * w;
      });
    });
  });
  std::vector<float> magnitudes(squares.size());
  std::ranges::transform(squares, magnitudes.begin(),
                         [](double x) { return static_cast<float>(std::sqrt(x)); });
  return magnitudes;
}

}  // namespace trainhost::executor
