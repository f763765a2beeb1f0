// Errors across the boundary, both ways: an exception inside a C++ plugin becomes a th_error, a th_error
// becomes text. For plugins that use the host's pure libraries; others take th::guard of the SDK, which knows
// no trainhost::Error.
#pragma once
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "trainhost/model.h"
#include "trainhost/status.h"

namespace trainhost::abi {

/// "unavailable", "unsupported", "device_oom", ...; "undocumented" for a number that the ABI does not have.
std::string_view status_name(th_status s);

/// The code that tells a caller the same as `e` tells a user: kUsage -> unsupported, kDoesNotFit -> host_oom,
/// kNoBackend -> unavailable, kStopped -> cancelled, others -> internal.
th_status status_of(Exit code);

/// A vendor library's own number for a failure: {"cuda", 719}. Code 0: there is none.
struct Native {
  std::string domain;
  std::int32_t code = 0;
};

/// Writes the error inside its struct_size; a null `error` is allowed. Returns `code`.
th_status fill(th_error* error, th_status code, std::string_view message, std::string_view hint = {},
               std::uint64_t bytes_needed = 0, std::string_view native_domain = {},
               std::int32_t native_code = 0) noexcept;

/// What a plugin wrote into an error, safe to print: no text is read past its field, control characters are
/// escaped.
struct Told {
  std::string message, hint;
  Native native;
  std::uint64_t bytes_needed = 0;
};
Told told(const th_error& error);

/// "cuda 719: " where there is a number, to stand before the message; else "".
std::string prefix(const Native& native);

/// A failure with a code of its own, for code below a guard: throw StatusError(...).of("cuda", 719).
struct StatusError : std::runtime_error {
  StatusError(th_status c, const std::string& message, std::string h = {}, std::uint64_t need = 0)
      : std::runtime_error(message), code(c), hint(std::move(h)), bytes_needed(need) {}
  StatusError& of(std::string domain, std::int32_t number) {
    return native = {std::move(domain), number}, *this;
  }
  th_status code;
  std::string hint;
  std::uint64_t bytes_needed;
  Native native;
};

/// For the first line of a guarded function: a null argument, or a run without a token, is the caller's
/// mistake (TH_E_ARG); a word that this minor does not have is a run for a later plugin (TH_E_UNSUPPORTED),
/// never the default. `out`: where the answer goes. Throws StatusError.
inline void require_arguments(const th_model* model, const th_run* run, const void* out) {
  if (!model) throw StatusError(TH_E_ARG, "there is no model: the argument is null");
  if (!run) throw StatusError(TH_E_ARG, "there is no run: the argument is null");
  if (!out) throw StatusError(TH_E_ARG, "there is nowhere to put the answer: the argument is null");
  if (run->seq_len == 0)
    throw StatusError(TH_E_ARG, "seq_len is 0: a run has sequences of at least one token");
  const auto known = [](std::uint32_t word, std::uint32_t last, const char* what) {
    if (word > last)
      throw StatusError(TH_E_UNSUPPORTED, std::string("the run asks for ") + what + " " +
                                              std::to_string(word) + "; this plugin knows 1 to " +
                                              std::to_string(last));
  };
  known(run->mode, TH_MODE_INFERENCE, "mode");
  known(run->optimizer, TH_OPT_ADAMW_8BIT, "optimizer");
  known(run->recompute, TH_RC_LAYERS, "recompute");
  for (std::uint32_t type : {run->dt_weight, run->dt_grad, run->dt_master, run->dt_moment, run->dt_compute})
    known(type, TH_DT_I4, "number type");
}

/// Runs `f` and returns TH_OK, or the code of whatever it threw. Nothing leaves it.
template <class F>
th_status guard(th_error* error, F&& f) noexcept {
  try {
    f();
    return TH_OK;
  } catch (const StatusError& e) {
    return fill(error, e.code, e.what(), e.hint, e.bytes_needed, e.native.domain, e.native.code);
  } catch (const Error& e) {
    return fill(error, status_of(e.code()), e.what(), e.hint());
  } catch (const std::bad_alloc&) {
    return fill(error, TH_E_HOST_OOM, "out of host memory");
  } catch (const std::exception& e) {
    return fill(error, TH_E_INTERNAL, e.what());
  } catch (...) {
    return fill(error, TH_E_INTERNAL, "an exception that is no std::exception");
  }
}

}  // namespace trainhost::abi
