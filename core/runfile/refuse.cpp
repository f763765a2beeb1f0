// Settings that are understood but not carried out yet. Each would change what is trained, so none may be
// ignored. `plan` reads them and does not come here.
#include <fmt/format.h>

#include "core/runfile/run_config.hpp"

namespace trainhost::runfile {
namespace {

[[noreturn]] void refuse(const RunConfig& c, const std::string& key, const std::string& message,
                         const std::string& hint) {
  const auto found = c.given.find(key);
  throw usage_error(message, hint, found == c.given.end() ? Where{c.file.string()} : found->second);
}

}  // namespace

void refuse_unsupported(const RunConfig& c) {
  if (c.run.mode == RunMode::kInference)
    refuse(c, "plan.mode", "plan.mode = \"inference\": this is planned, not trained",
           "leave it out, or plan only");
  const PlannedOnly b = planned_only_setting(c.run);
  if (!b) return;
  if (b.key.starts_with("lora."))
    refuse(c, c.given.count("lora.rank") ? "lora.rank" : "lora.alpha",
           "[lora]: training adapters is not there yet",
           "remove the table to train everything, or plan only");
  if (b.key == "parallel.zero")
    refuse(c, b.key,
           fmt::format("parallel.zero = {}: there are no ranks to share the state with so far", b.value),
           "set it to 0, or plan only");
  if (b.key.starts_with("parallel.") && b.key != "parallel.sequence")
    refuse(c, b.key, fmt::format("{} = {}: training runs on one rank so far", b.key, b.value),
           "set it to 1, or plan only");
  refuse(c, b.key, fmt::format("{} = {}: this is planned, not trained", b.key, b.value),
         "leave it out, or plan only");
}

}  // namespace trainhost::runfile
