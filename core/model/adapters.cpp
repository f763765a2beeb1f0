// See adapters.hpp. One table states the matrices that can have an adapter, seven of a layer and two outside
// the layers: product, name in a checkpoint, and bit in RunSpec::lora_targets.
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
    {TensorRole::kHead, AdapterGroup::kHead, "lm_head"},
    {TensorRole::kEmbed, AdapterGroup::kEmbed, "model.embed_tokens"},
};

constexpr bool is_of_layer(AdapterGroup g) { return static_cast<std::uint32_t>(g) < kAdapterGroups; }

constexpr const char* kPrefix = "base_model.model.";

/// PEFT has other names for the factors of an embedding.
const char* suffix_of(TensorRole role, AdapterPart part) {
  if (role == TensorRole::kEmbed && part != AdapterPart::kMagnitude)
    return part == AdapterPart::kA ? ".lora_embedding_A" : ".lora_embedding_B";
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
    case TensorRole::kHead:
      return m.vocab;
    default:
      return m.hidden;
  }
}

const char* name_of(TensorRole role) {
  for (const Matrix& x : kMatrices)
    if (x.role == role) return x.name;
  assert(false && "a matrix that can have an adapter");
  return "";
}

}  // namespace

AdapterGroup adapter_group(TensorRole matrix) {
  for (const Matrix& x : kMatrices)
    if (x.role == matrix) return x.group;
  assert(false && "a matrix that can have an adapter");
  return AdapterGroup::kQkv;
}

std::string adapted_module(TensorRole matrix, std::int32_t layer) {
  return (layer < 0 ? "" : "model.layers." + std::to_string(layer) + ".") + name_of(matrix);
}

std::uint32_t adapted_product_number(const ModelSpec& m, AdapterGroup group, std::int32_t layer) {
  const auto g = static_cast<std::uint32_t>(group);
  return is_of_layer(group) ? kAdapterGroups * static_cast<std::uint32_t>(layer) + g
                            : kAdapterGroups * m.layers + g - kAdapterGroups;
}

AdapterGroup group_of_product(const ModelSpec& m, std::uint32_t number) {
  const std::uint32_t outside = kAdapterGroups * m.layers;
  return static_cast<AdapterGroup>(number < outside ? number % kAdapterGroups
                                                    : kAdapterGroups + number - outside);
}

std::vector<AdaptableMatrix> adaptable_matrices(const ModelSpec& m) {
  std::vector<AdaptableMatrix> out;
  for (std::int32_t l = 0; l < static_cast<std::int32_t>(m.layers); ++l)
    for (std::uint32_t i = 0; i < std::size(kMatrices); ++i)
      if (is_of_layer(kMatrices[i].group)) out.push_back({adapted_module(kMatrices[i].role, l), 1u << i});
  for (std::uint32_t i = 0; i < std::size(kMatrices); ++i)
    if (!is_of_layer(kMatrices[i].group)) out.push_back({adapted_module(kMatrices[i].role, -1), 1u << i});
  return out;
}

AdapterBlocks adapter_blocks(const ModelSpec& m, const RunSpec& r, AdapterGroup group, std::int32_t layer) {
  AdapterBlocks out;
  out.transposed = group == AdapterGroup::kEmbed;
  out.inputs = group == AdapterGroup::kO       ? m.q_width()
               : group == AdapterGroup::kDown  ? m.intermediate
               : group == AdapterGroup::kEmbed ? m.vocab
                                               : m.hidden;
  std::uint32_t bit = 1;
  for (const Matrix& x : kMatrices) {
    if (x.group == group) {
      const std::uint64_t outputs = outputs_of(m, x.role);
      const bool tied = x.role == TensorRole::kHead && ties_adapter(r);
      const AdapterSize size =
          trains_adapters(r) && (tied || (r.lora_targets & bit))
              ? size_of_adapter(r, adapted_module(tied ? TensorRole::kEmbed : x.role, layer))
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
  const auto add = [&](AdapterGroup g, std::int32_t l) {
    const AdapterBlocks blocks = adapter_blocks(m, r, g, l);
    for (const AdapterPart part : {AdapterPart::kA, AdapterPart::kB, AdapterPart::kMagnitude}) {
      if (part == AdapterPart::kMagnitude && !r.memory.dora) continue;
      if (part != AdapterPart::kMagnitude && g == AdapterGroup::kHead && ties_adapter(r)) continue;
      for (const AdapterBlock& b : blocks.all()) {
        TensorInfo t;
        t.name = kPrefix + adapted_module(b.matrix, l) + suffix_of(b.matrix, part);
        t.role = b.matrix, t.part = part, t.layer = l;
        t.rank = part == AdapterPart::kMagnitude ? 1 : 2;
        if (part != AdapterPart::kA)
          t.dim = {b.outputs, part == AdapterPart::kB ? blocks.rank : 1};
        else if (is_transposed_in_files(t))
          t.dim = {blocks.inputs, blocks.rank};
        else
          t.dim = {blocks.rank, blocks.inputs};
        out.push_back(std::move(t));
      }
    }
  };
  for (std::int32_t l = 0; l < static_cast<std::int32_t>(m.layers); ++l)
    for (std::uint32_t g = 0; g < kAdapterGroups; ++g) add(static_cast<AdapterGroup>(g), l);
  for (const AdapterGroup g : {AdapterGroup::kEmbed, AdapterGroup::kHead}) add(g, -1);
  return out;
}

bool is_transposed_in_files(const TensorInfo& t) {
  return t.role == TensorRole::kEmbed && t.part == AdapterPart::kA;
}

std::string adapted_weight(const TensorInfo& adapter) {
  const std::size_t prefix = std::string_view(kPrefix).size(),
                    suffix = std::string_view(suffix_of(adapter.role, adapter.part)).size();
  assert(adapter.name.starts_with(kPrefix) && adapter.name.ends_with(suffix_of(adapter.role, adapter.part)));
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
  std::uint64_t sum = checked_mul(m.layers, per_layer);
  for (const AdapterGroup g : {AdapterGroup::kEmbed, AdapterGroup::kHead}) {
    const AdapterBlocks blocks = adapter_blocks(m, r, g, -1);
    if (!blocks.count) continue;
    if (g == AdapterGroup::kEmbed || !ties_adapter(r))
      sum = checked_add(sum, checked_mul(checked_add(blocks.inputs, blocks.rows_of_b), blocks.rank));
    if (r.memory.dora) sum = checked_add(sum, blocks.rows_of_b);
  }
  return sum;
}

std::uint64_t count_saved_parameters(const ModelSpec& m, const RunSpec& r) {
  return trains_adapters(r) ? count_trained_parameters(m, r) : count_parameters(m).total;
}

}  // namespace trainhost
