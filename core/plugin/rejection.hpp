// Why a candidate file is rejected: stage, stable code, reason and hint. Thrown inside this module only; the
// registry catches it and writes it into the Candidate. All codes: README.md. Also the error number of a
// vendor library, which rejections and PluginErrors carry.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace trainhost::plugin {

/// A vendor library's own number for a failure, as plugins report it with a status: {"cuda", 719}. It is
/// printed and stored; the host decides by status codes only.
struct VendorError {
  std::string domain;     // "cuda", "errno"; escaped
  std::int32_t code = 0;  // 0 = none
};

/// Stages in order: validation (of the file), manifest (its text), load (the dynamic linker), abi (its
/// tables), start (its start()), registry (duplicate ids), probe (usable on this machine).
class Rejection : public std::runtime_error {
 public:
  Rejection(std::string stage, std::string code, const std::string& reason, std::string hint = {},
            VendorError native = {})
      : std::runtime_error(reason),
        stage_(std::move(stage)),
        code_(std::move(code)),
        hint_(std::move(hint)),
        native_(std::move(native)) {}
  const std::string& stage() const { return stage_; }
  const std::string& code() const { return code_; }
  const std::string& hint() const { return hint_; }
  const VendorError& native() const { return native_; }

 private:
  std::string stage_, code_, hint_;
  VendorError native_;
};

}  // namespace trainhost::plugin
