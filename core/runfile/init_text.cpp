// The run file that `trainhost init` writes. A key with a default is set to it; a key without one is
// commented out with an example, so that the unmodified file is the built-in run.
#include <fmt/format.h>

#include "core/runfile/run_config.hpp"
#include "core/runfile/schema.hpp"

namespace trainhost::runfile {
namespace {

std::string key_line(const Key& k, std::string_view name) {
  const bool has_default = *k.default_toml;
  const std::string assignment =
      fmt::format("{}{} = {}", has_default ? "" : "# ", name, has_default ? k.default_toml : k.example);
  // Comments start in one column where the assignment is short enough.
  return fmt::format("{:<34} # {}\n", assignment, k.doc);
}

/// Lines of all keys of `table`; keys of a sub-table are dotted: "rope_scaling.factor".
std::string key_lines(std::string_view table) {
  std::string out;
  const std::string prefix = std::string(table) + ".";
  for (const Key& k : schema())
    if (const std::string_view name = k.name; name.starts_with(prefix))
      out += key_line(k, name.substr(prefix.size()));
  return out;
}

bool top_level(std::string_view table) { return table.find('.') == table.npos && table != "plugin"; }

}  // namespace

std::string init_text(const std::string& schema_url) {
  std::string out = schema_url.empty() ? "" : fmt::format("#:schema {}\n", schema_url);
  out +=
      "# Run file of trainhost. `trainhost plan FILE` reports its memory; `trainhost FILE` trains.\n"
      "# Every key is optional; the values below are the built-in run. Paths are relative to this file.\n"
      "# Override one key for one run: --set train.micro_batch=8\n";
  for (const Table& t : tables()) {
    if (!top_level(t.name)) continue;
    out += "\n";
    if (*t.doc) out += fmt::format("# {}\n", t.doc);
    // The presence of [lora] switches to training adapters, so its header is a comment.
    const bool commented_out = std::string_view(t.name) == "lora";
    out += fmt::format("{}[{}]\n{}", commented_out ? "# " : "", t.name, key_lines(t.name));
  }
  out +=
      "\n# Options of one plugin, in a table [plugin.NAME]; `trainhost plugins info NAME` lists them.\n"
      "# [plugin.cuda]\n# mode = \"auto\"\n";
  return out;
}

}  // namespace trainhost::runfile
