// File validation: files that must never reach the dynamic linker. Runs no code of a plugin.
#include <elf.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <random>

#include "core/plugin/file_validation.hpp"
#include "core/plugin/rejection.hpp"
#include "plugin_fixture.hpp"

using namespace plugin_fixture;

namespace {

std::string validate_file(const fs::path& p) {
  try {
    tp::Trust trust;
    tp::ValidatedFile passed;
    tp::validate_file(p, trust, passed);
    return "ok " + passed.manifest.id;
  } catch (const tp::Rejection& why) {
    BOOST_TEST(why.hint() != "", why.what());  // what to do about it
    return why.stage() + "/" + why.code() + ": " + why.what();
  }
}

/// The verdict on these bytes as a file.
std::string validate_bytes(const std::string& bytes) {
  Directory d;
  return validate_file(d.write("x.so", bytes));
}

template <class T>
void patch(std::string& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}
template <class T>
T at(const std::string& bytes, std::size_t offset) {
  T t;
  std::memcpy(&t, bytes.data() + offset, sizeof t);
  return t;
}

const std::string& good() {
  static const std::string bytes = read_file(plugin_file("good"));
  return bytes;
}

/// Calls change(program header) on each of good()'s and returns the bytes.
template <class F>
std::string with_segments(F change) {
  std::string b = good();
  auto h = at<Elf64_Ehdr>(b, 0);
  for (int i = 0; i < h.e_phnum; ++i) {
    auto p = at<Elf64_Phdr>(b, h.e_phoff + i * sizeof(Elf64_Phdr));
    change(p);
    patch(b, h.e_phoff + i * sizeof(Elf64_Phdr), p);
  }
  return b;
}

/// The same for section headers, change(section, name).
template <class F>
std::string with_sections(F change) {
  std::string b = good();
  auto h = at<Elf64_Ehdr>(b, 0);
  auto names = at<Elf64_Shdr>(b, h.e_shoff + h.e_shstrndx * sizeof(Elf64_Shdr));
  for (int i = 0; i < h.e_shnum; ++i) {
    auto s = at<Elf64_Shdr>(b, h.e_shoff + i * sizeof(Elf64_Shdr));
    change(s, std::string(b.c_str() + names.sh_offset + s.sh_name));
    patch(b, h.e_shoff + i * sizeof(Elf64_Shdr), s);
  }
  return b;
}

std::string with_header(void (*change)(Elf64_Ehdr&)) {
  std::string b = good();
  auto h = at<Elf64_Ehdr>(b, 0);
  change(h);
  patch(b, 0, h);
  return b;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(file_validation_)

BOOST_AUTO_TEST_CASE(a_good_file_passes) { BOOST_TEST(validate_file(plugin_file("good")) == "ok sample"); }

BOOST_AUTO_TEST_CASE(files_that_are_not_libraries_are_rejected) {
  BOOST_TEST(validate_bytes("") == "validation/empty: it is empty");
  BOOST_TEST(validate_bytes("x") ==
             "validation/not_elf: it is not a shared library: it does not begin with the ELF magic number");
  BOOST_TEST(validate_bytes("#!/bin/sh\necho hello\n").starts_with("validation/not_elf"));
  BOOST_TEST(validate_bytes(std::string("\x7f"
                                        "ELF",
                                        4)) ==
             "validation/truncated: it is truncated: 4 bytes are fewer than an ELF header");
  BOOST_TEST(validate_file("/proc/self/exe").starts_with("validation/executable"));
}

BOOST_AUTO_TEST_CASE(libraries_for_another_machine_are_rejected) {
  std::string b = good();
  b[EI_CLASS] = ELFCLASS32;
  BOOST_TEST(validate_bytes(b) == "validation/wrong_class: it is a 32-bit library; this program is 64-bit");
  b = good();
  b[EI_DATA] = ELFDATA2MSB;
  BOOST_TEST(validate_bytes(b) ==
             "validation/wrong_machine: it is a big-endian library; this machine is little-endian");
  b = with_header([](Elf64_Ehdr& h) { h.e_machine = EM_PPC64; });
#if defined(__x86_64__)
  BOOST_TEST(validate_bytes(b) ==
             "validation/wrong_machine: it is built for POWER; this program runs on x86-64");
#else
  BOOST_TEST(validate_bytes(b).starts_with("validation/wrong_machine: built for POWER"));
#endif
}

BOOST_AUTO_TEST_CASE(elf_files_of_another_kind_are_rejected) {
  BOOST_TEST(validate_bytes(with_header([](Elf64_Ehdr& h) { h.e_type = ET_EXEC; })) ==
             "validation/executable: it is a program, not a shared library");
  BOOST_TEST(validate_bytes(with_header([](Elf64_Ehdr& h) { h.e_type = ET_REL; })) ==
             "validation/not_shared: it is an object file, not a shared library");
  BOOST_TEST(
      validate_bytes(with_header([](Elf64_Ehdr& h) { h.e_phnum = 0; })).starts_with("validation/not_shared"));
  BOOST_TEST(validate_bytes(with_segments([](Elf64_Phdr& p) {
               if (p.p_type == PT_DYNAMIC) p.p_type = PT_NULL;
             })) == "validation/not_shared: it has no loadable segment or no dynamic section");
  BOOST_TEST(validate_bytes(with_segments([](Elf64_Phdr& p) {
               if (p.p_type == PT_GNU_STACK) p.p_flags |= PF_X;
             })) == "validation/executable_stack: it requires an executable stack");
}

BOOST_AUTO_TEST_CASE(a_file_that_names_an_interpreter_is_a_program) {
  BOOST_TEST(validate_bytes(with_segments([](Elf64_Phdr& p) {
               if (p.p_type == PT_NOTE) p.p_type = PT_INTERP;
             })) == "validation/executable: it is a program, not a shared library");
}

BOOST_AUTO_TEST_CASE(dynamic_sections_with_forbidden_flags_are_rejected) {
  auto first_entry = [](Elf64_Sxword tag, Elf64_Xword value) {
    std::string b = good();
    with_segments([&](Elf64_Phdr& p) {
      if (p.p_type == PT_DYNAMIC) patch(b, p.p_offset, Elf64_Dyn{.d_tag = tag, .d_un = {value}});
    });
    return validate_bytes(b);
  };
  const char* const writable =
      "validation/text_relocations: it has text relocations, which make its code writable";
  BOOST_TEST(first_entry(DT_TEXTREL, 0) == writable);
  BOOST_TEST(first_entry(DT_FLAGS, DF_TEXTREL) == writable);
  BOOST_TEST(first_entry(DT_FLAGS_1, DF_1_PIE) ==
             "validation/executable: it is a program, not a shared library");
  BOOST_TEST(first_entry(DT_FLAGS_1, DF_1_NOW) == "ok sample");
}

BOOST_AUTO_TEST_CASE(every_proper_prefix_of_a_plugin_is_rejected) {
  Directory d;
  fs::path p = d.write("x.so", good());
  for (std::size_t n = good().size() - 1; n > 0; n -= std::min<std::size_t>(n, 97)) {
    fs::resize_file(p, n);
    std::string v = validate_file(p);
    BOOST_TEST_REQUIRE(v.starts_with("validation/"), n << " bytes: " << v);
  }
}

BOOST_AUTO_TEST_CASE(tables_outside_the_file_are_rejected) {
  BOOST_TEST(validate_bytes(with_header([](Elf64_Ehdr& h) { h.e_phoff = UINT64_MAX - 8; })) ==
             "validation/truncated: it is truncated: its program headers are outside the file");
  BOOST_TEST(validate_bytes(with_header([](Elf64_Ehdr& h) { h.e_shoff = UINT64_MAX - 8; })) ==
             "validation/truncated: it is truncated: its section table is outside the file");
  BOOST_TEST(validate_bytes(with_header([](Elf64_Ehdr& h) { h.e_shnum = 65000; })) ==
             "validation/truncated: it is truncated: its section table is outside the file");
  BOOST_TEST(validate_bytes(with_header([](Elf64_Ehdr& h) { h.e_shstrndx = 65000; })) ==
             "validation/truncated: its section names are missing");
  BOOST_TEST(validate_bytes(with_segments([](Elf64_Phdr& p) {
               if (p.p_type == PT_LOAD) p.p_offset = UINT64_MAX - 100;
             })).starts_with("validation/truncated: it is truncated: segment 0 is outside the "));
  BOOST_TEST(validate_bytes(with_segments([](Elf64_Phdr& p) {
               if (p.p_type == PT_LOAD) p.p_memsz = 0;
             })) == "validation/truncated: segment 0 is larger in the file than in memory");
}

BOOST_AUTO_TEST_CASE(missing_manifests_are_rejected) {
  auto change = [](auto f) {
    return validate_bytes(with_sections([&](Elf64_Shdr& s, const std::string& name) {
      if (name == ".trainhost") f(s);
    }));
  };
  BOOST_TEST(validate_file(plugin_file("manifest_absent")) ==
             "manifest/absent: it is not a trainhost plugin: it has no manifest");
  BOOST_TEST(validate_file(plugin_file("manifest_empty")) == "manifest/empty: its manifest is empty");
  BOOST_TEST(validate_file(plugin_file("manifest_big")) ==
             "manifest/too_big: its manifest has 100000 bytes; at most 65536 are allowed");
  BOOST_TEST(validate_file(plugin_file("manifest_not_toml"))
                 .starts_with("manifest/not_toml: line 1 of its manifest is not TOML: "));
  BOOST_TEST(change([](Elf64_Shdr& s) { s.sh_size = 0; }) == "manifest/empty: its manifest is empty");
  BOOST_TEST(change([](Elf64_Shdr& s) { s.sh_type = SHT_NOBITS; }) ==
             "manifest/empty: its manifest is empty");
  BOOST_TEST(change([](Elf64_Shdr& s) { s.sh_offset = 1ull << 60; }) ==
             "manifest/outside: its manifest is outside the file");
  BOOST_TEST(change([](Elf64_Shdr& s) { s.sh_name = 0x7fffffff; }).starts_with("manifest/absent"));
  std::uint32_t name_offset = 0;
  with_sections([&](Elf64_Shdr& s, const std::string& n) {
    name_offset = n == ".trainhost" ? s.sh_name : name_offset;
  });
  BOOST_TEST(validate_bytes(with_sections([&](Elf64_Shdr& s, const std::string& n) {
               if (n == ".comment") s.sh_name = name_offset;
             })) == "manifest/twice: it has two .trainhost sections");
  BOOST_TEST(
      validate_bytes(with_header([](Elf64_Ehdr& h) { h.e_shoff = 0; })).starts_with("manifest/absent"));
}

BOOST_AUTO_TEST_CASE(flipped_bytes_never_crash_the_validation) {
  std::mt19937 random(7);
  Directory d;
  fs::path p = d / "x.so";
  auto h = at<Elf64_Ehdr>(good(), 0);
  for (int i = 0; i < 3000; ++i) {
    std::string b = good();
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
      bool tables = random() % 2;  // half of the flips hit the headers and the section table
      std::size_t n = h.e_shnum * sizeof(Elf64_Shdr);
      std::size_t where = tables ? h.e_shoff + random() % n : random() % 1024;
      b[where % b.size()] = static_cast<char>(random());
    }
    d.write("x.so", b);
    BOOST_TEST_REQUIRE(validate_file(p) != "");
  }
}

BOOST_AUTO_TEST_CASE(only_regular_files_are_accepted) {
  Directory d;
  ::mkfifo((d / "fifo.so").c_str(), 0644);
  fs::create_directory(d / "directory.so");
  fs::create_symlink("/dev/null", d / "device.so");
  fs::create_symlink(d / "nowhere", d / "dangling.so");
  fs::create_symlink(d / "loop.so", d / "loop.so");
  int s = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (d / "socket.so").c_str(), sizeof address.sun_path - 1);
  BOOST_REQUIRE_EQUAL(::bind(s, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(s);
  BOOST_TEST(validate_file(d / "fifo.so") == "validation/not_regular: it is a FIFO, not a regular file");
  BOOST_TEST(validate_file(d / "directory.so") ==
             "validation/not_regular: it is a directory, not a regular file");
  BOOST_TEST(validate_file(d / "device.so") == "validation/not_regular: it is a device, not a regular file");
  BOOST_TEST(validate_file(d / "socket.so") == "validation/not_regular: it is a socket, not a regular file");
  BOOST_TEST(validate_file(d / "dangling.so") ==
             "validation/not_found: it cannot be opened: No such file or directory");
  BOOST_TEST(validate_file(d / "loop.so") ==
             "validation/not_found: it cannot be opened: Too many levels of symbolic links");
  Host host(d);
  BOOST_TEST(host->candidates().size() == 6u);  // each of them is listed
  for (const auto& c : host->candidates()) BOOST_TEST((c.status == tp::Status::kRejected));
}

BOOST_AUTO_TEST_CASE(world_writable_files_are_rejected) {
  Directory d;
  fs::path p = d.copy("good");
  ::chmod(p.c_str(), 0666);
  BOOST_TEST(validate_file(p) == "validation/world_writable: any user can write to it");
  ::chmod(p.c_str(), 0644);
  BOOST_TEST(validate_file(p) == "ok sample");
  ::chmod(d.path().c_str(), 0777);
  BOOST_TEST(validate_file(p) ==
             "validation/world_writable_directory: any user can write to its directory " + d.path().string());
  ::chmod(d.path().c_str(), 01777);
  BOOST_TEST(validate_file(p) == "ok sample");
}

BOOST_AUTO_TEST_CASE(unreadable_files_are_rejected) {
  Directory d;
  fs::path p = d.copy("good");
  ::chmod(p.c_str(), 0000);
  bool root = ::geteuid() == 0;
  // File permissions do not apply to root, so the check runs with the user id of `nobody`.
  if (root) BOOST_REQUIRE_EQUAL(::seteuid(65534), 0);
  std::string v = validate_file(p);
  if (root) BOOST_REQUIRE_EQUAL(::seteuid(0), 0);
  BOOST_TEST(v == "validation/unreadable: it cannot be read: Permission denied");
}

BOOST_AUTO_TEST_SUITE_END()
