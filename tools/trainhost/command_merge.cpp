// trainhost merge: folds an adapter into the weights of its model. The work is
// core/training/merge_adapter.cpp.
#include <fmt/format.h>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/training/adapter_files.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {

Exit run(const MergeArguments& a) {
  const std::size_t matrices = training::merge_adapter({a.adapter, a.model, a.output});
  if (a.common.json)
    fmt::print(result_stream(), "{{\"output\": {}, \"matrices\": {}}}\n", json_string(a.output), matrices);
  else if (!a.common.quiet)
    fmt::print("merged the adapters of {}; wrote the model to {}\n",
               matrices == 1 ? "1 matrix" : format_count(matrices) + " matrices", escaped(a.output, 4096));
  return Exit::kDone;
}

}  // namespace trainhost::cli
