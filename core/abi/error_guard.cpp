// See error_guard.hpp.
#include "core/abi/error_guard.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/text.hpp"

namespace trainhost::abi {
namespace {

/// Copies as much as fits and always adds a NUL. Truncation never splits a UTF-8 sequence.
template <std::size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  std::size_t n = std::min(from.size(), N - 1);
  if (n < from.size())
    while (n > 0 && (static_cast<unsigned char>(from[n]) & 0xC0) == 0x80) --n;
  if (n > 0) std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

}  // namespace

// Fixed names, for records and tests; a code of a later minor is "undocumented".
std::string_view status_name(th_status s) {
  switch (s) {
    case TH_OK:
      return "ok";
    case TH_E_ARG:
      return "argument";
    case TH_E_UNSUPPORTED:
      return "unsupported";
    case TH_E_UNAVAILABLE:
      return "unavailable";
    case TH_E_DEVICE_OOM:
      return "device_oom";
    case TH_E_HOST_OOM:
      return "host_oom";
    case TH_E_CANCELLED:
      return "cancelled";
    case TH_E_STATE:
      return "state";
    case TH_E_NONFINITE:
      return "nonfinite";
    case TH_E_DEVICE_LOST:
      return "device_lost";
    case TH_E_IO:
      return "io";
    case TH_E_INTERNAL:
      return "internal";
    case TH_E_ABSENT:
      return "absent";
  }
  return "undocumented";
}

// What the host does next depends on the code: kUsage lets it try the next candidate.
th_status status_of(Exit code) {
  switch (code) {
    case Exit::kUsage:
      return TH_E_UNSUPPORTED;
    case Exit::kDoesNotFit:
      return TH_E_HOST_OOM;
    case Exit::kNoBackend:
      return TH_E_UNAVAILABLE;
    case Exit::kStopped:
      return TH_E_CANCELLED;
    default:
      return TH_E_INTERNAL;
  }
}

/// noexcept and without allocation: it must work when the error is "out of memory".
th_status write_error(th_error* error, th_status code, std::string_view message, std::string_view hint,
                      std::uint64_t bytes_needed, std::string_view native_domain,
                      std::int32_t native_code) noexcept {
  if (!error) return code;
  // Fields beyond the caller's struct_size are not written.
  if (TH_HAS(error, th_error, code)) error->code = code;
  if (TH_HAS(error, th_error, native_code)) error->native_code = native_code;
  if (TH_HAS(error, th_error, bytes_needed)) error->bytes_needed = bytes_needed;
  if (TH_HAS(error, th_error, native_domain)) copy_text(error->native_domain, native_domain);
  if (TH_HAS(error, th_error, message)) copy_text(error->message, message);
  if (TH_HAS(error, th_error, hint)) copy_text(error->hint, hint);
  return code;
}

/// Fields are not trusted to be NUL-terminated. Escaping makes a byte up to four characters long.
ErrorText read_error(const th_error& e) {
  const auto text = [](const auto& field) {
    return escaped({field, ::strnlen(field, sizeof field)}, 4 * sizeof field);
  };
  return {text(e.message), text(e.hint), {text(e.native_domain), e.native_code}, e.bytes_needed};
}

std::string prefix(const VendorError& n) {
  if (n.code == 0) return "";
  return (n.domain.empty() ? "code" : n.domain) + " " + std::to_string(n.code) + ": ";
}

}  // namespace trainhost::abi
