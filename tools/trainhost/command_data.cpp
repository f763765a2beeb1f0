// trainhost data info | tokenize: inspect text and token files, create token files. The work is
// core/data/data_tools.cpp.
#include <fmt/format.h>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/data/data_tools.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

// Exact numbers; the table rounds them.
JsonValue file_json(const data::FileInfo& f) {
  return {{"file", f.file.string()},
          {"form", f.form},
          {"bytes", f.bytes},
          {"tokens", f.scan.tokens},
          {"bytes_per_token", f.bytes_per_token},
          {"distinct", f.scan.distinct},
          {"min_id", f.scan.min_id},
          {"max_id", f.scan.max_id},
          {"entropy_nats", f.scan.entropy_nats},
          {"outside", f.scan.outside}};
}

std::string file_table(const data::FileInfo& f, std::uint64_t vocab) {
  report::Table t("nl");
  t.row({"file", escaped(f.file.string())});
  t.row({"form", f.form});
  t.row({"size", fmt::format("{} ({} bytes)", format_bytes(f.bytes), format_count(f.bytes))});
  t.row({"tokens", fmt::format("{}, {:.2f} bytes each", format_count(f.scan.tokens), f.bytes_per_token)});
  t.row({"ids",
         fmt::format("{} distinct, {} to {}", format_count(f.scan.distinct), f.scan.min_id, f.scan.max_id)});
  t.row({"entropy", fmt::format("{:.4f} nats per token, from id frequencies", f.scan.entropy_nats)});
  // Only with --vocab can ids be outside.
  if (f.scan.outside)
    t.row({"outside",
           fmt::format(
               "{} ids are {} or larger{}", format_count(f.scan.outside), vocab,
               f.first_outside_byte ? fmt::format(", the first at byte {}", *f.first_outside_byte) : "")});
  return t.str({.width = report::output_width()});
}

}  // namespace

Exit run(const DataInfoArguments& a) {
  data::InfoOptions options;
  options.files.assign(a.files.begin(), a.files.end());
  options.tokenizer = a.tokenizer.empty() ? "bytes" : a.tokenizer;
  options.dtype = a.dtype;
  options.vocab = a.vocab;
  const std::vector<data::FileInfo> files = data::info(options);
  if (a.common.json) {
    using Json = JsonValue;
    Json all = Json::array();
    for (const data::FileInfo& f : files) all.push_back(file_json(f));
    fmt::print(result_stream(), "{}\n", Json{{"files", all}}.dump(2));
  } else {
    for (const data::FileInfo& f : files) fmt::print("{}\n", file_table(f, a.vocab));
  }
  return Exit::kDone;
}

Exit run(const DataTokenizeArguments& a) {
  std::filesystem::path out = a.output;
  // Next to the text.
  if (out.empty()) out = std::filesystem::path(a.files.front()).replace_extension(".bin");
  const data::Tokenized r =
      data::tokenize_to_bin({a.files.begin(), a.files.end()}, a.tokenizer.empty() ? "bytes" : a.tokenizer,
                            out, a.dtype, a.tokenizer == "bytes");
  for (const std::string& note : r.notes) report::write_message("note: " + note);
  if (a.common.json)
    fmt::print(
        "{}\n",
        JsonValue{{"file", out.string()}, {"tokens", r.tokens}, {"bytes", r.file_bytes}, {"dtype", r.dtype}}
            .dump());
  // To stderr, so that --json stays the only output.
  else if (!a.common.quiet)
    write_stderr(
        fmt::format("wrote {}: {} tokens as {} ({}), {:.2f} bytes of text per token\n", escaped(out.string()),
                    format_count(r.tokens), r.dtype, format_bytes(r.file_bytes),
                    r.tokens ? static_cast<double>(r.text_bytes) / static_cast<double>(r.tokens) : 0.0));
  return Exit::kDone;
}

}  // namespace trainhost::cli
