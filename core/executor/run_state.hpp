// The state of a trainer instance and the calls that it allows: the life-cycle tags of status.h. Used by
// calls.hpp for every trainer.
#pragma once
#include <string>

#include "core/abi/error_guard.hpp"

namespace trainhost::executor {

class InstanceState {
 public:
  /// Masks, named as in status.h; {exists} is every one of them.
  using States = unsigned;
  static constexpr States kCreated = 1, kReady = 2, kStepped = 4, kLost = 8;
  static constexpr States kReadyOn = kReady | kStepped, kCreatedOn = kCreated | kReadyOn;

  /// Throws StatusError (TH_E_STATE) that names `call` ("save()") unless the state is one of `allowed`.
  void require(States allowed, const char* call) const {
    if (state_ & allowed) return;
    const std::string what(call);
    if (state_ == kLost)
      throw abi::StatusError(TH_E_STATE,
                             what + " of a lost instance: " + lost_by_ + " failed before (" +
                                 std::string(abi::status_name(lost_with_)) + ")",
                             "destroy the instance, create another one and load a checkpoint");
    if (allowed == kCreated) throw abi::StatusError(TH_E_STATE, what + " a second time");
    throw abi::StatusError(TH_E_STATE, what + (state_ == kCreated ? " before init()" : " before a step"));
  }

  void reached(States s) { state_ = s; }

  /// Records the result of `call` (a string literal) and returns it. After some codes the instance is lost:
  /// only destroy() is allowed.
  th_status ended(const char* call, th_status s) {
    const bool lost = s == TH_E_DEVICE_LOST || s == TH_E_DEVICE_OOM || s == TH_E_HOST_OOM || s == TH_E_IO ||
                      s == TH_E_INTERNAL;
    if (lost && state_ != kLost) state_ = kLost, lost_by_ = call, lost_with_ = s;
    return s;
  }

 private:
  States state_ = kCreated;
  const char* lost_by_ = "";
  th_status lost_with_ = TH_OK;
};

}  // namespace trainhost::executor
