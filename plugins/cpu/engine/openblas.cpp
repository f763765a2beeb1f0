// See openblas.hpp.
#include "plugins/cpu/engine/openblas.hpp"

#include <cblas.h>

namespace trainhost::cpu {

void openblas_single_threaded() { openblas_set_num_threads(1); }

std::string openblas_core() { return openblas_get_corename(); }

// openblas_get_config() begins "OpenBLAS 0.3.21 ...".
std::string openblas_version() {
  std::string config = openblas_get_config();
  std::size_t space = config.find(' ');
  std::size_t second = space == std::string::npos ? space : config.find(' ', space + 1);
  return config.substr(0, second) + " " + openblas_core();
}

}  // namespace trainhost::cpu
