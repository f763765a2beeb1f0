// The plain trainer with one deliberate mistake: weight gradients omit the last token of each micro-batch. It
// trains and the loss decreases, but the weights are wrong.
#include "core/executor/trainer.hpp"
#include "sdk/examples/plain_trainer/plain_kernels.hpp"

TH_MANIFEST(
    "id = \"faulty\"\n"
    "version = \"1.0\"\n"
    "kind = \"trainer\"\n"
    "summary = \"the plain trainer with a mistake\"\n"
    "families = [\"llama\", \"mistral\", \"qwen2\", \"qwen3\"]\n"
    "options = []\n"
    "priority = -100\n");

namespace {

struct Faulty : plain::Kernels {
  static constexpr const char* id = "faulty";
  void linear_dw(const trainhost::executor::LinearDw& a) {
    auto fewer = a;
    --fewer.rows;
    plain::Kernels::linear_dw(fewer);
  }
};

}  // namespace

TRAINHOST_TRAINER(Faulty)
