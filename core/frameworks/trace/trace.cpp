// See trace.hpp.
#include "core/frameworks/trace/trace.hpp"

namespace trainhost::frameworks {

std::string_view name(Purpose p) {
  switch (p) {
    case Purpose::kWeights:
      return "weights";
    case Purpose::kBuffers:
      return "buffers and inputs";
    case Purpose::kMasterWeights:
      return "master weights";
    case Purpose::kGradients:
      return "gradients";
    case Purpose::kOptimizerState:
      return "optimizer state";
    case Purpose::kActivations:
      return "activations";
    case Purpose::kLogits:
      return "logits";
    case Purpose::kBackward:
      return "temporaries of the backward pass";
    case Purpose::kUpdate:
      return "temporaries of the optimizer step";
    case Purpose::kCommunication:
      return "buffers of communication";
    case Purpose::kKernel:
      return "temporaries inside of kernels";
  }
  return "";
}

std::string Trace::name_of(const TraceStorage& s) const {
  std::string text = s.layer >= 0 ? "layers." + std::to_string(s.layer) : std::string();
  if (const std::string& module = names[s.module]; !module.empty())
    text += (text.empty() ? "" : ".") + module;
  if (const std::string& tensor = names[s.tensor]; !tensor.empty() && tensor != names[s.module])
    text += (text.empty() ? "" : " ") + tensor;
  if (s.saved) text += ", saved for backward";
  return text;
}

void TraceWriter::begin(Phase phase, std::uint32_t step, std::uint32_t micro_batch) {
  if (!trace_.phases.empty()) {
    const TracePhase& last = trace_.phases.back();
    if (last.phase == phase && last.step == step && last.micro_batch == micro_batch) return;
  }
  trace_.phases.push_back({trace_.events.size(), phase, step, micro_batch});
}

// Most names are string literals, which have one address per place of use: the cache finds them without a
// comparison of texts with all earlier names.
std::uint32_t TraceWriter::intern(std::string_view text) {
  Interned& slot = recent_[(reinterpret_cast<std::uintptr_t>(text.data()) >> 2) % recent_.size()];
  if (slot.data == text.data() && trace_.names[slot.index] == text) return slot.index;
  std::uint32_t index = 0;
  while (index < trace_.names.size() && trace_.names[index] != text) ++index;
  if (index == trace_.names.size()) trace_.names.emplace_back(text);
  slot = {text.data(), index};
  return index;
}

std::uint32_t TraceWriter::intern_address(const char* text) {
  Interned& slot = named_[(reinterpret_cast<std::uintptr_t>(text) >> 1) % named_.size()];
  if (slot.data != text) slot = {text, intern(text)};
  return slot.index;
}

std::uint32_t TraceWriter::allocate(std::uint64_t bytes, Purpose purpose, std::int32_t layer,
                                    std::uint32_t module, std::uint32_t tensor) {
  return allocate({bytes, module, tensor, layer, purpose, false, Stream::kCompute});
}

std::uint32_t TraceWriter::allocate(const TraceStorage& storage) {
  const auto index = static_cast<std::uint32_t>(trace_.storages.size());
  trace_.storages.push_back(storage);
  add({index, true});
  return index;
}

std::uint32_t TraceWriter::allocate(std::uint64_t bytes, Purpose purpose, std::int32_t layer,
                                    std::string_view module, std::string_view tensor) {
  const std::uint32_t module_name = intern(module);
  return allocate(bytes, purpose, layer, module_name, intern(tensor));
}

std::uint32_t TraceWriter::allocate_named(std::uint64_t bytes, Purpose purpose, std::int32_t layer,
                                          const char* module, const char* tensor) {
  const std::uint32_t module_name = intern_address(module);
  return allocate(bytes, purpose, layer, module_name, intern_address(tensor));
}

}  // namespace trainhost::frameworks
