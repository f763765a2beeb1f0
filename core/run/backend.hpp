// Which trainer runs. `auto` and `cuda` fall back to the CPU with a reason; any other name must work or the run stops.
#pragma once
#include <string>

#include "core/plugin/registry.hpp"

namespace trainhost::run {

struct Choice {
  plugin::Trainer* trainer = nullptr;
  std::string id;               // "cpu"
  std::string requested;        // as asked: "auto", "cuda", ...
  std::string fallback_reason;  // why it is not the one asked for; "" when it is, or when auto simply chose
  std::string trace;            // for -v: each candidate and what became of it
};

/// Throws Error(kNoBackend) when fallback is off or nothing is left, Error(kUsage) for a name that no file provides.
Choice choose_backend(plugin::Registry& registry, const std::string& requested, bool allow_fallback);

}  // namespace trainhost::run
