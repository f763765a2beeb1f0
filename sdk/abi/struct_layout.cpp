// See struct_layout.hpp: reads headers into a StructLayout, in three steps: comments, preprocessor lines, declarations.
// Not a C parser: it relies on the rules of status.h (fixed widths, no nested structs) and computes offsets
// itself. A struct field that breaks them is an error. That compilers agree is proven by the source of
// c_asserts() in golden.cpp.
#include "sdk/abi/struct_layout.hpp"

#include <algorithm>
#include <cassert>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace trainhost::abi {
namespace {

// Words, string literals with their quotes, and single punctuation characters.
using Tokens = std::vector<std::string>;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("plugin interface: " + what); }

bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_identifier(const std::string& t) {
  return is_word_char(t[0]) && !std::isdigit(static_cast<unsigned char>(t[0]));
}

// The headers are C11 and have no // comments. A space takes the place of a comment, so that words stay
// apart.
std::string remove_comments(const std::string& s) {
  std::string out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s.compare(i, 2, "/*") != 0) {
      out += s[i];
      continue;
    }
    const std::size_t end = s.find("*/", i + 2);
    if (end == std::string::npos) fail("a comment is not closed");
    out += ' ';
    i = end + 1;
  }
  return out;
}

Tokens tokenize(const std::string& s) {
  Tokens out;
  for (std::size_t i = 0; i < s.size();) {
    const char c = s[i];
    std::size_t n = 1;
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
      continue;
    }
    // A number is a word too: it needs no form of its own.
    if (is_word_char(c))
      n = std::find_if_not(s.begin() + static_cast<std::ptrdiff_t>(i), s.end(), is_word_char) - s.begin() - i;
    if (c == '"') n = s.find('"', i + 1) - i + 1;
    out.push_back(s.substr(i, n));
    i += n;
  }
  return out;
}

/// Type of a parameter without its name: "const th_model *" for {"const", "th_model", "*", "m"}.
std::string type_of(Tokens t) {
  const auto base =
      std::find_if(t.begin(), t.end(), [](const std::string& w) { return w != "const" && w != "struct"; });
  if (base == t.end()) fail("a parameter has no type");
  // The last word is the name of the parameter, unless it is the only word after const: then it is the type.
  if (t.size() > 1 && base + 1 != t.end() && is_identifier(t.back()) && t.back() != "const") t.pop_back();
  std::string out;
  for (const std::string& w : t) out += (out.empty() || out.back() == '*' ? "" : " ") + w;
  return out;
}

std::string parameters(const Tokens& t) {
  std::string out;
  Tokens one;
  for (std::size_t i = 0; i <= t.size(); ++i)
    if (i == t.size() || t[i] == ",") {
      out += (out.empty() ? "" : ", ") + type_of(one);
      one.clear();
    } else {
      one.push_back(t[i]);
    }
  return "(" + out + ")";
}

class Reader {
 public:
  StructLayout layout;

  /// Reads "#define NAME VALUE" lines; returns the text without preprocessor lines. Include guards and macros
  /// with arguments are not constants.
  std::string read_defines(const std::string& text) {
    std::istringstream in(text);
    std::string code;
    for (std::string line; std::getline(in, line);) {
      // A macro that continues on the next line.
      while (!line.empty() && line.back() == '\\') {
        std::string more;
        std::getline(in, more);
        line = line.substr(0, line.size() - 1) + more;
      }
      // Conditional lines are dropped and the code between them is kept: the headers declare the same for C
      // and C++.
      if (line.empty() ||
          line[line.find_first_not_of(' ') == std::string::npos ? 0 : line.find_first_not_of(' ')] != '#') {
        code += line + '\n';
        continue;
      }
      read_define(line);
    }
    return code;
  }

  void read_declarations(const Tokens& t) {
    for (std::size_t i = 0; i < t.size(); ++i) {
      if (t[i] == "struct" && i + 2 < t.size() && t[i + 2] == "{") i = read_struct(t, i);
      if (t[i] == "typedef" && t[i + 1] != "struct") layout.types[t[i + 2]] = t[i + 1], i += 3;
      if (t[i] == "TH_EXPORT") i = read_function(t, i);
    }
  }

 private:
  void read_define(const std::string& line) {
    std::istringstream in(line);
    std::string hash, name, value;
    in >> hash >> name;
    std::getline(in >> std::ws, value);
    while (!value.empty() && value.back() == ' ') value.pop_back();
    // Include guards have no value, macros with arguments have a parenthesis in their name.
    if (hash != "#define" || value.empty() || name.rfind("TH_", 0) != 0 ||
        name.find('(') != std::string::npos)
      return;
    // Negative values are in parentheses; the suffix u is no part of the value.
    if (value[0] == '(') value = value.substr(1, value.size() - 2);
    const bool number = std::isdigit(static_cast<unsigned char>(value[0])) || value[0] == '-';
    if (number && value.back() == 'u') value.pop_back();
    if (name == "TH_ABI_MAJOR")
      layout.major = static_cast<std::uint32_t>(std::stoul(value));
    else if (name == "TH_ABI_MINOR")
      layout.minor = static_cast<std::uint32_t>(std::stoul(value));
    else if (number || value[0] == '"' || name == "TH_ENTRY")
      layout.constants[name] = value;
  }

  std::uint32_t width(const std::string& type) const {
    static const std::map<std::string, std::uint32_t> kWidths = {
        {"char", 1},  {"uint16_t", 2}, {"uint32_t", 4}, {"int32_t", 4},
        {"float", 4}, {"uint64_t", 8}, {"int64_t", 8},  {"double", 8}};
    // Plugins are 64-bit shared libraries (LP64): pointers have 8 bytes, and a scalar is aligned to its size.
    if (type.back() == '*') return 8;
    if (auto t = layout.types.find(type); t != layout.types.end()) return width(t->second);
    auto w = kWidths.find(type);
    if (w == kWidths.end())
      fail("a field has type " + type + ", which structs may not contain (status.h, R2)");
    return w->second;
  }

  static std::uint32_t align_up(std::uint32_t n, std::uint32_t align) {
    return (n + align - 1) / align * align;
  }

  void append_field(Struct& s, std::string name, std::string type, std::uint32_t each, std::uint32_t count) {
    // Offsets as a compiler assigns them: the next multiple of the alignment of the element.
    assert(each && (each & (each - 1)) == 0);  // width() returns powers of two
    const std::uint32_t end = s.fields.empty() ? 0 : s.fields.back().offset + s.fields.back().size;
    s.fields.push_back({align_up(end, each), each * count, std::move(name), std::move(type)});
    s.size = std::max(s.size, each);  // holds the largest alignment until the struct is complete
  }

  std::size_t read_struct(const Tokens& t, std::size_t at) {
    Struct s;
    s.name = t[at + 1];
    std::size_t i = at + 3;
    while (i < t.size() && t[i] != "}") {
      // A field ends at its semicolon; fields are no structs, so there is none inside of one.
      const auto end = std::find(t.begin() + static_cast<std::ptrdiff_t>(i), t.end(), ";");
      read_field(s, Tokens(t.begin() + static_cast<std::ptrdiff_t>(i), end));
      i = static_cast<std::size_t>(end - t.begin()) + 1;
    }
    if (s.fields.empty() || s.fields[0].name != "struct_size")
      fail(s.name + " does not begin with struct_size");
    // Padding at the end: s.size was the largest alignment until here.
    s.size = align_up(s.fields.back().offset + s.fields.back().size, s.size);
    layout.structs.push_back(s);
    return i;
  }

  void read_field(Struct& s, const Tokens& t) {
    // TYPE (*NAME)(PARAMETERS): tokens open[1] and open[2] are * and NAME, open[4] begins the parameters.
    if (auto open = std::find(t.begin(), t.end(), "("); open != t.end()) {
      if (t.end() - open < 6 || open[1] != "*" || t.back() != ")")
        fail("a field of " + s.name + " is not a function pointer");
      append_field(s, open[2],
                   type_of(Tokens(t.begin(), open)) + " (*)" + parameters(Tokens(open + 5, t.end() - 1)), 8,
                   1);
      return;
    }
    auto name =
        std::find_if(t.begin(), t.end(), [](const std::string& w) { return w != "const" && w != "struct"; });
    // TYPE NAME, NAME[COUNT], *NAME: several fields may share a type. COUNT is a number or a constant of the
    // headers.
    std::string base;
    for (auto i = t.begin(); i <= name; ++i) base += (base.empty() ? "" : " ") + *i;
    for (auto i = name + 1; i < t.end(); ++i) {
      std::string type = base;
      for (; *i == "*"; ++i) type += type.back() == '*' ? "*" : " *";
      const std::string field_name = *i;
      std::uint32_t count = 1;
      const std::uint32_t each = width(type);
      if (++i < t.end() && *i == "[") {
        auto known = layout.constants.find(i[1]);
        count =
            static_cast<std::uint32_t>(std::stoul(known == layout.constants.end() ? i[1] : known->second));
        type += "[" + std::to_string(count) + "]";
        i += 3;
      }
      if (i < t.end() && *i != ",") fail("cannot read the field " + s.name + "." + field_name);
      append_field(s, field_name, type, each, count);
    }
  }

  std::size_t read_function(const Tokens& t, std::size_t at) {
    // TH_EXPORT TYPE NAME(PARAMETERS): the token before the parenthesis is the name.
    const auto open = std::find(t.begin() + static_cast<std::ptrdiff_t>(at), t.end(), "("),
               close = std::find(open, t.end(), ")");
    layout.functions[open[-1]] = type_of(Tokens(t.begin() + static_cast<std::ptrdiff_t>(at) + 1, open - 1)) +
                                 parameters(Tokens(open + 1, close));
    return static_cast<std::size_t>(close - t.begin());
  }
};

}  // namespace

const Struct* StructLayout::find(const std::string& name) const {
  for (const Struct& s : structs)
    if (s.name == name) return &s;
  return nullptr;
}

std::map<std::string, std::string> headers_in(const std::string& directory) {
  std::map<std::string, std::string> out;
  for (const auto& e : std::filesystem::directory_iterator(directory)) {
    if (e.path().extension() != ".h") continue;
    std::ostringstream text;
    text << std::ifstream(e.path()).rdbuf();
    out[e.path().filename().string()] = text.str();
  }
  if (out.empty()) fail("no headers in " + directory);
  return out;
}

StructLayout from_headers(const std::map<std::string, std::string>& texts) {
  Reader r;
  std::vector<Tokens> all;
  // In the order of file names, whatever includes what: constants of all headers are known before the first
  // struct.
  for (const auto& [file, text] : texts) all.push_back(tokenize(r.read_defines(remove_comments(text))));
  for (const Tokens& t : all)  // types first, because a header may use types of another
    for (std::size_t i = 0; i + 2 < t.size(); ++i)
      if (t[i] == "typedef" && t[i + 1] != "struct") r.layout.types[t[i + 2]] = t[i + 1];
  for (const Tokens& t : all) r.read_declarations(t);
  // The order of declarations is not part of the interface.
  std::sort(r.layout.structs.begin(), r.layout.structs.end(),
            [](const Struct& a, const Struct& b) { return a.name < b.name; });
  return r.layout;
}

}  // namespace trainhost::abi
