// Generates the initial inputs; see seeds.hpp. FUZZ_PLUGINS is the folder of the libraries built for this,
// one plain and one with a RUNPATH.
#include "tests/fuzz/seeds.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/plugin/plugin_cache_format.hpp"
#include "core/runfile/run_config.hpp"
#include "tests/fuzz/file_targets.hpp"

namespace trainhost::fuzz {
namespace {

using Texts = std::vector<std::string>;

Texts libraries() {
  Texts out;
  for (const auto& e : std::filesystem::directory_iterator(FUZZ_PLUGINS)) {
    if (e.path().extension() != ".so") continue;
    std::ostringstream text;
    text << std::ifstream(e.path(), std::ios::binary).rdbuf();
    out.push_back(headers_of(text.str()));
  }
  return out;
}

const std::string kManifest = "id = \"sample\"\nversion = \"1.2\"\nkind = \"estimator\"\n";

Texts manifests() {
  return {
      kManifest,
      kManifest +
          "summary = 'a test plugin'\nfamilies = [\"llama\", \"qwen3\"]\noptions = [\"do\"]\nabi = "
          "\"1.0\"\n",
      kManifest +
          "cpu = ['avx2']\nrequires = ['libm.so.6']\ninterfaces = ['trainhost.estimator/1']\npriority = -7\n",
      kManifest +
          "device = \"cuda\"\nmodes = ['full', 'lora']\ndtypes = [\"f32\"]\n[table.of.mine]\nx = {a.b = "
          "1e9}\n",
      "\n# \"not a string\nid = \"\"\"a\\\nb\"\"\" \r\nversion = '''1'''\nkind = \"trainer\"\nd = "
      "1979-05-27T07:32:00Z\n",
      "no toml =",
      "[[[[[[[[[",
      "a.b.c.d.e.f.g.h.i.j = 1",
      "\xef\xbb\xbfid = 1",
      "id = \"\\uD800\"",
      "id = '\xff'"};
}

Texts cache_entries() {
  plugin::CacheEntry r;
  r.id = {1, 2, 3, 1'700'000'000, 5}, r.hash = std::string(64, 'a'), r.seen_s = 1'700'000'000, r.seen_ns = 99,
  r.trial_loaded = true;
  r.manifest.id = "sample", r.manifest.version = "1", r.manifest.kind = "estimator",
  r.manifest.families = {"a\tb", "c\\d\n"};
  r.warnings = {"keeps a file open"};
  const std::string good = plugin::format_cache_line(r);
  r.rejected.emplace("validation", "truncated", "it is truncated", "copy it again");
  const std::string bad = plugin::format_cache_line(r);
  return {good, bad, good + "\n" + bad, plugin::format_cache({{"host\t/a.so", good}, {"host\t/b.so", bad}})};
}

/// Header, entries and names in the format of ldconfig.
Texts linker_caches() {
  std::string names("libc.so.6\0/lib/libc.so.6\0libm.so.6\0", 36), out = "glibc-ld.so.cache1.1";
  const auto number = [&out](std::uint32_t n) { out.append(reinterpret_cast<const char*>(&n), sizeof n); };
  number(2), number(static_cast<std::uint32_t>(names.size()));
  for (int i = 0; i < 5; ++i) number(0);
  for (std::uint32_t key : {96u, 122u})
    for (std::uint32_t field : {3u, key, 106u, 0u, 0u, 0u}) number(field);
  return {out + names, "ld.so-1.7.0" + std::string(21, '\0') + out + names, out.substr(0, 30)};
}

Texts configs() {
  const std::string json =
      R"({"hidden": 4096, "moe": {"experts": 64, "factors": [1.5, 2, {"deep": [7]}]}, "tied": true,
 "name": "a\u00e4\u20ac", "empty": [], "eps": 1e-5, "huge": 18446744073709551615, "n": null, "very": 1e19})";
  Texts out;
  for (const char* key : {"hidden", "moe.experts", "moe.factors.2.deep.0", "name", "empty", "very", ""})
    out.push_back(std::string(key) + "\n" + json);
  return out;
}

Texts run_files() {
  return {runfile::init_text(),
          "[plugins]\nallow = [\"sha256:" + std::string(64, 'e') + "\"]\norder = [\"cuda\", \"cpu\"]\n",
          "[model]\npreset = \"tiny\"\n[train]\nsteps = 10\nseq = 128\n[plugin.cpu]\nmode = \"hybrid\"\n",
          "[plugins]\npath = [\"/usr\"]\nallow = [\"" + std::string(64, 'A') + "\"]\n[lora]\nrank = 8\n"};
}

std::string number_of(std::uint64_t n, std::size_t bytes) {
  std::string out(bytes, '\0');
  std::memcpy(out.data(), &n, bytes);
  return out;
}

}  // namespace

Texts seeds(std::string_view target) {
  if (target == "elf" || target == "exports") return libraries();
  if (target == "manifest") return manifests();
  if (target == "cache") return cache_entries();
  if (target == "linker_cache") return linker_caches();
  if (target == "config") return configs();
  if (target == "run_file") return run_files();
  for (const FileTarget& t : file_targets())
    if (target == t.target.name) return t.seeds();
  return {};
}

Texts words(std::string_view target) {
  Texts numbers;
  for (std::uint64_t n : {0ull, 1ull, 0x7fffffffull, 0x80000000ull, 0xffffffffull, 0x7fffffffffffffffull,
                          ~0ull, 64ull, 4096ull})
    numbers.push_back(number_of(n, 4)), numbers.push_back(number_of(n, 8));
  if (target == "elf" || target == "exports") {
    for (std::uint64_t tag : {1ull, 5ull, 15ull, 22ull, 29ull, 30ull, 0x6ffffffbull})
      numbers.push_back(number_of(tag, 8));
    numbers.push_back(".trainhost");
    return numbers;
  }
  if (target == "linker_cache") return numbers;
  for (const FileTarget& t : file_targets())
    if (target == t.target.name) {
      Texts all = t.words ? t.words() : file_words();
      all.insert(all.end(), numbers.begin(), numbers.end());
      return all;
    }
  if (target == "cache")
    return {"\t", "\n", "\\t", "\\\\", "-9223372036854775808", "9223372036854775807", "999999999", "1"};
  if (target == "config")
    return {"{",  "}",       "[",      "]", "\"", ":", ",", "null", "true", "1e308", "-9223372036854775808",
            ".0", "\\u0000", "\\ud800"};
  return {"id = ",       "version = ", "kind = ", "\"trainer\"", "abi = \"1.0\"",
          "priority = ", "[",          "]",       "[[",          "{",
          "}",           "\"",         "'''",     "\"\"\"",      "\\u",
          "= 0x",        "1e999",      "inf",     "-nan",        "1979-05-27",
          ".",           ",",          "\n",      "# ",          "[plugins]\n",
          "allow = ",    "path = ",    "sha256:", "[plugin.a]\n"};
}

}  // namespace trainhost::fuzz
