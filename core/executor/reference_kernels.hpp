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

}  // namespace trainhost::executor
