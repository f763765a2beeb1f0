// GPU-003: a run that asks for CUDA where there is none trains on the CPU, says why, and succeeds. Asked of
// the whole program, in a child whose CUDA_VISIBLE_DEVICES is empty: so a machine with a device is, for that
// child, one without.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/text.hpp"
#include "core/process/child.hpp"
#include "core/verify/builtin_run.hpp"
#include "core/verify/context.hpp"
#include "core/verify/gpu_checks.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/scratch_directory.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint64_t kFallbackSteps = 2;

struct Told {
  std::string backend, reason, last_words = "nothing";
  std::uint64_t steps = 0;
  bool done = false;
};

/// What the child's events say; the last line that is none is what it had to say itself.
Told told(const std::string& out) {
  Told t;
  std::istringstream in(out);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json j = nlohmann::json::parse(line, nullptr, false);
    if (!j.is_object()) {
      if (line.find_first_not_of(' ') != line.npos) t.last_words = escaped(line, 300);
      continue;
    }
    const std::string event = j.value("event", "");
    if (event == "start") t.backend = j.value("backend", ""), t.reason = j.value("fallback_reason", "");
    t.steps += event == "step";
    t.done = t.done || event == "done";
  }
  return t;
}

std::vector<std::string> words_for(const Context& context, const std::filesystem::path& run_file) {
  std::vector<std::string> words = {
      "train", run_file.string(), "--backend=cuda", "--steps", std::to_string(kFallbackSteps), "--json",
      "-q"};
  for (const std::filesystem::path& p : context.plugin_path)
    words.insert(words.end(), {"--plugin-path", p.string()});
  return words;
}

Finding judge(const Context& context) {
  ScratchDirectory scratch;
  const std::filesystem::path run_file = scratch.path() / "run.toml";
  std::ofstream(run_file) << builtin_run_toml() << "[output]\ndir = \"out\"\n";
  ChildRequest child;
  child.program = std::filesystem::canonical(context.program);  // /proc/self would be the child's own
  child.arguments = words_for(context, run_file);
  child.environment = {{"CUDA_VISIBLE_DEVICES", ""}};
  child.limits.seconds = 120;
  child.limits.output_bytes = 4 << 20;
  const ChildResult r = run_child(child);
  const Told t = told(r.output);
  const double code = r.code;
  auto no = [&](const std::string& why) {
    return Finding{false, code, 0, "a run with --backend=cuda and no visible device " + why};
  };
  if (r.end != ChildEnd::kExited) return no(describe(r, child.limits) + " and said: " + t.last_words);
  if (r.code != 0) return no(fmt::format("left with {} and said: {}", r.code, t.last_words));
  if (t.backend != "cpu") return no(fmt::format("trained on '{}'", escaped(t.backend)));
  if (t.reason.empty()) return no("trained on the cpu and did not say why");
  if (t.steps != kFallbackSteps || !t.done)
    return no(
        fmt::format("took {} of {} steps{}", t.steps, kFallbackSteps, t.done ? "" : " and never was done"));
  return {true, code, 0,
          fmt::format("with no visible device it trained {} steps on the cpu and said why: {}",
                      kFallbackSteps, escaped(t.reason, 300))};
}

}  // namespace

Result check_fallback(Context& context) {
  if (context.subjects.backend() != "cuda")
    return skipped(
        fmt::format("the {} backend transfers nothing to a device and needs no fallback: only cuda has one",
                    context.subjects.backend()));
  return once([&] { return judge(context); });
}

}  // namespace trainhost::verify
