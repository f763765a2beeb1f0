// The files of sdk/templates and of the Rust crate, as the build put them into the program
// (tools/cmake/TrainhostEmbed.cmake). Paths begin with "templates/" or "crate/". What is made of them:
// project.cpp.
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
