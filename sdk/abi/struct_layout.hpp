// The plugin interface as a table: structs with offsets of their fields, signatures of functions, constants.
// It is read from the text of the headers, which follow status.h R2 (fixed widths, no nested structs), or
// from a golden file (v1.0.txt). Nothing is compiled here: the source that c_asserts() returns proves that
// compilers agree. Next: struct_layout.cpp, compare.cpp.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trainhost::abi {

struct Field {
  std::uint32_t offset = 0, size = 0;  // bytes
  std::string name, type;  // "match", "int32_t (*)(const th_model *, const th_run *)"; "uint64_t[8]"
  bool operator==(const Field&) const = default;
};

struct Struct {
  std::string name;
  std::uint32_t size = 0;  // bytes, padding included
  std::vector<Field> fields;
};

struct StructLayout {
  std::uint32_t major = 0, minor = 0;
  std::map<std::string, std::string> types;  // th_status -> int32_t
  std::map<std::string, std::string>
      constants;  // TH_DT_F32 -> 1; TH_ESTIMATOR_ID -> "trainhost.estimator/1" with its quotes
  std::map<std::string, std::string> functions;  // exported: TH_ENTRY -> "const th_plugin *(void)"
  std::vector<Struct> structs;                   // by name
  const Struct* find(const std::string& name) const;
};

/// StructLayout of header texts (by file name). Throws std::runtime_error that names the unreadable
/// declaration.
StructLayout from_headers(const std::map<std::string, std::string>& texts);
/// Texts of all *.h files of a directory, by file name.
std::map<std::string, std::string> headers_in(const std::string& directory);

/// Golden file, one fact per line. from_text() throws std::runtime_error with the invalid line.
std::string to_text(const StructLayout& l);
StructLayout from_text(const std::string& text);

/// C11 and C++17 source that compiles only if the compiler agrees with every fact of `l`.
std::string c_asserts(const StructLayout& l);

/// Incompatibilities of `newer` for a plugin that was built with `older`, one sentence each; empty if there
/// are none. Everything in `older` must exist unchanged; fields may be appended, constants and structs added.
std::vector<std::string> incompatibilities(const StructLayout& older, const StructLayout& newer);

}  // namespace trainhost::abi
