// Libraries that trainhost uses where they are installed: OpenBLAS, the CUDA driver and runtime, NCCL and
// MPI. They are opened with dlopen and asked for their versions; the CUDA driver also for its devices,
// without a context. File names are arguments, so that tests can name others. Functions are declared in the
// .cpp: no header of a vendor is needed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/machine/finding.hpp"

namespace trainhost::machine {

struct Blas {
  std::string file, config, kernel;  // "/lib/.../libopenblas.so.0", "OpenBLAS 0.3.21 ...", "SkylakeX"
};
/// The OpenBLAS that is loaded in this process, usually by the CPU trainer; nullopt if there is none.
std::optional<Blas> loaded_blas();
/// `flags`: the flags of /proc/cpuinfo, which say whether a faster kernel could be used.
Finding check_blas(const std::optional<Blas>& blas, const std::string& flags);

struct CudaDevice {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  std::uint64_t total_bytes = 0;
};
struct CudaDriver {
  int version = 0;    // 12080 for CUDA 12.8; 0 = no driver
  std::string error;  // why the driver has no devices
  std::vector<CudaDevice> devices;
};
/// `library`: "libcuda.so.1".
CudaDriver query_cuda_driver(const std::string& library);
/// Driver and devices. `root`: whether the machine has NVIDIA devices although the driver cannot be used.
Findings check_cuda(const CudaDriver& driver, const std::filesystem::path& root);
bool has_nvidia_device(const std::filesystem::path& root);

/// Version of a library; "" if no file of that name can be opened.
struct LibraryVersion {
  std::string file, version;
};
LibraryVersion cuda_runtime_version(const std::vector<std::string>& files);
LibraryVersion nccl_version(const std::vector<std::string>& files);
LibraryVersion mpi_version(const std::vector<std::string>& files);

Finding check_cuda_runtime(const LibraryVersion& runtime, const CudaDriver& driver);
Finding check_nccl(const LibraryVersion& nccl, std::size_t devices);
/// `path`: the variable PATH, in which mpirun is looked for.
Finding check_mpi(const LibraryVersion& mpi, const std::string& path);

}  // namespace trainhost::machine
