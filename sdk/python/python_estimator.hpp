// Estimators that are functions of the Python process. The package wraps each function (_estimators.py): it
// gets model, run and trainer as JSON and returns the entries of the memory breakdown as JSON.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "core/plugin/plugin.hpp"

namespace trainhost::python {

/// The estimators of one call of the module. Made and destroyed with the interpreter lock; the estimators
/// are called without it and take it.
class PythonEstimators {
 public:
  /// `functions`: a list of (name, families, function); no family means every family.
  explicit PythonEstimators(const nanobind::list& functions);

  const std::vector<std::shared_ptr<plugin::Estimator>>& all() const { return all_; }

  /// Raises the exception that a function raised first; returns if none did.
  void rethrow() const;

 private:
  std::shared_ptr<nanobind::object> raised_;
  std::vector<std::shared_ptr<plugin::Estimator>> all_;
};

std::vector<std::string> names_of_components();
std::vector<std::string> names_of_tiers();
std::vector<std::string> names_of_claims();

}  // namespace trainhost::python
