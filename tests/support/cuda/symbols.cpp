// `__shared__` variables are statics with an ABI tag, which is part of their symbol names (language.h). See
// symbols.hpp.
#include "symbols.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "emu.hpp"

namespace emu {
namespace {

/// A `__shared__` variable.
struct Shared {
  unsigned char* at;
  std::size_t bytes;
  bool used = false;  // by a block of the kernel that runs
  bool touched() const { return at[0] != 0xff || std::memcmp(at, at + 1, bytes - 1) != 0; }
};
struct Tables {
  unsigned long long loaded = 0;  // number of loaded objects when the tables were read
  std::map<std::uintptr_t, std::string> functions;
  std::vector<Shared> shared;
  std::map<std::string, std::size_t> shared_bytes;  // by mangled name of the variable
  std::map<const void*, std::string> signatures;    // of the kernels that were asked for
};

// A file mapped into memory.
struct File {
  const char* at = nullptr;
  std::size_t bytes = 0;
  explicit File(const char* path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat s;
    if (fd < 0) return;
    if (fstat(fd, &s) == 0 && s.st_size > 0) {
      void* p = mmap(nullptr, static_cast<std::size_t>(s.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
      if (p != MAP_FAILED) at = static_cast<const char*>(p), bytes = static_cast<std::size_t>(s.st_size);
    }
    close(fd);
  }
  ~File() {
    if (at) munmap(const_cast<char*>(at), bytes);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
};

void read_symbols(const File& f, std::uintptr_t base, Tables& t) {
  if (f.bytes < sizeof(ElfW(Ehdr)) || std::memcmp(f.at, ELFMAG, SELFMAG) != 0) return;
  const auto* head = reinterpret_cast<const ElfW(Ehdr)*>(f.at);
  if (head->e_shoff == 0 || head->e_shoff + head->e_shnum * sizeof(ElfW(Shdr)) > f.bytes) return;
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(f.at + head->e_shoff);
  for (unsigned i = 0; i < head->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbol = reinterpret_cast<const ElfW(Sym)*>(f.at + sections[i].sh_offset);
    const char* names = f.at + sections[sections[i].sh_link].sh_offset;
    for (std::size_t n = sections[i].sh_size / sizeof(ElfW(Sym)); n > 0; --n, ++symbol) {
      const char* name = names + symbol->st_name;
      const unsigned type = ELF64_ST_TYPE(symbol->st_info);
      if (type == STT_FUNC && symbol->st_value != 0) t.functions.emplace(base + symbol->st_value, name);
      if (type == STT_OBJECT && symbol->st_shndx != SHN_UNDEF && symbol->st_size > 0 &&
          std::strstr(name, "B11cuda_shared")) {
        t.shared.push_back({reinterpret_cast<unsigned char*>(base + symbol->st_value), symbol->st_size});
        t.shared_bytes.emplace(name, symbol->st_size);
      }
    }
  }
}

// False for libraries of the system.
bool may_contain_kernels(const char* path) {
  return std::strncmp(path, "/lib", 4) != 0 && std::strncmp(path, "/usr/", 5) != 0;
}

int read_object(dl_phdr_info* info, std::size_t, void* to) {
  auto& t = *static_cast<Tables*>(to);
  const char* path = info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe";
  if (t.loaded == 0) t.loaded = info->dlpi_adds + info->dlpi_subs;
  if (may_contain_kernels(path)) read_symbols(File(path), info->dlpi_addr, t);
  return 0;
}

Tables& tables() {
  static Tables t;
  unsigned long long now = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<unsigned long long*>(to) = info->dlpi_adds + info->dlpi_subs;
        return 1;
      },
      &now);
  if (now != t.loaded) {
    t = Tables();
    dl_iterate_phdr(read_object, &t);
  }
  return t;
}
std::mutex mutex;

}  // namespace

namespace {

/// Mangled name of a function; "" if it has no symbol.
std::string mangled_name(const void* function) {
  const auto& functions = tables().functions;
  const auto it = functions.find(reinterpret_cast<std::uintptr_t>(function));
  return it == functions.end() ? "" : it->second;
}

// "void trainhost::cuda::(anonymous namespace)::scale<float, 4>(float*, int)" becomes "scale<float, 4>".
// Names of namespaces have small letters only.
std::string make_signature(const void* function) {
  const std::string mangled = mangled_name(function);
  if (mangled.empty()) {
    char number[32];
    std::snprintf(number, sizeof number, "kernel@%p", function);
    return number;
  }
  int status = 0;
  char* plain = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? plain : mangled;
  std::free(plain);
  for (std::size_t at; (at = name.find("(anonymous namespace)::")) != std::string::npos;) name.erase(at, 23);
  name.erase(std::min(name.find('('), name.size()));
  if (name.starts_with("void ")) name.erase(0, 5);
  for (std::size_t end; (end = name.find("::")) != std::string::npos;) {
    std::size_t begin = end;
    while (begin > 0 && (std::islower(name[begin - 1]) || name[begin - 1] == '_')) --begin;
    name.erase(begin, end + 2 - begin);
  }
  return name;
}

}  // namespace

std::string kernel_signature(const void* function) {
  std::lock_guard lock(mutex);
  const auto [at, first] = tables().signatures.try_emplace(function);
  if (first) at->second = make_signature(function);
  return at->second;
}

std::string kernel_name(const void* function) {
  std::string name = kernel_signature(function);
  name.erase(std::min(name.find('<'), name.size()));
  return name;
}

// The name of a static variable of _ZN...E is _ZZN...E, E, its own name and tag.
unsigned declared_shared_bytes(const void* kernel) {
  std::lock_guard lock(mutex);
  const std::string function = mangled_name(kernel);
  if (!function.starts_with("_Z")) return 0;
  const std::string prefix = "_ZZ" + function.substr(2) + "E";
  std::size_t bytes = 0;
  const auto& all = tables().shared_bytes;
  for (auto it = all.lower_bound(prefix); it != all.end() && it->first.starts_with(prefix); ++it)
    bytes += it->second;
  return static_cast<unsigned>(bytes);
}

void fill_static_shared(std::size_t block) {
  static Tables* t = nullptr;
  if (block == 0) {
    std::lock_guard lock(mutex);
    t = &tables();
  }
  const bool look = (block & (block - 1)) == 0;
  for (Shared& v : t->shared) {
    if (block == 0)
      v.used = false;
    else if (look && !v.used)
      v.used = v.touched();
    if (block == 0 || v.used) std::memset(v.at, 0xff, v.bytes);
  }
}

}  // namespace emu
