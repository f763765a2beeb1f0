// The plain trainer of sdk/examples. With the fault other_eps its norms use another epsilon, forward and
// backward: loss and gradient agree with each other, but not with another trainer.
#include "core/executor/trainer.hpp"
#include "sdk/examples/plain_trainer/plain_kernels.hpp"

TH_MANIFEST(
    "id = \"sample\"\n"
    "version = \"1\"\n"
    "kind = \"trainer\"\n"
    "summary = \"a test plugin\"\n"
    "families = [\"llama\"]\n"
    "options = []\n");

namespace {

struct Kernels : plain::Kernels {
  static constexpr const char *id = "sample", *version = "1";
  void rms_norm(const trainhost::executor::RmsNorm& a) {
    auto other = a;
#if defined(OTHER_EPS)
    other.eps *= 300;
#endif
    plain::Kernels::rms_norm(other);
  }
};

}  // namespace

TRAINHOST_TRAINER(Kernels)
