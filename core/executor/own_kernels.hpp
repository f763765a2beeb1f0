// Which of the twenty kernels a class has, and which of them are its own. A kernel that is missing or has
// other arguments is a sentence of the compiler; one that is inherited from ReferenceKernels is named in
// kernel_set and in the log, because a misspelt kernel would otherwise train slowly and in silence.
#pragma once
#include <concepts>
#include <string>
#include <type_traits>

#include "core/executor/reference_kernels.hpp"

namespace trainhost::executor {

/// Fails to compile with the name of the first kernel that K lacks.
template <class K>
constexpr void require_kernels() {
#define TRAINHOST_REQUIRE(function, arguments, result)                                     \
  static_assert(                                                                           \
      requires(K & k, const arguments& a) {                                                \
        { k.function(a) } -> std::same_as<result>;                                         \
      },                                                                                   \
      "the kernels lack  " #result " " #function "(const trainhost::executor::" #arguments \
      "&):  write it, or "                                                                 \
      "inherit trainhost::executor::ReferenceKernels, which has every kernel as a plain loop");
  TRAINHOST_KERNELS(TRAINHOST_REQUIRE)
#undef TRAINHOST_REQUIRE
}

/// The kernels that K leaves to ReferenceKernels, separated by spaces; "" when all are its own.
template <class K>
std::string inherited_kernels() {
  std::string names;
  if constexpr (std::is_base_of_v<ReferenceKernels, K>) {
#define TRAINHOST_INHERITED(function, arguments, result)                                                  \
  if constexpr (std::is_same_v<K, ReferenceKernels> || requires {                                         \
                  requires std::is_same_v<decltype(&K::function), decltype(&ReferenceKernels::function)>; \
                })                                                                                        \
    names.append(names.empty() ? "" : " ").append(#function);
    TRAINHOST_KERNELS(TRAINHOST_INHERITED)
#undef TRAINHOST_INHERITED
  }
  return names;
}

}  // namespace trainhost::executor
