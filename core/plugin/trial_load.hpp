// The rehearsal: an unknown plugin is loaded, started, asked and stopped in a child process first, so that
// one that crashes, hangs, exits or changes the process harms nobody. The parent's side runs the child and
// judges its end; the child's side is probe_child(), which the program's main() calls when its only word is
// kProbeWord.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/plugin/file_validation.hpp"
#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {

inline constexpr const char* kProbeWord = "--probe-a-plugin";

/// The warning about a library whose mere loading sets the processor's mode.
inline constexpr const char* kFpWarning =
    "changed the floating-point mode when it was loaded (denormals to zero, most likely by -ffast-math): "
    "undone";

struct ProbeRequest {
  std::filesystem::path program;  // whose main() answers to kProbeWord
  double seconds = 30;            // a first start of a GPU driver takes ten
  std::filesystem::path file;
  FileId id;
  std::uint32_t threads = 1;
  std::map<std::string, std::string> options;  // its [plugin.ID]
};

struct ProbeVerdict {
  std::optional<Refused> refused;      // it must not be loaded here
  std::optional<Refused> unavailable;  // it loads well; its own probe() said no
  std::vector<std::string> warnings;   // what it did and should not, each follows "it"
};

/// Throws run_error only when no child can be started at all.
ProbeVerdict probe_in_child(const ProbeRequest& request);

/// The child: reads its request from standard input and never returns.
[[noreturn]] void probe_child();

}  // namespace trainhost::plugin
