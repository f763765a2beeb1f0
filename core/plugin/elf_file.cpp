// See elf_file.hpp. Layouts are those of <elf.h> (System V gABI, 64-bit); codes: core/plugin/README.md. The
// file is untrusted and no code of it has run: every offset is compared with the size of the file before it
// is read, counts are limited, and nothing is mapped. Checks are as strict as the loader's own, because
// dlopen of a damaged library ends the process instead of failing.
#include "core/plugin/elf_file.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "core/plugin/plugin_manifest.hpp"
#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {
namespace {

// Limits far above what linkers write: a real plugin has about 10 segments and 30 sections.
constexpr std::uint16_t kMaxSegments = 512;
constexpr std::uint64_t kMaxSectionNames = 1u << 20, kMaxDynamicBytes = 1u << 20, kMaxName = 4096;
constexpr std::size_t kMaxNeeded = 256;
constexpr std::string_view kSection{".trainhost", 11};  // with its end

#if defined(__x86_64__)
constexpr std::uint16_t kHostMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::uint16_t kHostMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr std::uint16_t kHostMachine = EM_RISCV;
#else
#error "a 64-bit Linux machine that this reader knows is needed"
#endif

/// Only for messages; other machines are named by their number in the ELF header.
std::string machine_name(std::uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "AArch64";
    case EM_RISCV:
      return "RISC-V";
    case EM_386:
      return "x86";
    case EM_ARM:
      return "ARM";
    case EM_PPC64:
      return "POWER";
    case EM_S390:
      return "S/390";
  }
  return fmt::format("machine {}", machine);
}

[[noreturn]] void reject_elf(const char* code, const std::string& reason, std::string hint = {}) {
  throw Rejection("validation", code, reason, std::move(hint));
}
[[noreturn]] void reject_section(
    const char* code, const std::string& reason,
    std::string hint = "write it with TH_MANIFEST; its keys and limits are in trainhost/plugin.h") {
  throw Rejection("manifest", code, reason, std::move(hint));
}
const char* const kOtherBuild = "install a build for this machine";
const char* const kCopyAgain = "the file is damaged or incomplete: build or copy it again";

/// Positioned reads within a file of known size.
class File {
 public:
  File(int fd, std::uint64_t size) : fd_(fd), size_(size) {}
  std::uint64_t size() const { return size_; }
  bool holds(std::uint64_t offset, std::uint64_t bytes) const {
    return offset <= size_ && bytes <= size_ - offset;
  }

  /// Exactly `bytes` at `offset`, for which holds() is true. A file that shrank since then is rejected as
  /// truncated.
  void read(std::uint64_t offset, void* to, std::uint64_t bytes) const {
    assert(holds(offset, bytes));
    auto* p = static_cast<char*>(to);
    while (bytes > 0) {
      ssize_t n = ::pread(fd_, p, bytes, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0)
        reject_elf("unreadable", fmt::format("it cannot be read: {}", std::strerror(errno)),
                   "check the disk");
      if (n == 0) reject_elf("truncated", "it was truncated while it was being read", kCopyAgain);
      p += n, offset += static_cast<std::uint64_t>(n), bytes -= static_cast<std::uint64_t>(n);
    }
  }
  /// `count` entries at `offset`, for which holds() was checked. memcpy semantics: entries in a file may be
  /// unaligned.
  template <class T>
  std::vector<T> table(std::uint64_t offset, std::size_t count) const {
    std::vector<T> t(count);
    read(offset, t.data(), count * sizeof(T));
    return t;
  }

 private:
  int fd_;
  std::uint64_t size_;
};

Elf64_Ehdr read_header(const File& f) {
  if (f.size() == 0) reject_elf("empty", "it is empty", kCopyAgain);
  unsigned char magic[EI_NIDENT] = {};
  // The magic number comes before the size: "is not a shared library" is the better message for a short text
  // file.
  f.read(0, magic, std::min<std::uint64_t>(f.size(), sizeof magic));
  if (std::memcmp(magic, ELFMAG, SELFMAG) != 0)
    reject_elf("not_elf", "it is not a shared library: it does not begin with the ELF magic number",
               "remove it from the plugin directory, or link it with -shared");
  if (f.size() < sizeof(Elf64_Ehdr))
    reject_elf("truncated", fmt::format("it is truncated: {} bytes are fewer than an ELF header", f.size()),
               kCopyAgain);
  if (magic[EI_CLASS] != ELFCLASS64)
    reject_elf("wrong_class", "it is a 32-bit library; this program is 64-bit", kOtherBuild);
  if (magic[EI_DATA] != ELFDATA2LSB)
    reject_elf("wrong_machine", "it is a big-endian library; this machine is little-endian", kOtherBuild);
  Elf64_Ehdr h;
  f.read(0, &h, sizeof h);
  if (h.e_machine != kHostMachine)
    reject_elf("wrong_machine",
               fmt::format("it is built for {}; this program runs on {}", machine_name(h.e_machine),
                           machine_name(kHostMachine)),
               kOtherBuild);
  if (h.e_type == ET_EXEC)
    reject_elf("executable", "it is a program, not a shared library", "link it with -shared");
  if (h.e_type != ET_DYN)
    reject_elf(
        "not_shared",
        h.e_type == ET_REL ? "it is an object file, not a shared library" : "it is not a shared library",
        "link it with -shared");
  return h;
}

/// A position-independent program is ET_DYN too; text relocations make code pages writable.
std::vector<Elf64_Dyn> read_dynamic(const File& f, const Elf64_Phdr& p) {
  if (p.p_filesz > kMaxDynamicBytes)
    reject_elf("truncated", "its dynamic section is larger than 1 MiB", kCopyAgain);
  std::vector<Elf64_Dyn> all = f.table<Elf64_Dyn>(p.p_offset, p.p_filesz / sizeof(Elf64_Dyn));
  // Entries behind DT_NULL are not part of the section.
  all.erase(std::find_if(all.begin(), all.end(), [](const Elf64_Dyn& d) { return d.d_tag == DT_NULL; }),
            all.end());
  for (const Elf64_Dyn& d : all) {
    if (d.d_tag == DT_FLAGS_1 && (d.d_un.d_val & DF_1_PIE))
      reject_elf("executable", "it is a program, not a shared library", "link it with -shared");
    if (d.d_tag == DT_TEXTREL || (d.d_tag == DT_FLAGS && (d.d_un.d_val & DF_TEXTREL)))
      reject_elf("text_relocations", "it has text relocations, which make its code writable",
                 "compile it with -fPIC");
  }
  return all;
}

/// The text at a virtual address, read from the segment that maps it.
std::string text_at(const File& f, const std::vector<Elf64_Phdr>& segments, std::uint64_t address) {
  for (const Elf64_Phdr& p : segments) {
    if (p.p_type != PT_LOAD || address < p.p_vaddr || address - p.p_vaddr >= p.p_filesz) continue;
    const std::uint64_t inside = address - p.p_vaddr;
    // A name may end at the end of the segment; it must contain a NUL before that.
    std::string text(std::min(kMaxName, p.p_filesz - inside), '\0');
    f.read(p.p_offset + inside, text.data(), text.size());
    const std::size_t end = text.find('\0');
    if (end == text.npos) break;
    return text.substr(0, end);
  }
  reject_elf("truncated", "it is truncated: the names of its required libraries are outside the file",
             kCopyAgain);
}

/// The required libraries and the run path. RUNPATH takes precedence over RPATH.
void read_links(const File& f, const std::vector<Elf64_Phdr>& segments, const std::vector<Elf64_Dyn>& dynamic,
                ElfFile& out) {
  // DT_STRTAB may follow the entries that refer to it.
  std::uint64_t names = 0;
  for (const Elf64_Dyn& d : dynamic)
    if (d.d_tag == DT_STRTAB) names = d.d_un.d_ptr;
  bool runpath = false;
  for (const Elf64_Dyn& d : dynamic) {
    if (d.d_tag != DT_NEEDED && d.d_tag != DT_RPATH && d.d_tag != DT_RUNPATH) continue;
    const std::string text = text_at(f, segments, names + d.d_un.d_val);
    if (d.d_tag == DT_NEEDED) {
      if (out.needed.size() == kMaxNeeded)
        reject_elf("not_shared", fmt::format("it is linked to more than {} libraries", kMaxNeeded),
                   "link only the libraries that it uses: -Wl,--as-needed");
      out.needed.push_back(text);
    } else if (d.d_tag == DT_RUNPATH || !runpath) {
      runpath = runpath || d.d_tag == DT_RUNPATH;
      out.run_path = text;
    }
  }
}

/// dlopen of a library whose segments are outside the file ends with SIGBUS, so check first.
void read_segments(const File& f, const Elf64_Ehdr& h, ElfFile& out) {
  if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0 || h.e_phnum > kMaxSegments)
    reject_elf("not_shared",
               fmt::format("it has {} program headers of {} bytes, so nothing can be loaded", h.e_phnum,
                           h.e_phentsize),
               "link it with -shared");
  if (!f.holds(h.e_phoff, std::uint64_t{h.e_phnum} * sizeof(Elf64_Phdr)))
    reject_elf("truncated", "it is truncated: its program headers are outside the file", kCopyAgain);
  static_assert(kMaxSegments * sizeof(Elf64_Phdr) < (1u << 20));
  bool dynamic = false, load = false;
  int number = 0;
  const std::vector<Elf64_Phdr> segments = f.table<Elf64_Phdr>(h.e_phoff, h.e_phnum);
  std::vector<Elf64_Dyn> entries;
  for (const Elf64_Phdr& p : segments) {
    if (p.p_type != PT_NULL && p.p_type != PT_GNU_STACK && !f.holds(p.p_offset, p.p_filesz))
      reject_elf(
          "truncated",
          fmt::format("it is truncated: segment {} is outside the {} bytes of the file", number, f.size()),
          kCopyAgain);
    if (p.p_type == PT_LOAD && p.p_filesz > p.p_memsz)
      reject_elf("truncated", fmt::format("segment {} is larger in the file than in memory", number),
                 kCopyAgain);
    if (p.p_type == PT_INTERP)
      reject_elf("executable", "it is a program, not a shared library", "link it with -shared");
    if (p.p_type == PT_GNU_STACK && (p.p_flags & PF_X))
      reject_elf("executable_stack", "it requires an executable stack", "link it with -z noexecstack");
    if (p.p_type == PT_DYNAMIC) dynamic = true, entries = read_dynamic(f, p);
    load = load || p.p_type == PT_LOAD;
    ++number;
  }
  if (!dynamic || !load)
    reject_elf("not_shared", "it has no loadable segment or no dynamic section", "link it with -shared");
  read_links(f, segments, entries, out);
}

/// A library may be stripped of sections; then it has no manifest either.
std::vector<Elf64_Shdr> read_sections(const File& f, const Elf64_Ehdr& h) {
  if (h.e_shoff == 0 || h.e_shnum == 0) return {};
  if (h.e_shentsize != sizeof(Elf64_Shdr) ||
      !f.holds(h.e_shoff, std::uint64_t{h.e_shnum} * sizeof(Elf64_Shdr)))
    reject_elf("truncated", "it is truncated: its section table is outside the file", kCopyAgain);
  return f.table<Elf64_Shdr>(h.e_shoff, h.e_shnum);
}

std::string read_section_names(const File& f, const Elf64_Ehdr& h, const std::vector<Elf64_Shdr>& sections) {
  if (h.e_shstrndx >= sections.size()) reject_elf("truncated", "its section names are missing", kCopyAgain);
  const Elf64_Shdr& s = sections[h.e_shstrndx];
  if (s.sh_type != SHT_STRTAB || s.sh_size > kMaxSectionNames || !f.holds(s.sh_offset, s.sh_size))
    reject_elf("truncated", "its section names are outside the file", kCopyAgain);
  std::string names(s.sh_size, '\0');
  f.read(s.sh_offset, names.data(), names.size());
  return names;
}

/// Compares at most the length of the name: there may be 65,000 sections and 1 MiB of names without a NUL.
bool is_manifest(const std::string& names, std::uint32_t offset) {
  return offset < names.size() && names.compare(offset, kSection.size(), kSection) == 0;
}

/// All sections are searched: two manifests are an error, whichever comes first.
std::optional<Elf64_Shdr> find_manifest(const std::vector<Elf64_Shdr>& sections, const std::string& names) {
  std::optional<Elf64_Shdr> found;
  for (const Elf64_Shdr& s : sections) {
    if (!is_manifest(names, s.sh_name)) continue;
    if (found)
      reject_section("twice", "it has two .trainhost sections",
                     "write exactly one TH_MANIFEST, in one source file");
    found = s;
  }
  return found;
}

}  // namespace

/// Segments first: whether the file can be loaded at all is the better message than a missing manifest.
ElfFile read_elf(int fd, std::uint64_t size) {
  const File f(fd, size);
  const Elf64_Ehdr h = read_header(f);
  ElfFile out;
  read_segments(f, h, out);
  const std::vector<Elf64_Shdr> sections = read_sections(f, h);
  std::optional<Elf64_Shdr> s;
  if (!sections.empty()) s = find_manifest(sections, read_section_names(f, h, sections));
  if (!s) return out;
  if (s->sh_type == SHT_NOBITS || s->sh_size == 0) reject_section("empty", "its manifest is empty");
  if (s->sh_size > kMaxManifestBytes)
    reject_section("too_big", fmt::format("its manifest has {} bytes; at most {} are allowed", s->sh_size,
                                          kMaxManifestBytes));
  if (!f.holds(s->sh_offset, s->sh_size))
    reject_section("outside", "its manifest is outside the file", kCopyAgain);
  std::string text(s->sh_size, '\0');
  f.read(s->sh_offset, text.data(), text.size());
  text.erase(text.find_last_not_of('\0') + 1);  // the NUL of the C string and the linker's padding
  if (text.empty()) reject_section("empty", "its manifest is empty");
  out.manifest = std::move(text);
  return out;
}

}  // namespace trainhost::plugin
