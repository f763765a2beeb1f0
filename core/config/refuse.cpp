// Settings that are understood but not carried out yet. Each would change what is trained, so none may be
// ignored. `plan` reads them and does not come here.
#include <fmt/format.h>

#include "core/config/run_config.hpp"

namespace trainhost::config {
namespace {

[[noreturn]] void refuse(const RunConfig& c, const std::string& key, const std::string& message,
                         const std::string& hint) {
  const auto found = c.given.find(key);
  throw usage_error(message, hint, found == c.given.end() ? Where{c.file.string()} : found->second);
}

void refuse_ranks(const RunConfig& c, const char* key, std::uint32_t ranks) {
  if (ranks > 1)
    refuse(c, key, fmt::format("{} = {}: training runs on one rank so far", key, ranks),
           "set it to 1, or plan only");
}

}  // namespace

void refuse_unsupported(const RunConfig& c) {
  refuse_ranks(c, "parallel.data", c.run.data_parallel);
  refuse_ranks(c, "parallel.tensor", c.run.tensor_parallel);
  refuse_ranks(c, "parallel.pipeline", c.run.pipeline_parallel);
  if (c.run.zero_stage > 0)
    refuse(c, "parallel.zero",
           fmt::format("parallel.zero = {}: there are no ranks to share the state with so far",
                       c.run.zero_stage),
           "set it to 0, or plan only");
  if (c.run.mode == RunMode::kLora)
    refuse(c, c.given.count("lora.rank") ? "lora.rank" : "lora.alpha",
           "[lora]: training adapters is not there yet",
           "remove the table to train everything, or plan only");
}

}  // namespace trainhost::config
