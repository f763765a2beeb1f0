// The cases of kernel_check.hpp: for each kernel a list of shapes, most of them odd, and a function that
// creates the operands and calls the kernel. It runs with the reference and with the tested kernels on equal
// operands.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/executor/guarded_operands.hpp"
#include "core/executor/reference_kernels.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::executor {

/// Type-erased class of kernels, so that the cases are compiled once.
class AnyKernels {
 public:
  template <class K>
  explicit AnyKernels(K& k) {
#define TRAINHOST_BIND(name, arguments, result)              \
  if constexpr (requires(const arguments& a) { k.name(a); }) \
    name = [&k](const arguments& a) -> result { return k.name(a); };
    TRAINHOST_KERNELS(TRAINHOST_BIND)
#undef TRAINHOST_BIND
    lion = [&k](const Lion& a) { run_lion(k, a); };
  }
#define TRAINHOST_HOLD(name, arguments, result) std::function<result(const arguments&)> name;
  TRAINHOST_KERNELS(TRAINHOST_HOLD)
#undef TRAINHOST_HOLD
};

struct KernelTestCase {
  std::string kernel, shape;  // "linear", "33 rows, 97 x 128, bias"
  ModelSpec model;            // one that has this shape somewhere: what traits() and Setup see
  RunSpec run;
  using Body =
      std::function<void(const AnyKernels&, GuardedOperands&, const KernelTestCase&, const TrainerTraits&)>;
  Body body;
};

/// All cases, grouped by kernel.
std::vector<KernelTestCase> kernel_test_cases();

using Size = std::uint64_t;  // number of rows, columns or elements

/// The list of cases under construction. The model of a case only has to be valid and large enough for the
/// traits of the trainer; kernels get their dimensions from the body.
class KernelCaseList {
 public:
  std::vector<KernelTestCase> all;

  /// Adds a case with `rows` rows; the model's hidden, intermediate and vocabulary sizes are max(a, b).
  void add(const char* kernel, const std::string& shape, Size rows, Size a, Size b,
           KernelTestCase::Body body);
};

/// The cases of qk_norm, rope, attention and attention_step with their backward kernels.
void add_attention_cases(KernelCaseList& cases);

/// 1/rms of each row of n elements as the forward pass stores it, with an epsilon that is large enough to
/// matter.
std::vector<float> inverse_rms(const std::vector<float>& x, Size n, double eps);

}  // namespace trainhost::executor
