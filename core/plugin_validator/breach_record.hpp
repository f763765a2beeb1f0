// Rules of the interface that a plugin broke, as seen by the checking host. Written from any thread, also
// after the call in which the breach happened; read by the checks of level5_contract.cpp, one rule each.
#pragma once
#include <array>
#include <mutex>
#include <string>

namespace trainhost::plugin_validator {

enum class Rule {
  kCallbackOutsideCall,  // a host callback while no call ran and no instance existed
  kCallbackArguments,    // a null text, an unknown tier, memory that was not allocated
  kSinkAfterReturn,      // a node, a note or a tensor after the call had returned
  kSinkThread,           // from a thread other than the call's
  kInputChanged,         // a struct that the plugin may only read
  kErrorPastSize,        // bytes around the caller's error changed
  kErrorWrittenLate,     // the error was written after the call
  kErrorText,            // a message that is not terminated or not UTF-8
  kOutPastSize,          // bytes past the struct_size of another out struct
  kPrints,               // text on standard output or standard error
  kCount
};

class BreachRecord {
 public:
  /// Stores the first breach of each rule; later ones are usually consequences.
  void breach(Rule r, const std::string& sentence) {
    std::lock_guard lock(mutex_);
    std::string& first = first_[static_cast<std::size_t>(r)];
    if (first.empty()) first = sentence;
  }
  /// "" if the rule was not broken.
  std::string first(Rule r) const {
    std::lock_guard lock(mutex_);
    return first_[static_cast<std::size_t>(r)];
  }

 private:
  mutable std::mutex mutex_;
  std::array<std::string, static_cast<std::size_t>(Rule::kCount)> first_;
};

}  // namespace trainhost::plugin_validator
