// See content_hashes.hpp. Time of change (ctime) is used besides that of modification, because tools that
// copy or unpack files set the latter; no tool can set ctime. The samples find content that was changed on
// the disk below the file system in most cases, at the cost of a few milliseconds.
#include "core/data/content_hashes.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/json_value.hpp"

namespace trainhost::data {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kSamples = 64, kSampleBytes = 4096, kMaxFileBytes = 4 << 20;
constexpr std::size_t kMaxEntries = 1000;  // the oldest are dropped

std::string sample_hash(const InputFile& file) {
  std::string samples;
  std::vector<char> block(kSampleBytes);
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::uint64_t n = std::min(kSampleBytes, file.size());
    // Evenly spread, the first at the beginning and the last at the end.
    const std::uint64_t at = (file.size() - n) / (kSamples - 1) * i;
    file.read(i + 1 == kSamples ? file.size() - n : at, std::as_writable_bytes(std::span(block.data(), n)));
    samples.append(block.data(), n);
  }
  return content_hash(samples);
}

/// The kept entries; none if the file is missing or damaged.
JsonValue kept_entries(const fs::path& file) {
  std::error_code ec;
  if (!fs::is_regular_file(file, ec)) return JsonValue::array();
  try {
    JsonValue j = parse_json(read_whole(file, kMaxFileBytes));
    return j.is_array() ? std::move(j) : JsonValue::array();
  } catch (const Error&) {
  } catch (const JsonError&) {
  }
  return JsonValue::array();
}

bool same(const JsonValue& a, const JsonValue& b, std::initializer_list<const char*> keys) {
  return std::all_of(keys.begin(), keys.end(), [&](const char* key) {
    const JsonValue *x = a.find(key), *y = b.find(key);
    return x && y && x->dump() == y->dump();
  });
}

}  // namespace

std::string kept_content_hash(const InputFile& file, const fs::path& folder, const OnRead& on_read) {
  const fs::path kept = folder / "content-hashes.json";
  JsonValue entry = {{"path", fs::absolute(file.path()).lexically_normal().string()},
                     {"inode", file.state().inode},
                     {"size", file.size()},
                     {"changed_ns", file.state().changed_ns},
                     {"modified_ns", file.state().modified_ns},
                     {"samples", sample_hash(file)}};
  JsonValue entries = kept_entries(kept);
  for (const JsonValue& e : entries.elements)
    if (same(e, entry, {"path", "inode", "size", "changed_ns", "modified_ns", "samples"}) &&
        e.text_of("hash").size() == 32)
      return std::string(e.text_of("hash"));
  const std::string hash = content_hash(file, on_read);
  file.require_unchanged();
  entry["hash"] = hash;
  std::erase_if(entries.elements,
                [&](const JsonValue& e) { return same(e, entry, {"path"}) || !e.is_object(); });
  entries.push_back(entry);
  if (entries.elements.size() > kMaxEntries)
    entries.elements.erase(entries.elements.begin(), entries.elements.end() - kMaxEntries);
  try {
    fs::create_directories(folder);
    const std::string text = entries.dump(1) + "\n";
    OutputFile out(kept);
    out.append(std::as_bytes(std::span(text)));
    out.commit();
  } catch (const std::exception&) {  // hashed again next time
  }
  return hash;
}

void write_hash_beside(const fs::path& path, const OnRead& on_read) {
  const std::string hash = content_hash(InputFile(path), on_read);
  OutputFile out(fs::path(path).replace_extension(".xxh3"));
  out.append(std::as_bytes(std::span(hash)));
  out.commit();
}

bool agrees_with_hash_beside(const InputFile& file, const OnRead& on_read) {
  const fs::path beside = fs::path(file.path()).replace_extension(".xxh3");
  std::error_code ec;
  return fs::exists(beside, ec) && read_whole(beside, 64) == content_hash(file, on_read);
}

}  // namespace trainhost::data
