// The run file that `trainhost init` writes: the schema as TOML. What has a default is set to it; what has
// none is shown as a comment, so that the file as written is the built-in run.
#include <fmt/format.h>

#include "core/runfile/run_config.hpp"
#include "core/runfile/schema.hpp"

namespace trainhost::runfile {
namespace {

std::string line(const Key& k, std::string_view word) {
  const bool set = *k.fallback;
  const std::string assignment =
      fmt::format("{}{} = {}", set ? "" : "# ", word, set ? k.fallback : k.example);
  return fmt::format("{:<34} # {}\n", assignment, k.doc);
}

/// Keys right below `table`, and those of its sub-tables dotted: "rope_scaling.factor".
std::string keys_of(std::string_view table) {
  std::string out;
  const std::string prefix = std::string(table) + ".";
  for (const Key& k : schema())
    if (const std::string_view name = k.name; name.starts_with(prefix))
      out += line(k, name.substr(prefix.size()));
  return out;
}

bool top_level(std::string_view table) { return table.find('.') == table.npos && table != "plugin"; }

}  // namespace

std::string init_text() {
  std::string out =
      "# A run of trainhost: `trainhost plan FILE` shows its memory, `trainhost FILE` trains.\n"
      "# Every key may be left out; as written here they are the built-in run. Paths are relative to this "
      "file.\n"
      "# One key for one run: --set train.micro_batch=8\n";
  for (const Table& t : tables()) {
    if (!top_level(t.name)) continue;
    out += "\n";
    if (*t.doc) out += fmt::format("# {}\n", t.doc);
    // The table itself would already ask for adapters.
    const bool off = std::string_view(t.name) == "lora";
    out += fmt::format("{}[{}]\n{}", off ? "# " : "", t.name, keys_of(t.name));
  }
  out +=
      "\n# One table per plugin, handed to it; `trainhost plugins info NAME` lists its keys.\n# "
      "[plugin.cuda]\n# mode = \"auto\"\n";
  return out;
}

}  // namespace trainhost::runfile
