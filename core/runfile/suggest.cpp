// Suggestions for devices, models, backends and adapter matrices; see suggest.hpp. Beyond spelling errors:
// words that users bring from other tools, for which the nearest name by letters would be wrong.
#include "core/runfile/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/base/text.hpp"
#include "core/model/model_names.hpp"
#include "core/model/presets.hpp"
#include "core/runfile/named_values.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::runfile {

namespace {

/// Letters and digits between other characters, in lower case.
std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      out.back() += static_cast<char>(upper ? c - 'A' + 'a' : c);
    else if (!out.back().empty())
      out.emplace_back();
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

/// Words that make another card of a card's name: an RTX 4060 has 8 GB, an RTX 4060 Ti has 8 or 16.
bool names_another_card(const std::string& token) {
  static constexpr std::string_view kWords[] = {"ti", "super", "laptop", "mobile", "max"};
  return std::ranges::find(kWords, token) != std::end(kWords);
}

/// True if `word`, which is comparable(), consists of tokens that follow each other in `tokens`, and no such
/// word follows them.
bool is_run(const std::string& word, const std::vector<std::string>& tokens) {
  for (std::size_t first = 0; first < tokens.size(); ++first) {
    std::string run;
    std::size_t i = first;
    for (; i < tokens.size() && run.size() < word.size(); ++i) run += tokens[i];
    if (!word.empty() && run == word && (i == tokens.size() || !names_another_card(tokens[i]))) return true;
  }
  return false;
}

/// "; did you mean 'a', 'b' or 'c'?"; of more than four names the first ones.
std::string did_you_mean_one_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  std::string out;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i)
    out += (i == 0 ? "" : i + 1 == std::min(kMost, names.size()) ? " or " : ", ") + ("'" + names[i] + "'");
  return out.empty() ? "" : "; did you mean " + out + "?";
}

}  // namespace

std::vector<std::string> matching_devices(const std::string& name) {
  if (find_device_preset(name)) return {name};
  std::vector<std::string> runs, parts;
  const std::string word = comparable(name);
  const std::vector<std::string> given = tokens_of(name);
  for (const DevicePreset& d : device_presets()) {
    const std::vector<std::string> tokens = tokens_of(d.name);
    if (is_run(word, tokens) ||
        is_run(word, tokens_of(d.vendor + " " + d.full_name.substr(0, d.full_name.find(',')))))
      runs.push_back(d.name);
    const auto has = [](const std::vector<std::string>& all) {
      return [&all](const std::string& t) { return std::ranges::count(all, t) > 0; };
    };
    const bool other = std::ranges::any_of(
        given, [&](const std::string& t) { return names_another_card(t) && !has(tokens)(t); });
    if (!other && std::ranges::all_of(tokens, has(given))) parts.push_back(d.name);
  }
  return runs.empty() ? parts : runs;
}

std::vector<std::string> matching_models(const std::string& name) {
  if (const std::string same = preset_of(name); !same.empty()) return {same};
  const std::string word = model_letters(name);
  std::vector<std::string> runs;
  for (const std::string& preset : preset_names())
    if (is_run(word, tokens_of(preset))) runs.push_back(preset);
  return runs;
}

std::string planned_model(const std::string& name) {
  std::error_code ec;
  if (find_preset(name) || std::filesystem::exists(name, ec)) return name;
  const std::string preset = preset_of(name);
  return preset.empty() ? name : preset;
}

namespace {

/// Whether a run fits all of these devices or none of them.
bool same_memory(const std::vector<std::string>& devices) {
  const auto memory = [](const std::string& name) { return find_device_preset(name)->memory_bytes; };
  return std::ranges::all_of(devices,
                             [&](const std::string& d) { return memory(d) == memory(devices.front()); });
}

/// What other programs and their users call the frameworks of --for, as comparable() gives it. `accepted`: it
/// can mean nothing else; the others do not state what the plan needs (a ZeRO stage, the defaults of TRL).
struct FrameworkName {
  std::string_view name, ours;
  bool accepted;
};
constexpr FrameworkName kFrameworkNames[] = {
    {"llamafactory", "llama-factory", true},
    {"megatronlm", "megatron", true},
    {"megatroncore", "megatron", true},
    {"mcore", "megatron", true},
    {"huggingface", "transformers", true},
    {"hf", "transformers", true},
    {"hftrainer", "transformers", true},
    {"torch", "pytorch", true},
    {"fsdp", "fsdp2", true},
    {"titan", "torchtitan", true},
    {"trl", "transformers", false},
    {"peft", "transformers", false},
    {"sfttrainer", "transformers", false},
    {"trainer", "transformers", false},
    {"accelerate", "transformers", false},
    {"zero", "deepspeed", false},
    {"zero1", "deepspeed", false},
    {"zero2", "deepspeed", false},
    {"zero3", "deepspeed", false},
    {"ds", "deepspeed", false},
    {"nemo", "megatron", false},
    {"fsdp1", "fsdp2", false},
};

std::string framework_of(const std::string& name) {
  for (const FrameworkName& f : kFrameworkNames)
    if (f.accepted && f.name == comparable(name)) return std::string(f.ours);
  return name;
}

}  // namespace

std::string canonical_name(std::string_view key, const std::string& name) {
  const bool has_digit = name.find_first_of("0123456789") != name.npos;  // "amd" is no device
  if (key == "memory.device" && has_digit)
    if (const std::vector<std::string> found = matching_devices(name); !found.empty() && same_memory(found))
      return found.front();
  if (key == "plan.framework") return framework_of(name);
  if (key == "model.preset" && std::ranges::count(preset_names(), name) == 0)
    for (const std::string& preset : preset_names())
      if (comparable(preset) == comparable(name) && name.find('/') == name.npos) return preset;
  return name;
}

namespace {

/// "8" and "h100" of "8xH100"; the number is "" where the name has none.
std::pair<std::string, std::string> number_and_device(const std::string& name) {
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const std::size_t device = std::min(name.find_first_not_of(" xX*", digits), name.size());
  const bool times = name.substr(digits, device - digits).find_first_of("xX*") != name.npos;
  if (digits == 0 || !times || device == name.size()) return {};
  return {name.substr(0, digits), name.substr(device)};
}

}  // namespace

std::string suggest_device(const std::string& name) {
  const std::string word = comparable(name);
  if (const auto [number, device] = number_and_device(name); !number.empty()) {
    const std::string one =
        find_device_preset(device) ? did_you_mean_one_of({device}) : suggest_device(device);
    if (one.ends_with('?'))
      return fmt::format("{} and parallel.data = {} for {} of them?", one.substr(0, one.size() - 1), number,
                         number);
  }
  if (word == "cpu" || word == "host") {
    for (const DevicePreset& d : device_presets())
      if (d.link_gbs == 0)
        return fmt::format("; use --backend=cpu for this machine's CPU, or did you mean '{}'?", d.name);
  }
  if (word == "gpu" || word == "cuda" || word == "nvidia")
    return "; use --backend=cuda for this machine's GPU, or name a GPU model such as 'h100-80gb'";
  if (const std::vector<std::string> found = matching_devices(name); !found.empty())
    return did_you_mean_one_of(found);
  std::vector<std::string> names;
  for (const DevicePreset& d : device_presets()) names.push_back(d.name);
  return did_you_mean(name, names);
}

std::string suggest_model(const std::string& name) {
  if (const std::vector<std::string> found = matching_models(name); !found.empty())
    return did_you_mean_one_of(found);
  if (const std::string text = text_model_of(name); !text.empty()) return did_you_mean_one_of({text});
  // A model that was trained further from one of them: "Skywork-Reward-V2-Qwen3-8B".
  if (const std::string part = preset_in(name); !part.empty()) return did_you_mean_one_of({part});
  return did_you_mean(name.substr(name.rfind('/') + 1), preset_names());
}

std::string suggest_backend(const std::string& name, const std::vector<std::string>& known) {
  const std::string word = comparable(name);
  for (const std::string_view gpu : {"gpu", "nvidia", "cublas", "geforce"})
    if (word.starts_with(gpu)) return "; did you mean 'cuda'?";
  for (const std::string_view other : {"rocm", "hip", "mps", "metal", "xla", "tpu"})
    if (word == other) return "";  // not a misspelt name
  return did_you_mean(name, known);
}

std::string suggest_framework(const std::string& name, const std::vector<std::string>& known) {
  const std::string word = comparable(name);
  for (const FrameworkName& f : kFrameworkNames)
    if (f.name == word) {
      const bool stage = word.starts_with("zero") && word.size() == 5;
      return fmt::format("; did you mean '{}'{}?", f.ours,
                         stage ? fmt::format(" with parallel.zero = {}", word.back()) : "");
    }
  return did_you_mean(name, known);
}

std::string suggest_target(const std::string& target) {
  // A suggestion of several matrices has the quotes between them: those of the message enclose it.
  static constexpr std::pair<std::string_view, std::string_view> kForeignMatrices[] = {
      {"query", "q_proj"},
      {"wq", "q_proj"},
      {"key", "k_proj"},
      {"wk", "k_proj"},
      {"value", "v_proj"},
      {"wv", "v_proj"},
      {"output", "o_proj"},
      {"wo", "o_proj"},
      {"out_proj", "o_proj"},
      {"dense", "o_proj"},
      {"w1", "gate_proj"},
      {"w3", "up_proj"},
      {"w2", "down_proj"},
      {"fc1", "up_proj"},
      {"fc2", "down_proj"},
      {"c_fc", "up_proj"},
      {"dense_h_to_4h", "up_proj"},
      {"dense_4h_to_h", "down_proj"},
      {"qkv_proj", "q_proj', 'k_proj' and 'v_proj"},
      {"query_key_value", "q_proj', 'k_proj' and 'v_proj"},
      {"Wqkv", "q_proj', 'k_proj' and 'v_proj"},
      {"c_attn", "q_proj', 'k_proj' and 'v_proj"},
      {"gate_up_proj", "gate_proj' and 'up_proj"}};
  // Exact words only; a misspelt one is compared with our names.
  for (const auto& [word, ours] : kForeignMatrices)
    if (word == target) return fmt::format("; did you mean '{}'?", ours);
  std::vector<std::string> ours(lora_target_names().begin(), lora_target_names().end());
  ours.insert(ours.end(), {"all-linear", "lm_head", "embed_tokens"});
  return did_you_mean(target, ours);
}

}  // namespace trainhost::runfile
