// Suggestions for unknown names: a similar name, or our name for what other programs call it. By spelling
// alone: nearest() in core/base/text.hpp. Suggestions for keys: schema.hpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::runfile {

/// Devices of whose name, or of vendor and full name, `name` is a part, whatever the case and the separators:
/// "4090", "A100", "H100 PCIe"; else those whose name is a part of `name`: "NVIDIA A100-SXM4-40GB".
std::vector<std::string> matching_devices(const std::string& name);

/// Models whose name is the last part of `name` without "Instruct" and the like
/// ("meta-llama/Meta-Llama-3-8B"); else those of which it is a part ("llama3").
std::vector<std::string> matching_models(const std::string& name);

/// What `name` can only mean as a value of `key`, memory.device, model.preset or plan.framework, on the
/// command line: the only matching device ("4090"), the first of several with the same memory ("H100" is the
/// SXM card, not the PCIe card), the model that differs in case and separators ("Llama-3-8B"). Of
/// plan.framework, the framework that has another name elsewhere ("fsdp"). `name` itself for any other value
/// and key.
std::string canonical_name(std::string_view key, const std::string& name);

/// The preset that has the tensors of a model on the Hugging Face Hub: "qwen2.5-7b" for
/// "Qwen/Qwen2.5-7B-Instruct", if no file has that name. `name` itself if there is no such preset. For plans
/// only: to train, the weights of that model could be meant, which are not downloaded.
std::string planned_model(const std::string& name);

/// "; did you mean 'h100-80gb' or 'h100-pcie-80gb'?" or "". For "cpu", "gpu" and the like it names the option
/// --backend.
std::string suggest_device(const std::string& name);

/// The same for models.
std::string suggest_model(const std::string& name);

/// The same for the name of a trainer, of which `known` are installed: "gpu" suggests cuda.
std::string suggest_backend(const std::string& name, const std::vector<std::string>& known);

/// The same for the frameworks of --for, of which `known` are described: "trl" suggests transformers.
std::string suggest_framework(const std::string& name, const std::vector<std::string>& known);

/// The same for [lora] targets: "query" suggests q_proj, "c_attn" suggests three matrices.
std::string suggest_target(const std::string& name);

}  // namespace trainhost::runfile
