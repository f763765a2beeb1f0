// Structs of the other side: how much of one may be read. Every table that a plugin hands over goes through
// here.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {

/// Copies the part of a foreign struct that both sides know into a zeroed T: a longer struct is cut, the
/// missing tail of a shorter one is zero. Throws Refused: abi/null when there is none, abi/truncated when it
/// has less than `needed` bytes.
template <class T>
T known_part(const void* from, std::size_t needed, const char* what) {
  if (!from)
    throw Refused("abi", "null", fmt::format("its {} is null", what),
                  "return the address of a table that is static");
  std::uint32_t size;
  std::memcpy(&size, from, sizeof size);
  if (size < needed)
    throw Refused("abi", "truncated",
                  fmt::format("its {} has struct_size {}; at least {} is needed", what, size, needed),
                  "set struct_size to sizeof the struct");
  T t{};
  std::memcpy(&t, from, size < sizeof(T) ? size : sizeof(T));
  t.struct_size = sizeof(T);
  return t;
}

/// The bytes that a struct must have for its field to be there.
#define TH_UP_TO(type, field) (offsetof(type, field) + sizeof(std::declval<type&>().field))

inline void need_slot(const void* function, const char* interface_id, const char* slot) {
  if (!function)
    throw Refused("abi", "slot",
                  fmt::format("its {} table has no {}(), which is mandatory", interface_id, slot),
                  "fill in every function that the header does not call optional");
}

}  // namespace trainhost::plugin
