// The element types a safetensors header may name, with their width in bits. An unknown name is an error,
// never guessed at; only the floating types of f32_from() in convert_dtype.hpp can be loaded as weights.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::checkpoint {

/// Bits an element; 0 = not a type of the format.
std::uint32_t dtype_bits(std::string_view name);

/// All names, for messages.
const std::vector<std::string>& dtype_names();

}  // namespace trainhost::checkpoint
