// Rejects settings that planning supports and training does not. Each of them would change the result of
// training, so none may be ignored. Planning does not call this.
#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::runfile {
namespace {

[[noreturn]] void reject_setting(const RunConfig& c, const std::string& key, const std::string& message,
                                 const std::string& hint) {
  const auto found = c.given.find(key);
  throw usage_error(message, hint, found == c.given.end() ? Where{c.file.string()} : found->second);
}

}  // namespace

void reject_unsupported(const RunConfig& c) {
  if (c.run.mode == RunMode::kInference)
    reject_setting(c, "plan.mode", "plan.mode = \"inference\" can be planned, but not trained",
                   "remove the key, or use `trainhost plan`");
  if (!c.framework.empty())
    reject_setting(
        c, "plan.framework",
        fmt::format("plan.framework = \"{}\" can be planned, but not trained: trainhost trains with its "
                    "own trainers",
                    escaped(c.framework, 80)),
        "remove the key, or use `trainhost plan`");
  if (c.given.count("model.path") && c.data.train.empty())
    reject_setting(c, "model.path",
                   "model.path is given, but data.train is not: there is nothing to train the model on",
                   "set data.train to the path of a text, a list or a glob");
  const PlannedOnly b = planned_only_setting(c.run);
  if (!b) return;
  if (b.key.starts_with("lora."))
    reject_setting(c, b.key,
                   fmt::format("{} = {} can be planned, but not trained: adapters are trained over "
                               "weights in the type of train.precision or in NF4",
                               b.key, b.value),
                   "remove the key, or use `trainhost plan`");
  if (b.key == "parallel.zero")
    reject_setting(
        c, b.key,
        fmt::format("parallel.zero = {} divides state among ranks, but there is one process", b.value),
        "start several, with mpirun -n 2 trainhost ..., or set it to 0");
  if (b.key == "parallel.data" || b.key == "parallel.tensor") {
    const std::uint64_t processes = std::uint64_t{c.run.parallel.data} * c.run.parallel.tensor;
    reject_setting(
        c, b.key,
        fmt::format("{} = {} needs {} processes, but this one was started alone", b.key, b.value, processes),
        fmt::format("mpirun -n {} trainhost ...; or set {} = 1", processes, b.key));
  }
  if (b.key.starts_with("parallel.") && b.key != "parallel.sequence")
    reject_setting(c, b.key,
                   fmt::format("{} = {}: training has data- and tensor-parallel ranks only", b.key, b.value),
                   "set it to 1, or use `trainhost plan`");
  reject_setting(c, b.key, fmt::format("{} = {} can be planned, but not trained", b.key, b.value),
                 "remove the key, or use `trainhost plan`");
}

void require_weights(const RunConfig& c) {
  if (const auto at = c.given.find("model.path"); at != c.given.end() && !c.weights)
    weights_file(c.model_folder, at->second, "model.path");
}

}  // namespace trainhost::runfile
