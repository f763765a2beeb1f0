// Every kernel as a plain loop, with sums in double: the start of a new trainer, and the reference of
// kernel_check.hpp. Slow. The functions are not virtual: a class that inherits this one hides the kernels
// that it defines. Shapes and meanings: kernels.hpp.
#pragma once
#include "core/executor/kernels.hpp"

namespace trainhost::executor {

class ReferenceKernels {
 public:
#define TRAINHOST_DECLARE(function, arguments, result) result function(const arguments& a);
  TRAINHOST_KERNELS(TRAINHOST_DECLARE)
#undef TRAINHOST_DECLARE
};

/// The kernel lion of a class, or the reference kernel for a class whose source is older than lion.
template <class K>
void run_lion(K& k, const Lion& a) {
  if constexpr (requires { k.lion(a); })
    k.lion(a);
  else
    ReferenceKernels().lion(a);
}

}  // namespace trainhost::executor
