// Devices are matched by UUID, or by PCI address if NVML does not know the UUID: the indices differ from
// those of CUDA, because NVML orders devices by PCI address and ignores CUDA_VISIBLE_DEVICES. NVML's
// functions are declared here, so that no header of the toolkit is needed. See nvml.hpp.
#include "plugins/cuda/front_end/nvml.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include "plugins/cuda/front_end/vendor_library.hpp"

namespace trainhost::cuda {
namespace {

using Handle = void*;
using ByText = int (*)(const char*, Handle*);
// Values of nvmlReturn_t.
constexpr int kNotFound = 6, kGpuIsLost = 15, kResetRequired = 16;
struct Memory {
  unsigned long long total, free, used;
};

VendorLibrary g_nvml("libnvidia-ml.so.1", "TRAINHOST_CUDA_NVML");

/// Opens and initialises NVML. nvmlInit() is reference-counted and cheap after the first call; never shut
/// down.
bool initialise() {
  std::string ignored;
  if (!g_nvml.open(ignored)) return false;
  auto init = g_nvml.find<int (*)()>("nvmlInit_v2");
  return init && init() == 0;
}

/// "GPU-5a0c…": a UUID as NVML writes it; the prefix of a MIG slice is "MIG-".
std::string uuid_text(const char* prefix, const std::array<unsigned char, 16>& u) {
  std::string out = prefix;
  for (std::size_t i = 0; i < u.size(); ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", u[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += hex;
  }
  return out;
}

/// NVML's handle of the device with this UUID; null if it knows none. `text`: the UUID with its prefix.
Handle handle_by_uuid(const Device& d, std::string& text) {
  const auto find = g_nvml.find<ByText>("nvmlDeviceGetHandleByUUID");
  Handle h = nullptr;
  for (const char* prefix : {"GPU-", "MIG-"}) {
    text = uuid_text(prefix, d.uuid);
    if (find && find(text.c_str(), &h) == 0) return h;
  }
  return nullptr;
}

Handle handle_of(const Device& d) {
  std::string ignored;
  if (Handle h = d.has_uuid ? handle_by_uuid(d, ignored) : nullptr) return h;
  Handle h = nullptr;
  if (auto find = g_nvml.find<ByText>("nvmlDeviceGetHandleByPciBusId_v2");
      find && !d.pci.empty() && find(d.pci.c_str(), &h) == 0)
    return h;
  return nullptr;
}

/// Result of nvmlDeviceGetMemoryInfo(), or kNotFound if NVML is missing or does not know the device.
int query_memory(const Device& d, Memory& m) {
  if (!initialise()) return kNotFound;
  const auto memory = g_nvml.find<int (*)(Handle, Memory*)>("nvmlDeviceGetMemoryInfo");
  const Handle h = handle_of(d);
  return h && memory ? memory(h, &m) : kNotFound;
}

}  // namespace

std::optional<unsigned> nvml_device_count() {
  unsigned n = 0;
  if (!initialise()) return std::nullopt;
  auto count = g_nvml.find<int (*)(unsigned*)>("nvmlDeviceGetCount_v2");
  return count && count(&n) == 0 ? std::optional(n) : std::nullopt;
}

std::string uuid_of(const Device& d) {
  std::string text;
  if (!d.has_uuid) return text;
  if (initialise() && handle_by_uuid(d, text)) return text;
  return uuid_text(d.name.find(" MIG ") == d.name.npos ? "GPU-" : "MIG-", d.uuid);
}

std::string nvml_fault(const Device& d) {
  Memory m{};
  switch (query_memory(d, m)) {
    case kGpuIsLost:
      return "has fallen off the bus or cannot be accessed";
    case kResetRequired:
      return "must be reset before it can be used";
    default:
      return "";
  }
}

std::optional<std::uint64_t> nvml_free_bytes(const Device& d) {
  Memory m{};
  if (query_memory(d, m) != 0) return std::nullopt;
  return std::min<std::uint64_t>(m.free, d.total_bytes);
}

}  // namespace trainhost::cuda
