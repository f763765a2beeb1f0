// Finds the checkpoint to resume from: the most recently published one that verifies. Reports why each more
// recent one was skipped. Age is the serial number in the manifest, not the time of the file (clocks jump,
// copies change it) and not the step (a run that resumed from an older checkpoint publishes lower steps
// later).
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <optional>
#include <system_error>
#include <tuple>

#include "core/base/checked.hpp"
#include "core/base/directory.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/checkpoint_manifest.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/store.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

/// N of the name "step-N"; digits without a leading zero.
/// Temporary directories and files of the user have other names and are ignored.
std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with("step-")) return std::nullopt;
  name.remove_prefix(5);
  std::uint64_t step = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  bool whole = error == std::errc() && end == name.data() + name.size();
  // "step-007" would be a second name of step 7.
  if (!whole || (name.size() > 1 && name[0] == '0')) return std::nullopt;
  return step;
}

}  // namespace

std::vector<std::string> names_in(const fs::path& dir) {
  std::error_code ec;
  std::vector<std::string> out = names_in_directory(dir, ec);
  if (ec) throw_errno("list", dir, ec.value());
  // In a fixed order, so that messages are the same each time.
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<Candidate> candidates(const fs::path& dir) {
  std::vector<Candidate> out;
  // No directory: a run without checkpoints.
  if (file_type_of(dir) == fs::file_type::not_found) return out;
  for (const std::string& name : names_in(dir)) {
    auto step = step_of(name);
    // Not through a symbolic link: it could lead out of output.dir.
    if (!step || file_type_of(dir / name) != fs::file_type::directory) continue;
    Candidate c{name, *step, 0, {}};
    try {
      Manifest m = parse_manifest(read_whole(dir / name / kManifestName, kMaxManifestBytes));
      c.serial = m.serial;
      if (m.meta.step != c.step) c.problem = fmt::format("its manifest belongs to step {}", m.meta.step);
    } catch (const Error& e) {
      c.problem = e.what();
    }
    out.push_back(std::move(c));
  }
  // Highest serial number first. Candidates whose manifest cannot be read have serial 0 and come last.
  std::sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.serial, a.step) > std::tie(b.serial, b.step);
  });
  return out;
}

std::uint64_t next_serial(const std::vector<Candidate>& all) {
  // Sorted by descending serial number, so the first candidate has the largest.
  assert(std::is_sorted(all.begin(), all.end(),
                        [](const Candidate& a, const Candidate& b) { return a.serial > b.serial; }));
  return all.empty() ? 1 : checked_add(all.front().serial, 1, "a serial number");
}

std::uint64_t Store::count() const { return candidates(dir_).size(); }

std::string best_name(const fs::path& dir) {
  if (file_type_of(dir / kBestName) == fs::file_type::not_found) return {};
  try {
    std::string name = read_whole(dir / kBestName, 64);
    if (name.ends_with('\n')) name.pop_back();
    return step_of(name) ? name : std::string();
  } catch (const Error&) {  // not a file, or not one of ours
    return {};
  }
}

bool Store::names_best() const { return !best_name(dir_).empty(); }

std::optional<Store::Found> Store::best() const {
  const std::string name = best_name(dir_);
  Manifest m;
  if (name.empty() || !damage_of(dir_ / name, m).empty()) return std::nullopt;
  return Found{dir_ / name, std::move(m.meta), {}};
}

std::optional<Store::Found> Store::newest(const PhaseSink& progress) const {
  std::vector<Candidate> all = candidates(dir_);
  if (all.empty()) return std::nullopt;
  Found found;
  for (const Candidate& c : all)  // their age is unknown, so they are always reported
    if (!c.problem.empty()) found.skipped.push_back(fmt::format("{}: {}", c.name, c.problem));
  // Newest first. Verification reads the whole checkpoint, so it stops at the first that is intact.
  for (const Candidate& c : all) {
    if (!c.problem.empty()) continue;
    Manifest m;
    std::string damage = damage_of(dir_ / c.name, m, progress);
    if (damage.empty()) {
      found.dir = dir_ / c.name;
      found.meta = std::move(m.meta);
      return found;
    }
    found.skipped.push_back(fmt::format("{}: {}", c.name, damage));
  }
  std::string list;
  for (const std::string& s : found.skipped) list += "\n  " + s;
  // Not a fresh start: that would overwrite what could still be repaired.
  throw run_error(
      fmt::format("{} contains checkpoints, but all are damaged:{}", escaped(dir_.string(), 4096), list),
      "restore one from a backup, or set another output.dir");
}

}  // namespace trainhost::checkpoint
