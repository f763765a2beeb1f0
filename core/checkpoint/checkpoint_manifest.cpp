// Writes and parses manifest.json. Parsing uses the strict JSON reader, as for every file from outside. The
// seal, a hash of all text before it, is the last member, so a manifest that was truncated or changed by a
// single bit is detected before any of its values is used.
#include "core/checkpoint/checkpoint_manifest.hpp"

#include <fmt/format.h>

#include <cassert>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/xxh3.hpp"

namespace trainhost::checkpoint {
namespace {

using Json = JsonValue;

constexpr std::string_view kSeal = ",\n \"seal\": \"", kEnd = "\"\n}\n";
// The tail has a fixed length, which is why the seal can be found without parsing.
constexpr std::size_t kTailBytes = kSeal.size() + 32 + kEnd.size(), kMaxText = 1 << 20, kMaxFiles = 100'000;

Json strings(const std::map<std::string, std::string>& map) {
  Json j = Json::object();
  for (const auto& [k, v] : map) j[k] = v;
  return j;
}

std::map<std::string, std::string> read_strings(JsonReader& json) {
  std::map<std::string, std::string> out;
  std::string key;
  for (json.open_object(); json.next_member(key, kMaxText);)
    if (!out.emplace(key, json.string(kMaxText)).second) throw JsonError(json.at(), "duplicate key");
  return out;
}

/// Unknown members are skipped: a later version may add some. A file name is joined to the directory of the
/// checkpoint, so anything but a plain name could read a file elsewhere.
FileRecord read_record(JsonReader& json) {
  FileRecord r;
  std::string key;
  for (json.open_object(); json.next_member(key, kMaxText);) {
    if (key == "name")
      r.name = json.string(255);
    else if (key == "bytes")
      r.bytes = json.integer();
    else if (key == "xxh3_128")
      r.xxh3 = json.string(32);
    else if (key == "tensors")
      r.tensors = read_strings(json);
    else
      json.skip_value();
  }
  bool plain = !r.name.empty() && r.name.find('/') == r.name.npos && r.name != "." && r.name != "..";
  if (!plain) throw JsonError(json.at(), fmt::format("'{}' is not a plain file name", escaped(r.name)));
  return r;
}

/// The format is written and therefore read first; a newer one ends the parse before its members could be
/// misread.
void read_member(JsonReader& json, const std::string& key, Manifest& m) {
  if (key == "format") {
    if (std::uint64_t f = json.integer(); f != kManifestFormat)
      throw run_error(
          fmt::format("the manifest has format {}, this program reads format {}: another version wrote it", f,
                      kManifestFormat));
  } else if (key == "serial")
    m.serial = json.integer();
  else if (key == "step")
    m.meta.step = json.integer();
  else if (key == "kernel_set")
    m.meta.kernel_set = json.string(kMaxText);
  else if (key == "config_digest")
    m.meta.config_digest = json.string(kMaxText);
  else if (key == "program_version")
    m.meta.program_version = json.string(kMaxText);
  else if (key == "backend")
    m.meta.backend = json.string(kMaxText);
  else if (key == "extra")
    m.meta.extra = read_strings(json);
  else if (key == "files") {
    for (json.open_array(); json.next_element();) {
      // Bounds the memory of a manifest that is valid JSON but was not written by this program.
      if (m.files.size() == kMaxFiles) throw JsonError(json.at(), "too many files");
      m.files.push_back(read_record(json));
    }
  } else
    json.skip_value();
}

}  // namespace

std::string manifest_text(const Manifest& m) {
  Json files = Json::array();
  for (const FileRecord& f : m.files) {
    Json j = {{"name", f.name}, {"bytes", f.bytes}, {"xxh3_128", f.xxh3}};
    if (!f.tensors.empty()) j["tensors"] = strings(f.tensors);
    files.push_back(std::move(j));
  }
  Json j = {{"format", kManifestFormat},
            {"serial", m.serial},
            {"step", m.meta.step},
            {"kernel_set", m.meta.kernel_set},
            {"config_digest", m.meta.config_digest},
            {"program_version", m.meta.program_version},
            {"backend", m.meta.backend},
            {"extra", strings(m.meta.extra)},
            {"files", std::move(files)}};
  std::string text = j.dump(1);
  assert(text.ends_with("\n}"));
  text.resize(text.size() - 2);  // remove "\n}", which follows the seal
  std::string seal = xxh3_hex(text);
  return text.append(kSeal).append(seal).append(kEnd);
}

/// The seal is compared before the JSON is parsed. A mismatch means damage, not a wrong version: every
/// version seals its manifests.
Manifest parse_manifest(std::string_view text) {
  if (text.size() < kTailBytes) throw run_error("the manifest is incomplete");
  std::string_view body = text.substr(0, text.size() - kTailBytes), tail = text.substr(body.size());
  if (!tail.starts_with(kSeal) || !tail.ends_with(kEnd))
    throw run_error("the manifest is damaged or incomplete");
  if (tail.substr(kSeal.size(), 32) != xxh3_hex(body))
    throw run_error("the manifest does not match its own hash (member \"seal\")");
  Manifest m;
  try {
    JsonReader json(text, 16);
    std::string key;
    for (json.open_object(); json.next_member(key, kMaxText);) read_member(json, key, m);
    json.finish('\0');
  } catch (const JsonError& f) {
    throw run_error(fmt::format("the manifest is damaged: {} (byte {})", f.what(), f.at));
  }
  return m;
}

}  // namespace trainhost::checkpoint
