// What the processes of a run agree on outside the trainer: that each phase of the start succeeded
// everywhere, that all have the same run, and when to stop. In a run of one process every function is
// trivial.
//
// All processes call the same functions in the same order.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/collectives.hpp"
#include "core/base/error.hpp"

namespace trainhost::training {

/// An error that all processes of a run throw together, at the same place: rank 0 reports it, the others end
/// with its code.
class SharedError : public Error {
 public:
  using Error::Error;
};

class Ranks {
 public:
  /// `all`: null in a run of one process. Must outlive it.
  explicit Ranks(Collectives* all) : all_(all && all->ranks() > 1 ? all : nullptr) {}

  std::uint32_t count() const { return all_ ? all_->ranks() : 1; }
  std::uint32_t rank() const { return all_ ? all_->rank() : 0; }
  bool several() const { return all_ != nullptr; }
  /// Only this process prints and writes files.
  bool first() const { return rank() == 0; }

  /// Calls f on every process. If it throws an Error on one, all throw a SharedError: that of the lowest
  /// rank. The message names that rank and its host, except for a usage error of rank 0 and an error of all.
  void together(const std::function<void()>& f);

  /// The largest value of all processes.
  std::int32_t largest(std::int32_t value);
  /// Replaces the values by their sums over the processes.
  void sum(std::span<double> values);
  /// The values of every process, in the order of the ranks; each gives as many.
  std::vector<double> gather(std::span<const double> own);
  /// The value of rank 0.
  std::uint64_t of_first(std::uint64_t value);
  std::string of_first(std::string text);
  /// The text of rank `root`.
  std::string of_rank(std::uint32_t root, std::string text);
  /// Throws a SharedError that names the processes and what differs, unless every process has the same texts.
  /// Each is a name and a text, for example {"train.data", hash}.
  void require_equal(const std::vector<std::pair<std::string, std::string>>& facts);

 private:
  void broadcast(std::string& text, std::uint32_t root);
  Collectives* all_;
};

}  // namespace trainhost::training
