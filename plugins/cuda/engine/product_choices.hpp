// The file of algorithms that were chosen for matrix products, so that every run on a device uses the same
// ones and gives the same bits. One line per product: device, version of cuBLASLt, size of the workspace,
// shape and types, and the algorithm as cuBLASLt stores it, which is valid for that version only.
#pragma once
#include <cublasLt.h>

#include <map>
#include <optional>
#include <string>

#include "plugins/cuda/engine/gemm.hpp"

namespace trainhost::cuda {

class ProductChoices {
 public:
  /// Reads `file` if it exists; lines that cannot be read are ignored. device: name and compute capability.
  ProductChoices(std::string file, const std::string& device, std::uint64_t workspace_bytes);

  std::optional<cublasLtMatmulAlgo_t> find(const GemmShape& s) const;
  void add(const GemmShape& s, const cublasLtMatmulAlgo_t& chosen);
  /// Writes what was added. A choice that another process has written meanwhile is kept and not replaced.
  /// Returns "" or why the file cannot be written.
  std::string save();

 private:
  std::string key(const GemmShape& s) const { return prefix_ + s.text(); }

  const std::string file_, prefix_;
  std::map<std::string, std::string> lines_, added_;  // key to algorithm, in hexadecimal digits
};

/// Path of the file: `option` (plugin.cuda.products) if it is not null; else products-1 in $TRAINHOST_CACHE,
/// $XDG_CACHE_HOME/trainhost or ~/.cache/trainhost. "": there is none, and no product is timed.
std::string product_choices_file(const char* option);

}  // namespace trainhost::cuda
