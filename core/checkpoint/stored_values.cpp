// See stored_values.hpp.
#include "core/checkpoint/stored_values.hpp"

#include <fmt/format.h>

#include <cassert>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/dtypes.hpp"

namespace trainhost::checkpoint {

std::span<const std::byte> StoredValues::of(std::string_view file, std::string_view tensor,
                                            std::uint64_t first, std::span<const float> values) {
  if (const NonFinite bad = count_nonfinite(values); bad.count > 0)
    throw run_error(
        fmt::format("{} is not written: tensor '{}' has a value that is NaN or infinite at element {}", file,
                    escaped(tensor), first + bad.first),
        "the state before is in the last checkpoint; try a smaller optimizer.lr");
  if (dtype_ == "F32") return std::as_bytes(values);
  const bool bf16 = dtype_ == "BF16";
  assert(values.size() <= kMost && (bf16 || dtype_ == "F16"));
  const std::uint16_t infinite = bf16 ? 0x7F80 : 0x7C00;
  narrow_.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    narrow_[i] = bf16 ? bf16_from_f32(values[i]) : f16_from_f32(values[i]);
    if ((narrow_[i] & 0x7FFF) == infinite)
      throw run_error(
          fmt::format("{} is not written: the value {} of tensor '{}' at element {} is too large for {}",
                      file, values[i], escaped(tensor), first + i, dtype_),
          "write the weights with output.dtype = \"bf16\" or \"fp32\"");
  }
  return std::as_bytes(std::span(narrow_));
}

}  // namespace trainhost::checkpoint
