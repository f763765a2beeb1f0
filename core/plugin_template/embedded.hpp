// The files of sdk/templates and of the Rust crate, embedded into the program by the build
// (tools/cmake/TrainhostEmbed.cmake). Paths begin with "templates/" or "crate/". Used by project.cpp.
#pragma once
#include <span>
#include <string_view>

namespace trainhost::plugin_template {

struct Embedded {
  std::string_view path, text;
};

/// All of them; static.
std::span<const Embedded> templates();

}  // namespace trainhost::plugin_template
