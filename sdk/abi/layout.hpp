// The plugin interface as a table: every struct with its fields' offsets, every slot's signature, every
// constant. Read from the text of the headers, by the rules that they keep (status.h R2: fixed widths,
// nothing nested), or from a golden file (v1.0.txt). Compiles nothing: that compilers agree is proved by
// c_asserts(). Next: layout.cpp, compare.cpp.
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

struct Layout {
  std::uint32_t major = 0, minor = 0;
  std::map<std::string, std::string> types;  // th_status -> int32_t
  std::map<std::string, std::string>
      constants;  // TH_DT_F32 -> 1; TH_ESTIMATOR_ID -> "trainhost.estimator/1" with its quotes
  std::map<std::string, std::string> functions;  // exported: TH_ENTRY -> "const th_plugin *(void)"
  std::vector<Struct> structs;                   // by name
  const Struct* find(const std::string& name) const;
};

/// From the headers' texts, by file name. Throws std::runtime_error naming what it cannot read.
Layout from_headers(const std::map<std::string, std::string>& texts);
/// The texts of all *.h in a directory.
std::map<std::string, std::string> headers_in(const std::string& directory);

/// The golden text, one fact a line, and back. Throws std::runtime_error with the line that is none.
std::string to_text(const Layout& l);
Layout from_text(const std::string& text);

/// A C11 and C++17 source that compiles only where a compiler lays everything out as `l` says.
std::string c_asserts(const Layout& l);

/// What a plugin that was built with `older` would trip over in `newer`, one sentence each: all of `older`
/// must stand there unchanged, fields may be appended to structs, and constants and structs may be added.
/// Empty: compatible.
std::vector<std::string> breaks(const Layout& older, const Layout& newer);

}  // namespace trainhost::abi
