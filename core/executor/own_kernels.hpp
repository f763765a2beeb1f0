// Checks which of the twenty-one kernels a class has and which it inherits. A missing kernel, or one with
// other arguments, is a compile error that names it. Kernels inherited from ReferenceKernels are named in
// kernel_set and in the log. The compiler cannot find a misspelt kernel of a class that inherits the others:
// the class lists its kernels in own_kernels, which is compared with what it defines.
#pragma once
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/executor/reference_kernels.hpp"

namespace trainhost::executor {

/// Added when authors already had classes of kernels, whose sources go on compiling: run_lion().
constexpr bool may_lack(std::string_view kernel) { return kernel == "lion"; }

/// Compile error with the name of the first kernel that K lacks.
template <class K>
constexpr void require_kernels() {
#define TRAINHOST_REQUIRE(function, arguments, result)                                   \
  static_assert(                                                                         \
      may_lack(#function) ||                                                             \
          requires(K & k, const arguments& a) {                                          \
            { k.function(a) } -> std::same_as<result>;                                   \
          },                                                                             \
      "missing kernel: " #result " " #function "(const trainhost::executor::" #arguments \
      "&); write it, or "                                                                \
      "inherit trainhost::executor::ReferenceKernels, which has every kernel as a plain loop");
  TRAINHOST_KERNELS(TRAINHOST_REQUIRE)
#undef TRAINHOST_REQUIRE
}

/// The kernels that K inherits from ReferenceKernels, separated by spaces; "" if none.
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

/// Names of all kernels, in the order of TRAINHOST_KERNELS.
const std::vector<std::string>& kernel_names();

/// "there is no kernel 'linaer'; did you mean 'linear'?", or "" for the name of a kernel.
std::string unknown_kernel(std::string_view name);

/// What is wrong with a list of own kernels; "" if nothing is. Both lists are separated by spaces.
std::string wrong_kernel_names(std::string_view listed, std::string_view inherited);

/// The same for K::own_kernels; "" if K has no such list.
template <class K>
std::string wrong_kernel_names() {
  if constexpr (requires { std::string_view(K::own_kernels); })
    return wrong_kernel_names(K::own_kernels, inherited_kernels<K>());
  return "";
}

}  // namespace trainhost::executor
