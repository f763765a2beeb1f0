// Compares the kernels of the plain trainer with the reference: one line per kernel, exit code 1 if one is
// wrong. Optional argument: check only this kernel.
#include "core/executor/kernel_check.hpp"
#include "plain_kernels.hpp"

int main(int argc, char** argv) {
  return trainhost::kernel_check_main<plain::Kernels>(1e-4, argc > 1 ? argv[1] : "");
}
