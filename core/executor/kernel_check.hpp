// Tests a class of kernels: every kernel against the reference, at sizes that are no multiple of a vector or
// tile.
//
//   #include "core/executor/kernel_check.hpp"
//   int main() { return trainhost::kernel_check_main<Mine>(); }
//
// A kernel passes if, on every shape, with and without optional operands, adding and overwriting: its outputs
// are complete, near the reference and bit-identical in a second run; and it changes no input and writes
// nothing outside its operands. Needs no test framework, host or model. Shapes: kernel_test_cases.hpp.
#pragma once
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/executor/kernel_test_cases.hpp"
#include "core/executor/trainer.hpp"

namespace trainhost {

struct KernelFinding {
  std::string kernel, shape, what;
};
struct KernelCheckResult {
  std::vector<KernelFinding> findings;  // at most one per kernel, the first
  std::vector<std::string> passed;
  std::uint64_t cases = 0;
};

namespace executor {

/// A host that provides memory and logs nothing.
inline const th_host& silent_host() {
  static const th_host host = [] {
    th_host h{};
    h.struct_size = sizeof h, h.abi_major = TH_ABI_MAJOR, h.abi_minor = TH_ABI_MINOR, h.thread_budget = 2;
    h.name = "kernel_check", h.version = "1";
    h.log = [](const th_host*, std::int32_t, const char*, const char*) {};
    h.alloc = [](const th_host*, std::uint64_t bytes, std::uint64_t align, std::uint32_t,
                 const char*) -> void* {
      const std::uint64_t a = align < 16 ? 16 : align, whole = (bytes + a) / a * a;
      void* p = std::aligned_alloc(a, whole);
      return p ? std::memset(p, 0, whole) : nullptr;
    };
    h.release = [](const th_host*, void* p) { std::free(p); };
    h.took = [](const th_host*, std::int64_t, std::uint32_t, const char*) {};
    h.cancelled = [](const th_host*) -> std::int32_t { return 0; };
    h.progress = [](const th_host*, const char*, double) {};
    h.option = [](const th_host*, const char*) -> const char* { return nullptr; };
    h.extension = [](const th_host*, const char*) -> const void* { return nullptr; };
    return h;
  }();
  return host;
}

/// Runs one case with K. Returns "" if it passes, else what is wrong.
template <class K>
std::string try_case(const KernelTestCase& c, double tolerance) {
  const TrainerTraits traits = KernelTrainer<K>::traits(c.model, c.run, 2);
  const std::shared_ptr<K> kernels = KernelTrainer<K>::kernels({&silent_host(), 0, c.model, c.run, traits});
  OperandAllocator own;
  if constexpr (requires(void* p) {
                  p = kernels->take(1u, 1u);
                  kernels->give_back(p);
                }) {
    own.allocate = [&](std::uint64_t bytes) { return kernels->take(bytes, 64); };
    own.release = [&](void* p) { kernels->give_back(p); };
  }
  OperandAllocator plain;
  GuardedOperands expected(1, plain), first(1, own), second(1, own), work(1, own);
  if (traits.workspace_bytes)
    if constexpr (requires(void* p) { kernels->workspace(p, 1u); })
      kernels->workspace(work.scratch_bytes(traits.workspace_bytes), traits.workspace_bytes);
  ReferenceKernels reference;
  try {
    c.body(AnyKernels(reference), expected, c, traits);
    c.body(AnyKernels(*kernels), first, c, traits);
    c.body(AnyKernels(*kernels), second, c, traits);
  } catch (const std::exception& e) {
    return std::string("threw: ") + e.what();
  }
  if (auto wrong = first.misuse()) return *wrong;
  if (auto wrong = work.misuse()) return "the workspace: " + *wrong;
  if (auto wrong = first.differs_from(expected, tolerance)) return *wrong;
  if (!first.same_bits(second)) return "is not bit-identical in a second run";
  return "";
}

}  // namespace executor

/// Runs every kernel of K on every case; stops with a kernel at its first finding. tolerance: allowed
/// difference, relative to 1 + |expected|; 1e-4 suits f32 sums of several hundred terms, products in bf16
/// need 2e-2. only: the name of one kernel, "" = all.
template <class K>
KernelCheckResult kernel_check(double tolerance = 1e-4, const std::string& only = "") {
  executor::require_kernels<K>();
  KernelCheckResult r;
  for (const executor::KernelTestCase& c : executor::kernel_test_cases()) {
    const bool known = !r.findings.empty() && r.findings.back().kernel == c.kernel;
    if (known || (!only.empty() && only != c.kernel)) continue;
    ++r.cases;
    const std::string wrong = executor::try_case<K>(c, tolerance);
    const bool again = !r.passed.empty() && r.passed.back() == c.kernel;
    if (wrong.empty() && !again) r.passed.push_back(c.kernel);
    if (wrong.empty()) continue;
    if (again) r.passed.pop_back();
    r.findings.push_back({c.kernel, c.shape, wrong});
  }
  return r;
}

/// Prints one line per kernel. Returns the exit code: 0 if all pass, else 1.
template <class K>
int kernel_check_main(double tolerance = 1e-4, const std::string& only = "") {
  for (const std::string& wrong :
       {only.empty() ? "" : executor::unknown_kernel(only), executor::wrong_kernel_names<K>()}) {
    if (wrong.empty()) continue;
    std::printf("WRONG %s\n", wrong.c_str());
    return 1;
  }
  const KernelCheckResult r = kernel_check<K>(tolerance, only);
  for (const std::string& kernel : r.passed) std::printf("ok    %s\n", kernel.c_str());
  for (const KernelFinding& f : r.findings)
    std::printf("WRONG %s, %s: %s\n", f.kernel.c_str(), f.shape.c_str(), f.what.c_str());
  std::printf("%zu of %zu kernels pass, %llu cases\n", r.passed.size(), r.passed.size() + r.findings.size(),
              static_cast<unsigned long long>(r.cases));
  if (const std::string left = executor::inherited_kernels<K>(); !left.empty())
    std::printf("inherited from the reference: %s\n", left.c_str());
  return r.findings.empty() && !r.passed.empty() ? 0 : 1;
}

}  // namespace trainhost
