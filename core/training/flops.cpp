// See flops.hpp.
#include "core/training/flops.hpp"

namespace trainhost::training {

double train_flops_per_token(const ModelSpec& m, std::uint64_t seq_len) {
  double H = m.hidden, L = m.layers, I = m.intermediate, V = static_cast<double>(m.vocab);
  double matrix =
      L * (H * static_cast<double>(m.qkv_width()) + H * static_cast<double>(m.q_width()) + 3 * H * I) + V * H;
  double attention = L * static_cast<double>(seq_len) * static_cast<double>(m.q_width());
  return 6 * matrix + 6 * attention;
}

}  // namespace trainhost::training
