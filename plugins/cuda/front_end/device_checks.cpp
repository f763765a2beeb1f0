// Whether this machine can run the trainer. Checks in the order of the table "Why it cannot be used" in
// plugins/cuda/README.md. Creates no CUDA context. See device_checks.hpp.
#include "plugins/cuda/front_end/device_checks.hpp"

#include <charconv>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "plugins/cuda/common/device_requirements.hpp"
#include "plugins/cuda/front_end/nvml.hpp"
#include "trainhost/status.h"

namespace trainhost::cuda {
namespace {

std::string version_text(int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); }

std::string device_text(const Device& d) { return "device " + std::to_string(d.index) + " (" + d.name + ")"; }

}  // namespace

bool has_code_for(std::string_view architectures, int major, int minor) {
  while (!architectures.empty()) {
    const std::size_t end = architectures.find(',');
    const std::string_view one = architectures.substr(0, end);
    architectures.remove_prefix(end == one.npos ? architectures.size() : end + 1);
    int number = 0;  // "90-real" is split into the number 90 and the kind "-real"; other words are skipped
    const auto [rest, wrong] = std::from_chars(one.data(), one.data() + one.size(), number);
    if (wrong != std::errc{}) continue;
    const std::string_view kind(rest, static_cast<std::size_t>(one.data() + one.size() - rest));
    const int built_major = number / 10, built_minor = number % 10;
    const bool exact = built_major == major && built_minor == minor;
    if (exact) return true;
    if (kind == "" || kind == "-real")
      if (built_major == major && built_minor < minor) return true;
    if (kind == "" || kind == "-virtual")
      if (number < 10 * major + minor) return true;
  }
  return false;
}

SelectedDevice device_of(int index) {
  const Driver driver = query_driver();
  const std::vector<Device>& all = driver.devices;
  if (index >= 0 && static_cast<std::size_t>(index) < all.size())
    return {all[static_cast<std::size_t>(index)], all.size(), driver.version};
  std::string names;
  for (const Device& d : all)
    names += (names.empty() ? "" : ", ") + std::to_string(d.index) + " (" + d.name + ")";
  throw abi::StatusError(
      TH_E_ARG, "no CUDA device " + std::to_string(index) + "; available: " + names,
      "plugin.cuda.device counts the visible devices from 0; CUDA_VISIBLE_DEVICES changes their order");
}

std::uint64_t free_bytes_of(const Device& d) { return nvml_free_bytes(d).value_or(d.total_bytes); }

void require_usable(const SelectedDevice& d) {
  const std::string least = version_text(kLeastMajor, kLeastMinor);
  if (d.major < kLeastMajor || (d.major == kLeastMajor && d.minor < kLeastMinor))
    throw abi::StatusError(
        TH_E_UNAVAILABLE,
        device_text(d) + " has compute capability " + version_text(d.major, d.minor) +
            ", the cuda trainer needs " + least + " or newer: tensor cores for bf16 and TF32 (Ampere)",
        d.count > 1 ? "plugin.cuda.device selects another device; nvidia-smi -L lists them" : "");
  const char* another = d.count > 1 ? "; or plugin.cuda.device selects another device" : "";
  if (const std::string fault = nvml_fault(d); !fault.empty())
    throw abi::StatusError(
        TH_E_UNAVAILABLE, device_text(d) + " " + fault,
        std::string("see the kernel log for an Xid, then reset the GPU or reboot") + another);
  if (d.prohibited)
    throw abi::StatusError(TH_E_UNAVAILABLE,
                           device_text(d) + " has the compute mode \"prohibited\": no process may use it",
                           "`nvidia-smi -i " + (uuid_of(d).empty() ? std::to_string(d.index) : uuid_of(d)) +
                               " -c DEFAULT` changes it, as root" + another);
  const std::uint64_t free = free_bytes_of(d);
  if (free < kLeastFreeBytes)
    throw abi::StatusError(
        TH_E_UNAVAILABLE,
        device_text(d) + " has " + format_bytes(free) + " of " + format_bytes(d.total_bytes) +
            " free, the cuda trainer needs at least " + format_bytes(kLeastFreeBytes) + ": " +
            format_bytes(kLeastFreeBytes - free) + " short",
        "nvidia-smi lists the processes on the device; plugin.cuda.device selects another device",
        kLeastFreeBytes - free);
}

void require_code_for(const Device& d, std::string_view architectures, const char* engine) {
  if (has_code_for(architectures, d.major, d.minor)) return;
  throw abi::StatusError(TH_E_UNAVAILABLE,
                         std::string(engine) + " has no code for compute capability " +
                             version_text(d.major, d.minor) + " of " + device_text(d) +
                             ": it was built for " + std::string(architectures),
                         "configure it with -DTRAINHOST_CUDA_ARCHITECTURES=" + std::to_string(d.major) +
                             std::to_string(d.minor) + "-real");
}

}  // namespace trainhost::cuda
