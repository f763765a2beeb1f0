// See cuda_driver.hpp. The few driver functions that are needed are declared here by hand, so that this file
// is built without the toolkit. cuInit() and the queries after it make no context: nothing is taken on any
// device.
#include "plugins/cuda/front/cuda_driver.hpp"

#include <stdlib.h>

#include <optional>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "plugins/cuda/front/nvml.hpp"
#include "plugins/cuda/front/vendor_library.hpp"
#include "trainhost/status.h"

namespace trainhost::cuda {
namespace {

using Result = int;  // CUresult
constexpr Result kStub = 34, kNotPermitted = 800, kNoDevice = 100, kInvalidDevice = 101,
                 kOperatingSystem = 304, kUnavailable = 46, kNotReady = 802, kDriverMismatch = 803,
                 kCompatNotSupported = 804, kUnknown = 999;
constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*

VendorLibrary g_driver("libcuda.so.1", "TRAINHOST_CUDA_DRIVER");

[[noreturn]] void unavailable(const std::string& why, const std::string& hint = {}, Result code = 0) {
  throw abi::StatusError(TH_E_UNAVAILABLE, why, hint).of("cuda", code);
}

/// A function that every driver has.
template <class F>
F need(const char* symbol) {
  if (F f = g_driver.find<F>(symbol)) return f;
  unavailable(g_driver.name() + " is no CUDA driver: it has no " + symbol, "reinstall the NVIDIA driver");
}

/// "CUDA_ERROR_NOT_PERMITTED: operation not permitted"; the number goes beside it.
std::string words(Result code) {
  using Text = Result (*)(Result, const char**);
  const char *name = nullptr, *text = nullptr;
  if (auto f = g_driver.find<Text>("cuGetErrorName")) f(code, &name);
  if (auto f = g_driver.find<Text>("cuGetErrorString")) f(code, &text);
  std::string out = name ? name : "error " + std::to_string(code);
  return text ? out + ": " + text : out;
}

/// What a user can do about a driver that does not start.
const char* remedy(Result code) {
  switch (code) {
    case kStub:
      return "the toolkit's stub of libcuda was found first: take its stubs folder out of LD_LIBRARY_PATH";
    case kDriverMismatch:
      return "libcuda.so.1 and the kernel module are of different driver versions: reboot, or reinstall the "
             "driver";
    case kCompatNotSupported:
      return "the CUDA compatibility package does not support this device: take it out of LD_LIBRARY_PATH";
    case kNotReady:
      return "the fabric manager is not running: systemctl status nvidia-fabricmanager";
    case kNotPermitted:
    case kOperatingSystem:
      return "this user may not open /dev/nvidia*: look at their permissions, and at the container's";
    case kUnavailable:
      return "another process has the devices to itself: nvidia-smi shows the compute mode";
    case kUnknown:
      return "often the kernel module nvidia-uvm: nvidia-modprobe -u, or reboot";
    default:
      return "nvidia-smi may say more";
  }
}

/// Nothing is visible. The management library does not know CUDA_VISIBLE_DEVICES: it tells hidden from
/// absent.
[[noreturn]] void no_device() {
  const char* mask = getenv("CUDA_VISIBLE_DEVICES");
  if (!mask)
    unavailable("the NVIDIA driver finds no device on this machine", "nvidia-smi lists what the driver sees");
  const std::string text = "CUDA_VISIBLE_DEVICES=\"" + escaped(mask, 60) + "\"";
  const std::optional<unsigned> all = nvml_device_count();
  if (all && *all > 0)
    unavailable("no NVIDIA device is visible: " + text + " hides the " + std::to_string(*all) +
                    (*all == 1 ? " that is here" : " that are here"),
                "unset CUDA_VISIBLE_DEVICES");
  unavailable("no NVIDIA device is visible, and " + text +
                  (all ? " is not why: the driver finds none" : " may be why"),
              "unset CUDA_VISIBLE_DEVICES");
}

std::string version_words(int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); }

/// A query that does not fail on a machine in order.
void check(Result code, const char* call) {
  if (code != 0)
    unavailable(std::string("the NVIDIA driver fails in ") + call + ": " + words(code), remedy(code), code);
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
  std::size_t total = 0;
  check(need<Result (*)(std::size_t*, int)>("cuDeviceTotalMem_v2")(&total, handle), "cuDeviceTotalMem");
  d.total_bytes = total;
  // Names by which the management library knows the device; drivers before 11.4 have no _v2, which also knows
  // slices.
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

std::vector<Device> visible_devices(int least_version, const char* least_branch) {
  std::string why;
  if (!g_driver.open(why))
    unavailable("no NVIDIA driver is installed here: " + why,
                "install the NVIDIA driver; in a container, start it with the GPUs");
  const Result started = need<Result (*)(unsigned)>("cuInit")(0);
  if (started == kNoDevice || (started == kInvalidDevice && getenv("CUDA_VISIBLE_DEVICES"))) no_device();
  if (started != 0)
    unavailable("the NVIDIA driver does not start: cuInit gives " + words(started), remedy(started), started);
  int version = 0, count = 0;
  check(need<Result (*)(int*)>("cuDriverGetVersion")(&version), "cuDriverGetVersion");
  if (version < least_version)
    unavailable("the NVIDIA driver supports CUDA " + version_words(version) + ", the cuda engine needs " +
                version_words(least_version) + ": update the NVIDIA driver to " + least_branch + " or newer");
  check(need<Result (*)(int*)>("cuDeviceGetCount")(&count), "cuDeviceGetCount");
  if (count <= 0) no_device();
  std::vector<Device> out;
  for (int i = 0; i < count; ++i) out.push_back(describe(i));
  return out;
}

}  // namespace trainhost::cuda
