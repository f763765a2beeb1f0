// Compares every kernel with the reference: odd sizes, guard bands, two calls. Prints one line per kernel;
// exit code 1 if one is wrong. `build/@NAME@-check linear` checks one kernel.
#include "core/executor/kernel_check.hpp"

#include "kernels.hpp"

int main(int argc, char** argv) {
  return trainhost::kernel_check_main<@TYPE@>(1e-4, argc > 1 ? argv[1] : "");
}
