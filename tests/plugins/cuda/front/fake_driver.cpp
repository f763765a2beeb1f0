// A fake CUDA driver for tests, configured by environment variables: FAKE_CUDA_INIT (result of cuInit),
// _VERSION, _DEVICES (number), _CC (compute capability, "9.0"), _SMS (multiprocessors), _TOTAL (bytes), _FAIL
// (name of a query that returns 999), _UUID ("0": not supported). Counts its calls, in particular those that
// would create a context.
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

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

/// True if CUDA_VISIBLE_DEVICES is empty, which hides all devices. Other values are ignored.
bool hidden() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible && !*visible;
}

int devices() { return hidden() ? 0 : std::atoi(setting("DEVICES", "1").c_str()); }

}  // namespace

EXPORT int fake_cuda_calls(const char* name) {
  auto it = counts().find(name);
  return it == counts().end() ? 0 : it->second;
}

EXPORT int cuInit(unsigned) {
  called("cuInit");
  const int asked = std::atoi(setting("INIT", "0").c_str());
  return asked == 0 && hidden() ? 100 : asked;
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
  *device = 100 + ordinal;  // a handle that differs from the index
  return ordinal < devices() ? called("cuDeviceGet") : 101;
}
EXPORT int cuDeviceGetName(char* text, int size, int device) {
  std::string name = "Fake H200";
  if (device != 100) name += " " + std::to_string(device - 100);
  std::strncpy(text, name.c_str(), static_cast<std::size_t>(size));
  return called("cuDeviceGetName");
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  const std::string cc = setting("CC", "9.0");
  if (attribute == 16) {  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    *value = std::atoi(setting("SMS", "132").c_str());
    return called("cuDeviceGetAttribute");
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
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(i + device);
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
EXPORT int cuDevicePrimaryCtxRetain(void**, int) { return called("cuDevicePrimaryCtxRetain"); }
EXPORT int cuMemGetInfo_v2(std::size_t*, std::size_t*) { return called("cuMemGetInfo"); }
