// headers_of() of seeds.hpp: reduces a library of 16 kB to 3 kB that every reader treats as the same. It
// trusts its input, which the build has just created, and shares no code with the readers under test.
#include <elf.h>

#include <cstring>
#include <map>
#include <stdexcept>

#include "tests/fuzz/seeds.hpp"

namespace trainhost::fuzz {
namespace {

template <class T>
T get(const std::string& from, std::uint64_t at) {
  if (at > from.size() || sizeof(T) > from.size() - at)
    throw std::out_of_range("not a library that can be reduced");
  T t;
  std::memcpy(&t, from.data() + at, sizeof t);
  return t;
}

template <class T>
void put(std::string& to, std::uint64_t at, const T& t) {
  std::memcpy(to.data() + at, &t, sizeof t);
}

bool is_kept(std::uint32_t type, std::string_view name) {
  return type == SHT_DYNAMIC || type == SHT_DYNSYM || type == SHT_STRTAB || name == ".trainhost";
}

}  // namespace

std::string headers_of(const std::string& elf) {
  auto h = get<Elf64_Ehdr>(elf, 0);
  const auto section = [&](std::size_t i) {
    return get<Elf64_Shdr>(elf, h.e_shoff + i * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr names = section(h.e_shstrndx);
  std::string out =
      elf.substr(0, sizeof h) + elf.substr(h.e_phoff, std::size_t{h.e_phnum} * sizeof(Elf64_Phdr));
  std::map<std::uint64_t, std::uint64_t> moved;  // address in memory -> offset in `out`
  std::vector<Elf64_Shdr> sections;
  std::uint64_t dynamic = 0, dynamic_bytes = 0;
  for (std::size_t i = 0; i < h.e_shnum; ++i) {
    Elf64_Shdr s = section(i);
    const char* name = elf.c_str() + names.sh_offset + s.sh_name;
    if (std::string_view(name) == ".symtab" || std::string_view(name) == ".strtab") s.sh_type = SHT_NULL;
    if (is_kept(s.sh_type, name)) {
      out.resize((out.size() + 7) / 8 * 8);
      moved[s.sh_addr] = out.size();
      if (s.sh_type == SHT_DYNAMIC) dynamic = out.size(), dynamic_bytes = s.sh_size;
      const std::uint64_t at = out.size();
      out += elf.substr(s.sh_offset, s.sh_size);
      s.sh_offset = at;
    } else {
      s.sh_offset = s.sh_size = 0;
    }
    sections.push_back(s);
  }
  for (std::uint64_t at = dynamic; at < dynamic + dynamic_bytes; at += sizeof(Elf64_Dyn)) {
    auto d = get<Elf64_Dyn>(out, at);
    if (d.d_tag == DT_STRTAB || d.d_tag == DT_SYMTAB) d.d_un.d_ptr = moved.at(d.d_un.d_ptr);
    put(out, at, d);
  }
  out.resize((out.size() + 7) / 8 * 8);
  h.e_phoff = sizeof h;
  h.e_shoff = out.size();
  put(out, 0, h);
  for (const Elf64_Shdr& s : sections) out.append(reinterpret_cast<const char*>(&s), sizeof s);
  bool loaded = false;
  for (std::size_t i = 0; i < h.e_phnum;
       ++i) {  // one segment contains everything; addresses equal file offsets
    auto p = get<Elf64_Phdr>(out, h.e_phoff + i * sizeof(Elf64_Phdr));
    if (p.p_type == PT_LOAD && !loaded) {
      p.p_offset = p.p_vaddr = p.p_paddr = 0, p.p_filesz = p.p_memsz = out.size(), loaded = true;
    } else if (p.p_type == PT_DYNAMIC) {
      p.p_offset = p.p_vaddr = dynamic, p.p_filesz = p.p_memsz = dynamic_bytes;
    } else {
      if (p.p_type == PT_LOAD) p.p_type = PT_NULL;
      p.p_offset = p.p_filesz = 0;
    }
    put(out, h.e_phoff + i * sizeof p, p);
  }
  return out;
}

}  // namespace trainhost::fuzz
