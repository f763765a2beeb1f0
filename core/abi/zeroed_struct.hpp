// A struct of the plugin boundary with zeros behind it: what the host hands out lies in one. A plugin that
// was built with later headers reads its newer fields as unset there, and writes its newer results where
// nobody looks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace trainhost::abi {

/// Bytes behind every struct that the host hands out; promised in status.h R1. No struct of the major grows
/// past it.
inline constexpr std::size_t kRoomBytes = 4096;

/// Zero but for struct_size, which is this build's.
template <class T>
struct Room {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0 && sizeof(T) < kRoomBytes);
  T value{};
  std::byte zeros[kRoomBytes]{};

  Room() { value.struct_size = sizeof(T); }
  explicit Room(const T& v) : value(v) { value.struct_size = sizeof(T); }
  T* get() { return &value; }
  const T* get() const { return &value; }
  T* operator->() { return &value; }
  const T* operator->() const { return &value; }
};

}  // namespace trainhost::abi
