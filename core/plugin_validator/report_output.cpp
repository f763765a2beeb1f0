// See report_output.hpp. Texts of a plugin (reasons, file names) are escaped for the terminal and for XML;
// JSON strings are escaped by the writer. Keys of JSON and names of outcomes never change.
#include "core/plugin_validator/report_output.hpp"
#include "core/base/json_value.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"

namespace trainhost::plugin_validator {
using OrderedJson = JsonValue;

std::string line_of(const Result& r, bool verbose) {
  // Passed and skipped checks are the usual case; failures must not be lost among them.
  const bool quiet_skip = r.verdict.outcome == Outcome::kSkip;
  if (!verbose && (r.verdict.outcome == Outcome::kPass || quiet_skip)) return "";
  std::string out = fmt::format("{:<8}{} {}\n", name_of(r.verdict.outcome), r.check->id, r.check->title);
  if (!r.verdict.reason.empty()) out += fmt::format("        {}\n", escaped(r.verdict.reason, 600));
  return out;
}

std::string summary_of(const Report& r) {
  std::string out =
      fmt::format("{}: {} passed", r.id.empty() ? r.file.filename().string() : r.id, r.count(Outcome::kPass));
  for (Outcome o : {Outcome::kFail, Outcome::kCrash, Outcome::kTimeout, Outcome::kSkip})
    if (const std::size_t n = r.count(o))
      out += fmt::format(", {} {}", n,
                         o == Outcome::kFail    ? "failed"
                         : o == Outcome::kSkip  ? "skipped"
                         : o == Outcome::kCrash ? "crashed"
                                                : "timed out");
  out += fmt::format(" (seed {})\n", r.seed);
  // The first failure: later ones may be its consequences.
  for (const Result& x : r.results)
    if (x.verdict.outcome == Outcome::kFail || x.verdict.outcome == Outcome::kCrash ||
        x.verdict.outcome == Outcome::kTimeout)
      return out + fmt::format("run trainhost plugins check --explain {} for the reason and the fix\n",
                               x.check->id);
  return out;
}

std::string json_of(const Report& r) {
  OrderedJson all = OrderedJson::array();
  for (const Result& x : r.results)
    all.push_back({{"id", x.check->id},
                   {"level", x.check->level},
                   {"title", x.check->title},
                   {"outcome", name_of(x.verdict.outcome)},
                   {"reason", x.verdict.reason},
                   {"seconds", x.verdict.seconds}});
  const OrderedJson j = {
      {"schema", "trainhost.check/1"},
      {"plugin", {{"id", r.id}, {"kind", r.kind}, {"version", r.version}, {"file", r.file.string()}}},
      {"seed", r.seed},
      // "kept" is the name of this key since version 1.
      {"kept", r.all_passed()},
      {"passed", r.count(Outcome::kPass)},
      {"failed", r.count(Outcome::kFail) + r.count(Outcome::kCrash) + r.count(Outcome::kTimeout)},
      {"skipped", r.count(Outcome::kSkip)},
      {"checks", all}};
  return j.dump(2) + "\n";
}

// JUnit knows failures (a test found something) and errors (it could not run to its end): crash and timeout
// are errors.
std::string junit_of(const Report& r) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format(
      "<testsuite name=\"trainhost plugins check {}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
      "skipped=\"{}\">\n",
      escaped_markup(r.id.empty() ? r.file.filename().string() : r.id), r.results.size(),
      r.count(Outcome::kFail), r.count(Outcome::kCrash) + r.count(Outcome::kTimeout),
      r.count(Outcome::kSkip));
  for (const Result& x : r.results) {
    out += fmt::format("  <testcase classname=\"level{}\" name=\"{} {}\" time=\"{:.3f}\"", x.check->level,
                       x.check->id, escaped_markup(x.check->title), x.verdict.seconds);
    const std::string reason = escaped_markup(x.verdict.reason, 2000);
    switch (x.verdict.outcome) {
      case Outcome::kPass:
        out += "/>\n";
        // 2000 characters: some readers of JUnit reject longer attributes.
        continue;
      case Outcome::kSkip:
        out += fmt::format(">\n    <skipped message=\"{}\"/>\n", reason);
        break;
      case Outcome::kFail:
        out += fmt::format(">\n    <failure message=\"{}\"/>\n", reason);
        break;
      default:
        out +=
            fmt::format(">\n    <error type=\"{}\" message=\"{}\"/>\n", name_of(x.verdict.outcome), reason);
    }
    out += "  </testcase>\n";
  }
  return out + "</testsuite>\n";
}

}  // namespace trainhost::plugin_validator
