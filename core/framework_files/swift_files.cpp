// See swift_files.hpp.
#include "core/framework_files/swift_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/framework_files/arguments_read.hpp"
#include "core/framework_files/script_programs.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

bool starts_preferences_of_swift(const std::string& text) {
  return std::ranges::any_of(
      std::array{"swift rlhf", "swift/cli/rlhf.py", "megatron rlhf", "swift/cli/_megatron/rlhf.py"},
      [&](const char* words) { return names_program(text, words); });
}

/// Without DeepSpeed, FSDP and a launcher, ms-swift divides the layers of a model over the devices of a
/// process (device_map) where there are several.
void add_device_map(const std::string& text, const std::string& path, Entries& entries) {
  const auto given = [&](const char* key) {
    const auto found = std::ranges::find(entries, key, &Entry::key);
    return found == entries.end() ? nullptr : &*found;
  };
  for (const char* other : {"deepspeed", "@deepspeed_preset", "fsdp", "@fsdp_preset", "config_file"})
    if (given(other)) return;
  for (Entry& devices : read_variables(text, path, {"CUDA_VISIBLE_DEVICES"})) {
    const auto count = 1 + std::ranges::count(devices.value.text, ',');
    const Entry* ranks = given("NPROC_PER_NODE");
    if (devices.value.text.find('$') != devices.value.text.npos || count < 2 ||
        (ranks && ranks->value.integer >= count))
      continue;
    devices.spelling = devices.key;
    devices.key = "@device_map";
    entries.push_back(std::move(devices));
  }
}

}  // namespace

bool starts_megatron_of_swift(const std::string& text) {
  return std::ranges::any_of(
      std::array{"megatron sft", "megatron pt", "megatron rlhf", "swift/cli/_megatron/sft.py",
                 "swift/cli/_megatron/pt.py", "swift/cli/_megatron/rlhf.py"},
      [&](const char* words) { return names_program(text, words); });
}

bool starts_swift(const std::string& text) {
  return starts_preferences_of_swift(text) ||
         std::ranges::any_of(std::array{"swift sft", "swift pt", "swift/cli/sft.py", "swift/cli/pt.py"},
                             [&](const char* words) { return names_program(text, words); });
}

void check_swift_command(const File& f) {
  constexpr const char* kOptions[][2] = {{"sampler_engine", "sample"},
                                         {"sampler_type", "sample"},
                                         {"num_return_sequences", "sample"},
                                         {"infer_backend", "infer"}};
  for (const Entry& e : f.entries)
    for (const auto& [key, command] : kOptions)
      if (e.key == key)
        throw usage_error(fmt::format("{} is an option of `swift {}`, which trains nothing", key, command),
                          kPlanInference, e.key_where);
}

void join_swift_roles(Entries& entries) {
  constexpr std::string_view kTrainer = "train.";
  if (std::ranges::none_of(entries, [](const Entry& e) { return e.key == "train.gpus"; })) return;
  for (Entry& e : entries) {
    if (!e.key.starts_with(kTrainer)) continue;
    e.spelling = e.key;
    e.key = e.key == "train.gpus" ? "NPROC_PER_NODE" : e.key.substr(kTrainer.size());
  }
}

void add_swift_entries(const std::string& text, const std::string& path, bool script, Entries& entries) {
  constexpr std::array kDeepSpeed{"zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload"};
  for (Entry& e : entries) {
    const bool preset = e.key == "deepspeed" ? std::ranges::find(kDeepSpeed, e.value.text) != kDeepSpeed.end()
                                             : e.key == "fsdp" && e.value.text == "fsdp2";
    if (!preset) continue;
    if (e.spelling.empty()) e.spelling = e.key;
    e.key = "@" + e.key + "_preset";
  }
  if (!script) return;
  for (Entry& e : read_variables(text, path, {"NPROC_PER_NODE", "NNODES"})) entries.push_back(std::move(e));
  if (!starts_megatron_of_swift(text)) {
    add_device_map(text, path, entries);
    for (Entry& e : read_variables(text, path, {"CELOSS_PARALLEL_SIZE"})) entries.push_back(std::move(e));
  }
  const bool named = std::ranges::any_of(entries, [](const Entry& e) { return e.key == "rlhf_type"; });
  if (!named && starts_preferences_of_swift(text)) {
    const Where where{path, 1, 1};
    const char* command = starts_megatron_of_swift(text) ? "megatron rlhf" : "swift rlhf";
    entries.push_back({"@rlhf", where, runfile::text_value("dpo", where), command});
  }
}

}  // namespace trainhost::framework_files
