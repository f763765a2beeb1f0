// Errors across the plugin boundary: guard() turns an exception inside a C++ plugin into a th_error;
// read_error() turns a th_error into text. For plugins that link the host's pure libraries; other plugins
// use th::guard of the SDK, which does not know trainhost::Error.
#pragma once
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "trainhost/model.h"
#include "trainhost/status.h"

namespace trainhost::abi {

/// "unavailable", "unsupported", "device_oom", ...; "undocumented" for an unknown number.
std::string_view status_name(th_status s);

/// The status that corresponds to an exit code: kUsage -> unsupported, kDoesNotFit -> host_oom,
/// kNoBackend -> unavailable, kStopped -> cancelled, others -> internal.
th_status status_of(Exit code);

/// The error number of a vendor library: {"cuda", 719}. Code 0 means none.
struct VendorError {
  std::string domain;
  std::int32_t code = 0;
};

/// Writes the error inside its struct_size; a null `error` is allowed. Returns `code`.
th_status write_error(th_error* error, th_status code, std::string_view message, std::string_view hint = {},
                      std::uint64_t bytes_needed = 0, std::string_view native_domain = {},
                      std::int32_t native_code = 0) noexcept;

/// The texts of a th_error, safe to print: never read past the field, control characters escaped.
struct ErrorText {
  std::string message, hint;
  VendorError native;
  std::uint64_t bytes_needed = 0;
};
ErrorText read_error(const th_error& error);

/// "cuda 719: ", to be put before the message; "" if the code is 0.
std::string prefix(const VendorError& native);

/// An error with its own status, thrown inside guard(): throw StatusError(...).of("cuda", 719).
struct StatusError : std::runtime_error {
  StatusError(th_status c, const std::string& message, std::string h = {}, std::uint64_t need = 0)
      : std::runtime_error(message), code(c), hint(std::move(h)), bytes_needed(need) {}
  StatusError& of(std::string domain, std::int32_t number) {
    return native = {std::move(domain), number}, *this;
  }
  th_status code;
  std::string hint;
  std::uint64_t bytes_needed;
  VendorError native;
};

/// Call it first in a guarded function. Throws StatusError: TH_E_ARG for a null argument or seq_len 0 (the
/// caller's mistake), TH_E_UNSUPPORTED for an enum value that this minor does not define, which must not be
/// treated as the default. `out` is the output argument.
inline void require_arguments(const th_model* model, const th_run* run, const void* out) {
  if (!model) throw StatusError(TH_E_ARG, "the model argument is null");
  if (!run) throw StatusError(TH_E_ARG, "the run argument is null");
  if (!out) throw StatusError(TH_E_ARG, "the output argument is null");
  if (run->seq_len == 0) throw StatusError(TH_E_ARG, "seq_len is 0; at least 1 is required");
  const auto known = [](std::uint32_t word, std::uint32_t last, const char* what) {
    if (word > last)
      throw StatusError(TH_E_UNSUPPORTED, std::string("the run uses ") + what + " " + std::to_string(word) +
                                              "; this plugin supports 1 to " + std::to_string(last));
  };
  known(run->mode, TH_MODE_INFERENCE, "mode");
  known(run->optimizer, TH_OPT_ADAMW_8BIT, "optimizer");
  known(run->recompute, TH_RC_LAYERS, "recompute");
  for (std::uint32_t type : {run->dt_weight, run->dt_grad, run->dt_master, run->dt_moment, run->dt_compute})
    known(type, TH_DT_I4, "number type");
}

/// Runs `f`; returns TH_OK, or the status of the exception that it threw. Never throws.
template <class F>
th_status guard(th_error* error, F&& f) noexcept {
  try {
    f();
    return TH_OK;
  } catch (const StatusError& e) {
    return write_error(error, e.code, e.what(), e.hint, e.bytes_needed, e.native.domain, e.native.code);
  } catch (const Error& e) {
    return write_error(error, status_of(e.code()), e.what(), e.hint());
  } catch (const std::bad_alloc&) {
    return write_error(error, TH_E_HOST_OOM, "out of host memory");
  } catch (const std::exception& e) {
    return write_error(error, TH_E_INTERNAL, e.what());
  } catch (...) {
    return write_error(error, TH_E_INTERNAL, "an exception that is not derived from std::exception");
  }
}

}  // namespace trainhost::abi
