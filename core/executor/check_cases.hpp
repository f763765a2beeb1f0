// The cases of kernel_check.hpp: for each kernel a list of shapes, most of them odd, and a function that
// creates the operands and calls the kernel. It runs with the reference and with the tested kernels on equal
// operands.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/executor/buffer_check.hpp"
#include "core/executor/reference_kernels.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::executor {

/// Type-erased class of kernels, so that the cases are compiled once.
class AnyKernels {
 public:
  template <class K>
  explicit AnyKernels(K& k) {
#define TRAINHOST_BIND(name, arguments, result) \
  name = [&k](const arguments& a) -> result { return k.name(a); };
    TRAINHOST_KERNELS(TRAINHOST_BIND)
#undef TRAINHOST_BIND
  }
#define TRAINHOST_HOLD(name, arguments, result) std::function<result(const arguments&)> name;
  TRAINHOST_KERNELS(TRAINHOST_HOLD)
#undef TRAINHOST_HOLD
};

struct CheckCase {
  std::string kernel, shape;  // "linear", "33 rows, 97 x 128, bias"
  ModelSpec model;            // one that has this shape somewhere: what traits() and Setup see
  RunSpec run;
  std::function<void(const AnyKernels&, CheckMemory&, const CheckCase&, const TrainerTraits&)> body;
};

/// All cases, grouped by kernel.
std::vector<CheckCase> check_cases();

}  // namespace trainhost::executor
