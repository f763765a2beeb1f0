// The plain trainer of sdk/examples with one fault that its own losses and gradients do not show: only a
// comparison with another implementation does.
#include <algorithm>

#include "core/executor/trainer.hpp"
#include "sdk/examples/plain_trainer/plain_kernels.hpp"
#include "tests/core/plugin_validator/broken/faults.h"

TH_MANIFEST(
    "id = \"sample\"\n"
    "version = \"1\"\n"
    "kind = \"trainer\"\n"
    "summary = \"a test plugin\"\n"
    "families = [\"llama\"]\n"
    "options = []\n");

namespace {

namespace th_ex = trainhost::executor;

struct Kernels : plain::Kernels {
  static constexpr const char *id = "sample", *version = "1";
  static inline const char* const own_kernels = FAULT == misspelt_kernel ? "rms_nrom" : "rms_norm";

  // Another epsilon, forward and backward: loss and gradient agree with each other.
  void rms_norm(th_ex::RmsNorm a) {
    if (FAULT == other_eps) a.eps *= 300;
    plain::Kernels::rms_norm(a);
  }
  void linear(th_ex::Linear a) {
    if (FAULT == drops_bias) a.bias = nullptr;
    plain::Kernels::linear(a);
  }
  void linear_dw(const th_ex::LinearDw& a) {
    plain::Kernels::linear_dw(a);
    if (FAULT == no_bias_gradient && a.grad_b) std::fill_n(a.grad_b, a.outputs, 0.0f);
  }
  void adamw(th_ex::AdamW a) {
    if (FAULT == ignores_clipping) a.grad_scale = 1;
    plain::Kernels::adamw(a);
  }
  void attention_step(th_ex::AttentionStep a) {
    if (FAULT == forgets_early_tokens) a.window = 3;
    plain::Kernels::attention_step(a);
  }
};

}  // namespace

TRAINHOST_TRAINER(Kernels)
