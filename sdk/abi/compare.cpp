// The rule for minor versions: everything that existed keeps its offset, type and value; additions come after
// it. Compares two tables only; struct_layout.cpp reads them from headers, golden.cpp from files. See struct_layout.hpp.
#include "sdk/abi/struct_layout.hpp"

namespace trainhost::abi {
namespace {

std::string describe(const Struct& s, const Field& f) {
  return s.name + "." + f.name + ", " + f.type + " at " + std::to_string(f.offset);
}

void compare(const std::map<std::string, std::string>& older, const std::map<std::string, std::string>& newer,
             const std::string& what, std::vector<std::string>& out) {
  for (const auto& [name, value] : older) {
    auto now = newer.find(name);
    if (now == newer.end())
      out.push_back("the " + what + " " + name + " is missing");
    else if (now->second != value)
      out.push_back("the " + what + " " + name + " was " + value + " and is " + now->second);
  }
}

void compare(const Struct& older, const Struct& newer, std::vector<std::string>& out) {
  for (std::size_t i = 0; i < older.fields.size(); ++i) {
    if (i >= newer.fields.size()) {
      out.push_back(describe(older, older.fields[i]) + " is missing");
    } else if (!(older.fields[i] == newer.fields[i])) {
      out.push_back(describe(older, older.fields[i]) + " is now " + describe(newer, newer.fields[i]));
      return;  // all later fields have moved as well: report only the first
    }
  }
  if (newer.fields.size() > older.fields.size() && newer.fields[older.fields.size()].offset < older.size)
    out.push_back(newer.name + "." + newer.fields[older.fields.size()].name +
                  " is in the padding at the end of the older struct");
}

}  // namespace

std::vector<std::string> incompatibilities(const StructLayout& older, const StructLayout& newer) {
  std::vector<std::string> out;
  if (older.major != newer.major)
    out.push_back("the major was " + std::to_string(older.major) + " and is " + std::to_string(newer.major));
  if (newer.minor < older.minor)
    out.push_back("the minor decreased from " + std::to_string(older.minor) + " to " +
                  std::to_string(newer.minor));
  compare(older.types, newer.types, "type", out);
  compare(older.constants, newer.constants, "constant", out);
  compare(older.functions, newer.functions, "function", out);
  for (const Struct& s : older.structs) {
    const Struct* now = newer.find(s.name);
    if (now)
      compare(s, *now, out);
    else
      out.push_back("the struct " + s.name + " is missing");
  }
  if (out.empty() && newer.minor == older.minor && to_text(older) != to_text(newer))
    out.push_back("something was added without a new minor version");
  return out;
}

}  // namespace trainhost::abi
