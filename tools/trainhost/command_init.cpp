// trainhost init | schema: a commented run file, and the JSON Schema with which editors complete and check
// it.
#include <fmt/format.h>

#include <filesystem>

#include "core/base/text.hpp"
#include "core/checkpoint/store.hpp"
#include "core/runfile/run_config.hpp"
#include "core/runfile/schema.hpp"
#include "tools/trainhost/converted_run.hpp"
#include "tools/trainhost/result_stream.hpp"

namespace trainhost::cli {
namespace {

namespace fs = std::filesystem;

/// The schema that is installed with this program: PREFIX/share of PREFIX/bin. "" = there is none.
fs::path installed_schema() {
  std::error_code ec;
  const fs::path program = fs::read_symlink("/proc/self/exe", ec);
  const fs::path file = program.parent_path().parent_path() / "share/trainhost/run.schema.json";
  return !ec && fs::is_regular_file(file, ec) ? file : fs::path();
}

/// file:///usr/share/...; what a URL does not contain as it is becomes %XX.
std::string file_url(const fs::path& file) {
  std::string out = "file://";
  for (const char c : file.string()) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/-._~+").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace

Exit run(const SchemaArguments&) {
  fmt::print("{}", runfile::run_file_json_schema());
  return Exit::kDone;
}

Exit run(const InitArguments& a) {
  const fs::path schema = installed_schema();
  const std::string url = schema.empty() ? "./run.schema.json" : file_url(schema);
  if (a.common.from.empty() && (!a.common.model.empty() || !a.common.settings.empty()))
    throw usage_error("--model and --set need --from", "without it, init writes every key with its default");
  // --from takes every word after it, also one that was meant as FILE.
  if (const std::vector<std::string>& from = a.common.from; a.file.empty() && from.size() > 1)
    if (const std::string& last = from.back();
        last.ends_with(".toml") && last.find(':') == last.npos && !fs::exists(last))
      throw usage_error(
          fmt::format("--from: '{}' does not exist", escaped(last)),
          fmt::format("to write it, name it first: trainhost init {} --from ...", escaped(last)));
  std::string note;
  const std::string text = a.common.from.empty()
                               ? runfile::init_text(url)
                               : fmt::format("#:schema {}\n{}", url, converted_run(a.common, note));
  const auto print_note = [&] {
    if (!note.empty()) write_stderr("not trained as it is: " + note + "\n");
  };
  if (a.file.empty() || a.file == "-") {
    fmt::print("{}", text);
    print_note();
    return Exit::kDone;
  }
  if (fs::is_directory(a.file))
    throw usage_error(fmt::format("{} is a folder: expected a file", escaped(a.file)),
                      "for example trainhost init run.toml");
  // Not atomic with the write: a file made in between is lost. Acceptable: people type this command.
  if (fs::exists(a.file) && !a.force)
    throw usage_error(fmt::format("{} already exists", escaped(a.file)), "--force overwrites it");
  // Atomic all the same, so that --force never leaves half a file.
  checkpoint::write_file_atomically(fs::absolute(a.file), text);
  // To stderr: stdout is for the text itself.
  write_stderr(fmt::format("wrote {0}; train it with: trainhost {0}\n", escaped(a.file)));
  print_note();
  if (schema.empty()) write_stderr("for editors, beside it: trainhost schema > run.schema.json\n");
  return Exit::kDone;
}

}  // namespace trainhost::cli
