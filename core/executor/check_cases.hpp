// The cases of the kernel kit: for each kernel a list of shapes, odd ones above all, and how its operands are
// made. A case's body runs against the reference and against the author's kernels with the same operands.
// Part of kernel_check.hpp.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/executor/buffer_check.hpp"
#include "core/executor/reference_kernels.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::executor {

/// One of two classes of kernels, behind one type, so that the cases are compiled once.
class Calling {
 public:
  template <class K>
  explicit Calling(K& k) {
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
  std::function<void(const Calling&, CheckMemory&, const CheckCase&, const TrainerTraits&)> body;
};

/// All of them, by kernel.
std::vector<CheckCase> check_cases();

}  // namespace trainhost::executor
