// kernel_check() with wrong kernels: one class per kernel in which only that kernel is wrong, and one per
// kind of misbehaviour. Every one must be found.
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
#define TEST_WRONG(name, arguments, result)                              \
  struct Wrong_##name : Right {                                          \
    result name(const arguments& a) { return Right::name(one_less(a)); } \
  };
TRAINHOST_KERNELS(TEST_WRONG)

BOOST_AUTO_TEST_SUITE(kernel_kit)

BOOST_AUTO_TEST_CASE(correct_kernels_pass) {
  const KernelCheckResult r = kernel_check<Right>();
  for (const KernelFinding& f : r.findings) BOOST_ERROR(f.kernel << ", " << f.shape << ": " << f.what);
  BOOST_TEST(r.passed.size() == 20u);
  BOOST_TEST(r.cases > 500u);
}

BOOST_AUTO_TEST_CASE(each_kernel_that_stops_too_early_is_found){
#define TEST_FOUND(name, arguments, result)                                        \
  {                                                                                \
    const KernelCheckResult r = kernel_check<Wrong_##name>(1e-4, #name);           \
    BOOST_TEST((r.findings.size() == 1u && r.findings[0].kernel == #name), #name); \
    BOOST_TEST(r.passed.empty(), #name);                                           \
  }
    TRAINHOST_KERNELS(TEST_FOUND)}

BOOST_AUTO_TEST_CASE(no_other_kernel_is_reported) {
  const KernelCheckResult r = kernel_check<Wrong_rms_norm>();
  BOOST_TEST(r.findings.size() == 1u);
  BOOST_TEST(r.passed.size() == 19u);
}

struct WritesBehind : Right {
  void linear(const Linear& a) { Right::linear(a), a.y[a.rows * a.outputs] = 0.0f; }
};
struct WritesBefore : Right {
  void swiglu(const SwiGlu& a) { Right::swiglu(a), a.act[-1] = 0.0f; }
};
struct ChangesInput : Right {
  void linear_dx(const LinearDx& a) { Right::linear_dx(a), const_cast<float*>(a.dy)[0] += 1.0f; }
};
struct OtherBits : Right {
  int calls = 0;
  void rms_norm(const RmsNorm& a) {
    Right::rms_norm(a), a.y[0] *= 1.0f + 1e-6f * static_cast<float>(calls++);
  }
};
struct Throws : Right {
  double cross_entropy(const CrossEntropy&) { throw std::runtime_error("no more"); }
};
struct ForgetsToAdd : Right {
  void linear_dw(LinearDw a) { a.overwrite = true, Right::linear_dw(a); }
};
struct TrustsScratch : Right {  // scratch is not zero when it comes
  void rms_norm_bwd(const RmsNormBwd& a) { Right::rms_norm_bwd(a), a.grad_w[0] += a.partials[0]; }
};
struct BesideWorkspace : Right {
  float* work = nullptr;
  static void traits(const ModelSpec&, const RunSpec&, std::uint32_t, TrainerTraits& p) {
    p.workspace_bytes = 256;
  }
  void workspace(void* p, std::uint64_t) { work = static_cast<float*>(p); }
  void embed(const Embed& a) { Right::embed(a), work[64] = 1.0f; }
};

template <class K>
std::string first_finding(const char* kernel) {
  const KernelCheckResult r = kernel_check<K>(1e-4, kernel);
  return r.findings.empty() ? "" : r.findings[0].kernel + ": " + r.findings[0].what;
}

BOOST_AUTO_TEST_CASE(every_misbehaviour_has_a_message) {
  BOOST_TEST(first_finding<WritesBehind>("linear").starts_with("linear: wrote after operand"));
  BOOST_TEST(first_finding<WritesBefore>("swiglu").starts_with("swiglu: wrote before operand"));
  BOOST_TEST(first_finding<ChangesInput>("linear_dx").starts_with("linear_dx: changed operand 0, an input"));
  BOOST_TEST(first_finding<OtherBits>("rms_norm") == "rms_norm: is not bit-identical in a second run");
  BOOST_TEST(first_finding<Throws>("cross_entropy") == "cross_entropy: threw: no more");
  BOOST_TEST(first_finding<ForgetsToAdd>("linear_dw").starts_with("linear_dw: operand"));
  BOOST_TEST(first_finding<TrustsScratch>("rms_norm_bwd").find("not finite") != std::string::npos);
  BOOST_TEST(first_finding<BesideWorkspace>("embed").starts_with("embed: the workspace: wrote after"));
}

BOOST_AUTO_TEST_CASE(inherited_reference_kernels_are_named) {
  BOOST_TEST(inherited_kernels<Wrong_rope>().find("rope") == std::string::npos);
  BOOST_TEST(inherited_kernels<Wrong_rope>().starts_with("embed embed_bwd"));
  BOOST_TEST(inherited_kernels<ReferenceKernels>().ends_with("sgd_momentum"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::executor
