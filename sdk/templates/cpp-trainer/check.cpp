// Every kernel against the reference, at odd sizes, between guard bands, twice: a line a kernel, exit code 1
// where one is wrong. `build/@NAME@-check linear` tries one.
#include "core/executor/kernel_check.hpp"

#include "kernels.hpp"

int main(int argc, char** argv) {
  return trainhost::kernel_check_main<@TYPE@>(1e-4, argc > 1 ? argv[1] : "");
}
