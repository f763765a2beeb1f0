// Suggestions for devices and adapter matrices; see suggest.hpp. Beyond spelling errors: words that users
// bring from other tools, for which the nearest name by letters would be wrong.
#include "core/runfile/suggest.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "core/base/text.hpp"
#include "core/model/presets.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::runfile {

std::string suggest_device(const std::string& name) {
  std::vector<std::string> names;
  for (const DevicePreset& d : device_presets()) names.push_back(d.name);
  if (name == "cpu" || name == "host") {
    for (const DevicePreset& d : device_presets())
      if (d.link_gbs == 0)
        return fmt::format("; use --backend=cpu for this machine's CPU, or did you mean '{}'?", d.name);
  }
  if (name == "gpu" || name == "cuda" || name == "nvidia")
    return "; use --backend=cuda for this machine's GPU, or name a GPU model such as 'h100-80gb'";
  return did_you_mean(name, names);
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
  ours.insert(ours.end(), {"all-linear", "lm_head"});
  return did_you_mean(target, ours);
}

}  // namespace trainhost::runfile
