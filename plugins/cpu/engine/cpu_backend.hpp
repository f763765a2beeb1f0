// The CPU trainer's implementation of executor::Backend: runs operations (ops_*.cpp) on the thread pool.
// Order of operations, arena, tensors and argument checks are in core/executor.
#pragma once
#include "core/executor/backend.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

class CpuBackend final : public executor::Backend {
 public:
  /// Starts the number of threads given in the traits. `program` and `storage` must outlive it.
  /// bf16: kernels for products if the run computes in bf16; else unused.
  CpuBackend(const step::Program& program, Storage& storage, const Kernels& kernels,
             const Bf16Kernels* bf16 = nullptr);

  void run(std::span<const step::Op> ops, const StepState& step) override;
  bool together(step::OpKind kind) const override { return run_together(kind); }
  void for_each(std::uint32_t count, const std::function<void(std::uint32_t)>& piece) override;
  std::string kernel_set() const override;
  double peak_flops() override;
  double layer_grad_squares(std::int32_t layer) const override {
    return ctx_.layer_squares[static_cast<std::size_t>(layer + 1)];
  }

  /// Divides the pages of what is kept between steps (weights, master weights, adapters, moments) among the
  /// workers (divide_pages()). Before it is loaded, because the thread that loads would place all of it on
  /// its own node. Other memory is first written by the workers that use it.
  void divide_state();

  OpContext& context() { return ctx_; }

 private:
  template <class Work>
  double rate_of(std::uint64_t ns, Work&& work);
  double fma_flops(std::uint64_t ns);
  double bf16_flops(std::uint64_t ns);

  ThreadPool pool_;
  OpContext ctx_;
};

}  // namespace trainhost::cpu
