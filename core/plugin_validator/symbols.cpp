// See symbols.hpp. Uses the section table (SHT_DYNSYM, SHT_DYNAMIC), which file validation requires for the
// manifest.
#include "core/plugin_validator/symbols.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/plugin_validator/validator_check.hpp"

namespace trainhost::plugin_validator {
namespace {

// Tables may overlap and name one text a million times: what they ask for is bounded, not only where they
// lie.
constexpr std::size_t kMaxSymbols = 100'000, kMaxName = 4096;

class Image {
 public:
  explicit Image(const std::filesystem::path& file) {
    std::ostringstream all;
    all << std::ifstream(file, std::ios::binary).rdbuf();
    bytes_ = std::move(all).str();
  }
  template <class T>
  T at(std::uint64_t offset) const {
    // Every offset of the file is checked; file validation has checked the segments, not these tables.
    expect(offset <= bytes_.size() && sizeof(T) <= bytes_.size() - offset, "a table is outside the file");
    T t;
    std::memcpy(&t, bytes_.data() + offset, sizeof t);
    return t;
  }
  std::string text(std::uint64_t offset) const {
    expect(offset < bytes_.size(), "a name is outside the file");
    return std::string(bytes_.data() + offset,
                       ::strnlen(bytes_.data() + offset, std::min(kMaxName, bytes_.size() - offset)));
  }

 private:
  std::string bytes_;
};

void add_symbols(const Image& f, const Elf64_Shdr& table, const Elf64_Shdr& names, Exports& out) {
  // Entry 0 is empty by definition.
  for (std::uint64_t i = 1; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
    const auto s = f.at<Elf64_Sym>(table.sh_offset + i * sizeof(Elf64_Sym));
    const int visibility = ELF64_ST_VISIBILITY(s.st_other), binding = ELF64_ST_BIND(s.st_info);
    // What other libraries can bind to: defined, global or weak, and visible.
    if (s.st_shndx == SHN_UNDEF || s.st_shndx == SHN_ABS || binding == STB_LOCAL ||
        visibility == STV_HIDDEN || visibility == STV_INTERNAL)
      continue;
    expect(out.symbols.size() < kMaxSymbols, "it exports more than {} symbols", kMaxSymbols);
    out.symbols.push_back({f.text(names.sh_offset + s.st_name), ELF64_ST_TYPE(s.st_info) == STT_FUNC,
                           binding == STB_GNU_UNIQUE});
  }
}

void add_paths(const Image& f, const Elf64_Shdr& table, const Elf64_Shdr& names, Exports& out) {
  for (std::uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Dyn); ++i) {
    const auto d = f.at<Elf64_Dyn>(table.sh_offset + i * sizeof(Elf64_Dyn));
    if (d.d_tag == DT_NULL) return;
    if (d.d_tag != DT_RPATH && d.d_tag != DT_RUNPATH) continue;
    std::stringstream list(f.text(names.sh_offset + d.d_un.d_val));
    for (std::string path; std::getline(list, path, ':');) out.search_paths.push_back(path);
  }
}

}  // namespace

Exports read_exports(const std::filesystem::path& file) {
  const Image f(file);
  const auto h = f.at<Elf64_Ehdr>(0);
  // e_shnum bounds the loop below.
  const auto section = [&](std::uint32_t i) {
    expect(i < h.e_shnum, "a section refers to a section that does not exist");
    return f.at<Elf64_Shdr>(h.e_shoff + std::uint64_t{i} * sizeof(Elf64_Shdr));
  };
  Exports out;
  int tables = 0;
  for (std::uint32_t i = 0; i < h.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    if (s.sh_type == SHT_DYNSYM && ++tables > 1) continue;  // a library has one, and the linker looks at that
    if (s.sh_type == SHT_DYNSYM) add_symbols(f, s, section(s.sh_link), out);
    if (s.sh_type == SHT_DYNAMIC) add_paths(f, s, section(s.sh_link), out);
  }
  return out;
}

}  // namespace trainhost::plugin_validator
