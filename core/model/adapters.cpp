// See adapters.hpp. One table states the seven matrices of a layer: product, name in a checkpoint, and bit in
// RunSpec::lora_targets.
#include "core/model/adapters.hpp"

#include <cassert>
#include <string>
#include <string_view>

#include "core/base/checked.hpp"
#include "core/model/trainable.hpp"

namespace trainhost {
namespace {

struct Matrix {
  TensorRole role;
  AdapterGroup group;
  const char* name;
};
// In the order of the bits of lora_targets (TH_LORA_*), which is also the order inside each product.
constexpr Matrix kMatrices[] = {
    {TensorRole::kQ, AdapterGroup::kQkv, "self_attn.q_proj"},
    {TensorRole::kK, AdapterGroup::kQkv, "self_attn.k_proj"},
    {TensorRole::kV, AdapterGroup::kQkv, "self_attn.v_proj"},
    {TensorRole::kO, AdapterGroup::kO, "self_attn.o_proj"},
    {TensorRole::kGate, AdapterGroup::kGateUp, "mlp.gate_proj"},
    {TensorRole::kUp, AdapterGroup::kGateUp, "mlp.up_proj"},
    {TensorRole::kDown, AdapterGroup::kDown, "mlp.down_proj"},
};

constexpr const char* kPrefix = "base_model.model.";

const char* suffix_of(AdapterPart part) {
  switch (part) {
    case AdapterPart::kA:
      return ".lora_A.weight";
    case AdapterPart::kB:
      return ".lora_B.weight";
    case AdapterPart::kMagnitude:
      return ".lora_magnitude_vector";
    case AdapterPart::kNone:
      break;
  }
  assert(false && "a tensor of an adapter");
  return "";
}

std::uint64_t outputs_of(const ModelSpec& m, TensorRole role) {
  switch (role) {
    case TensorRole::kQ:
      return m.q_width();
    case TensorRole::kK:
    case TensorRole::kV:
      return m.kv_width();
    case TensorRole::kGate:
    case TensorRole::kUp:
      return m.intermediate;
    default:
      return m.hidden;
  }
}

const char* name_of(TensorRole role) {
  for (const Matrix& x : kMatrices)
    if (x.role == role) return x.name;
  assert(false && "a matrix of a layer");
  return "";
}

}  // namespace

AdapterGroup adapter_group(TensorRole matrix) {
  for (const Matrix& x : kMatrices)
    if (x.role == matrix) return x.group;
  assert(false && "a matrix of a layer");
  return AdapterGroup::kQkv;
}

std::string adapted_module(TensorRole matrix, std::int32_t layer) {
  return "model.layers." + std::to_string(layer) + "." + name_of(matrix);
}

std::vector<AdaptableMatrix> adaptable_matrices(const ModelSpec& m) {
  std::vector<AdaptableMatrix> out;
  for (std::int32_t l = 0; l < static_cast<std::int32_t>(m.layers); ++l)
    for (std::uint32_t i = 0; i < std::size(kMatrices); ++i)
      out.push_back({adapted_module(kMatrices[i].role, l), 1u << i});
  return out;
}

AdapterBlocks adapter_blocks(const ModelSpec& m, const RunSpec& r, AdapterGroup group, std::int32_t layer) {
  AdapterBlocks out;
  out.inputs = group == AdapterGroup::kO      ? m.q_width()
               : group == AdapterGroup::kDown ? m.intermediate
                                              : m.hidden;
  std::uint32_t bit = 1;
  for (const Matrix& x : kMatrices) {
    if (x.group == group) {
      const std::uint64_t outputs = outputs_of(m, x.role);
      const AdapterSize size = trains_adapters(r) && (r.lora_targets & bit)
                                   ? size_of_adapter(r, adapted_module(x.role, layer))
                                   : AdapterSize{};
      if (size.rank > 0) {
        out.rank = size.rank, out.scale = size.alpha / size.rank;  // equal ones: require_valid_adapters()
        out.block[out.count] = {x.role, outputs, out.width, out.inner(), out.rows_of_b};
        ++out.count;
        out.rows_of_b += outputs;
      }
      out.width += outputs;
    }
    bit <<= 1;
  }
  return out;
}

std::vector<AdapterBlocks> different_adapter_blocks(const ModelSpec& m, const RunSpec& r) {
  std::vector<AdapterBlocks> out;
  const auto layers = static_cast<std::int32_t>(r.lora_rules.empty() ? 1 : m.layers);
  for (std::int32_t l = 0; l < layers; ++l)
    for (std::uint32_t g = 0; g < kAdapterGroups; ++g)
      if (const AdapterBlocks b = adapter_blocks(m, r, static_cast<AdapterGroup>(g), l); b.count > 0)
        out.push_back(b);
  return out;
}

bool trains_adapters(const RunSpec& r) { return r.mode == RunMode::kLora || r.mode == RunMode::kQlora; }

std::vector<TensorInfo> adapter_tensors(const ModelSpec& m, const RunSpec& r) {
  std::vector<TensorInfo> out;
  for (std::int32_t l = 0; l < static_cast<std::int32_t>(m.layers); ++l)
    for (std::uint32_t g = 0; g < kAdapterGroups; ++g) {
      const AdapterBlocks blocks = adapter_blocks(m, r, static_cast<AdapterGroup>(g), l);
      for (const AdapterPart part : {AdapterPart::kA, AdapterPart::kB, AdapterPart::kMagnitude}) {
        if (part == AdapterPart::kMagnitude && !r.memory.dora) continue;
        for (const AdapterBlock& b : blocks.all()) {
          TensorInfo t;
          t.name = kPrefix + adapted_module(b.matrix, l) + suffix_of(part);
          t.role = b.matrix, t.part = part, t.layer = l;
          t.rank = part == AdapterPart::kMagnitude ? 1 : 2;
          if (part == AdapterPart::kA)
            t.dim = {blocks.rank, blocks.inputs};
          else
            t.dim = {b.outputs, part == AdapterPart::kB ? blocks.rank : 1};
          out.push_back(std::move(t));
        }
      }
    }
  return out;
}

std::string adapted_weight(const TensorInfo& adapter) {
  const std::size_t prefix = std::string_view(kPrefix).size(),
                    suffix = std::string_view(suffix_of(adapter.part)).size();
  assert(adapter.name.starts_with(kPrefix) && adapter.name.ends_with(suffix_of(adapter.part)));
  return adapter.name.substr(prefix, adapter.name.size() - prefix - suffix) + ".weight";
}

std::vector<TensorInfo> all_tensors(const ModelSpec& m, const RunSpec& r) {
  std::vector<TensorInfo> out = tensors(m);
  for (TensorInfo& t : adapter_tensors(m, r)) out.push_back(std::move(t));
  return out;
}

std::vector<TensorInfo> trained_tensors(const ModelSpec& m, const RunSpec& r) {
  if (trains_adapters(r) && r.trainable.empty()) return adapter_tensors(m, r);
  std::vector<TensorInfo> out = all_tensors(m, r);
  std::erase_if(out,
                [&](const TensorInfo& t) { return t.part == AdapterPart::kNone && !is_trained(r, t.name); });
  return out;
}

std::vector<TensorInfo> saved_tensors(const ModelSpec& m, const RunSpec& r) {
  return trains_adapters(r) ? trained_tensors(m, r) : tensors(m);
}

std::uint64_t count_trained_parameters(const ModelSpec& m, const RunSpec& r) {
  if (!r.trainable.empty() || !r.lora_rules.empty()) {
    std::uint64_t sum = 0;
    for (const TensorInfo& t : trained_tensors(m, r)) sum = checked_add(sum, t.elements());
    return sum;
  }
  if (!trains_adapters(r)) return count_parameters(m).total;
  std::uint64_t per_layer = 0;
  for (const AdapterBlocks& blocks : different_adapter_blocks(m, r)) {
    const std::uint64_t columns = checked_add(checked_mul(blocks.count, blocks.inputs), blocks.rows_of_b);
    per_layer = checked_add(per_layer, checked_mul(columns, blocks.rank));
    if (r.memory.dora) per_layer = checked_add(per_layer, blocks.rows_of_b);
  }
  return checked_mul(m.layers, per_layer);
}

std::uint64_t count_saved_parameters(const ModelSpec& m, const RunSpec& r) {
  return trains_adapters(r) ? count_trained_parameters(m, r) : count_parameters(m).total;
}

}  // namespace trainhost
