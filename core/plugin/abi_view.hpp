// How much of each struct a plugin knows, by the minor that it was built with: authors write no negotiation,
// the host does it here. The table of sizes is generated from sdk/abi/v1.*.txt. Knows nothing of what the
// fields mean.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/abi/zeroed_struct.hpp"
#include "trainhost/trainhost.h"

namespace trainhost::plugin {

/// One struct of one minor, and one field of the newest.
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

// The names of the structs that are cut; another type does not compile.
template <class T>
struct AbiName;
#define TH_ABI_NAME(T)                       \
  template <>                                \
  struct AbiName<T> {                        \
    static constexpr const char* value = #T; \
  };
TH_ABI_NAME(th_config)
TH_ABI_NAME(th_counters)
TH_ABI_NAME(th_error)
TH_ABI_NAME(th_host)
TH_ABI_NAME(th_mem_sink)
TH_ABI_NAME(th_mem_summary)
TH_ABI_NAME(th_model)
TH_ABI_NAME(th_moments)
TH_ABI_NAME(th_op_sink)
TH_ABI_NAME(th_profile)
TH_ABI_NAME(th_run)
TH_ABI_NAME(th_step)
TH_ABI_NAME(th_step_out)
TH_ABI_NAME(th_tensor)
TH_ABI_NAME(th_tensor_sink)
#undef TH_ABI_NAME

class AbiView {
 public:
  /// Of a plugin that says `minor`; a later one than ours knows all that we know.
  explicit AbiView(std::uint32_t minor = TH_ABI_MINOR) : minor_(minor) {}
  std::uint32_t minor() const { return minor_; }

  /// Makes a struct of functions or of results as short as the plugin knows it.
  template <class T>
  T* fit(abi::Room<T>& r) const {
    cut(reinterpret_cast<std::byte*>(r.get()), AbiName<T>::value, sizeof(T));
    return r.get();
  }
  /// The same for what is asked of the plugin. Returns the first field that it would not see and that is set,
  /// as "th_run.tomorrow"; then the call must not be made: the answer would be to another question. "" = all
  /// is seen.
  template <class T>
  std::string fit_question(abi::Room<T>& r) const {
    return cut(reinterpret_cast<std::byte*>(r.get()), AbiName<T>::value, sizeof(T));
  }

 private:
  std::string cut(std::byte* at, const char* name, std::uint32_t whole) const;
  std::uint32_t minor_;
};

}  // namespace trainhost::plugin
