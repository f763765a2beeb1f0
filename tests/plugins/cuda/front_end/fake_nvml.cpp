// A fake NVML for tests, configured by environment variables: FAKE_NVML_INIT (result of nvmlInit), _DEVICES
// (number), _FREE (bytes), _MEMORY (result of nvmlDeviceGetMemoryInfo), _BY ("uuid", "mig" or "pci": the only
// identifier that it knows). If the file named by EMULATED_CUDA_FREE exists, it replaces _FREE. Device i has
// i MiB more free memory than device 0, so that a wrong match is detected.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
int g_inits = 0;

std::string setting(const char* name, const char* default_value) {
  const char* v = std::getenv((std::string("FAKE_NVML_") + name).c_str());
  return v ? v : default_value;
}

unsigned long long free_bytes() {
  unsigned long long n = std::strtoull(setting("FREE", "140000000000").c_str(), nullptr, 10);
  if (const char* file = std::getenv("EMULATED_CUDA_FREE")) std::ifstream(file) >> n;
  return n;
}

/// Handles are 1 + the index.
void* handle(int index) { return reinterpret_cast<void*>(static_cast<std::size_t>(index) + 1); }
}  // namespace

EXPORT int fake_nvml_inits() { return g_inits; }

EXPORT int nvmlInit_v2() {
  ++g_inits;
  return std::atoi(setting("INIT", "0").c_str());
}
EXPORT int nvmlDeviceGetCount_v2(unsigned* n) {
  *n = static_cast<unsigned>(std::atoi(setting("DEVICES", "1").c_str()));
  return 0;
}
EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  const std::string by = setting("BY", "uuid");
  const char* prefix = by == "mig" ? "MIG-" : "GPU-";
  if (by == "pci" || std::strncmp(uuid, prefix, 4) != 0 || std::strlen(uuid) != 40) return 6;
  unsigned first = 0;
  std::sscanf(uuid + 4, "%2x", &first);
  *out = handle(static_cast<int>(first) - 100);
  return 0;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* pci, void** out) {
  if (setting("BY", "uuid") != "pci") return 6;
  int bus = 0;
  std::sscanf(pci, "0000:%d:", &bus);
  *out = handle(bus - 10);
  return 0;
}
EXPORT int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  const auto index = reinterpret_cast<std::size_t>(device) - 1;
  memory[0] = 150000000000ull;
  memory[1] = free_bytes() + (index << 20);
  memory[2] = memory[0] - memory[1];
  return std::atoi(setting("MEMORY", "0").c_str());
}
