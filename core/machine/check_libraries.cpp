// See check_libraries.hpp. A library stays open: a driver may have started threads.
#include "core/machine/check_libraries.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/machine/system_files.hpp"

namespace trainhost::machine {
namespace {

template <class F>
F function_of(void* library, const char* name) {
  return library ? reinterpret_cast<F>(::dlsym(library, name)) : nullptr;
}

/// The first of `files` that can be opened and has the function.
template <class F>
F first_with(const std::vector<std::string>& files, const char* name, std::string& file) {
  for (const std::string& candidate : files)
    if (F f = function_of<F>(::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL), name)) {
      file = candidate;
      return f;
    }
  return nullptr;
}

/// "12.8" for 12080.
std::string cuda_version_name(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// "CUDA_ERROR_NO_DEVICE" or the number.
std::string cuda_error_name(void* library, int code) {
  const char* name = nullptr;
  if (auto f = function_of<int (*)(int, const char**)>(library, "cuGetErrorName")) f(code, &name);
  return name ? name : fmt::format("error {}", code);
}

CudaDevice describe_cuda_device(void* library, int index) {
  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
  constexpr int kMajor = 75, kMinor = 76;
  CudaDevice d;
  int handle = 0;
  const auto get = function_of<int (*)(int*, int)>(library, "cuDeviceGet");
  if (!get || get(&handle, index) != 0) return d;
  char text[256] = "";
  if (auto f = function_of<int (*)(char*, int, int)>(library, "cuDeviceGetName"))
    f(text, sizeof text - 1, handle);
  d.name = escaped(text);
  if (auto f = function_of<int (*)(int*, int, int)>(library, "cuDeviceGetAttribute"))
    f(&d.major, kMajor, handle), f(&d.minor, kMinor, handle);
  std::size_t total = 0;
  if (auto f = function_of<int (*)(std::size_t*, int)>(library, "cuDeviceTotalMem_v2")) f(&total, handle);
  d.total_bytes = total;
  return d;
}

Finding of_cuda(std::string name) { return {"cuda", std::move(name)}; }

bool is_executable_in(const std::string& path, const char* program) {
  std::istringstream in(path);
  for (std::string folder; std::getline(in, folder, ':');)
    if (!folder.empty() && ::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace

std::optional<Blas> loaded_blas() {
  std::string file;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        const std::string_view name = info->dlpi_name ? info->dlpi_name : "";
        // Wheels add a hash: libopenblas-1a2b3c.so.0. The engine of the CPU trainer has "openblas" as well.
        if (name.find("libopenblas") == name.npos) return 0;
        *static_cast<std::string*>(out) = name;
        return 1;
      },
      &file);
  if (file.empty()) return std::nullopt;
  void* const library = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  Blas out{file, {}, {}};
  if (auto f = function_of<char* (*)()>(library, "openblas_get_config")) out.config = f();
  if (auto f = function_of<char* (*)()>(library, "openblas_get_corename")) out.kernel = f();
  return out;
}

Finding check_blas(const std::optional<Blas>& blas, const std::string& flags) {
  Finding f{"libraries", "BLAS"};
  if (!blas) {
    f.state = State::kWarning;
    f.value = "OpenBLAS is not loaded";
    f.hint = "the CPU trainer needs it: install OpenBLAS (libopenblas0-pthread)";
    return f;
  }
  std::istringstream words(blas->config);
  std::string name, version;
  words >> name >> version;
  f.value = fmt::format("{} {}, kernel {}", escaped(name.empty() ? "OpenBLAS" : name), escaped(version),
                        blas->kernel.empty() ? "unknown" : escaped(blas->kernel));
  f.data = {{"file", blas->file}, {"config", blas->config}, {"kernel", blas->kernel}};
  const auto is_one_of = [&](std::initializer_list<const char*> kernels) {
    return std::any_of(kernels.begin(), kernels.end(), [&](const char* k) { return blas->kernel == k; });
  };
  const bool wide = is_one_of({"SkylakeX", "Cooperlake", "SapphireRapids"});
  const bool middle = is_one_of({"Haswell", "Zen", "Excavator"});
  const std::string padded = " " + flags + " ";
  const bool avx512 = padded.find(" avx512f ") != padded.npos, avx2 = padded.find(" avx2 ") != padded.npos;
  if (!blas->kernel.empty() && !wide && ((avx512 && middle) || (avx2 && !middle))) {
    f.state = State::kWarning;
    f.hint = "this CPU has faster kernels: unset OPENBLAS_CORETYPE and TRAINHOST_HONOUR_CORETYPE";
  }
  return f;
}

CudaDriver query_cuda_driver(const std::string& file) {
  CudaDriver out;
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = ::dlerror();
    out.error = why ? why : "dlopen failed";
    return out;
  }
  if (auto f = function_of<int (*)(int*)>(library, "cuDriverGetVersion")) f(&out.version);
  const auto init = function_of<int (*)(unsigned)>(library, "cuInit");
  const auto count = function_of<int (*)(int*)>(library, "cuDeviceGetCount");
  if (!init || !count) {
    out.error = file + " is not a CUDA driver";
    return out;
  }
  int devices = 0;
  if (const int code = init(0)) {
    out.error = "cuInit returned " + cuda_error_name(library, code);
  } else if (const int failed = count(&devices)) {
    out.error = "cuDeviceGetCount returned " + cuda_error_name(library, failed);
  } else {
    for (int i = 0; i < devices; ++i) out.devices.push_back(describe_cuda_device(library, i));
    if (devices == 0) out.error = "no device is visible";
  }
  return out;
}

bool has_nvidia_device(const std::filesystem::path& root) {
  std::error_code ec;
  return !names_in(root / "proc/driver/nvidia/gpus").empty() ||
         std::filesystem::exists(root / "dev/nvidia0", ec);
}

Findings check_cuda(const CudaDriver& driver, const std::filesystem::path& root) {
  Findings out;
  Finding f = of_cuda("CUDA driver");
  f.data = {{"version", driver.version}};
  f.value = driver.version ? "CUDA " + cuda_version_name(driver.version) : "none";
  if (!driver.error.empty() && (driver.version || has_nvidia_device(root)))
    f.value += ": " + escaped(driver.error, 1000);
  if (driver.devices.empty() && has_nvidia_device(root)) {
    f.state = State::kError;
    f.hint = driver.version ? "unset CUDA_VISIBLE_DEVICES; nvidia-smi may show the cause"
                            : "install the NVIDIA driver; start a container with access to the GPUs";
  } else if (!driver.devices.empty() && driver.version < 12000) {
    f.state = State::kError;
    f.hint = "the cuda trainer needs CUDA 12.0: update the NVIDIA driver";
  }
  out.push_back(std::move(f));
  for (std::size_t i = 0; i < driver.devices.size(); ++i) {
    const CudaDevice& d = driver.devices[i];
    Finding g = of_cuda(fmt::format("device {}", i));
    g.value = fmt::format("{}, {}, compute capability {}.{}", d.name, format_bytes(d.total_bytes), d.major,
                          d.minor);
    g.data = {{"name", d.name},
              {"total_bytes", d.total_bytes},
              {"compute_capability", fmt::format("{}.{}", d.major, d.minor)}};
    out.push_back(std::move(g));
  }
  return out;
}

LibraryVersion cuda_runtime_version(const std::vector<std::string>& files) {
  LibraryVersion out;
  int version = 0;
  const auto f = first_with<int (*)(int*)>(files, "cudaRuntimeGetVersion", out.file);
  if (f && f(&version) == 0) out.version = cuda_version_name(version);
  return out;
}

LibraryVersion nccl_version(const std::vector<std::string>& files) {
  LibraryVersion out;
  int v = 0;
  const auto f = first_with<int (*)(int*)>(files, "ncclGetVersion", out.file);
  // 22304 is 2.23.4; before 2.9 it was 2804 for 2.8.4.
  if (f && f(&v) == 0)
    out.version = v >= 10000 ? fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100)
                             : fmt::format("{}.{}.{}", v / 1000, v / 100 % 10, v % 100);
  return out;
}

LibraryVersion mpi_version(const std::vector<std::string>& files) {
  LibraryVersion out;
  // One of the few functions that may be called before MPI_Init. 8192: at least
  // MPI_MAX_LIBRARY_VERSION_STRING.
  std::string text(8192, '\0');
  int length = 0;
  const auto f = first_with<int (*)(char*, int*)>(files, "MPI_Get_library_version", out.file);
  if (f && f(text.data(), &length) == 0)
    // "Open MPI v4.1.4, package: ..." and "MPICH Version:\t4.0.2\nMPICH ..."
    out.version =
        escaped(std::string_view(text).substr(0, text.find_first_of(std::string_view(",\n\0", 3))), 60);
  return out;
}

Finding check_cuda_runtime(const LibraryVersion& runtime, const CudaDriver& driver) {
  Finding f = of_cuda("CUDA runtime");
  f.value = runtime.version.empty() ? "not installed"
                                    : fmt::format("{} ({})", runtime.version, escaped(runtime.file));
  f.data = {{"version", runtime.version}};
  if (!runtime.version.empty() && driver.version &&
      leading_number(runtime.version).value_or(0) > static_cast<std::uint64_t>(driver.version / 1000)) {
    f.state = State::kWarning;
    f.hint = fmt::format("the driver supports only CUDA {}: update the NVIDIA driver",
                         cuda_version_name(driver.version));
  }
  return f;
}

Finding check_nccl(const LibraryVersion& nccl, std::size_t devices) {
  Finding f{"libraries", "NCCL"};
  f.value = nccl.version.empty() ? "not installed" : fmt::format("{} ({})", nccl.version, escaped(nccl.file));
  f.data = {{"version", nccl.version}};
  if (nccl.version.empty() && devices > 1) {
    f.state = State::kWarning;
    f.hint = "it connects the GPUs of this machine: install libnccl2";
  }
  return f;
}

Finding check_mpi(const LibraryVersion& mpi, const std::string& path) {
  Finding f{"libraries", "MPI"};
  const bool launcher = is_executable_in(path, "mpirun");
  const bool library = !mpi.file.empty();
  f.value = !library && !launcher
                ? "not installed"
                : (library ? (mpi.version.empty() ? mpi.file : mpi.version) : "no libmpi.so.40") +
                      (launcher ? "" : ", no mpirun on the PATH");
  f.data = {{"version", mpi.version}, {"mpirun", launcher}};
  if (library != launcher) {
    f.state = State::kWarning;
    f.hint = "runs of several processes need both: install openmpi-bin";
  }
  return f;
}

}  // namespace trainhost::machine
