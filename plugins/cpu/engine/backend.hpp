// The CPU trainer as the skeleton (core/executor) sees it: something that runs operations, on the pool. The
// order of operations, the arena, tensors and checks are the skeleton's; the operations are in ops_*.cpp.
#pragma once
#include "core/executor/backend.hpp"
#include "plugins/cpu/engine/exec.hpp"

namespace trainhost::cpu {

class CpuBackend final : public executor::Backend {
 public:
  /// With the number of threads of the traits. `program` and `storage` must outlive it.
  /// bf16: how products are computed when the run's arithmetic is bf16; not used otherwise.
  CpuBackend(const step::Program& program, Storage& storage, const Kernels& kernels,
             const Bf16Kernels* bf16 = nullptr);

  void run(std::span<const step::Op> ops, const StepState& step) override;
  bool together(step::OpKind kind) const override { return one_run(kind); }
  void for_each(std::uint32_t count, const std::function<void(std::uint32_t)>& piece) override;
  std::string kernel_set() const override;
  double peak_flops() override;

  Exec& exec() { return exec_; }

 private:
  Pool pool_;
  Exec exec_;
};

}  // namespace trainhost::cpu
