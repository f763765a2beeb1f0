// The tensors of a run by their checkpoint names: in, out, and filled with initial values. Every piece that
// comes from the host is checked before a byte of it is copied. Works on f32 parameters in memory that the
// CPU addresses.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/abi/error_guard.hpp"
#include "core/executor/backend.hpp"

namespace trainhost::executor {

/// Throws StatusError(TH_E_ARG): the host handed in something that the interface does not allow.
[[noreturn]] inline void bad_argument(const std::string& what) { throw abi::StatusError(TH_E_ARG, what); }

class Tensors {
 public:
  /// `trainer`: who refuses, in messages. program and storage must outlive it.
  Tensors(const step::Program& program, Storage& storage, std::string trainer);

  /// Copies a piece of a tensor into its parameter (scope: TH_SCOPE_*). Throws abi::StatusError (argument)
  /// for a name, shape, type or piece that the model does not have, and for a state that the run does not
  /// keep.
  void load(std::uint32_t scope, const th_tensor& t);
  /// Fills the weights that load() did not bring whole, by core/model/tensors.hpp, on the backend's threads.
  void init(std::uint64_t seed, Backend& backend);
  /// Every tensor of that state, whole, in the order of the checkpoint's names.
  void save(std::uint32_t scope, th_tensor_sink& sink);

 private:
  /// Where a checkpoint tensor lies: its parameter and the first element in that parameter's buffers.
  struct Place {
    const step::Param* param = nullptr;
    std::uint64_t first = 0;
  };
  float* data(const Place& place, std::uint32_t scope);

  const step::Program& program_;
  Storage& storage_;
  const std::string trainer_;
  std::vector<Place> places_;          // by index into program_.tensor_infos
  std::vector<std::uint64_t> loaded_;  // elements of each tensor's weights that load() brought
};

}  // namespace trainhost::executor
