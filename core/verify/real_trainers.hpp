// The real trainers: Subjects over plugin registries, one registry for each mode because a plugin reads its
// options when it is loaded. Only one of them is alive at a time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/registry.hpp"
#include "core/verify/context.hpp"

namespace trainhost::verify {

class PluginSubjects : public Subjects {
 public:
  /// `open` makes a scanned registry for a run, whose plugin options decide the mode. Throws usage_error for
  /// a backend that no file provides; one that cannot be used here is absent().
  using Open = std::function<std::unique_ptr<plugin::Registry>(const runfile::RunConfig&)>;
  PluginSubjects(runfile::RunConfig c, const std::string& backend, Open open);

  const std::string& backend() const override { return backend_; }
  std::string absent() override { return absent_; }
  bool on_device() override { return on_device_; }
  std::vector<std::string> modes() override { return modes_; }
  bool offers(const std::string& mode) override;
  plugin::Trainer& judged(const std::string& mode) override;
  plugin::Trainer& reference() override;
  plugin::Ledger& ledger() override { return registry_->ledger(); }
  RunSpec resolved(const std::string& mode, const runfile::RunConfig& c) override;

 private:
  void enter(const std::string& mode);
  void look();  // what the backend is: usable, on a device, its modes

  runfile::RunConfig c_;
  std::string backend_, absent_, mode_;
  Open open_;
  bool on_device_ = false, has_mode_option_ = false;
  std::vector<std::string> modes_{""};
  std::unique_ptr<plugin::Registry> registry_;
};

}  // namespace trainhost::verify
