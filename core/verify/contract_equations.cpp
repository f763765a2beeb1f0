// See contract_equations.hpp. The equations of docs/memory-model.md, written out once more: they must not use
// core/model's counts, which they test.
#include "core/verify/contract_equations.hpp"

#include <fmt/format.h>

#include <vector>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"

namespace trainhost::verify {

std::uint64_t contract_parameters(const ModelSpec& m) {
  // The contract assumes head_dim = H/A, a tied head, no biases and no norms of q and k.
  const std::uint64_t H = m.hidden, kv = m.heads ? checked_mul(m.kv_heads, H / m.heads) : 0;
  const std::uint64_t norms = 2 * H, q_and_o = checked_mul(2, H, H), k_and_v = checked_mul(2, H, kv);
  const std::uint64_t mlp = checked_mul(3, H, m.intermediate);
  const std::uint64_t layer = checked_add(checked_add(norms, q_and_o), checked_add(k_and_v, mlp));
  return checked_add(checked_add(checked_mul(m.vocab, H), checked_mul(m.layers, layer)), H);
}

// The terms that the model has and the contract does not, for the message.
std::string broken_assumptions(const ModelSpec& m) {
  std::vector<std::string> parts;
  if (!m.tied)
    parts.push_back(fmt::format("an untied head (V*H = {})", format_count(checked_mul(m.vocab, m.hidden))));
  if (m.q_width() != m.hidden) parts.push_back(fmt::format("a head_dim of {}, not H/A", m.head_dim));
  if (m.qkv_bias) parts.push_back("biases of q, k and v");
  if (m.o_bias) parts.push_back("a bias of the attention output");
  if (m.mlp_bias) parts.push_back("biases of gate, up and down");
  if (m.qk_norm) parts.push_back("norms of q and k");
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::uint64_t contract_activation_bytes(const ModelSpec& m, const RunSpec& r) {
  // 10: the K of the contract, activations per token and layer in units of H.
  return checked_mul(m.layers, r.seq_len, m.hidden, 10, sizeof(float), r.micro_batch);
}

double measured_k(const ModelSpec& m, const RunSpec& r, std::uint64_t bytes) {
  return 10 * static_cast<double>(bytes) / static_cast<double>(contract_activation_bytes(m, r));
}

std::uint64_t bytes_per_weight(const RunSpec& r, bool f32_storage) {
  return f32_storage ? sizeof(float) : size_of(r.weight) + size_of(r.master);
}

std::uint64_t contract_total_bytes(const ModelSpec& m, const RunSpec& r, std::uint64_t parameters,
                                   bool f32_storage) {
  // 4 bytes of gradient and 8 of AdamW's moments per parameter.
  const std::uint64_t state = checked_mul(parameters, bytes_per_weight(r, f32_storage) + 4 + 8);
  return checked_add(checked_add(state, contract_activation_bytes(m, r)), kContractRuntimeBytes);
}

}  // namespace trainhost::verify
