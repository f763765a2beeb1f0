// Whether cuDNN can compute the attention of a run, and the bytes of its workspace. The formula was derived
// from the graph of engine/cudnn_attention.cpp and is compared with an installed library by
// tests/plugins/cuda/engine/cudnn_plans_test.cpp. Loads no library. See attention_choice.hpp.
#include "plugins/cuda/common/attention_choice.hpp"

#include <algorithm>
#include <vector>

#include "core/abi/error_guard.hpp"
#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "trainhost/status.h"

namespace trainhost::cuda {
namespace {

constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t step) { return (n + step - 1) / step * step; }

std::uint64_t product(std::initializer_list<std::uint64_t> factors) {
  std::uint64_t p = 1;
  for (std::uint64_t f : factors) p = checked_mul(p, f);
  return p;
}

}  // namespace

void require_known_attention(const char* option) {
  static const std::vector<std::string> known = {"auto", "own", "cudnn"};
  if (std::find(known.begin(), known.end(), option) == known.end())
    throw abi::StatusError(TH_E_ARG,
                           "plugin.cuda.attention = \"" + escaped(option, 60) + "\": unknown value" +
                               did_you_mean(option, known),
                           "use auto, own or cudnn");
}

Attention choose_attention(const ModelSpec& model, const RunSpec& run, const char* option) {
  if (!option) return Attention::kOwn;
  require_known_attention(option);
  if (std::string_view(option) != "cudnn") return Attention::kOwn;
  if (const std::string why = cudnn_limit(model, run); !why.empty())
    throw abi::StatusError(TH_E_UNSUPPORTED, "plugin.cuda.attention = \"cudnn\": " + why,
                           "set plugin.cuda.attention = \"own\"");
  return Attention::kCudnn;
}

std::string cudnn_limit(const ModelSpec& m, const RunSpec& r) {
  if (r.document_mask) return "cuDNN attention does not keep packed records apart";
  if (r.compute != DType::kBF16) return "cuDNN attention needs train.precision = \"bf16\"";
  if (m.head_dim % 8 != 0 || m.head_dim > 128)
    return "head_dim = " + std::to_string(m.head_dim) + ": cuDNN attention needs a multiple of 8 up to 128";
  if (r.seq_len < 2) return "train.seq_len = 1: cuDNN attention needs at least 2";
  return "";
}

std::uint64_t cudnn_workspace_bytes(const ModelSpec& m, const RunSpec& r, std::uint32_t sequences) {
  const std::uint64_t heads = product({sequences, m.heads}), s = r.seq_len;
  // Gradients of keys and values of every query head, which are then summed over the group that shares them.
  const std::uint64_t per_head = m.heads == m.kv_heads ? 0 : product({2, heads, s, m.head_dim});
  // Before Blackwell: the matrix of score gradients in bf16, padded to whole tiles, because adding to the
  // gradient of the queries in parallel would not be deterministic. Blackwell: sums in f32, in a fixed order.
  const std::uint64_t scores =
      checked_add(product({heads, round_up(s, 64), round_up(s, 128), 2}), checked_mul(2, per_head));
  return checked_add(std::max(scores, checked_mul(4, per_head)), 256);
}

std::uint32_t cudnn_backward_sequences(const ModelSpec& m, const RunSpec& r) {
  // Every call but the first starts inside of lse and delta, f32 arrays of `heads` numbers per token that
  // cuDNN is told to be aligned to 16 bytes (Graph::add()).
  const auto aligned = [&](std::uint32_t n) {
    return n == r.micro_batch || std::uint64_t{n} * r.seq_len * m.heads % 4 == 0;
  };
  std::uint32_t least = std::max(r.micro_batch, 1u);
  for (std::uint32_t n = r.micro_batch; n > 0; --n) {
    if (r.micro_batch % n != 0 || !aligned(n)) continue;
    if (cudnn_workspace_bytes(m, r, n) <= kCudnnWorkspaceGoal) return n;
    least = n;
  }
  return least;
}

}  // namespace trainhost::cuda
