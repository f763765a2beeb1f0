// The text of the registry's cache: a title line, the SHA-256 of the rest, then one line of fields for each
// plugin and host. Text to values and back; opens no file and never throws: what is not whole is not there.
// Who reads and writes the file: plugin_cache.hpp.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plugin/file_validation.hpp"
#include "core/plugin/plugin_manifest.hpp"
#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {

struct Remembered {
  FileId id, sidecar;                    // both must be as they are now
  std::string hash;                      // of the content; asked where the times are too close to tell
  std::int64_t seen_s = 0, seen_ns = 0;  // when it was looked at
  Manifest manifest;
  bool rehearsed = false;  // it was loaded in a child, and did no harm unless `refused`
  std::optional<Refused> refused;
  std::vector<std::string> warnings;

  /// Its clock may not tell a change: it was written within 100 ms of being looked at.
  bool too_fresh() const;
};

/// "host \t path" -> the rest of its line, of the one host or of all; empty when title or digest are not what
/// they should be.
std::map<std::string, std::string> cache_lines(std::string_view text, std::string_view host = {});

/// The whole file.
std::string cache_text(const std::map<std::string, std::string>& lines);

/// An entry as the rest of a line, and back; nullopt for a line with another number of fields.
std::string cache_line(const Remembered& r);
std::optional<Remembered> remembered(std::string_view line);

}  // namespace trainhost::plugin
