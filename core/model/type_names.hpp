// The run file's words for what the library names otherwise: number types ("fp32", "int8") and the places of
// offload
// ("none", "cpu", "nvme"). One table for both directions; which keys take which of the words is
// core/runfile's.
#pragma once
#include <optional>
#include <string_view>

#include "core/base/types.hpp"

namespace trainhost {

/// "none" for kNone; a type that no key takes by its library name.
std::string_view type_word(DType t);
std::optional<DType> type_of_word(std::string_view word);

/// "none": on the device; "cpu": in host memory, pinned or not; "nvme": on disk.
std::string_view offload_word(Tier t);
std::optional<Tier> tier_of_word(std::string_view word);

}  // namespace trainhost
