// Why a candidate file is not used: where it was stopped, a stable code, a sentence and what to do. Thrown
// inside this folder, caught by the registry, which writes it into the candidate; never seen outside.
#pragma once
#include <stdexcept>
#include <string>

#include "core/plugin/vendor_error.hpp"

namespace trainhost::plugin {

/// Stages in order: gate (the file as such), manifest (its text), load (the dynamic linker), abi (its
/// tables), start (its own start), registry (among the others), probe (usable on this machine).
class Refused : public std::runtime_error {
 public:
  Refused(std::string stage, std::string code, const std::string& reason, std::string hint = {},
          Native native = {})
      : std::runtime_error(reason),
        stage_(std::move(stage)),
        code_(std::move(code)),
        hint_(std::move(hint)),
        native_(std::move(native)) {}
  const std::string& stage() const { return stage_; }
  const std::string& code() const { return code_; }
  const std::string& hint() const { return hint_; }
  const Native& native() const { return native_; }

 private:
  std::string stage_, code_, hint_;
  Native native_;
};

}  // namespace trainhost::plugin
