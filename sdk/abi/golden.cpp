// See struct_layout.hpp: converts a StructLayout to a golden file and back, and to C source with static assertions. A
// golden file has one fact per line, sorted by name within a kind, so that a change of the interface is a
// change of lines. Which changes are allowed: compare.cpp.
#include <sstream>
#include <stdexcept>

#include "sdk/abi/struct_layout.hpp"

namespace trainhost::abi {
namespace {

/// C source that compiles only if field f has its written type: it initializes a variable of that type with
/// f.
std::string type_assertion(const Struct& s, const Field& f, int n) {
  const std::string var = "v" + std::to_string(n);
  // In C the name of a declarator is inside of its type: void (*v1)(int), uint64_t (*v2)[8], int32_t *v3.
  const std::size_t star = f.type.find("(*)"), bracket = f.type.find('[');
  if (star != std::string::npos)
    return "  " + f.type.substr(0, star + 2) + var + f.type.substr(star + 2) + " = ((const " + s.name +
           " *)0)->" + f.name + ";\n";
  if (bracket != std::string::npos)
    return "  const " + f.type.substr(0, bracket) + " (*" + var + ")" + f.type.substr(bracket) +
           " = &((const " + s.name + " *)0)->" + f.name + ";\n";
  return "  " + f.type + " const *" + var + " = &((const " + s.name + " *)0)->" + f.name + ";\n";
}

}  // namespace

std::string to_text(const StructLayout& l) {
  std::ostringstream out;
  out << "# The plugin interface as built plugins know it: offsets and sizes in bytes. Written by "
         "trainhost_abi, "
         "never by\n"
         "# hand; a released file never changes (README.md beside it).\n"
      << "abi " << l.major << '.' << l.minor << '\n';
  for (const auto& [name, type] : l.types) out << "type " << name << ' ' << type << '\n';
  for (const auto& [name, value] : l.constants) out << "constant " << name << ' ' << value << '\n';
  for (const auto& [name, type] : l.functions) out << "function " << name << ' ' << type << '\n';
  // Fields follow their struct in the order of offsets; from_text() relies on it.
  for (const Struct& s : l.structs) {
    out << "struct " << s.name << ' ' << s.size << '\n';
    for (const Field& f : s.fields)
      out << "field " << s.name << ' ' << f.offset << ' ' << f.size << ' ' << f.name << ' ' << f.type << '\n';
  }
  return out.str();
}

StructLayout from_text(const std::string& text) {
  StructLayout l;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    // The first word says what a line states; an unknown word is read as a field and fails.
    if (line.empty() || line[0] == '#') continue;
    std::istringstream columns(line);
    std::string kind, name, rest;
    char dot = 0;
    columns >> kind;
    bool ok = true;
    if (kind == "abi") {
      ok = bool(columns >> l.major >> dot >> l.minor) && dot == '.';
    } else if (kind == "type" || kind == "constant" || kind == "function") {
      ok = bool(columns >> name) && bool(std::getline(columns >> std::ws, rest));
      (kind == "type" ? l.types : kind == "constant" ? l.constants : l.functions)[name] = rest;
    } else if (kind == "struct") {
      Struct s;
      ok = bool(columns >> s.name >> s.size);
      l.structs.push_back(s);
    } else {
      Field f;
      ok = kind == "field" && bool(columns >> name >> f.offset >> f.size >> f.name) &&
           bool(std::getline(columns >> std::ws, f.type)) && !l.structs.empty() &&
           l.structs.back().name == name;
      if (ok) l.structs.back().fields.push_back(f);
    }
    if (!ok) throw std::runtime_error("invalid line in a golden file: " + line);
  }
  return l;
}

std::string c_asserts(const StructLayout& l) {
  std::ostringstream out;
  out << "#include <trainhost/trainhost.h>\n"
         "#ifdef __cplusplus\n#define SAME(a, b) static_assert((a) == (b), #a)\n"
         "#else\n#define SAME(a, b) _Static_assert((a) == (b), #a)\n#endif\n";
  for (const auto& [name, value] : l.constants)
    // A constant expression cannot compare the characters of two strings, so only their lengths are compared.
    if (value[0] == '"') out << "SAME(sizeof(" << name << "), sizeof(" << value << "));\n";
    // TH_ENTRY is the name of a function, not a value.
    else if (name != "TH_ENTRY")
      out << "SAME((long long)" << name << ", " << value << ");\n";
  int n = 0;
  std::ostringstream types;
  for (const Struct& s : l.structs) {
    out << "SAME(sizeof(" << s.name << "), " << s.size << ");\n";
    for (const Field& f : s.fields) {
      out << "SAME(offsetof(" << s.name << ", " << f.name << "), " << f.offset << ");\n"
          << "SAME(sizeof(((" << s.name << " *)0)->" << f.name << "), " << f.size << ");\n";
      ++n;
      types << type_assertion(s, f, n) << "  (void)v" << n << ";\n";
    }
  }
  // Types are compared by initializations, which are allowed in a function only. It is compiled and never
  // called.
  out << "void th_never_called(void);\nvoid th_never_called(void) {\n" << types.str() << "}\n";
  return out.str();
}

}  // namespace trainhost::abi
