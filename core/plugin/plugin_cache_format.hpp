// Text format of the registry's cache: a title line, the SHA-256 of the rest, then one line of fields for
// each plugin and host. Converts in both directions; opens no file and never throws: invalid text counts as
// empty. The file itself: plugin_cache.hpp.
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

struct CacheEntry {
  FileId id, sidecar;                    // both must equal the current identities
  std::string hash;                      // SHA-256 of the content; compared if mtime_too_recent()
  std::int64_t seen_s = 0, seen_ns = 0;  // when it was read
  Manifest manifest;
  bool trial_loaded = false;  // a trial load ran; it succeeded unless `rejected` is set
  std::optional<Rejection> rejected;
  std::vector<std::string> warnings;

  /// The file was modified less than 100 ms before it was read, so a later change may have the same time.
  bool mtime_too_recent() const;
};

/// "host \t path" -> rest of the line, for one host or for all. Empty if the title or digest is wrong.
std::map<std::string, std::string> parse_cache(std::string_view text, std::string_view host = {});

/// The whole file.
std::string format_cache(const std::map<std::string, std::string>& lines);

/// An entry as the rest of a line, and back; nullopt if the number of fields is wrong.
std::string format_cache_line(const CacheEntry& r);
std::optional<CacheEntry> parse_cache_line(std::string_view line);

}  // namespace trainhost::plugin
