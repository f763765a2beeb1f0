// A fake CUDA driver for tests, configured by environment variables: FAKE_CUDA_INIT (result of cuInit),
// _VERSION, _DEVICES (number), _CC (compute capabilities, "9.0" for all or "7.5,9.0" by device), _SMS
// (multiprocessors), _MODE (compute mode; 2: prohibited), _TOTAL (bytes), _FAIL (name of a query that returns
// 999), _UUID ("0": not supported), _MIG ("1": the devices are MIG slices, of which a process sees one).
// CUDA_VISIBLE_DEVICES selects as in the real driver: indices, UUIDs and unique beginnings of them, up to the
// first one that does not exist. Counts its calls, in particular those that would create a context.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::map<std::string, int>& counts() {
  static std::map<std::string, int> all;
  return all;
}

std::string setting(const char* name, const char* default_value) {
  const char* v = std::getenv((std::string("FAKE_CUDA_") + name).c_str());
  return v ? v : default_value;
}

/// Counts the call; returns 999 if it is the one in FAKE_CUDA_FAIL, else 0.
int called(const char* name) {
  ++counts()[name];
  return setting("FAIL", "") == name ? 999 : 0;
}

bool mig() { return setting("MIG", "0") == "1"; }

/// Byte i of the UUID of a device of the machine.
unsigned char uuid_byte(int device, int i) { return static_cast<unsigned char>(100 + device + i); }

/// "GPU-64656667-...", "MIG-..." for a slice.
std::string uuid_of(int device) {
  std::string text = mig() ? "MIG-" : "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", uuid_byte(device, i));
    text += (i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") + std::string(hex);
  }
  return text;
}

/// The device of the machine that an element of CUDA_VISIBLE_DEVICES names; -1 if there is none.
int device_named(const std::string& element, int count) {
  for (int d = 0; d < count; ++d)
    if (element == std::to_string(d) || (element.size() > 4 && uuid_of(d).starts_with(element))) return d;
  return -1;
}

/// The devices of the machine that the process sees, in its order.
std::vector<int> visible() {
  const int count = std::atoi(setting("DEVICES", "1").c_str());
  std::vector<int> all;
  if (const char* mask = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream elements(mask);
    for (std::string one; std::getline(elements, one, ',');) {
      const int d = device_named(one, count);
      if (d < 0) break;
      all.push_back(d);
    }
  } else {
    for (int d = 0; d < count; ++d) all.push_back(d);
  }
  if (mig() && all.size() > 1) all.resize(1);
  return all;
}

int devices() { return static_cast<int>(visible().size()); }

}  // namespace

EXPORT int fake_cuda_calls(const char* name) {
  auto it = counts().find(name);
  return it == counts().end() ? 0 : it->second;
}

EXPORT int cuInit(unsigned) {
  called("cuInit");
  const int asked = std::atoi(setting("INIT", "0").c_str());
  return asked == 0 && std::getenv("CUDA_VISIBLE_DEVICES") && devices() == 0 ? 100 : asked;
}
EXPORT int cuDriverGetVersion(int* v) {
  *v = std::atoi(setting("VERSION", "13000").c_str());
  return called("cuDriverGetVersion");
}
EXPORT int cuDeviceGetCount(int* n) {
  *n = devices();
  return called("cuDeviceGetCount");
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
  if (ordinal >= devices()) return 101;
  *device = 100 + visible()[static_cast<std::size_t>(ordinal)];  // a handle that differs from the index
  return called("cuDeviceGet");
}
EXPORT int cuDeviceGetName(char* text, int size, int device) {
  std::string name = "Fake H200";
  if (device != 100) name += " " + std::to_string(device - 100);
  if (mig()) name += " MIG 1g.18gb";
  std::strncpy(text, name.c_str(), static_cast<std::size_t>(size));
  return called("cuDeviceGetName");
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (attribute == 16) {  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    *value = std::atoi(setting("SMS", "132").c_str());
    return called("cuDeviceGetAttribute");
  }
  if (attribute == 20) {  // CU_DEVICE_ATTRIBUTE_COMPUTE_MODE
    *value = std::atoi(setting("MODE", "0").c_str());
    return called("cuDeviceGetAttribute");
  }
  std::istringstream all(setting("CC", "9.0"));
  std::string cc;
  for (int d = 100; d <= device && std::getline(all, cc, ','); ++d) {
  }
  *value = std::atoi(attribute == 75 ? cc.c_str() : cc.c_str() + cc.find('.') + 1);
  return called("cuDeviceGetAttribute");
}
EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::strtoull(setting("TOTAL", "150000000000").c_str(), nullptr, 10);
  return called("cuDeviceTotalMem_v2");
}
EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  if (setting("UUID", "1") == "0") return 801;
  for (int i = 0; i < 16; ++i) uuid[i] = uuid_byte(device - 100, i);
  return called("cuDeviceGetUuid_v2");
}
EXPORT int cuDeviceGetPCIBusId(char* text, int size, int device) {
  std::strncpy(text, ("0000:" + std::to_string(device - 100 + 10) + ":00.0").c_str(),
               static_cast<std::size_t>(size));
  return called("cuDeviceGetPCIBusId");
}
EXPORT int cuGetErrorName(int code, const char** text) {
  *text = code == 803   ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
          : code == 800 ? "CUDA_ERROR_NOT_PERMITTED"
          : code == 999 ? "CUDA_ERROR_UNKNOWN"
                        : nullptr;
  return *text ? 0 : 1;
}
EXPORT int cuGetErrorString(int code, const char** text) {
  *text = code == 803   ? "system has unsupported display driver / cuda driver combination"
          : code == 800 ? "operation not permitted"
          : code == 999 ? "unknown error"
                        : nullptr;
  return *text ? 0 : 1;
}
EXPORT int cuCtxCreate_v2(void**, unsigned, int) { return called("cuCtxCreate"); }
EXPORT int cuCtxCreate_v4(void**, void*, unsigned, int) { return called("cuCtxCreate"); }
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<std::intptr_t>(device));
  return called("cuDevicePrimaryCtxRetain");
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int) { return called("cuDevicePrimaryCtxRelease"); }
EXPORT int cuMemGetInfo_v2(std::size_t*, std::size_t*) { return called("cuMemGetInfo"); }

// Memory and streams of the emulated devices, in the library that is also the emulated NCCL
// (tests/support/cuda/driver_calls.cpp).
namespace {

template <class... A>
int emulated(const char* name, A... arguments) {
  const char* file = std::getenv("TRAINHOST_NCCL");
  void* library = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : nullptr;
  void* f = library ? dlsym(library, (std::string("emulated_") + name).c_str()) : nullptr;
  const int failed = called(name);
  return failed ? failed : f ? reinterpret_cast<int (*)(A...)>(f)(arguments...) : 801;
}

}  // namespace

EXPORT int cuCtxPushCurrent_v2(void* context) {
  return emulated("cuCtxPushCurrent", static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 100);
}
EXPORT int cuCtxPopCurrent_v2(void** context) { return emulated("cuCtxPopCurrent", context); }
EXPORT int cuStreamCreate(void** stream, unsigned flags) { return emulated("cuStreamCreate", stream, flags); }
EXPORT int cuStreamQuery(void* stream) { return emulated("cuStreamQuery", stream); }
EXPORT int cuStreamDestroy_v2(void* stream) { return emulated("cuStreamDestroy", stream); }
EXPORT int cuMemAlloc_v2(std::uint64_t* p, std::size_t bytes) { return emulated("cuMemAlloc", p, bytes); }
EXPORT int cuMemFree_v2(std::uint64_t p) { return emulated("cuMemFree", p); }
EXPORT int cuMemAllocHost_v2(void** p, std::size_t bytes) { return emulated("cuMemAllocHost", p, bytes); }
EXPORT int cuMemFreeHost(void* p) { return emulated("cuMemFreeHost", p); }
EXPORT int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void* stream) {
  return emulated("cuMemcpyHtoDAsync", to, from, bytes, stream);
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes, void* stream) {
  return emulated("cuMemcpyDtoHAsync", to, from, bytes, stream);
}
