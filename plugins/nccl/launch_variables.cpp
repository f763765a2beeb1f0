// See launch_variables.hpp.
#include "plugins/nccl/launch_variables.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"

namespace trainhost::nccl {
namespace {

constexpr std::uint32_t kMostRanks = 1u << 20;

const char* value_of(const char* name) {
  const char* text = std::getenv(name);
  return text && *text ? text : nullptr;
}

[[noreturn]] void wrong(const std::string& what) {
  throw abi::StatusError(TH_E_ARG, what,
                         "start it with torchrun --no-python --nproc-per-node N trainhost ...");
}

std::uint32_t number(const char* name, const char* text, std::uint32_t least, std::uint32_t most) {
  std::uint32_t out = 0;
  const char* end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, out);
  if (error != std::errc{} || at != end || out < least || out > most)
    wrong(std::string(name) + "=" + escaped(text, 60) + " is not a number from " + std::to_string(least) +
          " to " + std::to_string(most));
  return out;
}

}  // namespace

LaunchVariables read_launch_variables() {
  const char *rank = value_of("RANK"), *ranks = value_of("WORLD_SIZE");
  if (!rank || !ranks)
    throw abi::StatusError(TH_E_UNAVAILABLE, "this process was not started by torchrun",
                           "start it with torchrun --no-python --nproc-per-node N trainhost ...");
  LaunchVariables v;
  v.ranks = number("WORLD_SIZE", ranks, 1, kMostRanks);
  v.rank = number("RANK", rank, 0, v.ranks - 1);
  const auto needed = [](const char* name) {
    if (const char* text = value_of(name)) return text;
    wrong("RANK and WORLD_SIZE are set, but " + std::string(name) + " is not");
  };
  v.address = needed("MASTER_ADDR");
  v.port = static_cast<std::uint16_t>(number("MASTER_PORT", needed("MASTER_PORT"), 1, 65535));
  if (const char* text = value_of("LOCAL_WORLD_SIZE"))
    v.local_ranks = number("LOCAL_WORLD_SIZE", text, 1, v.ranks);
  if (const char* text = value_of("LOCAL_RANK"))
    v.local_rank = number("LOCAL_RANK", text, 0, v.local_ranks.value_or(v.ranks) - 1);
  const char *store = value_of("TORCHELASTIC_USE_AGENT_STORE"), *run = value_of("TORCHELASTIC_RUN_ID"),
             *restart = value_of("TORCHELASTIC_RESTART_COUNT");
  v.launcher_has_store = store && std::strcmp(store, "True") == 0;
  v.prefix = "trainhost/" + std::string(run ? run : "") + "/" + (restart ? restart : "0") + "/";
  return v;
}

}  // namespace trainhost::nccl
