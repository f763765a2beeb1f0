// A struct of the plugin boundary followed by zeros. The host passes its structs in this form: a plugin
// built with later headers reads its newer fields as unset, and may write its newer results into the
// padding.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace trainhost::abi {

/// Zero bytes after every struct that the host passes, as promised in status.h R1. No struct of this major
/// version may grow beyond them.
inline constexpr std::size_t kPaddingBytes = 4096;

/// All zero except struct_size, which is that of this build.
template <class T>
struct ZeroPadded {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(void*) == 0 &&
                sizeof(T) < kPaddingBytes);
  T value{};
  std::byte zeros[kPaddingBytes]{};

  ZeroPadded() { value.struct_size = sizeof(T); }
  explicit ZeroPadded(const T& v) : value(v) { value.struct_size = sizeof(T); }
  T* get() { return &value; }
  const T* get() const { return &value; }
  T* operator->() { return &value; }
  const T* operator->() const { return &value; }
};

}  // namespace trainhost::abi
