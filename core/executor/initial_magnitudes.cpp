// The magnitudes with which DoRA starts: the norms of the rows of W + scale * B A, so that an adapter whose B
// is 0 has no effect. W is that of which the run computes, in NF4 with its dequantized values.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/executor/run_tensors.hpp"
#include "core/model/adapters.hpp"

namespace trainhost::executor {

void Tensors::init_magnitudes(std::size_t tensor) {
  const std::vector<TensorInfo>& infos = whole_;
  const TensorInfo& info = infos[tensor];
  const auto index_of = [&](AdapterPart part) {
    std::size_t i = 0;
    while (infos[i].role != info.role || infos[i].layer != info.layer || infos[i].part != part) ++i;
    return i;
  };
  const std::size_t matrix = index_of(AdapterPart::kNone);
  // Copies: under ZeRO 3 and tensor parallelism this rank has a part of them.
  const auto values_of = [&](std::size_t i) {
    std::vector<float> values(infos[i].elements());
    read_weight(i, [&](std::uint64_t first, std::span<const float> part) {
      std::copy(part.begin(), part.end(), values.begin() + static_cast<std::ptrdiff_t>(first));
    });
    return values;
  };
  const std::vector<float> a = values_of(index_of(AdapterPart::kA)), b = values_of(index_of(AdapterPart::kB));
  const AdapterBlocks adapters =
      adapter_blocks(program_.model, program_.run, adapter_group(info.role), info.layer);
  const AdapterProduct change{a.data(), b.data(), adapters.rank, infos[matrix].dim[1], adapters.scale};
  std::vector<double> squares(info.dim[0]);
  const auto add = [&](std::uint64_t first, std::span<const float> values) {
    change.for_elements(first, values.size(), [&](std::uint64_t i, std::uint64_t row, double product) {
      const double w = values[i] + product;
      squares[row] += w * w;
    });
  };
  read_weight(matrix, add);
  const TensorPart here = part_of(info);
  std::vector<float> magnitudes(here.part_rows);
  for (std::size_t r = 0; r < magnitudes.size(); ++r)
    magnitudes[r] = static_cast<float>(std::sqrt(squares[here.first_row + r]));
  store_weight(tensor, 0, magnitudes);
}

}  // namespace trainhost::executor
