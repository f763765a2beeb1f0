// A libcuda.so.1 without a device, for the test that lets an installed cuDNN make plans
// (cudnn_plans_test.cpp): cuDNN compiles the kernels of a plan for a described device and loads them. Kernels
// "load" here; every other function of the driver that cuDNN looks up refuses.
#define FAKE extern "C" __attribute__((visibility("default"))) int

FAKE cuInit(unsigned) { return 100; }  // CUDA_ERROR_NO_DEVICE
FAKE cuDriverGetVersion(int* version) { return *version = 13000, 0; }
FAKE cuDeviceGetCount(int* count) { return *count = 0, 0; }
FAKE cuLibraryLoadData(void** library, ...) { return *library = library, 0; }
FAKE cuLibraryGetKernel(void** kernel, ...) { return *kernel = kernel, 0; }

#define REFUSE(name) \
  FAKE name() { return 801; }  // CUDA_ERROR_NOT_SUPPORTED
// clang-format off
REFUSE(cuCtxGetCurrent) REFUSE(cuCtxGetDevice) REFUSE(cuCtxGetLimit) REFUSE(cuCtxPopCurrent)
REFUSE(cuCtxPushCurrent) REFUSE(cuDeviceGet) REFUSE(cuDeviceGetAttribute)
REFUSE(cuDevicePrimaryCtxRelease) REFUSE(cuDevicePrimaryCtxReset) REFUSE(cuDevicePrimaryCtxRetain)
REFUSE(cuFuncGetAttribute) REFUSE(cuFuncSetAttribute) REFUSE(cuGetErrorName) REFUSE(cuGetErrorString)
REFUSE(cuKernelGetAttribute) REFUSE(cuKernelSetAttribute) REFUSE(cuLaunchCooperativeKernel)
REFUSE(cuLaunchKernel) REFUSE(cuLaunchKernelEx) REFUSE(cuLibraryLoadFromFile) REFUSE(cuLibraryUnload)
REFUSE(cuLinkAddData) REFUSE(cuLinkAddData_v2) REFUSE(cuLinkAddFile_v2) REFUSE(cuLinkComplete)
REFUSE(cuLinkCreate) REFUSE(cuLinkCreate_v2) REFUSE(cuLinkDestroy) REFUSE(cuMemcpyDtoH_v2)
REFUSE(cuModuleGetFunction) REFUSE(cuModuleGetGlobal_v2) REFUSE(cuModuleLoadData)
REFUSE(cuModuleLoadDataEx) REFUSE(cuModuleLoadFatBinary) REFUSE(cuModuleUnload)
REFUSE(cuOccupancyMaxActiveBlocksPerMultiprocessor) REFUSE(cuOccupancyMaxPotentialClusterSize)
REFUSE(cuStreamGetCtx) REFUSE(cuStreamSynchronize) REFUSE(cuTensorMapEncodeTiled)
    // clang-format on
