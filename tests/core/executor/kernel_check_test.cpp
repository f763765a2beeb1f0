// kernel_check() with wrong kernels: each kernel alone ends too early, then one kernel per kind of
// misbehaviour. Every one must be found. A run-time choice decides what is wrong, because each class that
// kernel_check() is instantiated for takes a second to compile.
#include <boost/test/unit_test.hpp>

#include <stdexcept>

#include "core/executor/kernel_check.hpp"

namespace trainhost::executor {
namespace {

// The same arguments without the last row, element or key, as from a loop that ends too early.
template <class A>
A one_less(A a) {
  if constexpr (requires { a.rows; })
    --a.rows;
  else if constexpr (requires { a.count; })
    --a.count;
  else if constexpr (requires { a.sequences; })
    --a.sequences;
  else
    a.window = 1;
  return a;
}

struct Right : ReferenceKernels {
  static constexpr const char *id = "right", *version = "1";
};
/// The kernel named `wrong` ends too early; all others are right.
struct OneWrong : Right {
  static inline std::string wrong;
#define TEST_WRONG(name, arguments, result) \
  result name(const arguments& a) { return Right::name(wrong == #name ? one_less(a) : a); }
  TRAINHOST_KERNELS(TEST_WRONG)
#undef TEST_WRONG
};

BOOST_AUTO_TEST_SUITE(kernel_kit)

BOOST_AUTO_TEST_CASE(correct_kernels_pass) {
  const KernelCheckResult r = kernel_check<Right>();
  for (const KernelFinding& f : r.findings) BOOST_ERROR(f.kernel << ", " << f.shape << ": " << f.what);
  BOOST_TEST(r.passed.size() == 21u);
  BOOST_TEST(r.cases > 500u);
}

/// Without a kernel lion that others can call, as a class that was written before it.
struct BeforeLion : Right {
 private:
  void lion(const Lion&) { throw std::logic_error("not of the interface"); }
};
BOOST_AUTO_TEST_CASE(a_class_that_is_older_than_lion_has_that_of_the_reference) {
  const KernelCheckResult r = kernel_check<BeforeLion>(1e-4, "lion");
  for (const KernelFinding& f : r.findings) BOOST_ERROR(f.kernel << ", " << f.shape << ": " << f.what);
  BOOST_TEST(r.passed.size() == 1u);
}

BOOST_AUTO_TEST_CASE(each_kernel_that_stops_too_early_is_found) {
#define TEST_FOUND(name, arguments, result)                                        \
  {                                                                                \
    OneWrong::wrong = #name;                                                       \
    const KernelCheckResult r = kernel_check<OneWrong>(1e-4, #name);               \
    BOOST_TEST((r.findings.size() == 1u && r.findings[0].kernel == #name), #name); \
    BOOST_TEST(r.passed.empty(), #name);                                           \
  }
  TRAINHOST_KERNELS(TEST_FOUND)
#undef TEST_FOUND
}

/// linear is misspelt: without the list of own kernels the inherited one would run without a message.
struct Misspelt : ReferenceKernels {
  static constexpr const char *id = "misspelt", *version = "1";
  static constexpr const char* own_kernels = "rope linear";
  void linaer(const Linear& a) { ReferenceKernels::linear(a); }
  void rope(const Rope& a) { ReferenceKernels::rope(a); }
};

BOOST_AUTO_TEST_CASE(misspelt_kernels_are_reported_with_the_nearest_name) {
  BOOST_TEST(wrong_kernel_names<Right>() == "");
  BOOST_TEST(wrong_kernel_names<Misspelt>() ==
             "own_kernels: the class does not define 'linear' but inherits it: compare the spelling and the "
             "argument of its function with kernels.hpp");
  BOOST_TEST(wrong_kernel_names("rope linaer", "") ==
             "own_kernels: there is no kernel 'linaer'; did you mean 'linear'?");
  BOOST_TEST(wrong_kernel_names("linear rope", "embed") == "");
  BOOST_TEST(kernel_check_main<Right>(1e-4, "linaer") == 1);
  BOOST_TEST(kernel_check_main<Misspelt>(1e-4, "rope") == 1);
  BOOST_TEST(kernel_check_main<Right>(1e-4, "rope") == 0);
}

BOOST_AUTO_TEST_CASE(no_other_kernel_is_reported) {
  OneWrong::wrong = "rms_norm";
  const KernelCheckResult r = kernel_check<OneWrong>();
  BOOST_TEST(r.findings.size() == 1u);
  BOOST_TEST(r.passed.size() == 20u);
}

enum class Fault {
  kWritesBehind,
  kWritesBefore,
  kChangesInput,
  kOtherBits,
  kThrows,
  kDoesNotAdd,
  kReadsScratch,
  kWritesBehindWorkspace
};

/// One kernel misbehaves in the way that `fault` names; the others are right.
struct Misbehaving : Right {
  static inline Fault fault;
  int calls = 0;
  float* work = nullptr;
  static void traits(const ModelSpec&, const RunSpec&, std::uint32_t, TrainerTraits& p) {
    p.workspace_bytes = 256;
  }
  void workspace(void* p, std::uint64_t) { work = static_cast<float*>(p); }
  void linear(const Linear& a) {
    Right::linear(a);
    if (fault == Fault::kWritesBehind) a.y[a.rows * a.outputs] = 0.0f;
  }
  void swiglu(const SwiGlu& a) {
    Right::swiglu(a);
    if (fault == Fault::kWritesBefore) a.act[-1] = 0.0f;
  }
  void linear_dx(const LinearDx& a) {
    Right::linear_dx(a);
    if (fault == Fault::kChangesInput) const_cast<float*>(a.dy)[0] += 1.0f;
  }
  void rms_norm(const RmsNorm& a) {
    Right::rms_norm(a);
    if (fault == Fault::kOtherBits) a.y[0] *= 1.0f + 1e-6f * static_cast<float>(calls++);
  }
  double cross_entropy(const CrossEntropy& a) {
    if (fault == Fault::kThrows) throw std::runtime_error("no more");
    return Right::cross_entropy(a);
  }
  void linear_dw(LinearDw a) {
    if (fault == Fault::kDoesNotAdd) a.overwrite = true;
    Right::linear_dw(a);
  }
  void rms_norm_bwd(const RmsNormBwd& a) {
    Right::rms_norm_bwd(a);
    // Scratch has arbitrary content when the kernel starts.
    if (fault == Fault::kReadsScratch) a.grad_w[0] += a.partials[0];
  }
  void embed(const Embed& a) {
    Right::embed(a);
    if (fault == Fault::kWritesBehindWorkspace) work[64] = 1.0f;
  }
};

std::string first_finding(Fault fault, const char* kernel) {
  Misbehaving::fault = fault;
  const KernelCheckResult r = kernel_check<Misbehaving>(1e-4, kernel);
  return r.findings.empty() ? "" : r.findings[0].kernel + ": " + r.findings[0].what;
}

/// Overrides one kernel only.
struct OwnRope : Right {
  void rope(const Rope& a) { Right::rope(a); }
};

BOOST_AUTO_TEST_CASE(every_misbehaviour_has_a_message) {
  BOOST_TEST(first_finding(Fault::kWritesBehind, "linear").starts_with("linear: wrote after operand"));
  BOOST_TEST(first_finding(Fault::kWritesBefore, "swiglu").starts_with("swiglu: wrote before operand"));
  BOOST_TEST(
      first_finding(Fault::kChangesInput, "linear_dx").starts_with("linear_dx: changed operand 0, an input"));
  BOOST_TEST(first_finding(Fault::kOtherBits, "rms_norm") ==
             "rms_norm: is not bit-identical in a second run");
  BOOST_TEST(first_finding(Fault::kThrows, "cross_entropy") == "cross_entropy: threw: no more");
  BOOST_TEST(first_finding(Fault::kDoesNotAdd, "linear_dw").starts_with("linear_dw: operand"));
  BOOST_TEST(first_finding(Fault::kReadsScratch, "rms_norm_bwd").find("not finite") != std::string::npos);
  BOOST_TEST(
      first_finding(Fault::kWritesBehindWorkspace, "embed").starts_with("embed: the workspace: wrote after"));
}

BOOST_AUTO_TEST_CASE(inherited_reference_kernels_are_named) {
  BOOST_TEST(inherited_kernels<OwnRope>().find("rope") == std::string::npos);
  BOOST_TEST(inherited_kernels<OwnRope>().starts_with("embed embed_bwd"));
  BOOST_TEST(inherited_kernels<ReferenceKernels>().ends_with("sgd_momentum lion"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::executor
