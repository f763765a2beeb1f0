// The functions of the CUDA driver and runtime, NCCL and MPI that core/machine calls, for tests.
// FAKE_CUDA_ERROR is what cuInit returns.
#include <cstddef>
#include <cstdlib>
#include <cstring>

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int cuDriverGetVersion(int* v) { return *v = 12080, 0; }
EXPORTED int cuInit(unsigned) {
  const char* error = std::getenv("FAKE_CUDA_ERROR");
  return error ? std::atoi(error) : 0;
}
EXPORTED int cuGetErrorName(int code, const char** name) {
  return *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : nullptr, 0;
}
EXPORTED int cuDeviceGetCount(int* n) { return *n = 2, 0; }
EXPORTED int cuDeviceGet(int* handle, int index) { return *handle = index, 0; }
EXPORTED int cuDeviceGetName(char* text, int size, int) {
  return std::strncpy(text, "NVIDIA H100\x1b[31m", static_cast<std::size_t>(size)), 0;
}
EXPORTED int cuDeviceGetAttribute(int* value, int attribute, int) {
  return *value = attribute == 75 ? 9 : 0, 0;
}
EXPORTED int cuDeviceTotalMem_v2(std::size_t* bytes, int) { return *bytes = std::size_t{80} << 30, 0; }
EXPORTED int cudaRuntimeGetVersion(int* v) { return *v = 13000, 0; }
EXPORTED int ncclGetVersion(int* v) { return *v = 22304, 0; }
EXPORTED int MPI_Get_library_version(char* text, int* length) {
  std::strcpy(text, "Open MPI v4.1.4, package: Debian OpenMPI");
  return *length = static_cast<int>(std::strlen(text)), 0;
}
