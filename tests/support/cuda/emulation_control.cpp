// Counts calls, makes them fail on request, and keeps the last error of each thread, as CUDA does. Also
// implements the settings and statistics of emu.hpp.
#include <algorithm>

#include "emulation_state.hpp"

namespace emu {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local bool in_host_function = false;

struct ErrorText {
  cudaError_t code;
  const char *name, *text;
};
#define EMU_ERROR(code, text) \
  { code, #code, text }
const ErrorText kErrors[] = {
    EMU_ERROR(cudaSuccess, "no error"),
    EMU_ERROR(cudaErrorInvalidValue, "invalid argument"),
    EMU_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    EMU_ERROR(cudaErrorInitializationError, "initialization error"),
    EMU_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    EMU_ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    EMU_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    EMU_ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    EMU_ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    EMU_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    EMU_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    EMU_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    EMU_ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    EMU_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    EMU_ERROR(cudaErrorUnsupportedPtxVersion, "the provided PTX was compiled with an unsupported toolchain."),
    EMU_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    EMU_ERROR(cudaErrorNotReady, "device not ready"),
    EMU_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    EMU_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    EMU_ERROR(cudaErrorAssert, "device-side assert triggered"),
    EMU_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    EMU_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    EMU_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    EMU_ERROR(cudaErrorNotSupported, "operation not supported"),
    EMU_ERROR(cudaErrorSystemDriverMismatch,
              "system has unsupported display driver / cuda driver combination"),
    EMU_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    EMU_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    EMU_ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    EMU_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    EMU_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    EMU_ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    EMU_ERROR(cudaErrorStreamCaptureImplicit,
              "operation would make the legacy stream depend on a capturing blocking stream"),
    EMU_ERROR(cudaErrorCapturedEvent,
              "operation not permitted on an event last recorded in a capturing stream"),
    EMU_ERROR(cudaErrorStreamCaptureWrongThread,
              "attempt to terminate a thread-local capture sequence from another thread"),
    EMU_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef EMU_ERROR

const ErrorText& find_error_text(cudaError_t e) {
  for (const ErrorText& t : kErrors)
    if (t.code == e) return t;
  static const ErrorText none = {cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
  return none;
}

// The error of every call on a machine without devices or with an old driver. Version queries always succeed.
cudaError_t machine_error(const std::string& name) {
  const Machine& m = state().machine;
  if (name == "cudaRuntimeGetVersion" || name == "cudaDriverGetVersion" || name == "cublasLtGetVersion")
    return cudaSuccess;
  if (m.driver_version / 1000 < m.runtime_version / 1000) return cudaErrorInsufficientDriver;
  return m.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
}

}  // namespace

State& state() {
  static State& s = *new State;  // never destroyed: the helper thread may outlive main
  return s;
}

int admit(const char* name) {
  State& s = state();
  ++s.calls[name], ++s.admitted;
  const bool blas = std::string_view(name).starts_with("cublas");
  int code = s.sticky != cudaSuccess ? s.sticky : machine_error(name);
  if (blas && code != 0) code = 1;  // CUBLAS_STATUS_NOT_INITIALIZED
  for (std::size_t i = 0; i < s.failures.size(); ++i) {
    Failure& f = s.failures[i];
    if (f.name != name || f.nth == 0 || --f.nth > 0) continue;
    const Failure now = f;
    if (now.sticky && !blas && now.name != "kernel" && now.name != "copy")
      s.sticky = static_cast<cudaError_t>(now.code);
    if (now.sticky && blas) f.nth = 1;  // the next call fails as well
    if (code == 0) code = now.code;
  }
  return code;
}

cudaError_t remember_error(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
  return e;
}
bool inside_host_function() { return in_host_function; }
void set_inside_host_function(bool inside) { in_host_function = inside; }

// ---- emu.hpp

void reset() {
  Lock lock(state().mutex);
  State& s = state();
  destroy_all_streams(lock);
  free_all_memory();
  s.machine = {}, s.schedule = {}, s.costs = {}, s.random = {1};
  s.events.clear(), s.graphs.clear(), s.execs.clear(), s.captures.clear(), s.shared_limit.clear();
  s.streams_made = 0, s.device_flags = 0, s.blas.clear();
  s.calls.clear(), s.failures.clear(), s.sticky = cudaSuccess, s.problems.clear(), s.pending_error.clear();
  s.statistics = {}, s.tracing = false, s.trace.clear(), s.host_us = 0;
  last_error = cudaSuccess;
}

void set_schedule(const Schedule& s) {
  Lock lock(state().mutex);
  state().schedule = s;
  state().random = {s.seed};
}
Schedule schedule() {
  Lock lock(state().mutex);
  return state().schedule;
}
std::vector<Schedule> every_schedule() {
  using enum Order;
  return {{kAscending, kAscending, true, 1},  {kDescending, kDescending, true, 2},
          {kRandom, kRandom, true, 3},        {kRandom, kRandom, true, 4},
          {kAscending, kDescending, true, 5}, {kRandom, kAscending, false, 6}};
}
void set_machine(const Machine& m) {
  Lock lock(state().mutex);
  state().machine = m;
}
void fail(const std::string& name, std::uint64_t nth, int code, bool sticky) {
  Lock lock(state().mutex);
  state().failures.push_back({name, nth, code, sticky});
}
std::map<std::string, std::uint64_t> calls() {
  Lock lock(state().mutex);
  return state().calls;
}
std::vector<std::string> problems() {
  Lock lock(state().mutex);
  return state().problems;
}
Outstanding outstanding() {
  Lock lock(state().mutex);
  const State& s = state();
  return {s.device_bytes,  s.device.size(), s.pinned_bytes, s.pinned.size(), s.streams.size(),
          s.events.size(), s.graphs.size(), s.execs.size(), s.blas.size()};
}
std::uint64_t peak_device_bytes() {
  Lock lock(state().mutex);
  return state().device_peak;
}
std::uint64_t peak_pinned_bytes() {
  Lock lock(state().mutex);
  return state().pinned_peak;
}
Statistics statistics() {
  Lock lock(state().mutex);
  return state().statistics;
}
Statistics statistics_of(cudaStream_t stream) {
  Lock lock(state().mutex);
  const CUstream_st* s = stream_of(stream);
  return s ? s->statistics : Statistics();
}
void clear_statistics() {
  Lock lock(state().mutex);
  state().statistics = {}, state().null_stream.statistics = {};
  for (auto& [handle, s] : state().streams) s->statistics = {};
}
void set_trace(bool on) {
  Lock lock(state().mutex);
  state().tracing = on;
}
std::vector<Record> take_trace() {
  Lock lock(state().mutex);
  return std::exchange(state().trace, {});
}
unsigned number_of(cudaStream_t stream) {
  Lock lock(state().mutex);
  const CUstream_st* s = stream_of(stream);
  return s ? s->number : ~0u;
}
void set_costs(const Costs& c) {
  Lock lock(state().mutex);
  state().costs = c;
}
double host_clock_us() {
  Lock lock(state().mutex);
  return state().host_us;
}
void advance_host_clock(double us) {
  Lock lock(state().mutex);
  state().host_us += us;
}

}  // namespace emu

extern "C" {
cudaError_t cudaGetLastError(void) { return std::exchange(emu::last_error, emu::state().sticky); }
cudaError_t cudaPeekAtLastError(void) { return emu::last_error; }
const char* cudaGetErrorName(cudaError_t error) { return emu::find_error_text(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return emu::find_error_text(error).text; }
}
