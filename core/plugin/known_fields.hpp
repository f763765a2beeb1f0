// Copies structs that a plugin returns, limited to the fields that both sides know. Every table of a plugin
// goes through here.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {

/// Copies the fields that both sides know into a zeroed T: a longer struct is truncated, missing fields of
/// a shorter one are zero. Throws Rejection: abi/null if `from` is null, abi/truncated if it has fewer than
/// `needed` bytes.
template <class T>
T copy_known_fields(const void* from, std::size_t needed, const char* what) {
  if (!from)
    throw Rejection("abi", "null", fmt::format("its {} is null", what),
                    "return the address of a static table");
  std::uint32_t size;
  std::memcpy(&size, from, sizeof size);
  if (size < needed)
    throw Rejection("abi", "truncated",
                    fmt::format("its {} has struct_size {}; at least {} is required", what, size, needed),
                    "set struct_size to sizeof of the struct");
  T t{};
  std::memcpy(&t, from, size < sizeof(T) ? size : sizeof(T));
  t.struct_size = sizeof(T);
  return t;
}

/// The struct_size that a struct needs to contain `field`.
#define TH_SIZE_UP_TO(type, field) (offsetof(type, field) + sizeof(std::declval<type&>().field))

inline void require_slot(const void* function, const char* interface_id, const char* slot) {
  if (!function)
    throw Rejection("abi", "slot",
                    fmt::format("its {} table has no {}(), which is mandatory", interface_id, slot),
                    "set every function that the header does not mark as optional");
}

}  // namespace trainhost::plugin
