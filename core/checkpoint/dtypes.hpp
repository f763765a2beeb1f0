// Element types of a safetensors header with their width in bits. An unknown name is an error. Only the types
// of loads_as_f32() (convert_dtype.hpp) can be loaded as weights.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::checkpoint {

/// Bits per element; 0 if the format has no such type.
std::uint32_t dtype_bits(std::string_view name);

/// All type names, for messages.
const std::vector<std::string>& dtype_names();

}  // namespace trainhost::checkpoint
