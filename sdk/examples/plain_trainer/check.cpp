// The kit for the plain trainer's kernels: a line a kernel, exit code 1 when one is wrong. An argument names
// one kernel.
#include "core/executor/kernel_check.hpp"
#include "plain_kernels.hpp"

int main(int argc, char** argv) {
  return trainhost::kernel_check_main<plain::Kernels>(1e-4, argc > 1 ? argv[1] : "");
}
