// See plugin_cache_format.hpp. Fields and escapes: field_lines.hpp. An invalid number becomes 0 and one that
// is too large the maximum: the entry then matches no file. The digest detects truncated and edited files. It
// does not protect against an attacker, so read_own() accepts only files that no other user can write.
#include "core/plugin/plugin_cache_format.hpp"

#include <fmt/format.h>
#include <nettle/sha2.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>

#include "core/plugin/field_lines.hpp"

namespace trainhost::plugin {
namespace {

constexpr std::string_view kTitle = "trainhost plugin cache 3\n";
// 35 fields per record, in the order of format_cache_line(); 64 hex digits of SHA-256.
constexpr std::size_t kRecordFields = 36, kDigest = 64;
// A file that was written less than this before it was examined may change again without a new time stamp:
// file systems store times in ticks of up to 10 ms.
constexpr std::int64_t kFresh_ns = 100'000'000;

std::string sha256(std::string_view text) {
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, text.size(), reinterpret_cast<const std::uint8_t*>(text.data()));
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
  sha256_digest(&context, digest.size(), digest.data());
  std::string hex;
  for (std::uint8_t b : digest) hex += fmt::format("{:02x}", b);
  return hex;
}

std::string list(const std::vector<std::string>& v) { return join_fields(v); }
std::vector<std::string> unlist(const std::string& s) {
  return s.empty() ? std::vector<std::string>{} : split_fields(s);
}

/// Five fields of an identity: device, inode, size, seconds, nanoseconds.
void add(std::vector<std::string>& to, const FileId& id) {
  for (auto n : {id.device, id.inode, id.size}) to.push_back(std::to_string(n));
  for (auto n : {id.mtime_s, id.mtime_ns}) to.push_back(std::to_string(n));
}

std::int64_t number(const std::string& s) { return std::strtoll(s.c_str(), nullptr, 10); }

FileId id_at(const std::vector<std::string>& f, std::size_t i) {
  const auto u = [&f](std::size_t k) { return std::strtoull(f[k].c_str(), nullptr, 10); };
  return {u(i), u(i + 1), u(i + 2), number(f[i + 3]), number(f[i + 4])};
}

/// Whether `now` is before `then` or less than `limit_ns` (below one second) after it; true for invalid
/// times. Differences are formed in unsigned arithmetic, since the times come from a file.
bool within(std::int64_t now_s, std::int64_t now_ns, std::int64_t then_s, std::int64_t then_ns,
            std::int64_t limit_ns) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  for (std::int64_t ns : {now_ns, then_ns})
    if (ns < 0 || ns >= kSecond) return true;
  if (now_s < then_s) return true;
  const std::uint64_t seconds = static_cast<std::uint64_t>(now_s) - static_cast<std::uint64_t>(then_s);
  return seconds <= 1 && static_cast<std::int64_t>(seconds) * kSecond + now_ns - then_ns < limit_ns;
}

}  // namespace

bool CacheEntry::mtime_too_recent() const {
  for (const FileId* i : {&id, &sidecar})
    if (within(seen_s, seen_ns, i->mtime_s, i->mtime_ns, kFresh_ns)) return true;
  return false;
}

/// An unreadable cache is an empty one: it only saves work. With `host`, lines of other builds are skipped
/// before they are copied.
std::map<std::string, std::string> parse_cache(std::string_view text, std::string_view host) {
  std::map<std::string, std::string> out;
  if (!text.starts_with(kTitle) || text.size() < kTitle.size() + kDigest + 1) return out;
  const std::string_view body = text.substr(kTitle.size() + kDigest + 1);
  if (text.substr(kTitle.size(), kDigest) != sha256(body)) return out;
  for (std::string_view line : lines_of(body)) {
    const std::size_t path = line.find('\t'), end = path == line.npos ? path : line.find('\t', path + 1);
    const bool wanted = host.empty() || line.substr(0, path) == host;
    if (end != line.npos && wanted) out.emplace(line.substr(0, end), line.substr(end + 1));
  }
  return out;
}

/// Sorted by key, as a map is, so that equal content gives equal files.
std::string format_cache(const std::map<std::string, std::string>& lines) {
  std::string body;
  for (const auto& [key, line] : lines) body += key + "\t" + line + "\n";
  return fmt::format("{}{}\n{}", kTitle, sha256(body), body);
}

std::string format_cache_line(const CacheEntry& r) {
  const Manifest& m = r.manifest;
  std::vector<std::string> f;
  add(f, r.id), add(f, r.sidecar);
  f.insert(f.end(),
           {r.hash, std::to_string(r.seen_s), std::to_string(r.seen_ns), r.trial_loaded ? "1" : "0", m.id,
            m.version, m.kind, m.summary, m.abi, m.device, list(m.interfaces), list(m.families),
            list(m.modes), list(m.dtypes), list(m.options), list(m.cpu), list(m.libraries)});
  f.insert(f.end(), {std::to_string(m.priority), list(m.frameworks)});
  const Rejection none("", "", "");
  const Rejection& why = r.rejected ? *r.rejected : none;
  f.insert(f.end(), {why.stage(), why.code(), why.what(), why.hint(), list(r.warnings), why.native().domain,
                     std::to_string(why.native().code)});
  assert(f.size() == kRecordFields);
  return join_fields(f);
}

/// Indices are those of format_cache_line(); a line with another number of fields is from another version.
std::optional<CacheEntry> parse_cache_line(std::string_view line) {
  const std::vector<std::string> f = split_fields(line);
  CacheEntry r;
  if (f.size() != kRecordFields) return std::nullopt;
  r.id = id_at(f, 0), r.sidecar = id_at(f, 5);
  r.hash = f[10], r.seen_s = number(f[11]), r.seen_ns = number(f[12]), r.trial_loaded = f[13] == "1";
  Manifest& m = r.manifest;
  m.id = f[14], m.version = f[15], m.kind = f[16], m.summary = f[17], m.abi = f[18], m.device = f[19];
  m.interfaces = unlist(f[20]), m.families = unlist(f[21]), m.modes = unlist(f[22]), m.dtypes = unlist(f[23]);
  m.options = unlist(f[24]), m.cpu = unlist(f[25]), m.libraries = unlist(f[26]);
  m.priority = static_cast<int>(number(f[27])), m.frameworks = unlist(f[28]);
  if (!f[29].empty())
    r.rejected.emplace(f[29], f[30], f[31], f[32],
                       VendorError{f[34], static_cast<std::int32_t>(number(f[35]))});
  r.warnings = unlist(f[33]);
  return r;
}

}  // namespace trainhost::plugin
