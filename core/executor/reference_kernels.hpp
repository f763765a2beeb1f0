// Every kernel as the most obvious loop, with sums in double: what an author begins with and replaces one by
// one, and what kernel_check.hpp holds kernels against. Nothing here is fast. The functions are not virtual:
// a class that inherits this one hides those that it writes itself. Shapes and meanings: kernels.hpp.
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
