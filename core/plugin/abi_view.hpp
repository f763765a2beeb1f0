// The size of each struct as a plugin of a given minor version knows it. The host negotiates versions here,
// so plugin authors write no code for it. The table of sizes is generated from sdk/abi/v1.*.txt. The meaning
// of fields is not known here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/abi/zero_padded.hpp"
#include "trainhost/trainhost.h"

namespace trainhost::plugin {

/// The size of one struct in one minor version, and one field of the newest version.
struct AbiStruct {
  std::uint32_t minor, size;
  const char* name;
};
struct AbiField {
  std::uint32_t offset, size;
  const char *of, *name;
};
extern const std::span<const AbiStruct> kAbiStructs;
extern const std::span<const AbiField> kAbiFields;

// Names of the structs that can be shrunk; any other type does not compile.
template <class T>
struct AbiName;
#define TH_ABI_NAME(T)                       \
  template <>                                \
  struct AbiName<T> {                        \
    static constexpr const char* value = #T; \
  };
TH_ABI_NAME(th_collective)
TH_ABI_NAME(th_config)
TH_ABI_NAME(th_counters)
TH_ABI_NAME(th_error)
TH_ABI_NAME(th_host)
TH_ABI_NAME(th_launch)
TH_ABI_NAME(th_mem_sink)
TH_ABI_NAME(th_mem_summary)
TH_ABI_NAME(th_model)
TH_ABI_NAME(th_moments)
TH_ABI_NAME(th_op_sink)
TH_ABI_NAME(th_profile)
TH_ABI_NAME(th_ranks)
TH_ABI_NAME(th_run)
TH_ABI_NAME(th_step)
TH_ABI_NAME(th_step_out)
TH_ABI_NAME(th_tensor)
TH_ABI_NAME(th_tensor_sink)
#undef TH_ABI_NAME

class AbiView {
 public:
  /// For a plugin built with `minor`; a newer minor than ours knows all of our fields.
  explicit AbiView(std::uint32_t minor = TH_ABI_MINOR) : minor_(minor) {}
  std::uint32_t minor() const { return minor_; }

  /// Shrinks a table of functions or a result struct to the size that the plugin knows.
  template <class T>
  T* shrink(abi::ZeroPadded<T>& r) const {
    shrink_bytes(reinterpret_cast<std::byte*>(r.get()), AbiName<T>::value, sizeof(T));
    return r.get();
  }
  /// The same for an argument. Returns the first field that is set but that the plugin does not know, as
  /// "th_run.tomorrow"; then the call must not be made, because the plugin would ignore that field. "" =
  /// the plugin sees all fields that are set.
  template <class T>
  std::string shrink_argument(abi::ZeroPadded<T>& r) const {
    return shrink_bytes(reinterpret_cast<std::byte*>(r.get()), AbiName<T>::value, sizeof(T));
  }

 private:
  std::string shrink_bytes(std::byte* at, const char* name, std::uint32_t whole) const;
  std::uint32_t minor_;
};

}  // namespace trainhost::plugin
