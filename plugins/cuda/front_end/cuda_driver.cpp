// Lists the visible devices. The functions of the driver that are needed are declared here, so that this file
// compiles without the CUDA toolkit. cuInit() and the queries create no context and so allocate no device
// memory. Whether a device is good enough: device_checks.cpp. See cuda_driver.hpp.
#include "plugins/cuda/front_end/cuda_driver.hpp"

#include <stdlib.h>

#include <optional>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "plugins/cuda/common/device_requirements.hpp"
#include "plugins/cuda/front_end/nvml.hpp"
#include "plugins/cuda/front_end/vendor_library.hpp"
#include "trainhost/status.h"

namespace trainhost::cuda {
namespace {

using Result = int;  // CUresult
// Values of CUresult; they are the same in every driver.
constexpr Result kNotInitialized = 3, kStub = 34, kNotPermitted = 800, kNoDevice = 100, kInvalidDevice = 101,
                 kOperatingSystem = 304, kUnavailable = 46, kNotReady = 802, kDriverMismatch = 803,
                 kCompatNotSupported = 804, kUnknown = 999;
// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*, _MULTIPROCESSOR_COUNT and _COMPUTE_MODE
constexpr int kMajor = 75, kMinor = 76, kMultiprocessors = 16, kComputeMode = 20;
constexpr int kProhibited = 2;  // CU_COMPUTEMODE_PROHIBITED

VendorLibrary g_driver("libcuda.so.1", "TRAINHOST_CUDA_DRIVER");

[[noreturn]] void unavailable(const std::string& why, const std::string& hint = {}, Result code = 0) {
  throw abi::StatusError(TH_E_UNAVAILABLE, why, hint).of(code ? "cuda" : "", code);
}

/// A function that every CUDA driver exports; throws if the library has none.
template <class F>
F need(const char* symbol) {
  if (F f = g_driver.find<F>(symbol)) return f;
  unavailable(g_driver.name() + " is not a CUDA driver: it does not export " + symbol,
              "reinstall the NVIDIA driver");
}

/// "CUDA_ERROR_NOT_PERMITTED: operation not permitted", or "error 34" if the driver has no name for the code.
std::string error_text(Result code) {
  using Text = Result (*)(Result, const char**);
  const char *name = nullptr, *text = nullptr;
  if (auto f = g_driver.find<Text>("cuGetErrorName")) f(code, &name);
  if (auto f = g_driver.find<Text>("cuGetErrorString")) f(code, &text);
  std::string out = name ? name : "error " + std::to_string(code);
  return text ? out + ": " + text : out;
}

/// Hint for a driver that fails to start.
const char* hint_for(Result code) {
  switch (code) {
    case kNotInitialized:
      return "a process that is forked from one that has used CUDA cannot use it: start the program as a new "
             "process; else the kernel module was unloaded while the driver was in use: nvidia-smi, or "
             "reboot";
    case kStub:
      return "the stub libcuda of the toolkit was loaded: remove its stubs folder from LD_LIBRARY_PATH";
    case kDriverMismatch:
      return "libcuda.so.1 and the kernel module have different driver versions: reboot, or reinstall the "
             "driver";
    case kCompatNotSupported:
      return "the CUDA compatibility package does not support this device: remove it from LD_LIBRARY_PATH";
    case kNotReady:
      return "the fabric manager is not running: systemctl status nvidia-fabricmanager";
    case kNotPermitted:
    case kOperatingSystem:
      return "no permission to open /dev/nvidia*: check their permissions, and the container's device "
             "settings";
    case kUnavailable:
      return "another process uses the devices exclusively: nvidia-smi shows the compute mode";
    case kUnknown:
      return "often the kernel module nvidia-uvm is not loaded: run nvidia-modprobe -u, or reboot";
    default:
      return "nvidia-smi may show the cause";
  }
}

/// Reports that no device is visible. NVML ignores CUDA_VISIBLE_DEVICES, so its device count distinguishes
/// hidden devices from missing ones.
[[noreturn]] void no_device() {
  const char* mask = getenv("CUDA_VISIBLE_DEVICES");
  if (!mask)
    unavailable("the NVIDIA driver found no device on this machine",
                "nvidia-smi -L lists the devices of the driver");
  const std::string text = "CUDA_VISIBLE_DEVICES=\"" + escaped(mask, 60) + "\"";
  const std::optional<unsigned> all = nvml_device_count();
  if (all && *all > 0)
    unavailable("no NVIDIA device is visible: " + text + " hides " +
                    (*all == 1 ? "the only device" : "all " + std::to_string(*all) + " devices"),
                "unset CUDA_VISIBLE_DEVICES");
  unavailable(all ? "the NVIDIA driver found no device on this machine; " + text + " is set"
                  : "no NVIDIA device is visible, possibly because of " + text,
              "unset CUDA_VISIBLE_DEVICES");
}

/// Checks the result of a query after a successful cuInit().
void check(Result code, const char* call) {
  if (code != 0)
    unavailable(std::string(call) + " of the NVIDIA driver failed: " + error_text(code), hint_for(code),
                code);
}

Device describe(int index) {
  Device d;
  d.index = index;
  int handle = 0;
  check(need<Result (*)(int*, int)>("cuDeviceGet")(&handle, index), "cuDeviceGet");
  char text[256] = "";
  check(need<Result (*)(char*, int, int)>("cuDeviceGetName")(text, sizeof text - 1, handle),
        "cuDeviceGetName");
  d.name = escaped(text);
  const auto attribute = need<Result (*)(int*, int, int)>("cuDeviceGetAttribute");
  check(attribute(&d.major, kMajor, handle), "cuDeviceGetAttribute");
  check(attribute(&d.minor, kMinor, handle), "cuDeviceGetAttribute");
  check(attribute(&d.multiprocessors, kMultiprocessors, handle), "cuDeviceGetAttribute");
  int compute_mode = 0;
  check(attribute(&compute_mode, kComputeMode, handle), "cuDeviceGetAttribute");
  d.prohibited = compute_mode == kProhibited;
  std::size_t total = 0;
  check(need<Result (*)(std::size_t*, int)>("cuDeviceTotalMem_v2")(&total, handle), "cuDeviceTotalMem");
  d.total_bytes = total;
  // UUID and PCI address identify the device for NVML. The _v2 function also supports MIG slices; drivers
  // before 11.4 do not have it.
  using Uuid = Result (*)(unsigned char*, int);
  Uuid uuid = g_driver.find<Uuid>("cuDeviceGetUuid_v2");
  if (!uuid) uuid = g_driver.find<Uuid>("cuDeviceGetUuid");
  d.has_uuid = uuid && uuid(d.uuid.data(), handle) == 0;
  char pci[32] = "";
  if (auto f = g_driver.find<Result (*)(char*, int, int)>("cuDeviceGetPCIBusId");
      f && f(pci, sizeof pci - 1, handle) == 0)
    d.pci = pci;
  return d;
}

}  // namespace

std::string cuda_version_text(int v) {
  return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
}

Driver query_driver() {
  std::string why;
  if (!g_driver.open(why))
    unavailable("no NVIDIA driver found: " + why,
                "install the NVIDIA driver; start a container with access to the GPUs");
  const Result started = need<Result (*)(unsigned)>("cuInit")(0);
  if (started == kNoDevice || (started == kInvalidDevice && getenv("CUDA_VISIBLE_DEVICES"))) no_device();
  if (started != 0)
    unavailable("the NVIDIA driver failed to start: cuInit returned " + error_text(started),
                hint_for(started), started);
  Driver driver;
  int count = 0;
  check(need<Result (*)(int*)>("cuDriverGetVersion")(&driver.version), "cuDriverGetVersion");
  if (driver.version < least_driver_version(kOldestMajor))
    unavailable("the NVIDIA driver supports CUDA " + cuda_version_text(driver.version) +
                    ", the cuda trainer needs " + cuda_version_text(least_driver_version(kOldestMajor)),
                std::string("update the NVIDIA driver to ") + least_driver_branch(kNewestMajor) +
                    " or newer; " + least_driver_branch(kOldestMajor) + " is the oldest that can be used");
  check(need<Result (*)(int*)>("cuDeviceGetCount")(&count), "cuDeviceGetCount");
  if (count <= 0) no_device();
  for (int i = 0; i < count; ++i) driver.devices.push_back(describe(i));
  return driver;
}

}  // namespace trainhost::cuda
