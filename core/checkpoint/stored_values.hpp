// Values of a tensor as a file stores them: checked and converted. Used by tensor_files.cpp and
// model_parts.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::checkpoint {

class StoredValues {
 public:
  static constexpr std::size_t kMost = 16384;  // values of one call, unless the type is F32

  /// "F32", "BF16" or "F16".
  explicit StoredValues(std::string dtype) : dtype_(std::move(dtype)) {}
  /// The bytes of values, those of a tensor from element `first` on; valid until the next call. Throws
  /// run_error that names `file` for a value that is NaN, infinite or too large for the type.
  std::span<const std::byte> of(std::string_view file, std::string_view tensor, std::uint64_t first,
                                std::span<const float> values);
  std::size_t bytes_of_value() const { return dtype_ == "F32" ? 4 : 2; }

 private:
  const std::string dtype_;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace trainhost::checkpoint
