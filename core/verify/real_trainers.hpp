// TestedTrainers of installed plugins. Each mode has its own plugin registry, because a plugin reads its
// options when it is loaded. Only one registry exists at a time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/registry.hpp"
#include "core/verify/context.hpp"

namespace trainhost::verify {

class RealTrainers : public TestedTrainers {
 public:
  /// `open` returns a scanned registry for a run; the plugin options of that run set the mode. Throws
  /// usage_error for a backend that no file provides. A backend that cannot be used here has an
  /// unavailable_reason().
  using Open = std::function<std::unique_ptr<plugin::Registry>(const runfile::RunConfig&)>;
  RealTrainers(runfile::RunConfig c, const std::string& backend, Open open);

  const std::string& backend() const override { return backend_; }
  std::string unavailable_reason() override { return unavailable_reason_; }
  bool on_device() override { return on_device_; }
  std::vector<std::string> modes() override { return modes_; }
  bool has_mode(const std::string& mode) override;
  plugin::Trainer& trainer(const std::string& mode) override;
  plugin::Trainer& reference_trainer() override;
  plugin::Ledger& ledger() override { return registry_->ledger(); }
  RunSpec resolve_run(const std::string& mode, const runfile::RunConfig& c) override;

 private:
  void switch_to_mode(const std::string& mode);
  void find_modes();  // sets modes_, has_mode_option_, on_device_

  runfile::RunConfig c_;
  std::string backend_, unavailable_reason_, mode_;
  Open open_;
  bool on_device_ = false, has_mode_option_ = false;
  std::vector<std::string> modes_{""};
  std::unique_ptr<plugin::Registry> registry_;
};

}  // namespace trainhost::verify
